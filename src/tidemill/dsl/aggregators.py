"""Ready-made aggregators: what most programs aggregate, for plain, windowed and session groups and grouped tables.

Each is unpacked into the arguments of ``aggregate``: ``group.aggregate(*Aggregators.sum(Serdes.long()))``. Decides the
aggregates' values and serdes. The operators drop null values before an aggregator; a null that ``of`` takes from a
value is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal

from tidemill.dsl.arguments import serde_or_none
from tidemill.dsl.function_types import AggregatorFunction, Initializer, Merger
from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.topology.functions import PerRecord
from tidemill.topology.values import Serde, Value

Of = Callable[[Value], Value]
"""The part of a value that goes in: ``lambda order: order["amount"]``."""


class Aggregator(tuple[Initializer, PerRecord]):
    """The pair of initializer and aggregator, to be unpacked; ``merger`` is for sessions, ``subtractor`` for grouped tables.

    With ``total = Aggregators.sum(...)``: ``group.windowed_by(sessions).aggregate(*total, total.merger)`` and
    ``grouped_table.aggregate(*total, total.subtractor)``. It is a tuple, so that a type checker knows how many these are.
    """

    merger: Merger
    _subtractor: AggregatorFunction | None

    def __new__(
        cls, initializer: Initializer, aggregator: PerRecord, merger: Merger, subtractor: AggregatorFunction | None = None
    ) -> Aggregator:
        made = super().__new__(cls, (initializer, aggregator))
        made.merger, made._subtractor = merger, subtractor
        return made

    def __getnewargs__(self) -> tuple[Initializer, PerRecord, Merger, AggregatorFunction | None]:
        """What ``__new__`` takes: a function that is sent to a worker may refer to an aggregator."""
        return *self, self.merger, self._subtractor

    @property
    def initializer(self) -> Initializer:
        """Makes the aggregate that the first value is added to."""
        return self[0]

    @property
    def aggregator(self) -> PerRecord:
        """Adds a value."""
        return self[1]

    @property
    def subtractor(self) -> AggregatorFunction:
        """Takes a value out again.

        Raises:
            TopologyError: it can't be taken out (the greatest value that is gone leaves no trace of the next).
        """
        if self._subtractor is None:
            raise TopologyError("this aggregator can't take values out again, which grouped tables need: use sum, count or mean")
        return self._subtractor


class Aggregators:
    """The aggregators that there are, for ``aggregate`` of all groups. ``of`` says what of a value goes in; without it, the value
    itself.

    Each gives an ``Aggregator``, to be unpacked: ``group.aggregate(*Aggregators.mean(lambda order: order["amount"]))``. Nulls
    that ``of`` gives are skipped; where ``min`` and ``max`` are to aggregate sliding windows, filter them out above the group.

    Raises:
        TopologyError: for a limit or a precision outside its bounds, for what is no serde, that of no number for a sum, or no
            function of a value.
    """

    @staticmethod
    def count(of: Of | None = None) -> Aggregator:
        """The number of values; with ``of``, the number of those that are not null. A long (bigint), from 0."""
        return _made(
            Serdes.long(), 0, lambda total, _: total + 1, lambda first, second: first + second, of, lambda total, _: total - 1
        )

    @staticmethod
    def sum(serde: Serde, of: Of | None = None) -> Aggregator:
        """The sum, from 0; ``serde`` is that of a number: long, integer, short, double or float."""
        kind = _serde_of(serde, "sum").sql_type
        if serde in _NO_NUMBERS or kind.startswith("struct"):
            said = f"sum: the values of the serde {serde.name} are no numbers"
            raise TopologyError(f"{said}; give that of some, such as Serdes.double()")
        zero = 0.0 if kind in ("double", "float") else 0
        return _made(serde, zero, _plus, _plus, of, lambda total, value: total - value)

    @staticmethod
    def min(serde: Serde, of: Of | None = None) -> Aggregator:
        """The least value, null before the first; ``serde`` is that of the values. NaN is the greatest number, as in Spark."""
        return _made(_serde_of(serde, "min"), None, _least, _least, of)

    @staticmethod
    def max(serde: Serde, of: Of | None = None) -> Aggregator:
        """The greatest value, null before the first; ``serde`` is that of the values. NaN is the greatest number, as in Spark."""
        return _made(_serde_of(serde, "max"), None, _greatest, _greatest, of)

    @staticmethod
    def mean(of: Of | None = None) -> Aggregator:
        """A struct of ``count`` (bigint), ``sum`` and ``mean`` (double, null where count is 0), of numbers or Decimals."""
        return _made(
            Serdes.json("count bigint, sum double, mean double"),
            {"count": 0, "sum": 0.0, "mean": None},
            lambda so_far, value: _mean(so_far["count"] + 1, so_far["sum"] + _number(value)),
            lambda first, second: _mean(first["count"] + second["count"], first["sum"] + second["sum"]),
            of,
            lambda so_far, value: _mean(so_far["count"] - 1, so_far["sum"] - _number(value)),
        )

    @staticmethod
    def collect(element: str, of: Of | None = None, *, limit: int = 1_000, distinct: bool = False) -> Aggregator:
        """A struct of ``values``, an array of ``element`` (a Spark type): the first ``limit`` values; ``distinct``: each once."""
        if not isinstance(element, str):
            raise TopologyError(f"collect: {element!r} is not a Spark type; write collect('double', lambda order: ...)")
        if limit < 1:
            raise TopologyError(f"collect: limit is {limit}, expected 1 or more")

        def added(so_far: _Collected, value: object) -> _Collected:
            values = so_far["values"]
            if len(values) >= limit or (distinct and value in values):
                return so_far
            return {"values": [*values, value]}

        def together(first: _Collected, second: _Collected) -> _Collected:
            for value in second["values"]:
                first = added(first, value)
            return first

        return _made(Serdes.json(f"values array<{element}>"), {"values": []}, added, together, of)

    @staticmethod
    def approx_count_distinct(of: Of | None = None, *, precision: int = 12) -> Aggregator:
        """A HyperLogLog sketch of ``2 ** precision`` registers; standard error about ``0.8 / 2 ** (precision / 2)``.

        The table holds the sketch (binary, as Apache DataSketches writes it): ``map_values(F.hll_sketch_estimate)`` makes the
        number of it, in the JVM (with Python 3.10, whose PySpark is 4.2, on Java 17 or 21 only). Values are texts, numbers or
        bytes. Needs ``pip install tidemill[sketches]``.
        """
        if not 4 <= precision <= 21:
            raise TopologyError(f"approx_count_distinct: precision is {precision}, expected 4 .. 21")

        def added(so_far: bytes, value: object) -> bytes:
            from datasketches import hll_sketch

            sketch = hll_sketch.deserialize(so_far) if so_far else hll_sketch(precision)
            sketch.update(value)
            return bytes(sketch.serialize_compact())

        def together(first: bytes, second: bytes) -> bytes:
            from datasketches import hll_sketch, hll_union

            union = hll_union(precision)
            for held in (first, second):
                if held:
                    union.update(hll_sketch.deserialize(held))
            return bytes(union.get_result().serialize_compact())

        return _made(Serdes.bytes(), b"", added, together, of)


def _serde_of(given: Serde, name: str) -> Serde:
    """TopologyError for what is no serde, most of all for the function, which ``count`` and ``mean`` take first."""
    if callable(given):
        raise TopologyError(
            f"{name}: a serde comes before the function: Aggregators.{name}(Serdes.double(), lambda order: order['amount'])"
        )
    found = serde_or_none(given, name)
    if found is None:
        raise TopologyError(f"{name}: no serde given; name the serde of the values, such as Serdes.double()")
    return found


_NO_NUMBERS = (Serdes.string(), Serdes.bytes(), Serdes.boolean(), Serdes.uuid(), Serdes.void())
_Collected = dict[str, list[object]]
_Step = Callable[[Value, Value], Value]


def _made(
    serde: Serde,
    start: object,
    added: _Step,
    together: _Step,
    of: Of | None,
    removed: _Step | None = None,
) -> Aggregator:
    if of is not None and not callable(of):
        raise TopologyError(f"Aggregators: expected a function of a value, such as lambda order: order['amount'], got {of!r}")

    def applied(change: _Step) -> AggregatorFunction:
        def aggregator(_key: object, value: Value, so_far: Value) -> Value:
            taken = value if of is None else of(value)
            return so_far if taken is None else change(so_far, taken)

        return aggregator

    return Aggregator(
        initializer=lambda: start,
        aggregator=PerRecord(applied(added), serde),
        merger=lambda _key, first, second: together(first, second),
        subtractor=None if removed is None else applied(removed),
    )


def _plus(first: Value, second: Value) -> Value:
    return first + second


def _least(first: Value, second: Value) -> Value:
    if first is None or second is None:
        return second if first is None else first
    return second if second < first or _is_nan(first) else first


def _greatest(first: Value, second: Value) -> Value:
    if first is None or second is None:
        return second if first is None else first
    return second if second > first or _is_nan(second) else first


def _is_nan(value: Value) -> bool:
    """NaN is the greatest number, as in Spark's min and max: with Python's comparisons the order of the values would decide."""
    return isinstance(value, float) and math.isnan(value)


def _number(value: Value) -> Value:
    return float(value) if isinstance(value, Decimal) else value


def _mean(count: int, total: float) -> dict[str, float | None]:
    return {"count": count, "sum": total, "mean": total / count if count else None}

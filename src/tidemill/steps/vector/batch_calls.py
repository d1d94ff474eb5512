"""Calls of the functions of a node that runs in batches: ``per_batch`` and ``per_record_async``, and their times.

Decides which records a function gets, and that each has its result whatever the batches are: a function of batches is called
again with halves of its batch until the record that it fails on is found. What becomes of results, and of failures, is
``in_batches``'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.steps.rows.records import Records, from_rows
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.async_calls import call_all
from tidemill.steps.vector.batch_columns import GivenRecords, ResultShapeError, given, side_array
from tidemill.steps.vector.record_calls import refuse
from tidemill.task.batch import FunctionCalls
from tidemill.topology.batch_operations import BatchFunction, PerBatch, PerRecordAsync


@dataclass(frozen=True, slots=True)
class FailedCall:
    """In place of a result."""

    problem: BaseException


@dataclass(frozen=True, slots=True)
class Call:
    """How an operation calls a function. ``read``: the results of a vectorised one, of these records; ``takes_nulls``: it gets
    records whose value is null, too, as any other function does."""

    read: Callable[[Any, GivenRecords], list[Any]]
    takes_key: bool = True
    takes_nulls: bool = False


@dataclass(slots=True)
class NodeBatch:
    """The rows of a node in a batch, as records too."""

    node: NodeSpec
    table: pa.Table
    state: StepState
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.records = from_rows(self.table, self.node.key_serde, self.node.value_serde)

    def refuse(self, at: int, problem: BaseException) -> None:
        """Passes over a record that the function fails on, if the handler says so; else raises."""
        refuse(self.node, TaskId(self.node.subtopology, self.records.parts[at]), self.records, at, problem, self.state)

    def results(self, function: BatchFunction, call: Call) -> Iterator[tuple[int, Any]]:
        """For each record that the function gets: its place, and its result, which may be ``FailedCall``."""
        if isinstance(function, PerBatch):
            places, found, calls = self._of_batch(function, call)
        else:
            places, found, calls = self._of_coroutines(function, takes_key=call.takes_key)
        self.state.functions[self.node.name] = calls
        return zip(places, found, strict=True)

    def _of_coroutines(
        self, function: PerRecordAsync, *, takes_key: bool
    ) -> tuple[Sequence[int], list[Any], FunctionCalls]:
        read_key, read_value = self.node.key_serde.deserialize, self.node.value_serde.deserialize
        sides = [[read_value(data) for data in self.records.values]]
        if takes_key:
            sides.insert(0, [read_key(data) for data in self.records.keys])
        arguments = list(zip(*sides, strict=True))
        found, calls = call_all(
            function.function, arguments, max_in_flight=function.max_in_flight, timeout_s=function.timeout_ms / 1000
        )
        return range(len(arguments)), [FailedCall(one) if isinstance(one, BaseException) else one for one in found], calls

    def _of_batch(self, function: PerBatch, call: Call) -> tuple[Sequence[int], list[Any], FunctionCalls]:
        node, records, table = self.node, self.records, self.table
        values = enumerate(records.values)
        places = [at for at, value in values if call.takes_nulls or value is not None]
        if len(places) < len(records):
            table = table.take(pa.array(places, pa.int64()))
        serdes = {"key": node.key_serde, "value": node.value_serde} if call.takes_key else {"value": node.value_serde}
        columns = [side_array(table, side, serde) for side, serde in serdes.items()]
        times_ms: list[float] = []

        def of(begin: int, end: int) -> list[Any]:
            own = [column.slice(begin, end - begin) for column in columns]
            arguments = [given(column, function.form) for column in own]
            began = time.perf_counter()
            try:
                result = function.function(*arguments)
            finally:
                times_ms.append((time.perf_counter() - began) * 1e3)
            return call.read(result, GivenRecords(end - begin, own))

        try:
            found = _halved(of, 0, len(places))
        except ResultShapeError as problem:
            raise StopError(f"the function of {node.name}: {problem}") from problem
        failures = sum(isinstance(one, FailedCall) for one in found)
        total_ms = sum(times_ms)
        calls = FunctionCalls(
            calls=len(times_ms), records=len(places), failures=failures, calls_ms=total_ms,
            longest_ms=max(times_ms, default=0.0), took_ms=total_ms,
        )  # fmt: skip
        return places, found, calls


def _halved(call: Callable[[int, int], list[Any]], begin: int, end: int) -> list[Any]:
    """The results from ``begin`` to ``end``; of a batch that the function fails on, those of its halves."""
    if begin == end:
        return []
    try:
        return call(begin, end)
    except ResultShapeError:
        raise
    except BaseException as problem:
        if end - begin == 1:
            return [FailedCall(problem)]
        middle = (begin + end) // 2
        return _halved(call, begin, middle) + _halved(call, middle, end)

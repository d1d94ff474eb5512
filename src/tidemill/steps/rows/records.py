"""Records between the nodes of a Python step: columns of equal length, keys and values as bytes.

Decides how rows become records and back; bytes are those of the edge's serde, so that a sink or a changelog takes them as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial

import pyarrow as pa

from tidemill.errors import ColumnsResultError, ConfigError, RetriableError, SerdeError, StopError
from tidemill.printable import said_by
from tidemill.steps.rows.codecs_wire import fixed_width, for_the_jvm, from_the_jvm, transit_of
from tidemill.steps.rows.headers import packed, unpacked
from tidemill.steps.rows.order import in_sequence
from tidemill.steps.rows.schema import SCHEMA
from tidemill.task.raw_records import Headers
from tidemill.topology.values import Serde

ANY_PARTITION = -1
"""The producer's partitioner decides."""


@dataclass(slots=True)
class Records:
    """Columns of some records of one node. ``offsets`` are those of the source records (None: summed), for messages;
    ``sequences`` say in which order they came.

    ``counts``: how many source records each one counts for; None = one each. ``partitions``: what their sink has chosen, -1
    where that is nothing; None = the producer's partitioner decides for all. ``places``: of records that a part sends or hands
    on, the place of each among all that it does; None = one after the other. ``olds``: the values before, of a table that says
    them.
    """

    parts: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int | None]
    sequences: list[int | None]
    headers: list[Headers | None] | None = None
    counts: list[int] | None = None
    partitions: list[int] | None = None
    places: list[int] | None = None
    olds: list[bytes | None] | None = None

    @classmethod
    def empty(
        cls, *, headers: bool = True, partitions: bool = False, places: bool = False, olds: bool = False
    ) -> Records:
        """To be filled; with which of the columns that may be missing."""
        return cls(
            [], [], [], [], [], [], [] if headers else None, partitions=[] if partitions else None,
            places=[] if places else None, olds=[] if olds else None,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.parts)

    def header(self, at: int) -> Headers | None:
        return None if self.headers is None else self.headers[at]

    def since(self, begin: int) -> Records:
        return self.only(range(begin, len(self)))

    def without(self, places: Collection[int]) -> Records:
        left_out = set(places)
        return self.only([at for at in range(len(self)) if at not in left_out])

    def only(self, places: Sequence[int]) -> Records:
        """The records at these places, in their order; a place may come several times."""
        columns = {
            name: None if (column := getattr(self, name)) is None else [column[at] for at in places]
            for name in (field.name for field in fields(self))
        }
        return Records(**columns)  # type: ignore[arg-type]  # columns that may be missing are


def from_rows(table: pa.Table, key_serde: Serde, value_serde: Serde | None) -> Records:
    """The rows of one node as records, in their order (rule 25); ``value_serde``: None leaves their values out."""
    table = in_sequence(table)
    counts = table.column("n")
    headers = table.column("headers")
    return Records(
        parts=table.column("part").to_pylist(),
        keys=side_bytes(table, "key", key_serde),
        values=[None] * table.num_rows if value_serde is None else side_bytes(table, "value", value_serde),
        timestamps=table.column("ts").to_pylist(),
        offsets=table.column("off").to_pylist(),
        sequences=table.column("seq").to_pylist(),
        headers=None if headers.null_count == table.num_rows else [unpacked(row) for row in headers.to_pylist()],
        counts=None if counts.null_count == table.num_rows else [n or 1 for n in counts.to_pylist()],
    )


def side_bytes(table: pa.Table, side: str, serde: Serde) -> list[bytes | None]:
    """The keys or values of rows as ``serde`` writes them.

    Raises:
        TransitError: it can't write one.
    """
    fixed, transit = fixed_width(serde.sql_type), transit_of(serde)
    if fixed is None:
        found: list[bytes | None] = table.column(side).to_pylist()
    else:
        found = [None if v is None else fixed.encode(v) for v in table.column(side + fixed.kind.value).to_pylist()]
    if transit is None:
        return found
    return _each(partial(from_the_jvm, serde), found, side, "written")


class TransitError(SerdeError):
    """A serde can't write what Spark gives to a Python step, or can't read what the step gives to functions of Columns.
    ``ends_thread``: it raised what is no Exception."""

    def __init__(self, message: str, *, ends_thread: bool) -> None:
        super().__init__(message)
        self.ends_thread = ends_thread


@contextmanager
def naming(node: str) -> Iterator[None]:
    """Names the node that such records are for, or come from.

    Raises:
        ColumnsResultError: the record is found by batches of fewer (``task.batch_size``).
        StopError: no record is asked about where the thread ends anyway.
    """
    try:
        yield
    except TransitError as problem:
        if problem.ends_thread:
            raise StopError(f"{node}: {problem}") from problem
        raise ColumnsResultError(node, str(problem)) from problem


def _each(
    convert: Callable[[bytes | None], bytes | None], data: Sequence[bytes | None], what: str, done: str
) -> list[bytes | None]:
    """Errors that have no record to blame pass: of registries, settings, disks, networks and memory."""
    try:
        return [convert(one) for one in data]
    except (RetriableError, ConfigError, OSError, MemoryError):
        raise
    except BaseException as problem:
        said = said_by(problem) if isinstance(problem, SerdeError) else f"{type(problem).__name__}: {said_by(problem)}"
        raise TransitError(f"the {what} can't be {done}: {said}", ends_thread=not isinstance(problem, Exception)) from problem


def to_rows(records: Records, tag: int, key_serde: Serde, value_serde: Serde, child: int = 0) -> pa.RecordBatch:
    """Records as rows for the next layer; ``child``: the number of the first, or of the one with the place 0.

    Raises:
        TransitError: a serde can't read what it has written.
    """
    count = len(records)
    columns: dict[str, pa.Array] = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["node"] = pa.array([tag] * count, pa.int32())
    columns["part"] = pa.array(records.parts, pa.int32())
    columns["off"] = pa.array(records.offsets, pa.int64())
    columns["seq"] = pa.array(records.sequences, pa.int64())
    places = range(count) if records.places is None else records.places
    columns["child"] = pa.array([child + place for place in places], pa.int64())
    columns["ts"] = pa.array(records.timestamps, pa.int64())
    if records.headers is not None:
        columns["headers"] = pa.array([packed(row) for row in records.headers], pa.binary())
    for side, data, serde in (("key", records.keys, key_serde), ("value", records.values, value_serde)):
        fixed, transit = fixed_width(serde.sql_type), transit_of(serde)
        if transit is not None:
            what = f"{side}, for functions of Columns,"
            data = _each(partial(for_the_jvm, serde), data, what, "read")  # noqa: PLW2901  # the same in other bytes
        if fixed is None:
            columns[side] = pa.array(data, pa.binary())
        else:
            name = side + fixed.kind.value
            columns[name] = pa.array([None if v is None else fixed.decode(v) for v in data], SCHEMA.field(name).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def in_order(several: Sequence[Records]) -> Records:
    """Records of several nodes as one, in the order in which their sources came; summed ones first. Those of one source have the
    order of their places."""
    if len(several) == 1:
        return several[0]
    has_headers = any(records.headers is not None for records in several)
    has_counts = any(records.counts is not None for records in several)
    is_placed = any(records.partitions is not None for records in several)
    has_olds = any(records.olds is not None for records in several)
    order = sorted(
        ((-1 if (s := records.sequences[at]) is None else s, 0 if records.places is None else records.places[at], which, at)
         for which, records in enumerate(several)
         for at in range(len(records)))
    )  # fmt: skip
    return Records(
        parts=[several[which].parts[at] for _, _, which, at in order],
        keys=[several[which].keys[at] for _, _, which, at in order],
        values=[several[which].values[at] for _, _, which, at in order],
        timestamps=[several[which].timestamps[at] for _, _, which, at in order],
        offsets=[several[which].offsets[at] for _, _, which, at in order],
        sequences=[several[which].sequences[at] for _, _, which, at in order],
        headers=[several[which].header(at) for _, _, which, at in order] if has_headers else None,
        counts=[counts[at] if (counts := several[which].counts) else 1 for _, _, which, at in order] if has_counts else None,
        partitions=[to[at] if (to := several[which].partitions) else ANY_PARTITION for _, _, which, at in order]
        if is_placed
        else None,
        olds=[olds[at] if (olds := several[which].olds) else None for _, _, which, at in order] if has_olds else None,
    )

"""``streams.store_dataframe(name)``: a store as a Spark DataFrame, a snapshot together with its changelog offsets.

Decides what a snapshot is. A Python worker on this machine reads each copy in one LMDB transaction, rows and position alike. The
rows are kept on Spark's disk, so the DataFrame stays what it was, however often it is used, while the store changes. One Spark
task reads all copies, because a second one could take a slot that a stream thread waits for. Rows never pass through the driver.
``local_copies`` decides which copies may be read; the operators' stores decide the layout of rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam, StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill.dsl.serdes import Serdes
from tidemill.errors import InvalidStateStoreError, SerdeError, StateError
from tidemill.operators.segments import LONG_MAX
from tidemill.operators.stores import store_of
from tidemill.query.local_copies import CopyReader
from tidemill.query.store_info import StoreInfo
from tidemill.query.windowed_rows import WINDOWED
from tidemill.spark.job_thread import background_pool
from tidemill.spark.plan.codecs import decoded
from tidemill.spark.plan.pinned_workers import pinning
from tidemill.spark.plan.python_steps import map_in_arrow
from tidemill.spark.plan.row_columns import in_layer, row
from tidemill.state.lmdb import TaskState
from tidemill.steps.rows.records import Records, to_rows
from tidemill.steps.rows.schema import SCHEMA, SIDES
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_state import Written
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde
from tidemill.topology.windows import Windowed

_CHUNK = 10_000
_ROWS = pa.schema(
    [SCHEMA.field(name) for name in ("part", "ts", *SIDES)] + [("window_start", pa.int64()), ("window_end", pa.int64())]
)

_TIMED = (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED)


class StoreDataFrame(NamedTuple):
    """``dataframe``: key, value, timestamp (where the store keeps it), partition; of windows also window_start and window_end.
    ``offsets``: up to where the changelog (or the source topic in its place) is in it, the next to read, for each partition
    that was read; of a store without changelog None."""

    dataframe: DataFrame
    offsets: Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class CopyToRead:
    """One partition of a store. ``least_position``: what its files must hold to be believed."""

    partition: int
    directory: str
    least_position: int


Reported = dict[tuple[int, int], "int | str"]
"""Answers of workers: by snapshot and partition a position, or the reason why it can't be read."""


class _Merging(AccumulatorParam[Reported]):
    def zero(self, value: Reported) -> Reported:
        del value
        return {}

    def addInPlace(self, value1: Reported, value2: Reported) -> Reported:  # noqa: N802  # PySpark's name
        value1.update(value2)
        return value1


class StoreFrames:
    """Makes DataFrames of stores in one session. May be used from any thread."""

    def __init__(self, session: SparkSession, application_id: str) -> None:
        self._session, self._application_id = session, application_id
        # One for all frames: PySpark never releases an accumulator.
        self._reported: Accumulator[Reported] = session.sparkContext.accumulator({}, _Merging())
        self._numbers = itertools.count(1)

    def of(self, info: StoreInfo, readers: Sequence[CopyReader]) -> StoreDataFrame:
        """The copies as they are now.

        Raises:
            InvalidStateStoreError: a copy can't be read now.
        """
        store = info.store
        assert store is not None
        number = next(self._numbers)
        copies = [CopyToRead(reader.partition, str(reader.directory), reader.least_position) for reader in readers]
        with pinning(self._session, "dataframes") as pin:
            pin("store")
            step = reading(info, store, copies, number, self._reported)
            read = map_in_arrow(self._session.range(0, 1, 1, 1), step, _ROWS)
        with background_pool(self._session, self._application_id, f"snapshot of the store {info.name}"):
            kept = read.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        reported = {copy.partition: self._reported.value.pop((number, copy.partition), None) for copy in copies}
        for partition, position in reported.items():
            if not isinstance(position, int):
                raise InvalidStateStoreError(
                    f"{info.name}: partition {partition} can't be read now: {position or 'the worker said nothing of it'}; "
                    "ask again in a moment",
                    store=info.name,
                )
        offsets = {number: None if info.changelog is None else int(at or 0) for number, at in reported.items()}
        return StoreDataFrame(in_layer(kept).select(*columns_of(info, store)), offsets)


def columns_of(info: StoreInfo, store: Store) -> list[Column]:
    """Typed columns of what ``reading`` gives."""
    columns = [decoded(info.key_serde, "key").alias("key")]
    if store.kind in WINDOWED:
        columns += [F.timestamp_millis(row(name)).alias(name) for name in ("window_start", "window_end")]
    columns.append(decoded(info.value_serde, "value").alias("value"))
    if store.kind in _TIMED:
        columns.append(F.timestamp_millis(row("ts")).alias("timestamp"))
    return [*columns, row("part").alias("partition")]


def reading(
    info: StoreInfo, store: Store, copies: Sequence[CopyToRead], number: int, reported: Accumulator[Reported]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a worker for the snapshot ``number``, for Spark's mapInArrow."""
    raw = replace(store, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    key_serde, value_serde = info.key_serde, info.value_serde

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        positions: dict[int, int] = {}
        for copy in copies:
            try:
                yield from _rows_of(copy, raw, key_serde, value_serde, positions)
                reported.add({(number, copy.partition): positions[copy.partition]})
            except (StateError, SerdeError) as problem:
                reported.add({(number, copy.partition): str(problem)})
                return

    return read


def _rows_of(
    copy: CopyToRead, store: Store, key_serde: Serde, value_serde: Serde, positions: dict[int, int]
) -> Iterator[pa.RecordBatch]:
    """One copy's rows, all from one transaction, which also holds their position."""
    state = TaskState.open_to_read(Path(copy.directory))
    try:
        with state.snapshot() as view:
            position = view.positions().changelog.get(store.name, 0)
            if position < copy.least_position:
                raise StateError(f"its files were wiped and are being restored (offset {position} of {copy.least_position})")
            rows = TaskRows(store.name, logged=False)
            rows.begin(view, Written())
            entries = store_of(store, rows, KeyValueSerdes(key=Serdes.bytes(), value=Serdes.bytes())).all()
            while chunk := list(itertools.islice(entries, _CHUNK)):
                yield _as_rows(chunk, copy.partition, store.kind, key_serde, value_serde)
            positions[copy.partition] = position
    finally:
        state.close(clean=False)


def _as_rows(
    entries: Sequence[tuple[Any, Any]], partition: int, kind: StoreKind, key_serde: Serde, value_serde: Serde
) -> pa.RecordBatch:
    count = len(entries)
    keys, values = [key for key, _ in entries], [value for _, value in entries]
    starts: list[int | None] = [None] * count
    ends: list[int | None] = [None] * count
    if kind in WINDOWED:
        windows: list[Windowed] = keys
        keys, starts = [window.key for window in windows], [window.start for window in windows]
        ends = [None if window.end == LONG_MAX else window.end for window in windows]  # beyond what a timestamp can be
    times = [0] * count
    if kind in _TIMED:
        times, values = [at for _, at in values], [value for value, _ in values]
    nowhere: list[int | None] = [None] * count
    rows = to_rows(Records([partition] * count, keys, values, times, nowhere, nowhere), 0, key_serde, value_serde)
    windows_of = [pa.array(column, pa.int64()) for column in (starts, ends)]
    return pa.RecordBatch.from_arrays([*(rows.column(name) for name in ("part", "ts", *SIDES)), *windows_of], schema=_ROWS)

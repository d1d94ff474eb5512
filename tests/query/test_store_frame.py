"""A store as a DataFrame: each copy's rows and position from one transaction, in typed columns, and it stays what it was."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.query.stand_ins import store_info
from tidemill.dsl.serdes import Serdes
from tidemill.errors import InvalidStateStoreError
from tidemill.operators.stores import store_of
from tidemill.query.store_frame import CopyToRead, StoreFrames, reading
from tidemill.query.store_info import StoreInfo
from tidemill.state.lmdb import TaskState
from tidemill.state.store import Positions
from tidemill.steps.rows.task_rows import NO_STATE, TaskRows
from tidemill.steps.step_state import Written
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.windows import Windowed

TEXT, LONG = Serdes.string(), Serdes.long()


def info_of(kind: StoreKind, key: Any = TEXT, value: Any = LONG, **more: Any) -> StoreInfo:
    store = Store(name="counts", kind=kind, key_serde=key, value_serde=value, **more)
    return store_info("counts", key, value, timestamped=kind is StoreKind.TIMESTAMPED_KEY_VALUE, store=store)


def put(folder: Path, info: StoreInfo, entries: list[tuple[Any, ...]], position: int) -> None:
    """Writes entries as the store's own ``put`` takes them, on top of what is there."""
    state = TaskState.open(folder, ["counts"])
    before = state.claim("owner")
    written, rows = Written(), TaskRows("counts", logged=True)
    rows.begin(NO_STATE, written)
    assert info.store is not None
    store = store_of(info.store, rows, KeyValueSerdes(key=TEXT, value=LONG))
    for entry in entries:
        store.put(*entry)
    if hasattr(store, "flush"):
        store.flush()
    state.apply(
        expected=before, new=Positions(changelog={"counts": position}, epoch="owner"), writes={"counts": [*written.rows.items()]}
    )
    state.close(clean=True)


class Telling:
    """An accumulator."""

    def __init__(self) -> None:
        self.value: dict[Any, Any] = {}

    def add(self, term: dict[Any, Any]) -> None:
        self.value.update(term)


def read(info: StoreInfo, *copies: CopyToRead) -> tuple[list[dict[str, Any]], dict[Any, Any]]:
    told: Any = Telling()
    assert info.store is not None
    found = list(reading(info, info.store, copies, 1, told)([]))
    rows = [{name: value for name, value in row.items() if value is not None} for batch in found for row in batch.to_pylist()]
    return rows, told.value


def test_rows_and_position_of_each_copy_are_given(tmp_path: Path) -> None:
    info = info_of(StoreKind.TIMESTAMPED_KEY_VALUE)
    put(tmp_path / "1_0", info, [("a", 1, 10), ("b", 2, 20)], 5)
    put(tmp_path / "1_2", info, [("c", 3, 30)], 7)
    rows, told = read(info, CopyToRead(0, str(tmp_path / "1_0"), 5), CopyToRead(2, str(tmp_path / "1_2"), 0))
    assert rows == [
        {"part": 0, "ts": 10, "key": b"a", "value_num": 1},
        {"part": 0, "ts": 20, "key": b"b", "value_num": 2},
        {"part": 2, "ts": 30, "key": b"c", "value_num": 3},
    ]
    assert told == {(1, 0): 5, (1, 2): 7}


def test_windows_and_sessions_give_their_bounds_and_hide_what_has_expired(tmp_path: Path) -> None:
    windows = info_of(StoreKind.TIMESTAMPED_WINDOW, window_size_ms=100, retention_ms=1000)
    put(tmp_path / "1_0", windows, [("a", 1, 0, 7), ("a", 2, 5000, 5001)], 2)
    assert read(windows, CopyToRead(0, str(tmp_path / "1_0"), 0))[0] == [
        {"part": 0, "ts": 5001, "key": b"a", "value_num": 2, "window_start": 5000, "window_end": 5100}
    ]
    sessions = info_of(StoreKind.SESSION, retention_ms=1000)
    put(tmp_path / "1_1", sessions, [(Windowed("a", 10, 40), 3, 40)], 1)
    assert read(sessions, CopyToRead(1, str(tmp_path / "1_1"), 0))[0] == [
        {"part": 1, "ts": 0, "key": b"a", "value_num": 3, "window_start": 10, "window_end": 40}
    ]


def test_files_that_were_wiped_meanwhile_are_not_believed(tmp_path: Path) -> None:
    info = info_of(StoreKind.KEY_VALUE)
    put(tmp_path / "1_0", info, [("a", 1, 0)], 5)
    rows, told = read(info, CopyToRead(0, str(tmp_path / "1_0"), 6))
    assert rows == []
    assert "offset 5 of 6" in told[1, 0]


@dataclass
class Reader:
    partition: int
    directory: Path
    least_position: int = 0


@pytest.mark.spark
def test_a_data_frame_is_typed_and_stays_what_it_was(spark: SparkSession, tmp_path: Path) -> None:
    serde = Serdes.json("name string, amount double")
    info = info_of(StoreKind.TIMESTAMPED_KEY_VALUE, value=serde)
    put(tmp_path / "1_0", info, [("a", {"name": "Ada", "amount": 1.5}, 1_000)], 3)
    put(tmp_path / "1_1", info, [], 0)
    readers: Any = [Reader(0, tmp_path / "1_0"), Reader(1, tmp_path / "1_1")]
    frames = StoreFrames(spark, "app")
    frame, offsets = frames.of(info, readers)
    put(tmp_path / "1_0", info, [("b", {"name": "Bob", "amount": 2.0}, 2_000)], 4)
    assert frame.schema.simpleString() == (
        "struct<key:string,value:struct<name:string,amount:double>,timestamp:timestamp,partition:int>"
    )
    [row] = frame.collect()
    assert (row.key, row.value.name, row.value.amount, row.partition) == ("a", "Ada", 1.5, 0)
    assert row.timestamp.astimezone(timezone.utc) == datetime.fromtimestamp(1, timezone.utc)
    assert offsets == {0: 3, 1: 0}
    assert frames.of(info, readers).offsets == {0: 4, 1: 0}
    with pytest.raises(InvalidStateStoreError, match="partition 0 can't be read now"):
        frames.of(info, [Reader(0, tmp_path / "1_0", 9)])  # type: ignore[list-item]
    assert isinstance(frame.toArrow(), pa.Table)

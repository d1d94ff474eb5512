"""A batch of a windowed store's changelog leaves what its store makes of the records one by one."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from tests.steps.memory_stores import MemoryStores
from tidemill import Serdes
from tidemill.ids import TaskId
from tidemill.operators.segments import Segments
from tidemill.operators.stores import store_of
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.commit.restored_segments import are_in_segments
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import Written
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind

BYTES = Serdes.bytes()
TASK = TaskId(0, 3)
RETENTION_MS = 100_000
Record = dict[str, Any]


def _store(kind: StoreKind, **settings: Any) -> Store:
    size = None if kind is StoreKind.SESSION else 1_000
    return Store(
        name="s", kind=kind, key_serde=BYTES, value_serde=BYTES, retention_ms=RETENTION_MS, window_size_ms=size, **settings
    )


STORES = {
    "windows": _store(StoreKind.WINDOW),
    "windows with timestamps": _store(StoreKind.TIMESTAMPED_WINDOW),
    "in memory": _store(StoreKind.TIMESTAMPED_WINDOW, persistent=False),
    "a join's": _store(StoreKind.WINDOW, retain_duplicates=True),
    "a join's in memory": _store(StoreKind.WINDOW, retain_duplicates=True, persistent=False),
    "sessions": _store(StoreKind.SESSION),
    "sessions in memory": _store(StoreKind.SESSION, persistent=False),
}


def _records(chance: random.Random, store: Store, count: int) -> list[Record]:
    now, found = 1_000_000, []
    for at in range(count):
        now += chance.choice([0, 1, 700, 70_000 if chance.random() < 0.05 else 0])
        time = max(now - chance.choice([0, 0, 1, 5_000, 90_000, 200_000]), 0)
        if store.kind is StoreKind.SESSION:
            suffix = struct.pack(">qq", time, time - chance.choice([0, 3, 10_000]))
        else:
            suffix = struct.pack(">qi", time, at + 1 if store.retain_duplicates else 0)
        key = chance.choice([b"", b"a", b"a\x00", b"b" * 20])
        value = chance.choice([None, b"", b"value %d" % at])
        found.append({"part": 3, "off": at, "ts": time + chance.choice([-500, 0, 500]), "key": key + suffix, "value": value})
    return found


def _one_by_one(store: Store, stores: MemoryStores, records: list[Record]) -> None:
    written = Written()
    rows = TaskRows("s", logged=False)
    rows.begin(stores, written)
    kept = store_of(store, rows, KeyValueSerdes(key=BYTES, value=BYTES))
    for record in records:
        kept.restore(record["key"], record["value"], record["ts"])
    stores.apply({"s": written.rows}, {})


def _shown(store: Store, stores: MemoryStores) -> dict[bytes, bytes]:
    """The rows that may still be seen, and the clocks."""
    rows = TaskRows("s", logged=False)
    rows.begin(stores, Written())
    oldest = Segments(rows, store.keeps_ms, persistent=store.persistent, time_ordered=False).oldest_shown
    end = 16 if store.kind is StoreKind.SESSION else 12
    held = stores.rows.get("s", {})
    return {
        key: row for key, row in held.items() if key[:1] == b"\xff" or struct.unpack_from(">q", key, len(key) - end)[0] >= oldest
    }


@pytest.mark.parametrize("store", STORES.values(), ids=STORES.keys())
def test_rows_and_clocks_are_the_stores_whatever_the_batches(store: Store) -> None:
    assert are_in_segments(store)
    spec = StoreSpec(
        name="s", tag=7, subtopology=0, changelog="app-s-changelog", timestamped=False, persistent=store.persistent, logged=True,
        key_serde=BYTES, value_serde=BYTES, kept=store,
    )  # fmt: skip
    for seed in range(20):
        chance = random.Random(seed)
        records = _records(chance, store, 120)
        expected, found = MemoryStores(TASK), MemoryStores(TASK)
        while records:
            size = chance.choice([1, 10, 60])
            batch, records = records[:size], records[size:]
            _one_by_one(store, expected, batch)
            shuffled = pa.Table.from_pylist(chance.sample(batch, len(batch)), schema=SCHEMA)
            [(task, (count, rows))] = restored_writes(shuffled, spec, {TASK: found}).items()
            assert (task, count) == (TASK, len(batch))
            found.apply({"s": rows}, {})
            assert _shown(store, found) == _shown(store, expected)
            if store.persistent:
                assert found.rows == expected.rows, "all that lies in live segments"


def test_what_has_expired_by_the_end_of_a_batch_leaves_no_row() -> None:
    store = STORES["windows with timestamps"]
    spec = StoreSpec(
        name="s", tag=7, subtopology=0, changelog="app-s-changelog", timestamped=False, persistent=True, logged=True,
        key_serde=BYTES, value_serde=BYTES, kept=store,
    )  # fmt: skip
    times = [0, 1_000_000, 5_000_000]
    records = [
        {"part": 3, "off": at, "ts": time, "key": b"k" + struct.pack(">qi", time, 0), "value": b"v"}
        for at, time in enumerate(times)
    ]
    _, rows = restored_writes(pa.Table.from_pylist(records, schema=SCHEMA), spec, {TASK: MemoryStores(TASK)})[TASK]
    [(key, row)] = [found for found in rows.items() if found[0][:1] != b"\xff"]
    assert key[8:] == b"k" + struct.pack(">qi", 5_000_000, 0)
    assert row == struct.pack(">q", 5_000_000) + b"v"

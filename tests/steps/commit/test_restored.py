"""What is left of a changelog in a store: of each key its last record, however the records have come."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.operators.step_harness import StepRun
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.serdes import DoubleSerde, StringSerde
from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.step_spec import StoreSpec
from tidemill.topology.nodes import Store, StoreKind

STRING = Serdes.string()
VECTORISED = StoreSpec(
    name="rows", tag=7, subtopology=0, changelog="app-rows-changelog", timestamped=True, persistent=True, logged=True,
    key_serde=STRING, value_serde=STRING,
)  # fmt: skip


def _of_operators(kind: StoreKind) -> StoreSpec:
    return replace(VECTORISED, kept=Store(name="rows", kind=kind, key_serde=STRING, value_serde=STRING))


STORES = {
    "a table's": (VECTORISED, True),
    "without times": (replace(VECTORISED, timestamped=False), False),
    "an operator's": (_of_operators(StoreKind.TIMESTAMPED_KEY_VALUE), True),
    "an operator's without times": (_of_operators(StoreKind.KEY_VALUE), False),
    "of subscriptions": (_of_operators(StoreKind.SUBSCRIPTIONS), True),
    "a source topic's": (replace(VECTORISED, changelog=None, source_topic="in"), True),
}


@pytest.mark.parametrize(("spec", "is_timed"), STORES.values(), ids=STORES.keys())
def test_of_each_key_the_last_record_is_the_row(spec: StoreSpec, is_timed: bool) -> None:
    for seed in range(5):
        chance = random.Random(seed)
        records = [
            {
                "part": chance.choice([1, 4]), "off": at, "ts": chance.choice([0, 5, 2**62]),
                "key": chance.choice([None, b"", b"k", b"k\x00", b"\xc3\xa9", b"long" * 200]),
                "value": chance.choice([None, b"", b"v", b"value %d" % at]),
            }
            for at in range(40)
        ]  # fmt: skip
        rows: dict[int, dict[bytes, bytes | None]] = {1: {}, 4: {}}
        for record in records:
            key, value = record["key"], record["value"]
            if key is not None:
                stamp = struct.pack(">q", record["ts"]) if is_timed else b""
                rows[record["part"]][key] = None if value is None else stamp + value
        counts = {part: sum(record["part"] == part for record in records) for part in rows}
        chance.shuffle(records)
        found = restored_writes(pa.Table.from_pylist(records, schema=SCHEMA), spec, {})
        assert found == {TaskId(0, part): (counts[part], rows[part]) for part in rows}
        for _, made in found.values():
            assert list(made) == sorted(made), "LMDB takes sorted keys in half the time"


def test_the_first_record_that_is_none_of_the_stores_is_named() -> None:
    spec = replace(VECTORISED, key_serde=Serdes.long())
    lengths = {3: 8, 5: 8, 6: 7, 8: 9, 9: 8}
    records = [{"part": 2, "off": at, "ts": 5, "key": bytes(length), "value": b"v"} for at, length in lengths.items()]
    with pytest.raises(StopError, match=r"offset 6 of app-rows-changelog-2 is none of store rows \(its key has 7 bytes, exp"):
        restored_writes(pa.Table.from_pylist(records[::-1], schema=SCHEMA), spec, {})


class _AsText(DoubleSerde):
    """A double as text, under the name of the serde from which it is derived."""

    def serialize(self, value: object) -> bytes | None:
        return None if value is None else f"{value}".encode()

    def deserialize(self, data: bytes | None) -> float | None:
        return None if data is None else float(data)


class _Long:
    name, sql_type = "long", "bigint"

    def serialize(self, value: int | None) -> bytes | None:
        return None if value is None else f"{value}".encode()

    def deserialize(self, data: bytes | None) -> int | None:
        return None if data is None else int(data)


def test_a_serde_that_has_the_name_of_a_number_s_may_write_what_it_wants() -> None:
    spec = replace(VECTORISED, key_serde=_Long(), value_serde=_AsText(), timestamped=False)
    records = [{"part": 2, "off": 1, "ts": 5, "key": b"17", "value": b"21.5"}]
    assert restored_writes(pa.Table.from_pylist(records, schema=SCHEMA), spec, {}) == {TaskId(0, 2): (1, {b"17": b"21.5"})}


class _Blank(StringSerde):
    """Reads blanks as null."""

    def deserialize(self, data: bytes | None) -> str | None:
        return None if data is None else bytes(data).decode().strip() or None


def test_bytes_of_a_source_topic_that_are_read_as_null_are_what_they_were_when_the_table_processed_them() -> None:
    """A key that is null was skipped, a value that is null has deleted its row."""
    builder = StreamsBuilder()
    builder.table("in", key=_Blank(), value=_Blank(), store="rows")
    run = StepRun(builder.build(optimization="all"))
    given = [(b"a", b"1"), (b"b", b"2"), (b"a", b" "), (b" ", b"3"), (b"c", None)]
    run.pipe([("in", key, value, at, ()) for at, (key, value) in enumerate(given)])
    [(task, stores)] = run.stores.items()
    [spec] = run.compiled.steps[-1].stores.values()
    assert spec.changelog is None
    records = [{"part": task.partition, "off": at, "ts": at, "key": key, "value": value} for at, (key, value) in enumerate(given)]
    _, rows = restored_writes(pa.Table.from_pylist(records, schema=SCHEMA), spec, {})[task]
    assert {key: row for key, row in rows.items() if row is not None} == stores.rows["rows"]
    assert rows[b"a"] is rows[b"c"] is None

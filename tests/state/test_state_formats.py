"""Bytes of changelog records against what Kafka Streams wrote for the same inputs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.state.formats import StoreFormat, logged_values, stored_values, timestamps_ms

_FILE = Path(__file__).parent.parent / "vectors" / "store_formats.jsonl.gz"


def _program(name: str) -> dict[str, Any]:
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        return next(program for line in lines if (program := json.loads(line))["program"] == name)


def _changelog(program: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    (topic,) = (name for name in program["topics"] if name.endswith("-changelog"))
    return [(r["key_hex"], r["value_hex"], r["timestamp"]) for r in program["topics"][topic]]


def _as_records(keys: list[bytes], values: list[bytes | None], times: list[int]) -> list[tuple[str, str | None, int]]:
    return [(k.hex(), None if v is None else v.hex(), t) for k, v, t in zip(keys, values, times, strict=True)]


def test_a_count_logs_what_kafka_streams_logs() -> None:
    program = _program("timestamped_key_value_count")
    counts: dict[str, int] = {}
    latest: dict[str, int] = {}
    stored = []
    for record in program["inputs"]:
        key = record["key"]
        counts[key] = counts.get(key, 0) + 1
        latest[key] = max(latest.get(key, 0), record["timestamp"])
        stored += stored_values(StoreFormat.TIMESTAMPED, [counts[key].to_bytes(8, "big")], [latest[key]])
    keys = [record["key"].encode() for record in program["inputs"]]
    assert _as_records(keys, logged_values(StoreFormat.TIMESTAMPED, stored), timestamps_ms(stored)) == _changelog(program)


def test_a_table_logs_what_kafka_streams_logs() -> None:
    program = _program("timestamped_key_value_table")
    values = [None if r["value"] is None else r["value"].encode() for r in program["inputs"]]
    times = [record["timestamp"] for record in program["inputs"]]
    stored = stored_values(StoreFormat.TIMESTAMPED, values, times)
    logged = logged_values(StoreFormat.TIMESTAMPED, stored)
    keys = [record["key"].encode() for record in program["inputs"]]
    assert _as_records(keys, logged, times) == _changelog(program)
    assert timestamps_ms(stored) == [-1 if v is None else t for v, t in zip(values, times, strict=True)]


def test_restoring_a_changelog_gives_what_logging_it_began_with() -> None:
    _, values, times = zip(*_changelog(_program("timestamped_key_value_count")), strict=True)
    logged = [bytes.fromhex(value) for value in values]
    stored = stored_values(StoreFormat.TIMESTAMPED, logged, times)
    assert stored[0] == (1000).to_bytes(8, "big") + (1).to_bytes(8, "big")
    assert logged_values(StoreFormat.TIMESTAMPED, stored) == logged


def test_a_plain_store_keeps_the_value_alone() -> None:
    _, values, times = zip(*_changelog(_program("plain_key_value")), strict=True)
    logged = [None if value is None else bytes.fromhex(value) for value in values]
    assert stored_values(StoreFormat.PLAIN, logged, times) == logged
    assert logged_values(StoreFormat.PLAIN, logged) == logged


@given(st.lists(st.tuples(st.none() | st.binary(max_size=5), st.integers(-(2**63), 2**63 - 1)), max_size=9))
def test_values_and_timestamps_survive_the_store(records: list[tuple[bytes | None, int]]) -> None:
    values, times = [value for value, _ in records], [time for _, time in records]
    stored = stored_values(StoreFormat.TIMESTAMPED, values, times)
    assert logged_values(StoreFormat.TIMESTAMPED, stored) == values
    assert timestamps_ms(stored, missing=0) == [0 if v is None else t for v, t in records]


def test_an_entry_without_room_for_a_timestamp_is_refused() -> None:
    for read in (timestamps_ms, lambda entries: logged_values(StoreFormat.TIMESTAMPED, entries)):
        with pytest.raises(ValueError, match="7 bytes in a timestamped store"):
            read([b"1234567"])


def test_a_value_without_a_timestamp_is_refused() -> None:
    with pytest.raises(ValueError, match="2 values, but 1 timestamps"):
        stored_values(StoreFormat.PLAIN, [b"", b""], [1])

"""Joins of many shapes give what Kafka Streams gives: every result in its order, every drop, every byte of the topics between."""

from __future__ import annotations

import gzip
import json
from functools import cache
from itertools import repeat
from typing import Any

import pytest

from tests.operators import programs_more_joins
from tests.operators.harness import ALL, VECTORS, Run, start, without_caches
from tests.operators.step_harness import mixes_waiting_records, outputs, run_in_steps
from tidemill import StreamsBuilder

CASES_PER_PROGRAM = 1


@cache
def _cases() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    with gzip.open(VECTORS / "more_joins.jsonl.gz", "rt", encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            found.setdefault(case["program"], []).append(case)
    return found


def _run(case: dict[str, Any]) -> Run:
    builder = StreamsBuilder()
    getattr(programs_more_joins, case["program"])(builder)
    run = start(without_caches(builder.build(optimization=case["optimization"])), 1_000_000, case["emit_interval_ms"])
    for at, given in enumerate(case["inputs"]):
        if len(given) == 1:
            run.advance_wall_clock(at, given[0])
            continue
        topic, key, value, timestamp, header = given
        raw_key, raw_value = (None if text is None else text.encode() for text in (key, value))
        run.pipe(at, topic, raw_key, raw_value, timestamp, (("h", header.encode()),) if header else ())
    return run


def _outputs(run: Run) -> list[list[Any]]:
    """(cause, key, value, timestamp, header)"""
    found = []
    for topic, key, value, timestamp, headers, at in run.written:
        if topic == "out":
            sides = (None if data is None else data.decode() for data in (key, value))
            found.append([at, *sides, timestamp, dict(headers).get("h", b"").decode()])
    return found


def _topics(run: Run) -> dict[str, list[list[Any]]]:
    """Changelogs and internal topics: (cause, key, value, timestamp, headers)"""
    found: dict[str, list[list[Any]]] = {}
    written = [record for record in run.written if record[0] != "out"]
    for name, key, value, timestamp, headers, at in (*written, *((f"{s}-changelog", *rest) for s, *rest in run.logged)):
        sides = (None if data is None else data.hex() for data in (key, value))
        found.setdefault(name, []).append([at, *sides, timestamp, [[header, data.hex()] for header, data in headers]])
    return found


@pytest.mark.parametrize("program", _cases())
def test_a_join_gives_what_kafka_streams_gives(program: str) -> None:
    for case in _cases()[program][: None if ALL else CASES_PER_PROGRAM]:
        run = _run(case)
        assert _outputs(run) == case["outputs"]
        assert run.dropped_at == case["dropped_at"]


@pytest.mark.parametrize("program", _cases())
def test_topics_between_and_changelogs_have_kafka_streams_bytes(program: str) -> None:
    for case in _cases()[program][: None if ALL else CASES_PER_PROGRAM]:
        found = _topics(_run(case))
        assert found.keys() == case["topics"].keys()
        for topic, records in case["topics"].items():
            assert found[topic] == records, topic


def _as_vector(case: dict[str, Any]) -> dict[str, Any]:
    """The case in the vectors' form."""
    texts = {"key": "String", "value": "String"}
    inputs = [
        {
            "seq": at, "topic": topic, "key": key, "value": value, "timestamp": timestamp,
            "headers": {"h": header} if header else {},
        }
        for at, (topic, key, value, timestamp, header) in enumerate(case["inputs"])
    ]
    return {
        "program": case["program"], "case": 0, "inputs": inputs, "outputs": {"out": []}, "stores": {},
        "serdes": {"inputs": dict.fromkeys("lrc", texts), "outputs": {"out": texts}},
        "config": {
            "topology.optimization": case["optimization"], "statestore.cache.max.bytes": 0, "wall_clock_start_ms": 1_000_000,
            "emit_interval_ms": 0,
        },
    }


def _stands_still(case: dict[str, Any]) -> bool:
    """Does no wall clock decide when results come? In a batch it would stand elsewhere."""
    return bool(case["emit_interval_ms"] == 0)


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize("program", [name for name, found in _cases().items() if any(map(_stands_still, found))])
def test_the_steps_of_a_worker_give_the_same_in_batches(program: str, size: int) -> None:
    """Where records wait in a topic between, larger batches change what meets what, as they do between Kafka Streams' threads."""
    given = next(filter(_stands_still, _cases()[program]))
    case = _as_vector(given)
    run = run_in_steps(getattr(programs_more_joins, program), case, repeat(size))
    if size > 1 and mixes_waiting_records(run.topology):
        return
    found = []
    for record in outputs(run, case)["out"]:
        header = bytes.fromhex(dict(record.get("headers", [])).get("h", "")).decode()
        found.append([record["key"], record["value"], record["timestamp"], header])
    assert found == [record[1:] for record in given["outputs"]]

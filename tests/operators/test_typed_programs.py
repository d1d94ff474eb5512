"""Programs of chance over typed and windowed keys give what Kafka Streams 4.3.1 gives: results, headers, stores, internal topics.

They have what those of ``test_answered_programs`` lack: versioned tables, windows of every kind, cogroups, foreign-key joins of
derived tables, global tables and stores, processors that scan stores of every kind, punctuators, timestamp extractors.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operators import harness, step_harness
from tests.operators.harness import ALL, Run, start, without_caches
from tests.operators.step_harness import APPLICATION, StepRun
from tests.operators.typed_functions import VALUE, Step, text_of
from tests.operators.typed_programs import Case, key_serde, topology_of
from tidemill.topology.graph import subtopologies
from tidemill.topology.nodes import Store, StoreKind, Topology

Records = dict[str, list[list[Any]]]
"""(number of the input, key, value, timestamp, headers) by topic."""

KEEP_CONTEXTS = ("SUPPRESS", "Buffer")
"""Changelogs with offsets and topics of what waits, in the order of a Java hash set."""


def cases() -> list[Case]:
    with gzip.open(harness.VECTORS / "typed_programs_run.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


CASES = cases()


@pytest.fixture(autouse=True)
def _one_serde_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "DEFAULT_SERDE", VALUE)
    monkeypatch.setattr(step_harness, "Serdes", SimpleNamespace(string=lambda: VALUE))


def built(case: Case) -> Topology:
    """The program without caches, with the stores that the case's settings make."""

    def configured(store: Store) -> Store:
        if "format" in case and "with_headers" in store.left_open:
            store = replace(store, with_headers=True)
        return replace(store, persistent=False) if "memory" in case and "persistent" in store.left_open else store

    topology = without_caches(topology_of(case))
    return replace(topology, stores={name: configured(store) for name, store in topology.stores.items()})


def raw(case: Case, given: list[Any]) -> tuple[Any, ...]:
    topic, key, value, timestamp, headers = given
    written = None if value is None else value.encode()
    packed = tuple((name, None if data is None else data.encode()) for name, data in headers)
    return topic, key_serde(case["topics"][topic]).serialize(key), written, timestamp, packed


def hexed(data: bytes | None) -> str | None:
    return None if data is None else bytes(data).hex()


def written(run: Run | StepRun) -> Records:
    """What was sent to topics and changelogs, as they are named without the application id."""
    found: Records = {}
    logged = [(f"{entry[0]}-changelog", *entry[1:]) for entry in run.logged]
    for topic, key, value, timestamp, headers, at in [*run.written, *logged]:
        record = [at, hexed(key), hexed(value), timestamp, [[name, hexed(data)] for name, data in headers]]
        found.setdefault(topic, []).append(record)
    return found


def results(found: Records) -> Records:
    return {topic: records for topic, records in found.items() if topic.startswith("o-")}


def digests(found: Records) -> dict[str, str]:
    """Of all other topics."""
    others = {topic: records for topic, records in found.items() if not topic.startswith("o-")}
    kept = {topic: records for topic, records in others.items() if not any(word in topic for word in KEEP_CONTEXTS)}
    return {topic: hashlib.md5(json.dumps(records).encode()).hexdigest() for topic, records in kept.items()}


def stores(run: Run | StepRun, names: Sequence[str]) -> dict[str, list[str]]:
    """The rows of named stores in the order of a scan."""
    return {
        name: [f"{text_of(key)}={_shown(run.topology.stores[name].kind, value)}" for key, value in run.graph.store(name).all()]
        for name in names
    }


def _shown(kind: StoreKind, value: Any) -> str:
    return f"{text_of(value[0])}~{value[1]}" if "TIMESTAMPED" in kind.name else text_of(value)


@pytest.mark.parametrize("number", range(0, len(CASES), 1 if ALL else 3))
def test_record_by_record_a_program_gives_what_kafka_streams_gives(number: int) -> None:
    case = CASES[number]
    run = start(built(case), case["clock"])
    for at, given in enumerate(case["inputs"]):
        if len(given) == 1:
            run.advance_wall_clock(at, given[0])
        else:
            run.pipe(at, *raw(case, given))
    found = written(run)
    assert results(found) == case["outputs"]
    assert digests(found) == case["digests"]
    assert stores(run, list(case["stores"])) == case["stores"]
    assert run.graph.dropped == case["dropped"]


def can_run_in_batches(case: Case, topology: Topology) -> bool:
    """No batch may decide what meets what, or what time a processor sees. Topics of the program's own are not read again here."""
    steps: list[Step] = case["steps"]
    parts = subtopologies(topology, APPLICATION)
    sees_time = any(step.get("ticks") or step.get("fwd") == 2 or "meta" in step for step in steps)
    reads_own = any(step["op"].startswith("through") for step in steps)
    is_mixed = topology.repartition_topics and any(len(part.source_topics) > 1 for part in parts)
    return not (sees_time or reads_own or is_mixed or any(part.is_global for part in parts))


BATCHED = [number for number, case in enumerate(CASES) if can_run_in_batches(case, topology_of(case))]


@pytest.mark.parametrize("number", BATCHED[:: 1 if ALL else 4])
def test_in_batches_of_any_size_it_gives_the_same(number: int) -> None:
    case = CASES[number]
    run, chance = StepRun(built(case), case["clock"]), random.Random(number)
    inputs = [raw(case, given) for given in case["inputs"] if len(given) > 1]
    while inputs:
        size = chance.choice((1, 2, 3, 7, 30))
        run.pipe(inputs[:size])
        inputs = inputs[size:]
    answers = {topic: [record[1:] for record in records] for topic, records in case["outputs"].items()}
    assert {topic: [record[1:] for record in records] for topic, records in results(written(run)).items()} == answers
    assert stores(run, list(case["stores"])) == case["stores"]
    assert run.dropped == case["dropped"]

"""Programs of chance over the whole DSL give what Kafka Streams 4.3.0 gives, record for record, and in batches of any size.

Keys and values may be null, timestamps go back, stand still, are 0 or far ahead.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.operators.answered_programs import Case, cases, topology_of, write_all_as_text
from tests.operators.harness import ALL, Run, start, without_caches
from tests.operators.step_harness import StepRun

CASES = cases()
Results = dict[str, list[list[Any]]]
IN_STEPS = range(0, len(CASES), 1 if ALL else 8)


@pytest.fixture(autouse=True)
def _one_serde_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write_all_as_text(monkeypatch)


def inputs(case: Case) -> list[tuple[Any, ...]]:
    return [(t, k if k is None else k.encode(), v if v is None else v.encode(), at) for t, k, v, at in case["inputs"]]


def results(run: Run | StepRun) -> Results:
    """(key, value, timestamp) by topic that the program writes to."""
    found: Results = {}
    for topic, key, value, timestamp, *_rest in run.written:
        if topic.startswith("o_"):
            found.setdefault(topic, []).append([*(None if d is None else bytes(d).decode() for d in (key, value)), timestamp])
    return found


def answers(case: Case) -> Results:
    found: Results = {}
    for _at, topic, *record in case["outputs"]:
        found.setdefault(topic, []).append(record)
    return found


def last_of(found: Results) -> dict[str, dict[Any, Any]]:
    """The last values, but no tombstones: a record cache says nothing of a row that has come and gone again in a batch."""
    last = {topic: {key: rest for key, *rest in records} for topic, records in found.items()}
    return {topic: {key: rest for key, rest in rows.items() if rest[0] is not None} for topic, rows in last.items()}


@pytest.mark.parametrize("number", range(0, len(CASES), 1 if ALL else 2))
def test_record_by_record_a_program_gives_what_kafka_streams_gives(number: int) -> None:
    case = CASES[number]
    run = start(without_caches(topology_of(case)))
    assert run.topology.describe() == case["describe"]
    for at, record in enumerate(inputs(case)):
        run.pipe(at, *record)
    assert results(run) == answers(case)
    assert run.graph.dropped == case["dropped"]


@pytest.mark.parametrize("number", IN_STEPS)
def test_in_batches_of_any_size_it_ends_with_the_same(number: int) -> None:
    """Through repartition topics batches decide what meets what: single records then. Each sub-topology has a time of its own
    here, which punctuators show. A cache drops deletions of rows that are not there, which else move the time of a suppress."""
    case = CASES[number]
    if any(step[0] == "process" for step in case["program"]):
        return
    topology = topology_of(case)
    alone = bool(topology.repartition_topics)
    suppresses = any(step[0] == "suppress" for step in case["program"])
    run = StepRun(without_caches(topology) if alone or suppresses else topology)
    records, chance = [(*record, ()) for record in inputs(case)], random.Random(number)
    while records:
        size = 1 if alone else chance.choice((1, 2, 3, 7, 30))
        run.pipe(records[:size], one_by_one=alone)
        records = records[size:]
    assert (results(run) if alone else last_of(results(run))) == (answers(case) if alone else last_of(answers(case)))
    assert run.dropped == case["dropped"]

"""Programs of chance with many tables in stores give what Kafka Streams 4.3.1 gives, without caches record for record, and with
its default ``statestore.cache.max.bytes`` the last record of each key and input: its test driver commits after each record.

With caches a repeated change, or the deletion of a row that is not there, does not go on; that changes the tables below.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.answered_programs import Case, cases, topology_of, write_all_as_text
from tests.operators.harness import ALL, Run, start, without_caches
from tests.operators.step_harness import StepRun

CASES = cases("table_programs_run")
NUMBERS = range(0, len(CASES), 1 if ALL else 3)
IN_STEPS = range(1, len(CASES), 1 if ALL else 6)
Sent = list[list[Any]]
"""[number of the input, topic, key, value, timestamp]"""


@pytest.fixture(autouse=True)
def _one_serde_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    write_all_as_text(monkeypatch)


def sent_by(run: Run | StepRun, case: Case) -> Sent:
    found: Sent = []
    for at, (topic, key, value, timestamp) in enumerate(case["inputs"]):
        before = len(run.written)
        data = (None if side is None else side.encode() for side in (key, value))
        if isinstance(run, Run):
            run.pipe(at, topic, *data, timestamp)
        else:
            run.pipe([(topic, *data, timestamp, ())], one_by_one=True)
        for to, *sides, made_at, _headers, _input in run.written[before:]:
            if to.startswith("o_"):
                found.append([at, to, *(None if side is None else bytes(side).decode() for side in sides), made_at])
    return sorted(found, key=lambda one: one[:2])


def last_of_each_input(sent: Sent) -> dict[tuple[Any, ...], list[Any]]:
    return {(at, topic, key): rest for at, topic, key, *rest in sent}


@pytest.mark.parametrize("number", NUMBERS)
def test_without_caches_each_record_is_that_of_kafka_streams(number: int) -> None:
    case = CASES[number]
    run = start(without_caches(topology_of(case)))
    assert sent_by(run, case) == sorted(case["outputs"], key=lambda one: one[:2])
    assert run.graph.dropped == case["dropped"]


@pytest.mark.parametrize("number", NUMBERS)
def test_with_caches_each_record_leaves_what_it_leaves_in_kafka_streams(number: int) -> None:
    case = CASES[number]
    assert last_of_each_input(sent_by(start(topology_of(case)), case)) == last_of_each_input(case["outputs_cached"])


@pytest.mark.parametrize("number", IN_STEPS)
def test_in_steps_each_record_leaves_what_it_leaves_in_kafka_streams(number: int) -> None:
    case = CASES[number]
    assert last_of_each_input(sent_by(StepRun(topology_of(case)), case)) == last_of_each_input(case["outputs_cached"])


def test_caches_change_results_of_the_programs() -> None:
    """Else these tests would show nothing of caches."""
    differ = [case for case in CASES if last_of_each_input(case["outputs"]) != last_of_each_input(case["outputs_cached"])]
    assert len(differ) > len(CASES) / 3

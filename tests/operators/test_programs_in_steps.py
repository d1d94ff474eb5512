"""A program gives the same in batches of any size, through the steps that run in a worker."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pytest

from tests.operators.harness import ALL, Case, all_programs, cases, stores_of
from tests.operators.step_harness import StepRun, mixes_waiting_records, outputs, run_in_steps

PROGRAMS = all_programs()
WHOLE = 1 << 30


def random_sizes() -> Iterator[int]:
    chance = random.Random(7)
    while True:
        yield chance.choice((2, 3, 5, 8, 30))


def batchings() -> dict[str, Iterator[int]]:
    return {"whole": repeat(WHOLE), "sevens": repeat(7), "random": random_sizes(), "ones": repeat(1)}


def samples(program: str) -> list[tuple[Case, str]]:
    found = cases()[program]
    if ALL:
        return [(case, batching) for case in found for batching in batchings()]
    return [(found[0], "whole"), (found[0], "ones"), (found[-1], "random")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_of_any_size_give_what_kafka_streams_gives(name: str) -> None:
    for case, batching in samples(name):
        run = run_in_steps(PROGRAMS[name], case, batchings()[batching])
        assert problems(run, case, batching) == [], f"case {case['case']} in {batching}"


def problems(run: StepRun, case: Case, batching: str) -> list[str]:
    """Records one by one must come as they are. Through a repartition topic in larger batches, other keys may come between,
    and where such records meet others, which come first is up to the batches."""
    found = outputs(run, case)
    wrong = []
    if batching != "ones" and mixes_waiting_records(run.topology):
        return []
    exact = batching == "ones" or not run.topology.repartition_topics
    for topic, records in case["outputs"].items():
        expected = [{k: v for k, v in record.items() if k != "at" and (k != "headers" or v)} for record in records]
        if exact or case["match"] == "record":
            same = found[topic] == expected if exact else by_key(found[topic]) == by_key(expected)
        else:
            same = last_of(found[topic]) == last_of(expected)
        if not same:
            wrong.append(f"{topic}: {first_difference(found[topic], expected)}")
    for store, rows in stores_of(run, case).items():  # type: ignore[arg-type]
        expected_rows = sorted(case["stores"][store]["rows"], key=_json)
        if (exact or case["match"] == "record") and rows != expected_rows:
            wrong.append(f"store {store}: {first_difference(rows, expected_rows)}")
    if exact and run.dropped != case["dropped_records"]["total"]:
        wrong.append(f"dropped {run.dropped}, expected {case['dropped_records']['total']}")
    return wrong


def by_key(records: list[dict[str, Any]]) -> dict[str, list[Any]]:
    keyed: dict[str, list[Any]] = {}
    for record in records:
        keyed.setdefault(_json(record["key"]), []).append(record)
    return keyed


def last_of(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: held[-1]["value"] for key, held in by_key(records).items() if held[-1]["value"] is not None}


def first_difference(found: list[Any], expected: list[Any]) -> str:
    for at, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            return f"entry {at} is {one}, expected {other}"
    return f"{len(found)} entries, expected {len(expected)}"


def _json(value: Any) -> str:
    return json.dumps(value)

"""Programs of plain Python functions on their real Spark plans give what the real Kafka Streams classes gave.

One plan a program, run again from the beginning for each case; a batch holds one record, seven or all.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.operators.harness import ALL, Case, cases, topology_of
from tests.operators.step_harness import mixes_waiting_records
from tests.operators.test_programs_in_steps import PROGRAMS, by_key, first_difference, last_of
from tests.operators.vector_values import reader, writer
from tests.spark.plan_harness import Program as Plan
from tests.spark.plan_harness import Record
from tidemill import Serdes, StreamsBuilder

pytestmark = pytest.mark.spark
WHOLE = 1 << 30


@pytest.mark.timeout(3_600 if ALL else 600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_on_its_plan_gives_what_kafka_streams_gives(name: str, spark: SparkSession, tmp_path: Path) -> None:
    found = cases()[name] if ALL else sampled(name)
    assert found, "no case: nothing would be compared"
    plans: dict[tuple[str, int, int], Plan] = {}
    for case, size in zip(found, cycle((WHOLE, 7)), strict=False):
        config = case["config"]
        kind = config["topology.optimization"], config["statestore.cache.max.bytes"], config["emit_interval_ms"]
        if kind not in plans:
            topology = topology_of(PROGRAMS[name], config)
            plans[kind] = Plan(spark, topology, tmp_path, default=Serdes.string(), emit_interval_ms=config["emit_interval_ms"])
        run = plans[kind]
        run.restart()
        if mixes_waiting_records(run.topology):
            size = 1  # noqa: PLW2901
        pipe(run, case, size)
        assert problems(run, case) == [], f"case {case['case']} in batches of {size}"


def sampled(name: str) -> list[Case]:
    """Two cases: the first, or the shortest that are no trifle where each input is a batch of its own."""
    builder = StreamsBuilder()
    PROGRAMS[name](builder)
    found = cases()[name]
    moves_the_clock = any("advance_wall_clock_ms" in given for given in found[0]["inputs"])
    if not (moves_the_clock or mixes_waiting_records(builder.build())):
        return found[:2]
    return sorted((case for case in found if len(case["inputs"]) >= 20), key=lambda case: len(case["inputs"]))[:2]


def pipe(run: Plan, case: Case, size: int) -> None:
    run.wall_clock = case["config"]["wall_clock_start_ms"]
    batch: list[tuple[str, Record]] = []
    for given in case["inputs"]:
        if "advance_wall_clock_ms" in given:
            run.pipe(batch)
            batch = []
            run.wall_clock += given["advance_wall_clock_ms"]
            run.pipe([])
            continue
        kinds = case["serdes"]["inputs"].get(given["topic"], {"key": "String", "value": "String"})
        headers = tuple((name, text.encode()) for name, text in given.get("headers", {}).items())
        key, value = writer(kinds["key"])(given["key"]), writer(kinds["value"])(given["value"])
        batch.append((given["topic"], Record(key, value, given["timestamp"], headers)))
        if len(batch) >= size:
            run.pipe(batch)
            batch = []
    run.pipe(batch)


def problems(run: Plan, case: Case) -> list[str]:
    """Vectorised steps pass on the last of a batch only, and through repartition topics other keys may come between."""
    vectorised = any(spec.nodes for spec in run.compiled.steps)
    exact = not vectorised and not run.topology.repartition_topics
    wrong = []
    for topic, records in case["outputs"].items():
        kinds = case["serdes"]["outputs"][topic]
        found = [_shown(record, reader(kinds["key"]), reader(kinds["value"])) for record in run.outputs.get(topic, [])]
        expected = [{k: v for k, v in record.items() if k != "at" and (k != "headers" or v)} for record in records]
        if exact:
            same = found == expected
        elif case["match"] == "record" and not vectorised:
            same = by_key(found) == by_key(expected)
        else:
            same = last_of(found) == last_of(expected)
        if not same:
            wrong.append(f"{topic}: {first_difference(found, expected)}")
    if run.dropped != case["dropped_records"]["total"]:
        wrong.append(f"dropped {run.dropped}, expected {case['dropped_records']['total']}")
    return wrong


def _shown(record: Record, key: Any, value: Any) -> dict[str, Any]:
    shown = {"key": key(record.key), "value": value(record.value), "timestamp": record.timestamp}
    if record.headers:
        shown["headers"] = [[name, data.hex()] for name, data in record.headers]
    return shown

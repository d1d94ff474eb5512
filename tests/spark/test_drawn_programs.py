"""Programs drawn by chance give the same results however their functions are written, and however large the micro-batches are."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.drawn_programs import SERDES, STREAM_STEPS, TABLE_STEPS, TEXT, Program, Same, Sent, Way, records
from tidemill.errors import TopologyError
from tidemill.spark.plan.stages import stages
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAMS = range(400) if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else range(0, 400, 40)
RECORDS = 26
CONFIG = {"default.key.serde": "string"}
Choose = Callable[[list[Way]], Way]
Update = tuple[Any, Any, int, Any]
"""Key, value, timestamp, headers."""


def by_columns(_seed: int) -> Choose:
    return lambda found: found[0]


def by_chance(seed: int) -> Choose:
    return random.Random(f"ways of {seed}").choice


def outputs(program: Program, sent: list[Sent], session: SparkSession, *, one_by_one: bool) -> dict[str, list[Update]]:
    with TopologyTestDriver(program.builder, CONFIG, session=session) as driver:
        given = {kind: driver.create_input_topic(f"{kind}-in", TEXT, SERDES[kind]) for kind in program.inputs}
        while sent:
            kind = sent[0][0]
            size = 1 if one_by_one else next((at for at, record in enumerate(sent) if record[0] != kind), len(sent))
            together = [
                TestRecord(key=key, value=value, timestamp=time, headers=headers) for _, key, value, time, headers in sent[:size]
            ]
            given[kind].pipe_records(together, batch=None)
            sent = sent[size:]
        found = {
            topic: driver.create_output_topic(topic, TEXT, SERDES[kind]).read_records() for topic, kind in program.outputs.items()
        }
    return {topic: [(r.key, r.value, r.timestamp, r.headers) for r in rows] for topic, rows in found.items()}


def by_key(updates: list[Update]) -> dict[Any, list[Update]]:
    found = {key: as_cached([update for update in updates if update[0] == key]) for key in {update[0] for update in updates}}
    return {key: updates for key, updates in found.items() if updates}


def as_cached(updates: list[Update]) -> list[Update]:
    """A session that a record joins without making it longer is removed and put again, and one may have a null aggregate from
    its start. Shortcuts pass on the last of the first, and nothing of the second, as Kafka Streams' record cache does."""
    if updates[0][1] is None and "@" in (updates[0][0] or ""):
        updates = updates[1:]
    pairs = zip_longest(updates, updates[1:])
    return [now for now, then in pairs if now[1] is not None or then is None or then[2] != now[2]]


def rows(updates: list[Update]) -> dict[Any, Any]:
    return {key: value for key, value in {key: value for key, value, *_ in updates}.items() if value is not None}


@pytest.mark.parametrize("seed", PROGRAMS)
def test_a_program_gives_the_same_however_it_is_written(spark: SparkSession, seed: int) -> None:
    plain = Program(seed, lambda _found: Way.RECORD)
    sent = records(seed, plain.inputs, RECORDS)
    expected = outputs(plain, sent, spark, one_by_one=True)
    for choose in (by_columns, by_chance):
        program = Program(seed, choose(seed))
        if is_refused(program):
            continue
        found = outputs(program, sent, spark, one_by_one=True)
        if not program.multiplies:
            for topic, updates in expected.items():
                assert by_key(found[topic]) == by_key(updates), (topic, program.steps)
        check(program, found, expected)
        again = Program(seed, choose(seed))
        check(again, outputs(again, sent, spark, one_by_one=False), expected)


def check(program: Program, found: dict[str, list[Update]], expected: dict[str, list[Update]]) -> None:
    for topic, same in program.checks.items():
        if same is Same.UPDATES:
            assert by_key(found[topic]) == by_key(expected[topic]), (topic, program.steps)
        elif same is Same.ROWS:
            assert rows(found[topic]) == rows(expected[topic]), (topic, program.steps)


def is_refused(program: Program) -> bool:
    """True if it has Columns where the operator below needs Python values."""
    try:
        stages(program.builder.build())
    except TopologyError as error:
        if "works on columns, but" in str(error):
            return True
        raise
    return False


def test_few_programs_are_refused_in_one_of_their_ways() -> None:
    refused = [is_refused(Program(seed, choose(seed))) for seed in PROGRAMS for choose in (by_columns, by_chance)]
    assert sum(refused) < len(refused) / 4


def test_the_programs_have_each_step_and_way() -> None:
    steps = [step for seed in range(400) for step in Program(seed, by_chance(seed)).steps]
    made = {step.split()[0] for step in steps}
    assert made == {step.__name__.strip("_") for step in (*STREAM_STEPS, *TABLE_STEPS)}
    assert {way for way in Way if any(way.name.lower() in step for step in steps)} == set(Way)

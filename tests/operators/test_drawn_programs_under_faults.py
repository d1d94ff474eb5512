"""What befalls a worker changes nothing: drawn programs write the same records, to output topics and changelogs alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.operators.harness import ALL
from tests.operators.step_harness import StepRun
from tests.spark.drawn_programs import SERDES, TEXT, Program, Way, records
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.topology.nodes import StoreKind, Topology

RECORDS = 90


def drawn(seed: int) -> Program:
    """A program of Python functions."""
    return Program(seed, lambda _ways: Way.RECORD)


def sees_its_worker(seed: int) -> bool:
    """True for programs whose records depend on more than their input: a task that begins calls a punctuator of stream
    time once more, and a worker reads a global topic from the beginning."""
    program = drawn(seed)
    return bool(global_topics(program.builder.build())) or any("on_schedule" in step for step in program.steps)


def joins_without_a_match(seed: int) -> bool:
    """True for programs with outer joins: no changelog says when records without a match were last looked for."""
    return any(store.kind is StoreKind.OUTER_JOIN for store in drawn(seed).builder.build().stores.values())


def has_a_time_of_its_own(seed: int) -> bool:
    """True for programs with suppress, or cogroup in windows: their changelogs don't say how far each node's time has come.
    Kafka Streams knows no such time after any restart."""
    program = drawn(seed)
    stores = program.builder.build().stores.values()
    return any(store.kind is StoreKind.SUPPRESS_BUFFER for store in stores) or any("cogroup_windows" in s for s in program.steps)


PROGRAMS = [seed for seed in range(0, 400, 1 if ALL else 20) if not sees_its_worker(seed)]


def run_of(seed: int) -> tuple[Topology, list[tuple[Any, ...]]]:
    """A program's topology and its records."""
    program = drawn(seed)
    sent = [
        (f"{kind}-in", TEXT.serialize(key), SERDES[kind].serialize(value), time, headers)
        for kind, key, value, time, headers in records(seed, program.inputs, RECORDS)
    ]
    return program.builder.build(), sent


def batches(seed: int, sent: list[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    sizes = random.Random(seed)
    while sent:
        size = sizes.choice((1, 2, 3, 7, 30))
        yield sent[:size]
        sent = sent[size:]


def undisturbed(topology: Topology, seed: int, sent: list[tuple[Any, ...]]) -> StepRun:
    run = StepRun(topology)
    for batch in batches(seed, sent):
        run.pipe(batch)
    return run


def sent_by(run: StepRun) -> list[tuple[Any, ...]]:
    """What was written to output topics and changelogs; not in which batch."""
    return [record[:-1] for record in (*run.written, *run.logged)]


@pytest.mark.parametrize("seed", PROGRAMS)
def test_batches_that_are_lost_and_workers_that_are_replaced_change_no_record(seed: int) -> None:
    topology, sent = run_of(seed)
    expected, run, chance = undisturbed(topology, seed, sent), StepRun(topology), random.Random(seed)
    for batch in batches(seed, sent):
        if chance.random() < 0.3:
            run.lose(batch[: chance.randint(1, len(batch))])
        if chance.random() < 0.3:
            run.replace_workers()
        run.pipe(batch)
    assert sent_by(run) == sent_by(expected)


@pytest.mark.parametrize("seed", [seed for seed in PROGRAMS if not joins_without_a_match(seed)])
def test_stores_that_are_restored_from_their_changelogs_change_no_record(seed: int) -> None:
    """Late records included, except where an operator's time is in no changelog: what was late to it before may not be late to
    the restored one."""
    topology, sent = run_of(seed)
    if has_a_time_of_its_own(seed):
        latest = 0
        for at, (topic, key, value, time, headers) in enumerate(sent):
            latest = max(latest, time)
            sent[at] = topic, key, value, latest, headers
    expected, run, chance = undisturbed(topology, seed, sent), StepRun(topology), random.Random(seed)
    for batch in batches(seed, sent):
        if chance.random() < 0.3:
            run.restore_all(iter(lambda: chance.choice((1, 3, 10, 1000)), 0))
            run.replace_workers()
        run.pipe(batch)
    assert sent_by(run) == sent_by(expected)

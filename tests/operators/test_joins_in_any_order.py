"""Joins of tables end at the same result however records are cut into batches, and however late internal topics are read.

Inputs and internal topics keep their order for each key alone, as over many partitions and tasks. What the join says in
the end is compared with the join of the tables as they are in the end, by a model of a few lines.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tidemill import Materialized, Serdes, StreamsBuilder, Suppressed
from tidemill.dsl.functions import per_record

Table = dict[str, str]
STRING = Serdes.string()


def foreign_key(value: str) -> str | None:
    """The first letter of a left value, none for ``-``."""
    return None if value[0] == "-" else value[0]


def slash(left: str | None, right: str | None) -> str:
    return f"{left}/{right}"


def of_fk_inner(left: Table, right: Table) -> Table:
    return {key: slash(value, right[fk]) for key, value in left.items() if (fk := foreign_key(value)) in right}


def of_fk_left(left: Table, right: Table) -> Table:
    return {key: slash(value, right.get(foreign_key(value) or "")) for key, value in left.items()}


def of_inner(left: Table, right: Table) -> Table:
    return {key: slash(left[key], right[key]) for key in left.keys() & right.keys()}


def of_left(left: Table, right: Table) -> Table:
    return {key: slash(left[key], right.get(key)) for key in left}


def of_outer(left: Table, right: Table) -> Table:
    return {key: slash(left.get(key), right.get(key)) for key in left.keys() | right.keys()}


def _kept(name: str, *, versioned: bool) -> Materialized | None:
    return Materialized(name=name, history_retention=1_000_000) if versioned else None


def _program(kind: str, *, versioned: bool, kept: bool) -> StreamsBuilder:
    b = StreamsBuilder()
    left, right = (b.table(name, store=_kept(f"{name}-store", versioned=versioned)) for name in ("l", "r"))
    store = "joined" if kept else None
    match kind:
        case "fk inner":
            joined = left.join(right, slash, foreign_key=foreign_key, store=store)
        case "fk left":
            joined = left.left_join(right, slash, foreign_key=foreign_key, store=store)
        case "fk of views":
            views = (table.filter(per_record(lambda k, v: True)).map_values(per_record(str, STRING)) for table in (left, right))
            joined = next(views).join(next(views), slash, foreign_key=foreign_key, store=store)
        case "inner":
            joined = left.join(right, slash, store=store)
        case "left":
            joined = left.left_join(right, slash, store=store)
        case _:
            joined = left.outer_join(right, slash, store=store)
    joined.to_stream().to("out")
    return b


MODELS: dict[str, Callable[[Table, Table], Table]] = {
    "fk inner": of_fk_inner, "fk left": of_fk_left, "fk of views": of_fk_inner, "inner": of_inner, "left": of_left,
    "outer": of_outer,
}  # fmt: skip
ROUNDS, RECORDS_IN_A_ROUND = 25, 7
LEFT_VALUES, RIGHT_VALUES = ("a1", "a2", "b1", "b2", "-1", None), ("x", "y", None)


def _records(chance: random.Random, first: int) -> list[tuple[str, str, str | None, int]]:
    """(topic, key, value, timestamp)"""
    found = []
    for at in range(first, first + RECORDS_IN_A_ROUND):
        topic = chance.choice("llr")
        found.append((topic, chance.choice("ab"), chance.choice(LEFT_VALUES if topic == "l" else RIGHT_VALUES), at))
    return found


def _run_in_any_order(run: StepRun, records: list[tuple[Any, ...]], chance: random.Random) -> None:
    """Reads inputs and internal topics in batches of chance, each topic in its order for each key."""
    waiting: dict[Any, deque[Any]] = {}
    for record in records:
        waiting.setdefault(record[:2], deque()).append(record)
    while waiting:
        batch = []
        for _ in range(chance.choice((1, 2, 3, 8))):
            if waiting:
                which = chance.choice(sorted(waiting, key=str))
                batch.append(waiting[which].popleft())
                if not waiting[which]:
                    del waiting[which]
        if chance.random() < 0.1:
            run.follows = -1  # another worker takes over
        run.run_batch(batch)
        for topic, made in run.take_internal().items():
            for record in made:
                waiting.setdefault((topic, record[1]), deque()).append(record)


def _last(run: StepRun) -> Table:
    found = {key: value for topic, key, value, *_ in run.written if topic == "out"}
    return {key.decode(): value.decode() for key, value in found.items() if key is not None and value is not None}


@pytest.mark.parametrize("kept", [False, True], ids=["", "kept"])
@pytest.mark.parametrize("versioned", [False, True], ids=["", "versioned"])
@pytest.mark.parametrize("kind", MODELS)
def test_a_join_ends_at_the_join_of_the_tables(kind: str, versioned: bool, kept: bool) -> None:
    chance = random.Random(f"{kind} {versioned} {kept}")
    run = StepRun(_program(kind, versioned=versioned, kept=kept).build())
    tables: dict[str, dict[str, str | None]] = {"l": {}, "r": {}}
    for number in range(ROUNDS):
        records = _records(chance, 10 + number * RECORDS_IN_A_ROUND)
        _run_in_any_order(run, [(t, k.encode(), None if v is None else v.encode(), at, ()) for t, k, v, at in records], chance)
        for topic, key, value, _at in records:
            tables[topic][key] = value
        left, right = ({key: value for key, value in table.items() if value is not None} for table in tables.values())
        expected = MODELS[kind](left, right)
        assert _last(run) == expected, f"round {number}: {records}"
        if kept:
            assert {key: row[0] for key, row in run.store("joined").all()} == expected


def test_a_foreign_key_join_of_a_row_that_is_another_at_each_look_asks_no_more_than_once() -> None:
    looks = iter(range(1_000))  # itertools.count() can't be pickled from Python 3.14 on
    b = StreamsBuilder()
    left = b.table("l").map_values(per_record(lambda value: f"{value} at {next(looks)}", STRING))
    left.join(b.table("r"), slash, foreign_key=lambda value: value[0]).to_stream().to("out")
    run = StepRun(b.build())
    run.run_batch([("l", b"a", b"x", 10, ())])
    waiting = [("l", b"a", b"y", 11, ()), *(record for made in run.take_internal().values() for record in made)]
    answers = 0
    while waiting:
        answers += sum("RESPONSE" in record[0] for record in waiting)
        assert answers < 5, "each answer asks for another"
        run.run_batch(waiting)
        waiting = [record for made in run.take_internal().values() for record in made]
    assert answers


def test_a_left_row_that_suppress_shows_is_asked_for_again_with_the_time_of_the_answer() -> None:
    """Suppress does not know since when it has what it shows."""
    b = StreamsBuilder()
    left = b.table("l").suppress(Suppressed.until_time_limit(5))
    left.join(b.table("r"), slash, foreign_key=lambda value: value[0]).to_stream().to("out")
    run = StepRun(b.build())
    run.pipe([("r", b"x", b"1", 0, ()), ("l", b"a", b"xy", 1, ()), ("l", b"b", b"x", 10, ())])
    assert [(key, value) for topic, key, value, *_ in run.written if topic == "out"] == [(b"a", b"xy/1")]
    run.run_batch([("l", b"a", b"xz", 20, ()), ("l", b"c", b"x", 30, ())])
    late = [record for made in run.take_internal().values() for record in made if record[2] is not None]
    run.run_batch([("l", b"a", b"xu", 31, ())])  # is held: xz is shown
    run.follows = -1  # another worker takes over, which does not know that xz has asked
    run.pipe([("r", b"x", None, 32, ())])
    run.pipe(late)
    assert _last(run) == {}


class Opaque:
    """A key that looks like every other one, and equals none."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "a key"


class OpaqueSerde:
    name = "opaque"
    sql_type = "string"

    def serialize(self, value: Opaque | None) -> bytes | None:
        return None if value is None else value.text.encode()

    def deserialize(self, data: bytes | None) -> Opaque | None:
        return None if data is None else Opaque(data.decode())


def test_left_rows_of_a_foreign_key_join_are_told_apart_by_the_bytes_of_their_keys() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left", key=OpaqueSerde(), value=STRING), builder.table("right", key=STRING, value=STRING)
    joined = left.join(right, lambda one, other: one + other, foreign_key=lambda value: value[0])
    joined.to_stream().to("out", key=OpaqueSerde(), value=STRING)
    run = StepRun(builder.build())
    run.pipe([("right", b"x", b"R", 1)])
    run.pipe([("left", key, b"x1", 2) for key in (b"a", b"b")])
    # The answer to y1 comes too late; that b still awaits one says nothing of a.
    run.pipe([("left", b"a", b"y1", 3), ("left", b"a", b"y2", 4), ("left", b"b", b"z1", 5)])
    results = {key: value for topic, key, value, *_ in run.written if topic == "out"}
    assert results == {b"a": None, b"b": None}

"""Joins of two streams handled in batches are the operators', record by record: output, rows, changelog and drops."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F

from tests.operators.harness import ALL
from tests.operators.step_harness import StepRun
from tidemill import JoinWindows, Serdes, StreamJoined, StreamsBuilder
from tidemill.steps.vector import retained_rows, window_join
from tidemill.topology.nodes import Topology

STRING, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json("n bigint, t string")
WINDOWS = {
    "both ways": JoinWindows.of_time_difference(300),
    "grace": JoinWindows.of_time_difference(300, grace=4000),
    "only later": JoinWindows.of_time_difference(0, before=-100, after=2000, grace=1000),
    "long": JoinWindows.of_time_difference(90_000, grace=100),
}
Record = tuple[str, bytes | None, bytes | None, int, Any]


def _joined(one: str, other: str) -> str:
    return one + other


def _texts(
    windows: JoinWindows, joined: StreamJoined | None = None, result: Any = _joined, kind: str = "join"
) -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
    getattr(left, kind)(right, result, windows, joined=joined).to("out", key=STRING, value=STRING)
    return builder.build()


def _with_key(key: str, one: str, other: str) -> str:
    return f"{key}:{one}{other}"


def _objects(windows: JoinWindows, kind: str = "join") -> Topology:
    """Values that a joiner may change, and keys and values whose bytes are not written as they were read."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=Serdes.uuid(), value=JSON) for topic in ("left", "right"))

    def join(one: Any, other: Any) -> Any:
        if one is None or other is None:
            return one or other
        one["t"] = f"{one['t']}{other['n']}"[-20:]
        return one

    getattr(left, kind)(right, join, windows).to("out", key=Serdes.uuid(), value=JSON)
    return builder.build()


def _inputs(chance: random.Random, count: int, values: Sequence[bytes | None], keys: Sequence[bytes | None]) -> list[Record]:
    now, found = 100_000, []
    for _ in range(count):
        now += chance.choice((0, 1, 40, 200)) + (chance.random() < 0.02) * chance.choice((5_000, 200_000))
        behind = chance.choice((0, 0, 0, 100, 900, 9000, 130_000))
        header = (("h", b"%d" % now),) if chance.random() < 0.2 else ()
        found.append((chance.choice(("left", "right")), chance.choice(keys), chance.choice(values), max(0, now - behind), header))
    return found


def _compare(
    topology: Topology, given: list[Record], chance: random.Random, restarts: bool, emit_interval_ms: int = 0
) -> int:
    fast, slow = (StepRun(topology, emit_interval_ms=emit_interval_ms) for _ in range(2))
    [step] = slow.compiled.steps
    [graph] = step.graphs
    assert graph.window_join is not None
    slow.compiled.steps = (replace(step, graphs=(replace(graph, window_join=None),)),)
    while given:
        size = chance.choice((1, 3, 20, 150))
        passed = chance.choice((0, 0, 400))
        for run in (fast, slow):
            run.wall_clock += passed
            run.pipe(given[:size])
        given = given[size:]
        assert fast.written == slow.written
        assert fast.logged == slow.logged
        assert fast.dropped == slow.dropped
        for name, rows in slow.rows.items():
            assert fast.rows[name].rows == rows.rows, name
        if restarts and chance.random() < 0.3:  # another owner: nothing is left in memory
            for run in (fast, slow):
                run.epoch += "e"
    return len(fast.written)


LATEST = 2**63 - 1
WIDE = {
    "endless": JoinWindows.of_time_difference(LATEST),
    "endless grace": JoinWindows.of_time_difference(10, grace=LATEST),
    "half": JoinWindows.of_time_difference(LATEST // 2, grace=LATEST // 2),
    "only later": JoinWindows.of_time_difference(0, before=0, after=LATEST),
}


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
@pytest.mark.parametrize("windows", WIDE.values(), ids=WIDE.keys())
def test_at_the_ends_of_time_no_number_overflows(windows: JoinWindows, kind: str) -> None:
    for timestamps in ((0, 1, 5, 100), (2**40, 2**40 + 5, 2**40 + 10**6), (0, 7, LATEST - 30, LATEST)):
        chance = random.Random(1)
        given = [(chance.choice(("left", "right")), b"k", b"v", chance.choice(timestamps), ()) for _ in range(40)]
        _compare(_texts(windows, result=lambda one, other: f"{one}{other}", kind=kind), given, chance, restarts=False)


TEXTS = (b"a", b"b", None, b"\xff broken")
KEYS = (b"k", b"k1", b"", None, b"l")


@pytest.mark.parametrize(("limit", "slack"), [(200_000, 20_000), (200_000, 0), (3, 0)], ids=["all", "all, swept", "key by key"])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
def test_a_batch_joins_keeps_and_drops_what_the_operators_do(
    windows: JoinWindows, limit: int, slack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_rows, "_SLACK", slack)
    monkeypatch.setattr(window_join, "ShownRows", partial(window_join.ShownRows, limit=limit))
    made = 0
    for seed in range(6 if ALL else 2):
        chance = random.Random(seed)
        topology = _texts(windows) if seed % 2 else _texts(windows, result=_with_key)
        made += _compare(topology, _inputs(chance, 400, TEXTS, KEYS), chance, restarts=seed % 3 == 0)
    assert made > 30


def test_values_that_a_joiner_changes_are_kept_as_they_came() -> None:
    values = [b'{"n": 1}', b'{"t": "x",  "n": 2}', None]
    keys = [b"00000000-0000-0000-0000-0000000000a%d" % number for number in range(3)]
    keys.append(keys[0].upper())
    for seed in range(4 if ALL else 2):
        chance = random.Random(seed)
        assert _compare(_objects(WINDOWS["grace"]), _inputs(chance, 300, values, keys), chance, restarts=True)


@pytest.mark.parametrize("logged", [True, False])
def test_stores_in_memory_refuse_by_the_millisecond_as_the_operators_do(logged: bool) -> None:
    for seed in range(6 if ALL else 2):
        chance = random.Random(seed)
        joined = StreamJoined(persistent=False, logged=logged)
        assert _compare(_texts(WINDOWS["grace"], joined=joined), _inputs(chance, 300, TEXTS, KEYS), chance, restarts=False)


def test_an_error_of_the_joiner_names_its_node_and_the_record() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=LONG) for topic in ("left", "right"))
    left.join(right, lambda one, other: one // other, WINDOWS["grace"]).to("out", key=STRING, value=LONG)
    run = StepRun(builder.build())
    zero = bytes(8)
    with pytest.raises(AssertionError, match=r"right-0 at offset 1: .*KSTREAM-JOINOTHER-\d+ failed: ZeroDiv") as raised:
        run.pipe([("left", b"k", zero, 1000, ()), ("right", b"l", zero, 1000, ()), ("right", b"k", zero, 1000, ())])
    assert "task 0_0" in str(raised.value)


def test_a_joiner_that_makes_columns_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # a worker has none, whatever ran here before
    run = StepRun(_texts(WINDOWS["grace"], result=lambda one, other: F.lit(other)))
    with pytest.raises(AssertionError, match=r"KSTREAM-JOINOTHER-\d+ failed: \w+: it is called with Python values, not Columns"):
        run.pipe([("left", b"k", b"x", 1000, ()), ("right", b"k", b"a", 1000, ())])


def test_a_result_that_can_not_be_written_names_the_sink_and_the_record() -> None:
    run = StepRun(_texts(WINDOWS["grace"], result=lambda one, other: 5 if other == "b" else one))
    with pytest.raises(AssertionError, match=r"right-0 at offset 1: KSTREAM-SINK-\d+: string: can't write"):
        run.pipe([("left", b"k", b"x", 1000, ()), ("right", b"k", b"a", 1000, ()), ("right", b"k", b"b", 1000, ())])


def test_more_than_one_join_is_left_to_the_operators() -> None:
    builder = StreamsBuilder()
    one, two, three = (builder.stream(topic, key=STRING, value=STRING) for topic in ("a", "b", "c"))
    one.join(two, _joined, WINDOWS["grace"]).join(three, _joined, WINDOWS["grace"]).to("out", key=STRING, value=STRING)
    assert [graph.window_join for graph in StepRun(builder.build()).compiled.steps[0].graphs] == [None]


@pytest.mark.parametrize("emit_interval_ms", [0, 1000])
@pytest.mark.parametrize("kind", ["left_join", "outer_join"])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
def test_what_waits_for_a_match_waits_and_goes_on_as_with_the_operators(
    windows: JoinWindows, kind: str, emit_interval_ms: int
) -> None:
    for seed in range(6 if ALL else 1):
        chance = random.Random(seed)
        topology = _texts(windows, kind=kind, result=_with_key)
        given = _inputs(chance, 250, TEXTS, KEYS)
        assert _compare(topology, given, chance, restarts=seed % 2 == 0, emit_interval_ms=emit_interval_ms)


def test_values_that_wait_and_may_be_changed_are_kept_as_they_came() -> None:
    values = [b'{"n": 1}', b'{"t": "x",  "n": 2}', None]
    for seed in range(3):
        chance = random.Random(seed)
        given = _inputs(chance, 200, values, [b"00000000-0000-0000-0000-00000000000a", None])
        assert _compare(_objects(WINDOWS["grace"], kind="outer_join"), given, chance, restarts=True)

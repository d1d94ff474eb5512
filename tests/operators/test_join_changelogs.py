"""Changelogs and internal topics of joins: their bytes are Kafka Streams', and what they restore goes on as if unbroken."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.operators import programs_joins
from tests.operators.harness import TASK, Case, MemoryRows, Run, cases, formats, outputs_of, programs_in, start
from tests.operators.vector_values import writer
from tidemill import JoinWindows, Serdes, StreamJoined, StreamsBuilder
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import StoreKind

FORMATS = {name: getattr(programs_joins, name) for name in formats() if hasattr(programs_joins, name)}
PROGRAMS = programs_in(programs_joins)
APPLICATION, CHANGELOG = "app-", "-changelog"


def _start(program: Any, case: Case) -> Run:
    builder = StreamsBuilder()
    program(builder)
    config = case["config"]
    return start(builder.build(optimization=config["topology.optimization"]), config["wall_clock_start_ms"])


def _pipe(run: Run, case: Case, given: dict[str, Any]) -> None:
    kinds = case.get("serdes", {}).get("inputs", {}).get(given["topic"], {"key": "String", "value": "String"})
    headers = tuple((name, text.encode()) for name, text in given.get("headers", {}).items())
    key, value = writer(kinds["key"])(given["key"]), writer(kinds["value"])(given["value"])
    run.pipe(given["seq"], given["topic"], key, value, given["timestamp"], headers)


def _record(key: bytes | None, value: bytes | None, timestamp: int | None, headers: Any, at: int) -> dict[str, Any]:
    return {
        "key_hex": None if key is None else key.hex(), "value_hex": None if value is None else value.hex(),
        "timestamp": timestamp, "headers": [[name, data.hex()] for name, data in headers], "at": at,
    }


def _anew(run: Run) -> TaskGraph:
    """A graph over the same rows, as after a batch that did not count or in another worker."""
    return TaskGraph(
        run.topology, TASK, rows=lambda store: run.rows.setdefault(store, MemoryRows()),
        default_serdes=KeyValueSerdes(key=Serdes.string(), value=Serdes.string()),
        stream_time=run.graph.stream_time, wall_clock=run.graph.wall_clock, emit_interval_ms=0,
    )


@pytest.mark.parametrize("name", FORMATS)
def test_changelogs_and_internal_topics_have_kafka_streams_bytes(name: str) -> None:
    case = formats()[name]
    run = _start(FORMATS[name], case)
    for given in case["inputs"]:
        _pipe(run, case, given)
    for topic, expected in case["topics"].items():
        internal = topic.removeprefix(APPLICATION)
        if topic.endswith(CHANGELOG):
            store = internal.removesuffix(CHANGELOG)
            found = [_record(*logged[1:]) for logged in run.logged if logged[0] == store]
        else:
            found = [_record(*written[1:]) for written in run.written if written[0] == internal]
        assert found == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_operators_recreated_between_batches_go_on_as_if_unbroken(name: str) -> None:
    for case in cases()[name][:2]:
        unbroken, broken = _start(PROGRAMS[name], case), _start(PROGRAMS[name], case)
        chance = random.Random(case["case"])
        for given in case["inputs"]:
            _pipe(unbroken, case, given)
            if chance.random() < 0.2:
                broken.graph = _anew(broken)
            _pipe(broken, case, given)
        assert outputs_of(broken, case) == outputs_of(unbroken, case)
        assert broken.dropped_at == unbroken.dropped_at
        assert broken.logged == unbroken.logged


def _restored(run: Run) -> TaskGraph:
    """A graph whose stores are made of their changelogs; what a source topic serves for comes with the rows."""
    old_rows = dict(run.rows)
    run.rows.clear()
    graph = _anew(run)
    for store, key, value, timestamp, headers, _at in run.logged:
        graph.store(store).restore(key, value, -1 if timestamp is None else timestamp, headers)
    graph.flush()
    for store, rows in old_rows.items():
        if run.topology.stores[store].source_topic is not None:
            run.rows[store] = rows
    return _anew(run)


def _comparable(run: Run, case: Case) -> Any:
    """What must come out: for unmatched records, when they do is the matter of a clock that is not in changelogs."""
    found = outputs_of(run, case)
    if not any(store.kind is StoreKind.OUTER_JOIN for store in run.topology.stores.values()):
        return found
    records = [(record["key"], record["value"], record["timestamp"]) for record in found["out"]]
    return sorted(records, key=str) if case["match"] == "record" else {key: value for key, value, _ in records}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_task_that_is_restored_from_its_changelogs_gives_what_the_old_one_would(name: str) -> None:
    """Half of the inputs, then all stores restored from their changelogs, then the rest, then what closes all windows."""
    for case in cases()[name][:2]:
        last = max(given["timestamp"] for given in case["inputs"])
        kinds = sorted(case["serdes"]["inputs"].items()) * 2
        closing = [
            {
                "seq": 1_000_000 + n, "topic": topic, "key": "end", "value": "-" if kind["value"] == "String" else 0,
                "timestamp": last + 1_000_000 * (n + 1),
            }
            for n, (topic, kind) in enumerate(kinds)
        ]
        broken, unbroken = _start(PROGRAMS[name], case), _start(PROGRAMS[name], case)
        for at, given in enumerate([*case["inputs"], *closing]):
            if at == len(case["inputs"]) // 2:
                broken.graph = _restored(broken)
            _pipe(broken, case, given)
            _pipe(unbroken, case, given)
        assert _comparable(broken, case) == _comparable(unbroken, case)


@pytest.mark.parametrize(("persistent", "expected"), [(True, [b"ab"]), (False, [])])
def test_a_null_value_hides_no_row_of_a_restored_join_that_was_shown(*, persistent: bool, expected: list[bytes]) -> None:
    """A null value is in the changelog of its side; of the window stores it moves the time of those in memory alone."""
    builder, string = StreamsBuilder(), Serdes.string()
    left, right = (builder.stream(name, key=string, value=string) for name in ("left", "right"))
    options = StreamJoined(key=string, value=string, other_value=string, persistent=persistent)
    left.join(right, lambda one, other: one + other, JoinWindows.of_time_difference(1, grace=0), joined=options).to("out")
    unbroken, broken = start(builder.build()), start(builder.build())
    for run in (unbroken, broken):
        run.pipe(0, "left", b"k", b"a", 1_000)
        run.pipe(1, "left", b"k", None, 5_000)
        if run is broken:
            run.graph = _restored(run)
        run.pipe(2, "right", b"k", b"b", 1_000)
        assert [value for topic, _, value, *_ in run.written if topic == "out"] == expected

"""Record caches: of a row's changes in a batch the last goes on, in the order of the last changes, and none of a row that has
come and gone again; every change where the store has no cache or a node below needs each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tests.operators.test_exception_handlers import graph_of
from tidemill import Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized
from tidemill.errors import RecordError
from tidemill.operators.context import RecordMetadata
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.operators.operation_table import record_caches
from tidemill.operators.record import Change
from tidemill.operators.task_graph import Produced

STRING = Serdes.string()
Given = tuple[str, "str | None", int]


class Batches:
    """A program that is given batches, and what it sends to "out" in each: (key, value, timestamp)."""

    def __init__(self, make: Callable[[StreamsBuilder], None], **handlers: Any) -> None:
        builder = StreamsBuilder()
        make(builder)
        self.graph = graph_of(builder, **handlers)
        self._sources = {node.topics[0]: name for name, node in self.graph.topology.nodes.items() if hasattr(node, "topics")}
        self._offset = -1

    def batch(self, *records: Given, topic: str = "in") -> list[tuple[Any, Any, int]]:
        for key, value, timestamp in records:
            self._offset += 1
            data = None if value is None else value.encode()
            origin = RecordMetadata(topic, 0, self._offset)
            self.graph.read(self._sources[topic], origin, key.encode(), data, timestamp, (("h", str(timestamp).encode()),))
        self.graph.flush()
        made = [one.record for one in self.graph.take_produced()]
        self.headers = [record.headers for record in made]
        return [(record.key, record.value, record.timestamp) for record in made]


def last_of_group(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().reduce(lambda _so_far, value: None if value == "-" else value).to_stream().to("out")


def test_the_last_change_of_each_row_goes_on_in_the_order_of_the_last_changes() -> None:
    run = Batches(last_of_group)
    assert run.batch(("a", "1", 5), ("b", "2", 6), ("a", "3", 7)) == [("b", "2", 6), ("a", "3", 7)]
    assert run.headers == [(("h", b"6"),), (("h", b"7"),)]
    assert run.batch() == []
    assert run.batch(("a", "4", 8)) == [("a", "4", 8)]


def test_a_row_that_has_come_and_gone_again_is_not_spoken_of() -> None:
    run = Batches(last_of_group)
    assert run.batch(("a", "1", 5), ("a", "-", 6), ("b", "2", 7)) == [("b", "2", 7)]
    assert run.batch(("b", "-", 8)) == [("b", None, 8)]
    assert run.batch(("b", "1", 9)) == [("b", "1", 9)]
    assert run.batch(("b", "-", 10), ("b", "2", 11), ("b", "-", 12)) == [("b", None, 12)]


def test_a_table_that_is_grouped_subtracts_the_row_before_the_batch() -> None:
    def make(b: StreamsBuilder) -> None:
        grouped = b.table("in").group_by(per_record(lambda key, value: (value, key)), key=STRING, value=STRING)
        grouped.reduce(max, min)

    run = Batches(make)
    assert run.batch(("k", "x", 5), ("l", "x", 6), ("k", "y", 7)) == [("x", Change("l"), 6), ("y", Change("k"), 7)]
    moved = [("y", Change(None, "k"), 9), ("x", Change("k"), 9), ("x", Change(None, "l"), 10)]
    assert run.batch(("k", "z", 8), ("k", "x", 9), ("l", None, 10), ("m", "x", 11), ("m", None, 12)) == moved


@pytest.mark.parametrize("caching", [True, False])
def test_a_store_without_a_cache_forwards_every_change(caching: bool) -> None:
    def make(b: StreamsBuilder) -> None:
        store = Materialized(name="last", caching=caching)
        b.stream("in").group_by_key().reduce(lambda _so_far, value: value, store=store).to_stream().to("out")

    found = Batches(make).batch(("a", "1", 5), ("a", "2", 6))
    assert found == ([] if caching else [("a", "1", 5)]) + [("a", "2", 6)]


def test_a_node_below_that_needs_each_change_gets_each() -> None:
    seen: list[Any] = []

    class Seeing:
        def process(self, record: Any) -> None:
            seen.append(record.value)

    def make(b: StreamsBuilder) -> None:
        table = b.stream("in").group_by_key().reduce(lambda _so_far, value: value)
        table.to_stream().process(Seeing)
        table.to_stream().to("out")

    assert Batches(make).batch(("a", "1", 5), ("a", "2", 6)) == [("a", "1", 5), ("a", "2", 6)]
    assert seen == ["1", "2"]


WINDOWS = {
    "tumbling": (TimeWindows.of_size(10), [("a@0", "13", 7), ("b@0", "2", 6), ("a@20", "4", 25)]),
    "sliding": (SlidingWindows.of_time_difference(1), [("a@4", "1", 5), ("b@5", "2", 6), ("a@6", "3", 7), ("a@24", "4", 25)]),
    "sessions": (SessionWindows.of_inactivity_gap(2), [("b@6", "2", 6), ("a@5", "13", 7), ("a@25", "4", 25)]),
}


@pytest.mark.parametrize("kind", WINDOWS)
def test_each_window_is_a_row(kind: str) -> None:
    windows, expected = WINDOWS[kind]

    def make(b: StreamsBuilder) -> None:
        windowed = b.stream("in").group_by_key().windowed_by(windows)
        kept = windowed.reduce(lambda so_far, value: so_far + value).to_stream()
        kept.select_key(per_record(lambda window, _value: f"{window.key}@{window.start}", STRING)).to("out")

    found = Batches(make).batch(("a", "1", 5), ("b", "2", 6), ("a", "3", 7), ("a", "4", 25))
    assert sorted(found) == sorted(expected)


def test_a_session_that_was_there_before_the_batch_is_taken_back() -> None:
    def make(b: StreamsBuilder) -> None:
        windowed = b.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(2))
        kept = windowed.reduce(lambda so_far, value: so_far + value).to_stream()
        kept.select_key(per_record(lambda window, _value: f"{window.start}-{window.end}", STRING)).to("out")

    run = Batches(make)
    assert run.batch(("a", "1", 5)) == [("5-5", "1", 5)]
    assert run.batch(("a", "2", 7), ("a", "3", 8)) == [("5-5", None, 5), ("5-8", "123", 8)]


@pytest.mark.parametrize("response", [ExceptionResponse.FAIL, ExceptionResponse.DEAD_LETTER])
def test_a_function_that_fails_below_names_the_record_of_the_last_change(response: ExceptionResponse) -> None:
    def make(b: StreamsBuilder) -> None:
        table = b.stream("in").group_by_key().reduce(lambda _so_far, value: value)
        table.to_stream().map_values(per_record(lambda value: str(10 // int(value)), STRING)).to("out")

    run = Batches(make, processing=response)
    records = [("a", "1", 5), ("a", "0", 6), ("b", "5", 7)]
    if response is ExceptionResponse.FAIL:
        with pytest.raises(RecordError, match="ZeroDivisionError") as failure:
            run.batch(*records)
        assert (failure.value.topic, failure.value.offset) == ("in", 1)
        return
    assert run.batch(*records) == [("b", "2", 7)]
    (refused,) = run.graph.take_refused()
    assert (refused.context.topic, refused.context.offset, refused.has_waited) == ("in", 1, False)


def test_a_foreign_key_join_subscribes_the_row_after_the_batch() -> None:
    def make(b: StreamsBuilder) -> None:
        left, right = b.table("in"), b.table("right")
        left.join(right, lambda one, other: one + other, foreign_key=per_record(lambda value: value[0])).to_stream().to("out")

    run = Batches(make)
    assert [key for key, _, _ in run.batch(("k", "x1", 5), ("k", "y1", 6), ("l", "x1", 7), ("k", "x2", 8))] == ["x", "x"]


def test_what_is_counted_behind_a_repartition_topic_is_each_change() -> None:
    def make(b: StreamsBuilder) -> None:
        table = b.stream("in").group_by_key().reduce(lambda _so_far, value: value, store=Materialized(name="last", headers=True))
        changes = table.to_stream().group_by(per_record(lambda _key, value: value, STRING))
        changes.count().to_stream().to("out", value=Serdes.long())

    assert len(Batches(make).batch(("a", "1", 5), ("a", "2", 6))) == 2


def test_a_foreign_key_join_gets_each_change_of_the_right_table_in_its_place() -> None:
    """Held back, it would come behind later subscriptions, and give their results its own, earlier timestamp."""
    b = StreamsBuilder()
    left, right = b.table("in", name="left"), b.table("right", name="right")
    left.join(right, lambda one, other: one + other, foreign_key=per_record(lambda value: value[0])).to_stream().to("out")
    assert record_caches(b.build()) == {"left"}


@pytest.mark.timeout(60)
def test_branches_that_are_merged_again_and_again_are_looked_at_once() -> None:
    """3**25 ways lead from the table to its sink."""
    b = StreamsBuilder()
    stream = b.table("in", name="table", store="kept").to_stream()
    for _ in range(25):
        first, second, third = (stream.map_values(per_record(str)) for _ in range(3))
        stream = first.merge(second).merge(third)
    stream.to("out")
    assert record_caches(b.build()) == {"table"}


class ForeignKeyJoin:
    """Tables "in" and "right", joined to "out"; what is on its way between the two arrives when the test says so."""

    def __init__(self, kind: str) -> None:
        b = StreamsBuilder()
        left, right = b.table("in", name="left"), b.table("right")
        of = per_record(lambda value: value[0])
        getattr(left, kind)(right, lambda one, other: f"{one}+{other}", foreign_key=of).to_stream().to("out")
        assert "left" in record_caches(b.build())
        self.graph = graph_of(b)
        self.results: dict[Any, Any] = {}
        self._sources = {node.topics[0]: name for name, node in self.graph.topology.nodes.items() if hasattr(node, "topics")}
        self._offset = -1

    def change(self, topic: str, key: str, value: str | None) -> None:
        data = None if value is None else value.encode()
        self.graph.read(self._sources[topic], self._origin(topic), key.encode(), data, 5)

    def arrive(self, *sent: Produced) -> list[Produced]:
        for one in sent:
            self.graph.process(self._sources[one.topic], one.record, self._origin(one.topic))
        return self._sent()

    def end_batch(self) -> list[Produced]:
        self.graph.flush()
        return self._sent()

    def settle(self, *sent: Produced) -> None:
        """Batch by batch, until nothing is on its way."""
        while sent:
            sent = (*self.arrive(*sent), *self.end_batch())

    def _sent(self) -> list[Produced]:
        produced = self.graph.take_produced()
        self.results |= {one.record.key: one.record.value for one in produced if one.topic == "out"}
        return [one for one in produced if one.topic != "out"]

    def _origin(self, topic: str) -> RecordMetadata:
        self._offset += 1
        return RecordMetadata(topic, 0, self._offset)


@pytest.mark.parametrize("kind", ["join", "left_join"])
@pytest.mark.parametrize("has_right", [True, False])
def test_the_answer_of_a_foreign_key_join_meets_no_left_row_that_goes_again_with_its_batch(kind: str, has_right: bool) -> None:
    run = ForeignKeyJoin(kind)
    run.change("right", "x", "r")
    if has_right:
        run.change("right", "y", "s")
    run.change("in", "k", "x1")
    run.settle(*run.end_batch())
    assert run.results == {"k": "x1+r"}
    run.change("in", "k", None)
    answers = [*run.arrive(*run.end_batch()), *run.end_batch()]
    run.change("in", "k", "y2")
    sent = run.arrive(*answers)
    run.change("in", "k", None)
    run.settle(*sent, *run.end_batch())
    assert run.results == {"k": None}


def test_the_answer_of_a_foreign_key_join_meets_no_left_row_that_is_as_before_when_its_batch_ends() -> None:
    run = ForeignKeyJoin("join")
    run.change("right", "x", "r")
    run.change("right", "z", "s")
    run.change("in", "k", "x1")
    run.settle(*run.end_batch())
    assert run.results == {"k": "x1+r"}
    run.change("in", "k", "x2")
    late = run.end_batch()
    run.change("right", "x", None)
    answers = run.end_batch()
    late = [*run.arrive(*late), *run.end_batch()]
    run.change("in", "k", "z3")
    sent = run.arrive(*answers)
    run.change("in", "k", "x2")
    run.settle(*late, *sent, *run.end_batch())
    assert run.results == {"k": None}


def test_a_sink_that_fails_on_a_change_that_was_held_back_names_the_source_record() -> None:
    def failing(_topic: str, _key: Any, value: Any, _partitions: int) -> int:
        if "x" in value:
            raise ValueError("no")
        return 0

    builder = StreamsBuilder()
    merged = builder.stream("first").merge(builder.stream("in")).group_by_key()
    kept = merged.windowed_by(SlidingWindows.of_time_difference(1)).reduce(lambda so_far, value: so_far + value)
    kept.to_stream().to("out", partitioner=failing)
    run = StepRun(builder.build())
    with pytest.raises(AssertionError, match=r"in-0 at offset 1: .*the partitioner failed"):
        run.pipe([("first", b"k", b"a", 1, ()), *(("in", key, value, 1, ()) for key, value in ((b"l", b"b"), (b"l", b"x")))])

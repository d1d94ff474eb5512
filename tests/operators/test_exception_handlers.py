"""What processing and production exception handlers do to a task's graph: whom they are asked about, and what goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.harness import MemoryRows
from tidemill import JoinWindows, PunctuationType, Record, Serdes, StreamJoined, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.errors import RecordError, StopError
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.exception_handlers import ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.operators.task_graph import TaskGraph

STRING, LONG = Serdes.string(), Serdes.long()
SOURCE = "KSTREAM-SOURCE-0000000000"
ASIDE = ExceptionHandlers(processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead")


def graph_of(builder: StreamsBuilder, **handlers: Any) -> TaskGraph:
    rows: dict[str, MemoryRows] = {}
    return TaskGraph(
        builder.build(), TaskId(0, 0), rows=lambda name: rows.setdefault(name, MemoryRows()), key_serde=STRING,
        value_serde=STRING, handlers=ExceptionHandlers(**{"dead_letter_topic": "dead", **handlers}),
    )  # fmt: skip


def dividing() -> StreamsBuilder:
    """Two children of one source: the first fails at 0."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=LONG)
    numbers.map_values(per_record(lambda v: 10 // v, LONG), name="divides").to("out")
    numbers.map_values(per_record(lambda v: v + 1, LONG), name="adds").to("sums", value=LONG)
    return builder


def send(graph: TaskGraph, *values: Any) -> list[tuple[str, Any]]:
    for offset, value in enumerate(values):
        graph.process(SOURCE, Record("k", value, 5, (("h", b"1"),)), RecordMetadata("in", 0, offset))
    return [(made.topic, made.record.value) for made in graph.take_produced()]


def test_the_failed_node_drops_the_record_and_all_others_go_on() -> None:
    graph = graph_of(dividing(), processing=ExceptionResponse.CONTINUE)
    assert send(graph, 2, 0, 5) == [("out", 5), ("sums", 3), ("sums", 1), ("out", 2), ("sums", 6)]
    assert graph.dropped == 1
    (refused,) = graph.take_refused()
    assert (refused.error, refused.is_letter) == ("builtins.ZeroDivisionError", False)
    assert graph.take_refused() == []


def test_a_self_join_forwards_nothing_of_a_record_that_its_joiner_fails_on_and_moves_no_time() -> None:
    """As KStreamKStreamSelfJoin 4.3, which calls the joiner for the record itself before anything else."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    joiner = per_record(lambda one, other: f"{one}{other}" if one + other != "xx" else 1 / 0, STRING)
    windows = JoinWindows.of_time_difference(10)
    stream.join(stream, joiner, windows, joined=StreamJoined(key=STRING, value=STRING, other_value=STRING)).to("out")
    rows: dict[str, MemoryRows] = {}
    graph = TaskGraph(
        builder.build(optimization="all"), TaskId(0, 0), rows=lambda name: rows.setdefault(name, MemoryRows()),
        key_serde=STRING, value_serde=STRING, handlers=ExceptionHandlers(processing=ExceptionResponse.CONTINUE),
    )  # fmt: skip
    for offset, (value, time) in enumerate([("a", 100), ("x", 105), ("x", 900), ("b", 101)]):
        graph.process(SOURCE, Record("k", value, time), RecordMetadata("in", 0, offset))
    assert [made.record.value for made in graph.take_produced()] == ["aa", "bb"]
    assert graph.dropped == 2


def test_fail_is_the_default_and_names_the_record() -> None:
    with pytest.raises(RecordError, match="in-0 at offset 1: the function of divides failed: ZeroDivisionError"):
        send(graph_of(dividing()), 2, 0)


def test_a_handler_of_ones_own_gets_place_record_and_error() -> None:
    asked: list[tuple[ErrorContext, Any, Exception]] = []

    def handler(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        asked.append((context, record, error))
        return ExceptionResponse.DEAD_LETTER

    graph = graph_of(dividing(), processing=handler)
    send(graph, 0)
    ((context, record, error),) = asked
    assert (context.task, context.node, context.topic, context.offset, context.timestamp) == (TaskId(0, 0), "divides", "in", 0, 5)
    assert (record, type(error)) == (Record("k", 0, 5, (("h", b"1"),)), ZeroDivisionError)
    (refused,) = graph.take_refused()
    assert refused.is_letter
    assert "10 // v" in refused.stacktrace or "ZeroDivisionError" in refused.stacktrace


def test_a_handler_that_fails_or_answers_nonsense_stops_and_is_said_to_with_what_it_was_asked_about() -> None:
    asked = r"\(asked about ZeroDivisionError: .*\)"
    said = rf"at offset 0: divides: processing\.exception\.handler returned {{}}, expected one of ExceptionResponse\..* {asked}"
    for nonsense in ("perhaps", None):
        with pytest.raises(RecordError, match=said.format(repr(nonsense))):
            send(graph_of(dividing(), processing=lambda *asked, answer=nonsense: answer), 0)
    with pytest.raises(RecordError, match=rf"at offset 0: divides: processing\.exception\.handler failed: KeyError: 'x' {asked}"):
        send(graph_of(dividing(), processing=lambda *asked: {}["x"]), 0)
    with pytest.raises(RecordError, match=rf"asks for a dead letter: set errors\.dead\.letter\.queue\.topic\.name {asked}"):
        send(graph_of(dividing(), processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic=None), 0)


def test_what_a_sink_cannot_write_is_the_production_handlers_matter() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(per_record(lambda v: v if v else "none")).to("out", value=LONG)
    with pytest.raises(RecordError, match="KSTREAM-SINK"):
        send(graph_of(builder, processing=ExceptionResponse.CONTINUE), 0)
    graph = graph_of(builder, production=ExceptionResponse.CONTINUE)
    assert send(graph, 1, 0, 2) == [("out", 1), ("out", 2)]
    assert graph.dropped == 1


class Ticking:
    def init(self, context: Any) -> None:
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def tick(self, now: int) -> None:
        raise OSError("no tick")

    def process(self, record: Record) -> None:
        del record


def test_a_punctuator_that_fails_is_asked_about_without_a_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).process(Ticking)
    with pytest.raises(StopError, match="in a punctuator: the function of KSTREAM-PROCESSOR"):
        send(graph_of(builder), 1)
    graph = graph_of(builder, processing=ExceptionResponse.DEAD_LETTER)
    send(graph, 1)
    (refused,) = graph.take_refused()
    assert (refused.context.offset, refused.message) == (None, "no tick")

"""What processing and production exception handlers do to a task's graph: whom they are asked about, and what goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from tests.operators.harness import MemoryRows
from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    PunctuationType,
    Record,
    Serdes,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from tidemill.dsl.functions import per_record
from tidemill.errors import RecordError, StopError
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.exception_handlers import DeadLetter, ErrorContext, ExceptionHandlers, ExceptionResponse, Refused
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import SourceNode

STRING, LONG = Serdes.string(), Serdes.long()
SOURCE = "KSTREAM-SOURCE-0000000000"
ASIDE = ExceptionHandlers(processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead")


def graph_of(
    builder: StreamsBuilder, nodes: set[str] | None = None, exits: Mapping[str, KeyValueSerdes] = MappingProxyType({}),
    **handlers: Any,
) -> TaskGraph:  # fmt: skip
    rows: dict[str, MemoryRows] = {}
    return TaskGraph(
        builder.build(), TaskId(0, 0), rows=lambda name: rows.setdefault(name, MemoryRows()), nodes=nodes, exits=exits,
        default_serdes=KeyValueSerdes(key=STRING, value=STRING),
        handlers=ExceptionHandlers(**{"dead_letter_topic": "dead", **handlers}),
    )  # fmt: skip


def dividing() -> StreamsBuilder:
    """Two children of one source: the first fails at 0."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=LONG)
    numbers.map_values(per_record(lambda v: 10 // v, LONG), name="divides").to("out")
    numbers.map_values(per_record(lambda v: v + 1, LONG), name="adds").to("sums", value=LONG)
    return builder


def said(refused: Refused, what: str) -> str:
    (letter,) = refused.letters
    text = dict(letter.headers)[f"__streams.errors.{what}"]
    return "" if text is None else text.decode()


def raw_sides(graph: TaskGraph) -> list[tuple[bytes | None, bytes | None]]:
    contexts = [refused.context for refused in graph.take_refused()]
    return [(context.source_raw_key, context.source_raw_value) for context in contexts]


def send(graph: TaskGraph, *values: Any) -> list[tuple[str, Any]]:
    for offset, value in enumerate(values):
        graph.process(SOURCE, Record("k", value, 5, (("h", b"1"),)), RecordMetadata("in", 0, offset))
        graph.flush()
    return [(made.topic, made.record.value) for made in graph.take_produced()]


def test_the_failed_node_drops_the_record_and_all_others_go_on() -> None:
    graph = graph_of(dividing(), processing=ExceptionResponse.CONTINUE)
    assert send(graph, 2, 0, 5) == [("out", 5), ("sums", 3), ("sums", 1), ("out", 2), ("sums", 6)]
    assert graph.dropped == 1
    (refused,) = graph.take_refused()
    assert (refused.error, refused.letters) == ("builtins.ZeroDivisionError", ())
    assert graph.take_refused() == []


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


def raises(problem: BaseException) -> Any:
    raise problem


def failing_by(problem: BaseException) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(per_record(lambda _: raises(problem), LONG), name="fails").to("out")
    return builder


def test_an_exception_without_a_text_is_told_by_its_class() -> None:
    with pytest.raises(RecordError, match=r"fails failed: SilentError: \(no text: its __str__ raised RuntimeError\)"):
        send(graph_of(failing_by(SilentError())), 1)
    graph = graph_of(failing_by(SilentError()), processing=ExceptionResponse.DEAD_LETTER)
    assert send(graph, 1) == []
    (refused,) = graph.take_refused()
    assert (refused.error.rpartition(".")[2], refused.message) == ("SilentError", "(no text: its __str__ raised RuntimeError)")


def test_an_exception_with_an_endless_text_is_told_by_its_beginning_and_end() -> None:
    """Its dead letter would be too large for any topic."""
    endless = ValueError("begin" + "x" * 3_000_000 + "end")
    graph = graph_of(failing_by(endless), processing=ExceptionResponse.DEAD_LETTER)
    send(graph, 1)
    (refused,) = graph.take_refused()
    for text in (refused.message, said(refused, "stacktrace")):
        assert len(text) < 11_000
        assert text.rstrip().endswith("end")
    assert refused.message.startswith("begin")
    with pytest.raises(RecordError) as failed:
        send(graph_of(failing_by(endless)), 1)
    assert len(str(failed.value)) < 11_000


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
        default_serdes=KeyValueSerdes(key=STRING, value=STRING),
        handlers=ExceptionHandlers(processing=ExceptionResponse.CONTINUE),
    )  # fmt: skip
    for offset, (value, time) in enumerate([("a", 100), ("x", 105), ("x", 900), ("b", 101)]):
        graph.process(SOURCE, Record("k", value, time), RecordMetadata("in", 0, offset))
    assert [made.record.value for made in graph.take_produced()] == ["aa", "bb"]
    assert graph.dropped == 2


@pytest.mark.parametrize(("caching", "closed"), [(True, [("k", 1)]), (False, [])])
def test_a_record_that_fails_closes_the_windows_before_it_all_the_same(caching: bool, closed: list[tuple[str, int]]) -> None:
    """Its time counts, as in Kafka Streams; without a cache what has expired by the next record is lost there."""
    builder = StreamsBuilder()
    windows = builder.stream("in", key=STRING, value=LONG).group_by_key().windowed_by(TimeWindows.of_size(10))
    final = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).aggregate(
        lambda: 0, per_record(lambda _key, value, sum_: sum_ + 10 // value), store=Materialized(value=LONG, caching=caching)
    )
    final.to_stream().select_key(per_record(lambda key, _value: key.key, STRING)).to("out", value=LONG)
    graph = graph_of(builder, processing=ExceptionResponse.CONTINUE)
    for offset, (value, time) in enumerate([(10, 1), (0, 1_000), (5, 2_000)]):
        graph.process(SOURCE, Record("k", value, time), RecordMetadata("in", 0, offset))
    assert [(made.record.key, made.record.value) for made in graph.take_produced()] == closed
    assert graph.dropped == 1


class TwoTopics:
    """A graph that reads two topics, and what its handler was told."""

    def __init__(self, builder: StreamsBuilder, response: ExceptionResponse = ExceptionResponse.DEAD_LETTER) -> None:
        topology, rows = builder.build(), dict[str, MemoryRows]()
        self.asked: list[tuple[str, int | None, Any]] = []

        def handler(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
            self.asked.append((context.topic, context.offset, record))
            return response

        self.graph = TaskGraph(
            topology, TaskId(0, 0), rows=lambda name: rows.setdefault(name, MemoryRows()),
            default_serdes=KeyValueSerdes(key=STRING, value=STRING),
            handlers=ExceptionHandlers(processing=handler, dead_letter_topic="dead"),
        )  # fmt: skip
        self._sources = {node.topics[0]: name for name, node in topology.nodes.items() if isinstance(node, SourceNode)}
        self._offset = 0

    def send(self, topic: str, value: str, timestamp: int, key: str = "k") -> list[tuple[Any, int]]:
        """Value and timestamp of each result."""
        origin = RecordMetadata(topic, 0, self._offset)
        self.graph.process(self._sources[topic], Record(key, value, timestamp, (("h", b"1"),)), origin)
        self._offset += 1
        return [(made.record.value, made.record.timestamp) for made in self.graph.take_produced()]


def failing_on_bad(left: str, right: str | None) -> str:
    if left == "bad":
        raise ValueError("no")
    return f"{left}+{right}"


def table_join_with_grace() -> StreamsBuilder:
    builder = StreamsBuilder()
    table = builder.table("table", store=Materialized(name="kept", history_retention=100))
    builder.stream("in").left_join(table, per_record(failing_on_bad), joined=Joined(grace=5)).to("out")
    return builder


def test_of_records_that_have_waited_for_a_table_only_those_that_the_joiner_fails_on_are_skipped_in_their_own_names() -> None:
    run = TwoTopics(table_join_with_grace())
    run.send("table", "t", 0)
    assert [run.send("in", value, at) for at, value in enumerate(["a", "bad", "c"], start=1)] == [[], [], []]
    assert run.send("in", "d", 20) == [("a+t", 1), ("c+t", 3)]
    assert run.send("in", "e", 40) == [("d+t", 20)]
    assert run.asked == [("in", 2, Record("k", "bad", 2, (("h", b"1"),)))]
    assert run.graph.dropped == 1
    assert raw_sides(run.graph) == [(b"k", b"bad")]


def left_join() -> StreamsBuilder:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference(5)
    builder.stream("in").left_join(builder.stream("other"), per_record(failing_on_bad), windows).to("out")
    return builder


def test_of_records_that_have_waited_for_a_match_only_those_that_the_joiner_fails_on_are_skipped_and_none_comes_twice() -> None:
    run = TwoTopics(left_join())
    for at, value in enumerate(["a", "b", "bad", "c"], start=1):
        run.send("in", value, at)
    run.send("in", "bad", 3)  # and two values in one row
    run.send("in", "d", 3)
    first = run.send("other", "x", 30)
    assert first == [("a+None", 1), ("b+None", 2), ("d+None", 3), ("c+None", 4)]
    assert run.send("in", "e", 31) == [("e+x", 31)], "what has come does not come again"
    assert run.asked == [("", None, Record("k", "bad", 3))] * 2
    assert raw_sides(run.graph) == [(b"k", b"bad")] * 2


def suppressed() -> StreamsBuilder:
    builder = StreamsBuilder()
    held = builder.table("in", store="rows").suppress(Suppressed.until_time_limit(5))
    held.to_stream().map_values(per_record(lambda v: failing_on_bad(v, ""))).to("out")
    return builder


def joined_with_grace() -> StreamsBuilder:
    builder = StreamsBuilder()
    table = builder.table("table", store=Materialized(name="rows", history_retention=100))
    joined = builder.stream("in").left_join(table, per_record(lambda v, _row: v), joined=Joined(grace=5))
    joined.map_values(per_record(lambda v: failing_on_bad(v, ""))).to("out")
    return builder


def joined_with_grace_into_a_table() -> StreamsBuilder:
    """The table's record cache holds the record until the batch ends."""
    builder = StreamsBuilder()
    table = builder.table("table", store=Materialized(name="rows", history_retention=100))
    joined = builder.stream("in").left_join(table, per_record(lambda v, _row: v), joined=Joined(grace=5))
    kept = joined.to_table(store="kept").to_stream()
    kept.map_values(per_record(lambda v: failing_on_bad(v, ""))).to("out")
    return builder


@pytest.mark.parametrize("program", [suppressed, joined_with_grace, joined_with_grace_into_a_table])
def test_the_letter_of_a_record_that_had_waited_and_fails_below_has_its_key_and_value(
    program: Callable[[], StreamsBuilder],
) -> None:
    run = TwoTopics(program())
    run.send("in", "bad", 1)
    run.send("in", "b", 20, "l")  # lets the one before it go
    run.graph.flush()
    assert run.asked == [("in", 0, Record("k", "bad", 1, (("h", b"1"),)))]
    assert raw_sides(run.graph) == [(b"k", b"bad")]


@pytest.mark.parametrize(
    ("program", "where"),
    [(table_join_with_grace, "in-0 at offset 1: "), (left_join, "task 0_0, of a record that had waited since 2: ")],
)
def test_a_thread_that_ends_on_a_record_that_has_waited_names_that_one(
    program: Callable[[], StreamsBuilder], where: str
) -> None:
    run = TwoTopics(program(), ExceptionResponse.FAIL)
    run.send("in", "a", 1)
    run.send("in", "bad", 2)
    with pytest.raises(StopError, match=f"{where}.*JOIN.*failed: ValueError: no"):
        run.send("in", "d", 20)


def test_fail_is_the_default_and_names_the_record() -> None:
    with pytest.raises(RecordError, match="in-0 at offset 1: the function of divides failed: ZeroDivisionError"):
        send(graph_of(dividing()), 2, 0)


class OwnBaseError(BaseException):
    """No Exception: nothing that catches those sees it."""


@pytest.mark.parametrize("problem", [KeyboardInterrupt("by hand"), SystemExit(3), GeneratorExit("early"), OwnBaseError("own")])
def test_what_is_no_exception_names_node_and_record_and_no_handler_is_asked_about_it(problem: BaseException) -> None:
    """As an Error of Java's: it is not the processing exception handler's, but the uncaught one's."""
    said = rf"in-0 at offset 0: the function of fails failed: {type(problem).__name__}: {problem}"
    for answer in (ExceptionResponse.FAIL, ExceptionResponse.CONTINUE):
        with pytest.raises(RecordError, match=said):
            send(graph_of(failing_by(problem), processing=answer), 1)


def test_a_handler_that_exits_has_failed() -> None:
    with pytest.raises(RecordError, match=r"divides: processing\.exception\.handler failed: SystemExit: no \(asked about Zero"):
        send(graph_of(dividing(), processing=lambda *asked: raises(SystemExit("no"))), 0)


def test_an_answer_that_can_not_be_shown_is_told_all_the_same() -> None:
    said = r"in-0 at offset 0: divides: .*handler returned <SilentError, whose __repr__ raised RuntimeError>, expected one of"
    with pytest.raises(RecordError, match=said):
        send(graph_of(dividing(), processing=lambda *asked: SilentError()), 0)


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
    assert "ZeroDivisionError" in said(refused, "stacktrace")


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


def test_a_handler_gives_dead_letters_of_its_own_where_it_wants_them() -> None:
    """KIP-1034: Response.resume(records)."""
    given: dict[str, Any] = {
        "one": DeadLetter(topic="bad-numbers", value=b"v"),
        "several": [DeadLetter(topic="a", key=b"1"), DeadLetter(topic="b", key=b"2", partition=3, timestamp=7)],
        "none": [],
    }
    graph = graph_of(dividing(), processing=lambda context, record, error: given[record.headers[0][0]], dead_letter_topic=None)
    for name in given:
        graph.process(SOURCE, Record("k", 0, 5, ((name, None),)), RecordMetadata("in", 0, 0))
    assert [list(refused.letters) for refused in graph.take_refused()] == [[given["one"]], given["several"], []]
    assert graph.dropped == 3


def test_the_standard_letter_can_go_to_a_topic_of_choice() -> None:
    graph = graph_of(dividing(), processing=lambda context, record, error: DeadLetter.of(context, error, "divisions"))
    graph.source_bytes = lambda origin: (b"raw key", b"raw value of %d" % (origin.offset or 0))
    send(graph, 1, 0)
    (refused,) = graph.take_refused()
    (letter,) = refused.letters
    assert (letter.topic, letter.key, letter.value, letter.timestamp) == ("divisions", b"raw key", b"raw value of 1", 5)
    assert [name.removeprefix("__streams.errors.") for name, _ in letter.headers] == [
        "h", "exception", "message", "stacktrace", "topic", "partition", "offset",
    ]  # fmt: skip
    assert said(refused, "exception") == "builtins.ZeroDivisionError"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"topic": "a b"}, r"the topic is 'a b', expected the name of a topic: only ASCII"),
        ({"topic": None}, r"the topic is None, expected the name of a topic: it is of type NoneType"),
        ({"key": "k"}, r"the key is 'k', of type str, expected bytes or None: serialize it"),
        ({"value": bytearray(b"v")}, r"the value is bytearray\(b'v'\), of type bytearray, expected bytes"),
        ({"partition": -1}, r"the partition is -1, expected a number from 0, or None"),
        ({"partition": True}, r"the partition is True, expected"),
        ({"timestamp": -5}, r"the timestamp is -5, expected one from 0"),
        ({"timestamp": "now"}, r"the timestamp 'now' is of type str"),
        ({"headers": {"a": b"1"}}, r"the headers are of type dict"),
        ({"headers": [("a", "1")]}, r"the value of the header 'a' is of type str"),
    ],
)
def test_a_letter_that_no_topic_can_take_ends_the_thread_with_what_is_wrong(fault: dict[str, Any], reason: str) -> None:
    letter = DeadLetter(**{"topic": "dead", **fault})
    where = r"at offset 0: divides: processing\.exception\.handler returned a dead letter that can't be sent: "
    with pytest.raises(RecordError, match=f"{where}{reason}.*asked about ZeroDivisionError"):
        send(graph_of(dividing(), processing=lambda *asked: letter), 0)


def test_headers_that_no_producer_takes_are_sent_on_with_a_letter_if_the_record_came_with_them() -> None:
    graph = graph_of(dividing(), processing=lambda context, record, error: DeadLetter.of(context, error, "dead"))
    graph.process(SOURCE, Record("k", 0, 5, (("a\0b", b"1"),)), RecordMetadata("in", 0, 0))
    ((first, *_),) = [refused.letters[0].headers for refused in graph.take_refused()]
    assert first == ("a\0b", b"1")


def test_what_a_sink_cannot_write_is_the_production_handlers_matter() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).map_values(per_record(lambda v: v if v else "none")).to("out", value=LONG)
    with pytest.raises(RecordError, match="KSTREAM-SINK"):
        send(graph_of(builder, processing=ExceptionResponse.CONTINUE), 0)
    graph = graph_of(builder, production=ExceptionResponse.CONTINUE)
    assert send(graph, 1, 0, 2) == [("out", 1), ("out", 2)]
    assert graph.dropped == 1


def test_what_functions_of_columns_cannot_be_given_is_the_processing_handlers_matter() -> None:
    builder = StreamsBuilder()
    made = builder.stream("in", key=STRING, value=LONG).map_values(per_record(lambda v: v or "none", LONG), name="makes")
    made.map_values(lambda v: v + 1, name="adds").to("out", value=LONG)

    def graph(**handlers: Any) -> TaskGraph:
        return graph_of(builder, nodes={SOURCE, "makes"}, exits={"adds": KeyValueSerdes(key=STRING, value=LONG)}, **handlers)

    with pytest.raises(RecordError, match="in-0 at offset 1: adds: its function works on columns, and what goes to it can't"):
        send(graph(production=ExceptionResponse.CONTINUE), 1, 0)
    passing = graph(processing=ExceptionResponse.CONTINUE)
    send(passing, 1, 0, 2)
    assert [given.value for given in passing.take_handed_over()] == [LONG.serialize(1), LONG.serialize(2)]
    (refused,) = passing.take_refused()
    assert (passing.dropped, refused.context.node, refused.context.offset) == (1, "adds", 1)


class Ticking:
    def __init__(self, clock: PunctuationType = PunctuationType.STREAM_TIME) -> None:
        self.clock = clock

    def init(self, context: Any) -> None:
        context.schedule(10, self.clock, self.tick)

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


class Sending(Ticking):
    def init(self, context: Any) -> None:
        super().init(context)
        self.context = context

    def tick(self, now: int) -> None:
        self.context.forward(Record("k", 0, now))


def test_a_record_of_a_punctuator_that_fails_below_has_not_waited() -> None:
    builder = StreamsBuilder()
    sent = builder.stream("in", key=STRING, value=LONG).process(Sending, key=STRING, value=LONG)
    sent.map_values(per_record(lambda v: 10 // v, LONG), name="divides").to("out")
    with pytest.raises(StopError, match="task 0_0, in a punctuator: the function of divides failed: ZeroDivisionError"):
        send(graph_of(builder), 1)


@pytest.mark.parametrize(("clock", "time"), [(PunctuationType.STREAM_TIME, 5), (PunctuationType.WALL_CLOCK_TIME, 1_000)])
def test_a_punctuator_that_fails_has_the_time_that_it_was_called_with(clock: PunctuationType, time: int) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).process(lambda: Ticking(clock))
    graph = graph_of(builder, processing=ExceptionResponse.DEAD_LETTER)
    send(graph, 1)
    graph.advance_wall_clock(1_000)
    (refused,) = graph.take_refused()
    assert refused.context.timestamp == time

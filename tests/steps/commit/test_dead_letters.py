"""Records that exception handlers pass over, through the steps of a worker: what goes on, what is put aside, what is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tidemill import ProcessorContext, PunctuationType, Record, Serdes, StreamsBuilder, per_record
from tidemill.errors import RecordTooLargeError
from tidemill.operators.exception_handlers import FAILING, DeadLetter, ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.operators.task_graph import TaskGraph, no_source_bytes
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.task.raw_records import RecordColumns
from tidemill.testing.topics import RawRecord

STRING, LONG = Serdes.string(), Serdes.long()
ASIDE = ExceptionHandlers(
    processing=ExceptionResponse.DEAD_LETTER, production=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead"
)


def run_of(builder: StreamsBuilder, handlers: ExceptionHandlers) -> StepRun:
    run = StepRun(builder.build())
    for worker in run.workers:
        worker.unreadable = Unreadable(
            handler=ExceptionResponse.FAIL, topic=handlers.dead_letter_topic, expected={}, handlers=handlers
        )
        worker.graphs = KeptGraphs(handlers)
    return run


def number(value: str) -> int:
    return int(value)


def counting_numbers() -> StreamsBuilder:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=STRING).map_values(per_record(number, LONG))
    numbers.to("out", value=LONG)
    numbers.group_by(per_record(lambda k, v: str(v % 2), STRING), value=LONG).count(store="counts")
    return builder


def sent(*values: bytes) -> list[tuple[Any, ...]]:
    return [("in", b"k%d" % at, value, 100 + at, (("own", b"1"),)) for at, value in enumerate(values)]


def test_a_record_put_aside_is_the_sources_with_its_own_headers_and_those_of_the_error() -> None:
    run = run_of(counting_numbers(), ASIDE)
    run.pipe(sent(b"1", b"one", b"2"))
    by_topic: dict[str, list[Any]] = {}
    for topic, *rest in run.written:
        by_topic.setdefault(topic, []).append(rest)
    assert [row[1] for row in by_topic["out"]] == [LONG.serialize(1), LONG.serialize(2)]
    ((key, value, timestamp, headers, _batch),) = by_topic["dead"]
    assert (key, value, timestamp) == (b"k1", b"one", 101)
    said = dict(headers)
    assert said.pop("__streams.errors.stacktrace").endswith(b"ValueError: invalid literal for int() with base 10: 'one'\n")
    assert said == {
        "own": b"1",
        "__streams.errors.exception": b"builtins.ValueError",
        "__streams.errors.message": b"invalid literal for int() with base 10: 'one'",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"1",
    }
    assert run.dropped == 1


def to_two_topics(context: ErrorContext, record: Record | None, error: Exception) -> list[DeadLetter]:
    del record
    whole = DeadLetter(topic="originals", key=context.source_raw_key, value=context.source_raw_value, partition=0)
    return [whole, DeadLetter(topic="reasons", value=str(error).encode(), timestamp=7, headers=(("why", b"no number"),))]


@pytest.mark.parametrize("steps", [1, 2])
def test_letters_of_a_handlers_own_go_where_it_says_with_the_batch_also_from_an_earlier_step(steps: int) -> None:
    run = run_of(counting_numbers(), ExceptionHandlers(processing=to_two_topics))
    if steps == 2:
        [step] = run.compiled.steps
        run.compiled.steps = (replace(step, last=False), replace(step, number=2, graphs=()))
        run.workers.insert(0, replace(run.workers[0], graphs=KeptGraphs(run.workers[0].unreadable.handlers)))
    report = run.run_at(sent(b"1", b"one"), 0)
    letters = {topic: rest for topic, *rest, _batch in run.written if topic in ("originals", "reasons")}
    assert letters == {
        "originals": [b"k1", b"one", 101, ()],
        "reasons": [None, b"invalid literal for int() with base 10: 'one'", 7, (("why", b"no number"),)],
    }
    assert (report.skipped, report.dropped) == (1, 1)


def test_a_graph_that_is_kept_holds_no_records_of_its_last_batch() -> None:
    """They would stay in memory until the next batch comes."""
    run = run_of(counting_numbers(), ASIDE)
    run.pipe(sent(b"1", b"one"))
    kept = [one.graph for one in run.workers[-1].graphs._kept.values() if isinstance(one.graph, TaskGraph)]
    assert kept
    assert {graph.source_bytes for graph in kept} == {no_source_bytes}


def test_a_letter_for_a_partition_that_there_is_not_ends_the_thread() -> None:
    handlers = ExceptionHandlers(processing=lambda *asked: DeadLetter(topic="dead", partition=9))
    said = r"a dead letter for partition 9 of dead, which has the partitions 0 to \d; expected one of them"
    with pytest.raises(AssertionError, match=f"stopped: .*{said}"):
        run_of(counting_numbers(), handlers).pipe(sent(b"one"))


class FailsWhenCalled:
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10, PunctuationType.STREAM_TIME, self.punctuate)

    def process(self, record: Record) -> None:
        self.context.forward(record)

    def punctuate(self, now: int) -> None:
        raise RuntimeError


def test_the_letter_of_a_punctuator_has_no_origin_and_says_so_as_kafka_streams_does() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).process(FailsWhenCalled).to("out", key=STRING, value=STRING)
    run = run_of(builder, ASIDE)
    run.pipe(sent(b"a"))
    ((key, value, headers),) = [(key, value, headers) for topic, key, value, _t, headers, _b in run.written if topic == "dead"]
    said = {name.removeprefix("__streams.errors."): text for name, text in headers}
    assert (key, value, said["message"]) == (None, None, b"")
    assert (said["topic"], said["partition"], said["offset"]) == (None, b"-1", b"-1")


def test_a_record_put_aside_is_the_one_of_its_own_topic() -> None:
    builder = StreamsBuilder()
    both = builder.stream("other", key=STRING, value=STRING).merge(builder.stream("in", key=STRING, value=STRING))
    both.map_values(per_record(number, LONG)).to("out", value=LONG)
    run = run_of(builder, ASIDE)
    run.pipe([("other", b"a", b"1", 100, ()), ("in", b"b", b"one", 101, ())])  # both are in-0 and other-0 at offset 0
    assert [(key, value) for topic, key, value, *_ in run.written if topic == "dead"] == [(b"b", b"one")]


def test_what_is_passed_over_is_counted_and_said_in_the_report() -> None:
    handlers = ExceptionHandlers(processing=ExceptionResponse.CONTINUE)
    run = run_of(counting_numbers(), handlers)
    report = run.run_at(sent(b"one", b"two", b"3"), 0)
    assert report.skipped == 2
    assert "2 records were skipped, the first: task 0_0, in-0 at offset 0: KSTREAM-MAPVALUES" in report.message
    assert {topic for topic, *_ in run.written} == {"out", "app-counts-repartition"}


def test_what_an_earlier_step_has_passed_over_is_counted_and_said_as_well() -> None:
    run = run_of(counting_numbers(), ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    [step] = run.compiled.steps
    run.compiled.steps = (replace(step, last=False), replace(step, number=2, graphs=()))
    run.workers.insert(0, replace(run.workers[0], graphs=KeptGraphs(run.workers[0].unreadable.handlers)))
    report = run.run_at(sent(b"one", b"two", b"3"), 0)
    assert (report.skipped, report.dropped) == (2, 2)
    assert "2 records were skipped, the first: task 0_0, in-0 at offset 0: KSTREAM-MAPVALUES" in report.message


def test_without_a_handler_the_batch_stops_with_the_record() -> None:
    with pytest.raises(AssertionError, match=r"task 0_0, in-0 at offset 0: the function of KSTREAM-MAPVALUES"):
        run_of(counting_numbers(), FAILING).pipe(sent(b"one"))


class SmallProducer:
    """Takes no value of more than 4 bytes, as a producer with a small max.request.size."""

    is_transactional = True

    def __init__(self) -> None:
        self.sent: list[RawRecord] = []

    def begin(self) -> None: ...

    def abort(self) -> None: ...

    def commit(self, offsets: Any, times: Any, membership: Any) -> dict[Any, int]:
        return {}

    def continues(self, changelog: Any, position: int) -> bool:
        return True

    def produce(self, topic: str, records: RecordColumns) -> None:
        for at, value in enumerate(records.values):
            if len(value or b"") > 4:
                raise RecordTooLargeError(f"{len(value)} bytes", at=at)
            headers = tuple((records.headers[at] if records.headers else None) or ())
            self.sent.append(RawRecord(topic, records.keys[at], value, records.timestamps[at], headers))


def writing_twice() -> StreamsBuilder:
    builder = StreamsBuilder()
    texts = builder.stream("in", key=STRING, value=STRING).map_values(per_record(lambda v: v + v, STRING))
    texts.to("out", value=STRING)
    texts.group_by(per_record(lambda k, v: v, STRING), value=STRING).count(store="counts")
    return builder


def small(handlers: ExceptionHandlers, builder: StreamsBuilder) -> StepRun:
    run = run_of(builder, handlers)
    run.workers[-1].output = SmallProducer()  # type: ignore[assignment]
    return run


def only_writing() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).map_values(per_record(lambda v: v + v, STRING)).to("out", value=STRING)
    return builder


def test_a_record_that_is_too_large_is_left_out_and_its_key_put_aside() -> None:
    run = small(ASIDE, only_writing())
    report = run.run_at(sent(b"a", b"long", b"b", b"wide", b"c"), 0)
    found = [(topic, key, value) for topic, key, value, *_ in run.written]
    assert [row for row in found if row[0] == "out"] == [("out", b"k0", b"aa"), ("out", b"k2", b"bb"), ("out", b"k4", b"cc")]
    assert [row for row in found if row[0] == "dead"] == [("dead", b"k1", None), ("dead", b"k3", None)]
    assert (report.skipped, report.dropped) == (2, 2)
    letter = dict(next(headers for topic, _k, _v, _t, headers, _b in run.written if topic == "dead"))
    assert letter["__streams.errors.exception"] == b"tidemill.errors.RecordTooLargeError"
    assert (letter["__streams.errors.topic"], letter["__streams.errors.offset"]) == (b"in", b"-1")  # sent by topic, not by record


def test_the_letter_of_a_record_that_is_too_large_names_the_topics_of_its_own_subtopology() -> None:
    builder = only_writing()
    builder.stream("other", key=STRING, value=STRING).to("elsewhere", value=STRING)
    run = small(ASIDE, builder)
    run.run_at(sent(b"long"), 0)
    letter = dict(next(headers for topic, _k, _v, _t, headers, _b in run.written if topic == "dead"))
    assert letter["__streams.errors.topic"] == b"in"


def test_a_production_handler_that_fails_ends_the_thread_with_both_errors() -> None:
    def handler(context: Any, record: Any, error: Exception) -> ExceptionResponse:
        raise KeyError("of the handler")

    run = small(ExceptionHandlers(production=handler), only_writing())
    with pytest.raises(AssertionError, match=r"stopped: .*production\.exception\.handler failed: KeyError.*8 bytes"):
        run.run_at(sent(b"a", b"long"), 0)


@pytest.mark.parametrize(
    "handlers", [FAILING, ExceptionHandlers(processing=ExceptionResponse.CONTINUE)], ids=["fail", "only processing continues"]
)
def test_without_a_production_handler_a_record_that_is_too_large_stops_the_batch(handlers: ExceptionHandlers) -> None:
    with pytest.raises(AssertionError, match="8 bytes"):
        small(handlers, only_writing()).pipe(sent(b"a", b"long"))


def test_no_handler_leaves_a_record_out_of_a_repartition_topic() -> None:
    with pytest.raises(AssertionError, match="8 bytes"):
        small(ASIDE, writing_twice()).run_at(sent(b"long"), 0)

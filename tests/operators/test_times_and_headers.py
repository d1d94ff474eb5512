"""Timestamps and headers at the edge: what a source, an extractor and a processor may give, and what the steps of a worker do
with the rest. Nothing of it reaches a store or a changelog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.harness import start
from tests.operators.step_harness import StepRun
from tidemill import (
    JoinWindows,
    Serdes,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    per_record,
)
from tidemill.dsl.stores import Stores
from tidemill.errors import RecordError
from tidemill.operators.exception_handlers import ExceptionHandlers, ExceptionResponse
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.testing.worker import Message
from tidemill.topology.nodes import Store
from tidemill.topology.windows import Windowed

STRING = Serdes.string()
Extractor = Callable[[Record, int], Any]


def joining_and_counting(extractor: Extractor | None = None) -> StreamsBuilder:
    """All kinds of stores that have times in their keys."""
    builder = StreamsBuilder()
    left = builder.stream("left", key=STRING, value=STRING, timestamp_extractor=extractor)
    right = builder.stream("right", key=STRING, value=STRING, timestamp_extractor=extractor)
    joined = StreamJoined(key=STRING, value=STRING, other_value=STRING, store_name="join")
    window = JoinWindows.of_time_difference(1000, grace=1000)
    left.left_join(right, per_record(lambda a, b: f"{a}+{b}", STRING), window, joined=joined).to("joined")
    counts = left.group_by_key().windowed_by(TimeWindows.of_size(1000, grace=1000)).count(store="counts")
    named = counts.to_stream().select_key(per_record(lambda window, _: f"{window.key}@{window.start}", STRING))
    named.to("counted", value=Serdes.long())
    return builder


@pytest.mark.parametrize("timestamp", [-1, -3000, -(2**63)])
def test_a_negative_timestamp_ends_the_thread_with_the_record_s_name(timestamp: int) -> None:
    run = StepRun(joining_and_counting().build())
    run.pipe([("left", b"k", b"a", 5), ("right", b"k", b"b", 6)])
    with pytest.raises(RecordError, match=rf"left-0 at offset 2: KSTREAM-SOURCE.*timestamp is {timestamp}, expected 0 or later"):
        run.pipe([("left", b"k", b"c", 7), ("left", b"k", b"d", timestamp)])


@pytest.mark.parametrize("is_python", [False, True], ids=["read in the source step", "read in a part"])
@pytest.mark.parametrize("handler", list(ExceptionResponse))
def test_an_unreadable_record_is_skipped_whatever_its_timestamp(handler: ExceptionResponse, *, is_python: bool) -> None:
    """Kafka Streams deserializes a record before it asks for its time."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=Serdes.long())
    (numbers.map_values(per_record(lambda n: n, Serdes.long())) if is_python else numbers).to("out")
    run, number = StepRun(builder.build()), bytes(7) + b"\1"
    for worker in run.workers:
        worker.unreadable = Unreadable(handler=handler, topic="dead", expected={0: "a long"})
    records = [("in", b"k", number, 5), ("in", b"k", b"no long", -1), ("in", b"k", number, 6)]
    if handler is ExceptionResponse.FAIL:
        with pytest.raises(AssertionError, match="in-0 at offset 1: found a key of 1 bytes and a value of 7 bytes"):
            run.pipe(records)
        return
    run.pipe(records)
    letters = [(b"no long", 0)] if handler is ExceptionResponse.DEAD_LETTER else []
    assert [(value, at) for _topic, _key, value, at, *_ in run.written] == [(number, 5), (number, 6), *letters]
    with pytest.raises(RecordError, match="in-0 at offset 3: KSTREAM-SOURCE-0000000000: the record's timestamp is -1"):
        run.pipe([("in", b"k", number, -1)])


def test_a_task_graph_by_itself_takes_no_negative_timestamp_either() -> None:
    with pytest.raises(RecordError, match=r"left-0 at offset 0: KSTREAM-SOURCE-0000000000: .*timestamp is -7, expected 0"):
        start(joining_and_counting().build()).pipe(0, "left", b"k", b"v", -7)


@pytest.mark.parametrize(
    ("extractor", "dropped", "counted"),
    [
        pytest.param(lambda record, _: record.timestamp, 2, {b"k@0": 1, b"k@2000": 1}, id="it drops them"),
        pytest.param(
            lambda record, partition_time: record.timestamp if record.timestamp >= 0 else partition_time,
            0, {b"k@0": 2, b"k@2000": 2}, id="it takes the partition's time",
        ),
        pytest.param(lambda record, _: abs(record.timestamp), 1, {b"k@0": 2, b"k@2000": 1}, id="it makes another one of it"),
    ],
)  # fmt: skip
def test_an_extractor_says_what_becomes_of_negative_timestamps(
    extractor: Extractor, dropped: int, counted: dict[bytes, int]
) -> None:
    run = StepRun(joining_and_counting(extractor).build())
    run.pipe([("left", b"k", b"a", 0), ("left", b"k", b"b", -1), ("left", b"k", b"c", 2500), ("left", b"k", b"d", -100)])
    last = {key: int.from_bytes(value or b"", "big") for topic, key, value, *_ in run.written if topic == "counted" and key}
    assert (last, run.dropped) == (counted, dropped)
    assert min(timestamp for _topic, _key, _value, timestamp, *_ in [*run.logged, *run.written]) >= 0


@pytest.mark.parametrize("given", [None, 1.5, "12", 2**63, object()])
def test_an_extractor_that_gives_no_timestamp_ends_the_thread_with_the_record_s_name(given: Any) -> None:
    builder = joining_and_counting(lambda _record, _time: given).build()
    with pytest.raises(RecordError, match=r"left-0 at offset 0: the timestamp extractor of .* failed: .*it gave no timestamp"):
        StepRun(builder).pipe([("left", b"k", b"a", 5)])
    with pytest.raises(RecordError, match="it gave no timestamp"):
        start(builder).pipe(0, "left", b"k", b"v", 5)


class _Processor:
    """Does what the test says, with each record or in a punctuator."""

    def __init__(self, call: Callable[[ProcessorContext, Any, Record], Any], store: str, punctuates: bool) -> None:
        self.call, self.store, self.punctuates = call, store, punctuates

    def init(self, context: ProcessorContext) -> None:
        self.context, self.kept = context, context.store(self.store)
        if self.punctuates:
            call = lambda now: self.call(context, self.kept, Record("p", "p", now))  # noqa: E731
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, call)

    def process(self, record: Record) -> None:
        if not self.punctuates:
            self.call(self.context, self.kept, record)


def calling(store: Store, call: Callable[[ProcessorContext, Any, Record], Any], *, punctuates: bool = False) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.add_state_store(store)
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(lambda: _Processor(call, store.name, punctuates), store.name, name="calls").to("out", key=STRING, value=STRING)
    return builder


PLAIN = Stores.key_value_store("plain", key=STRING, value=STRING)
WRONG_TIMES: list[Any] = [-1, None, 1.5, 2**63]
WRONG_HEADERS: list[Any] = [
    "name",
    {"name": b"value"},
    ("name", b"value"),
    (("name", "text"),),
    (("name", 5),),
    (("name", b"value", b"more"),),
    ((None, b"value"),),
    ((b"name", b"value"),),
    (("lone \ud800", b"value"),),
    (("cut\0here", b"value"),),
]


@pytest.mark.parametrize("given", WRONG_TIMES)
@pytest.mark.parametrize("punctuates", [False, True], ids=["in process", "in a punctuator"])
def test_a_processor_that_forwards_no_timestamp_is_named(given: Any, punctuates: bool) -> None:
    run = StepRun(calling(PLAIN, lambda ctx, _, r: ctx.forward(r.with_timestamp(given)), punctuates=punctuates).build())
    if punctuates:
        run.pipe([("in", b"k", b"v", 5)])
    run.wall_clock += 20
    with pytest.raises(AssertionError, match=r"calls.*ValueError: can't forward the record: the timestamp"):
        run.pipe([("in", b"k", b"v", 5)])


@pytest.mark.parametrize("given", WRONG_HEADERS)
def test_a_processor_that_forwards_headers_of_another_form_is_named(given: Any) -> None:
    run = StepRun(calling(PLAIN, lambda ctx, _, r: ctx.forward(r.with_headers(given))).build())
    with pytest.raises(AssertionError, match=r"in-0 at offset 0: the function of calls failed: .*can't forward.*header"):
        run.pipe([("in", b"k", b"v", 5)])


def test_headers_that_can_be_sent_are() -> None:
    given = (("name", None), ("name", b""), ("größe", b"\xff"), ("", b"x"))
    run = StepRun(calling(PLAIN, lambda ctx, _, r: ctx.forward(r.with_headers(given))).build())
    run.pipe([("in", b"k", b"v", 5)])
    assert [headers for topic, *_, headers, _batch in run.written if topic == "out"] == [given]


def test_headers_of_none_are_none_as_in_kafka_streams() -> None:
    run = StepRun(calling(PLAIN, lambda ctx, _, r: ctx.forward(r.with_headers(None))).build())  # type: ignore[arg-type]
    run.pipe([("in", b"k", b"v", 5)])
    assert [headers for topic, *_, headers, _batch in run.written if topic == "out"] == [()]


def test_a_record_is_sent_with_the_headers_that_a_list_had_when_it_was_forwarded() -> None:
    kept: list[Any] = []

    def forward(context: ProcessorContext, _: Any, record: Record) -> None:
        kept.append((record.value, b""))
        context.forward(record.with_headers(kept))  # type: ignore[arg-type]

    run = StepRun(calling(PLAIN, forward).build())
    run.pipe([("in", b"k", value, 5) for value in (b"a", b"b", b"c")])
    found = [headers for topic, *_, headers, _batch in run.written if topic == "out"]
    assert [[name for name, _ in headers] for headers in found] == [["a"], ["a", "b"], ["a", "b", "c"]]


@pytest.mark.parametrize(
    ("store", "write"),
    [
        pytest.param(
            Stores.timestamped_key_value_store("s", key=STRING, value=STRING),
            lambda s, at: s.put("k", "v", at), id="timestamped",
        ),
        pytest.param(
            Stores.versioned_key_value_store("s", 1000, key=STRING, value=STRING),
            lambda s, at: s.put("k", "v", at), id="versioned",
        ),
        pytest.param(
            Stores.window_store("s", 10_000, 1000, key=STRING, value=STRING), lambda s, at: s.put("k", "v", at), id="window"
        ),
        pytest.param(
            Stores.session_store("s", 10_000, key=STRING, value=STRING),
            lambda s, at: s.put(Windowed("k", at, 5), "v"), id="session",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [-1, 1.5])
def test_no_store_takes_a_time_that_could_not_be_restored(store: Store, write: Callable[[Any, Any], None], at: Any) -> None:
    run = StepRun(calling(store, lambda _, kept, __: write(kept, at)).build())
    with pytest.raises(AssertionError, match="the function of calls failed: ValueError: can't write to the store: the timestamp"):
        run.pipe([("in", b"k", b"v", 5)])
    assert run.logged == []


def test_an_exception_handler_goes_on_without_what_has_no_timestamp_or_wrong_headers() -> None:
    def forward(context: ProcessorContext, _: Any, record: Record) -> None:
        wrong = {"a": record.with_timestamp(-5), "b": record.with_headers((("x", "text"),))}  # type: ignore[arg-type]
        context.forward(wrong.get(record.value, record))

    run = StepRun(calling(PLAIN, forward).build())
    for worker in run.workers:
        handlers = ExceptionHandlers(processing=ExceptionResponse.CONTINUE)
        worker.unreadable = Unreadable(handler=ExceptionResponse.FAIL, topic=None, expected={}, handlers=handlers)
        worker.graphs.handlers = handlers
    run.pipe([("in", b"k", value, 5) for value in (b"a", b"c", b"b")])
    assert [value for topic, _, value, *_ in run.written if topic == "out"] == [b"c"]
    assert run.dropped == 2


def unreadable_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What confluent-kafka does with a header whose name is no UTF-8, here of records with the key ``bad``."""
    readable = Message.headers

    def headers(self: Message) -> Any:
        if self.key() != b"bad":
            return readable(self)
        raise SystemError("<method 'headers' of 'cimpl.Message' objects> returned a result with an exception set")

    monkeypatch.setattr(Message, "headers", headers)


@pytest.mark.parametrize("extractor", [None, lambda record, _: record.timestamp + len(record.headers)])
@pytest.mark.parametrize("handler", list(ExceptionResponse))
def test_headers_that_cannot_be_read_make_an_unreadable_record(
    monkeypatch: pytest.MonkeyPatch, handler: ExceptionResponse, extractor: Extractor | None
) -> None:
    unreadable_headers(monkeypatch)
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING, timestamp_extractor=extractor).to("out")
    run = StepRun(builder.build())
    for worker in run.workers:
        worker.unreadable = Unreadable(handler=handler, topic="dead", expected={0: "strings"})
    records = [("in", b"good", b"1", 5, (("own", b"x"),)), ("in", b"bad", b"2", 5, (("own", b"x"),)), ("in", b"good", b"3", 5)]
    if handler is ExceptionResponse.FAIL:
        with pytest.raises(AssertionError, match=r"in-0 at offset 1: found a header whose name is no UTF-8"):
            run.pipe(records)
        return
    run.pipe(records)
    assert [value for topic, _, value, *_ in run.written if topic == "out"] == [b"1", b"3"]
    letters = [(key, value, dict(headers)) for topic, key, value, _, headers, _ in run.written if topic == "dead"]
    assert [(key, value) for key, value, _ in letters] == ([(b"bad", b"2")] if handler is ExceptionResponse.DEAD_LETTER else [])
    for _, _, headers in letters:
        assert headers["__streams.errors.message"] == b"found a header whose name is no UTF-8"
        assert not [name for name in headers if name.startswith("tidemill")]


LAST = 2**63 - 1


@pytest.mark.parametrize("final", [False, True])
def test_sliding_windows_end_with_the_end_of_time(*, final: bool) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
    counted = grouped.windowed_by(SlidingWindows.of_time_difference(5, grace=5)).count()
    if final:
        counted = counted.suppress(Suppressed.until_window_closes())
    counted.to_stream().select_key(per_record(lambda window, _: f"{LAST - window.start}-{LAST - window.end}", STRING)).to("out")
    run = StepRun(builder.build())
    run.pipe([("in", b"k", b"a", LAST - 20), ("in", b"k", b"b", LAST - 2), ("in", b"k", b"c", LAST)])
    found = [key for topic, key, *_ in run.written if topic == "out"]
    assert found == ([b"25-20"] if final else [b"25-20", b"7-2", b"1-0", b"5-0"])


@pytest.mark.parametrize("kind", ["join", "left_join"])
@pytest.mark.parametrize("one_by_one", [False, True])
@pytest.mark.parametrize(("before", "after"), [(20, -1), (-1, 20), (5, 5), (LAST, LAST)])
def test_streams_are_joined_up_to_the_end_of_time(before: int, after: int, one_by_one: bool, kind: str) -> None:
    """A window that begins beyond it has no records, however the join is run."""
    builder = StreamsBuilder()
    window = JoinWindows.of_time_difference(20, before=before, after=after)
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
    joined = getattr(left, kind)(right, per_record(lambda a, b: f"{a}+{b}", STRING), window)
    joined.process(PassesOn, key=STRING, value=STRING).to("out") if one_by_one else joined.to("out")
    run = StepRun(builder.build())
    run.pipe([("left", b"k", b"a", LAST - 3), ("right", b"k", b"b", LAST), ("left", b"k", b"c", LAST)])
    expected = {(20, -1): [], (-1, 20): [b"a+b"]}.get((before, after), [b"a+b", b"c+b"])
    found = [value for topic, _key, value, *_ in run.written if topic == "out"]
    assert [value for value in found if value is not None and not value.endswith(b"None")] == expected


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_join_that_keeps_nothing_keeps_nothing_at_the_end_of_time(*, one_by_one: bool) -> None:
    """A window without a length keeps its rows for none."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
    window = JoinWindows.of_time_difference(1, before=1, after=-1)
    joined = left.join(right, per_record(lambda a, b: f"{a}+{b}", STRING), window)
    joined.process(PassesOn, key=STRING, value=STRING).to("out") if one_by_one else joined.to("out")
    run = StepRun(builder.build())
    run.pipe([("right", b"z", b"z", LAST)])
    run.pipe([("right", b"k", b"b", LAST - 4), ("left", b"k", b"a", LAST - 3)])
    assert [value for topic, _key, value, *_ in run.written if topic == "out"] == []


class PassesOn:
    """A processor that keeps the join above it from being run on whole batches."""

    def init(self, context: ProcessorContext) -> None:
        self.process = context.forward

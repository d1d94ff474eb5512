"""Mistakes with the Processor API that would otherwise pass in silence, or as an error that names no cause."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from tests.operators.harness import start
from tidemill import Serdes, Stores, StreamsBuilder
from tidemill.dsl.processor_topology import TopologyBuilder
from tidemill.errors import RecordError, StopError, TopologyError
from tidemill.ids import TaskId
from tidemill.operators.processors import ProcessorContext, ProcessorSupplier, PunctuationType
from tidemill.operators.record import Record
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, Topology

TEXT = Serdes.string()


class Does:
    """A processor whose ``init`` and ``process`` are given."""

    def __init__(self, *, first: Any = None, each: Any = None) -> None:
        self.first, self.each = first, each

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        if self.first is not None:
            self.first(context)

    def process(self, record: Record) -> None:
        if self.each is not None:
            self.each(self.context, record)


def topology(supplier: ProcessorSupplier) -> Topology:
    builder = TopologyBuilder().add_source("source", "in", key=TEXT, value=TEXT).add_processor("calls", supplier, "source")
    return builder.add_sink("sink", "out", "calls", key=TEXT, value=TEXT).build()


def test_a_processor_in_the_place_of_its_supplier_is_answered_with_what_to_give() -> None:
    one: Any = Does()
    with pytest.raises(TopologyError, match=r"got a processor, expected what makes one, .* give Does itself, or lambda: Does"):
        topology(one)


def test_a_supplier_of_java_is_answered_with_its_parts_which_are_what_is_given() -> None:
    class Supplier:
        def get(self) -> Does:
            return Does()

        def stores(self) -> set[Store]:
            return {Stores.key_value_store("seen", key=TEXT, value=TEXT, changelog_config={"segment.ms": "600000"})}

    supplier, stream = Supplier(), StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    with pytest.raises(TopologyError, match=r"got an object with get\(\), .*: give its get, and its stores behind it$"):
        stream.process(supplier)  # type: ignore[arg-type]
    stream.process(supplier.get, *supplier.stores())


def test_what_is_forwarded_in_init_is_refused_since_it_would_be_lost() -> None:
    """Kafka Streams: ``failed to initialize processor calls``."""
    with pytest.raises(StopError, match="the processor of calls could not be made: TypeError: init can't forward"):
        start(topology(lambda: Does(first=lambda context: context.forward(Record("a", "b", 0)))))


class ForwardsAtItsEnd(Does):
    def close(self) -> None:
        self.context.forward(Record("last", "v", 9))


def test_what_is_forwarded_in_close_is_refused_since_it_would_be_lost_and_the_others_are_closed_too() -> None:
    closed: list[str] = []

    class Below(Does):
        def close(self) -> None:
            closed.append("below")

    builder = TopologyBuilder().add_source("source", "in", key=TEXT, value=TEXT).add_processor("a", ForwardsAtItsEnd, "source")
    run = start(builder.add_processor("b", Below, "a").build())
    run.pipe(0, "in", b"k", b"v", 7)
    with pytest.raises(TypeError, match="a closed processor can't forward, in close or later"):
        run.graph.close()
    assert closed == ["below"]


def test_what_is_forwarded_between_batches_is_refused_since_it_belongs_to_none() -> None:
    """Kafka Streams: ``Current node is unknown``."""
    made: list[Does] = []

    def supplier() -> Does:
        made.append(Does(each=lambda context, record: context.forward(record)))
        return made[-1]

    run = start(topology(supplier))
    run.pipe(0, "in", b"k", b"v", 7)
    run.graph.flush()
    with pytest.raises(TypeError, match="can't forward while no batch is processed, as by a thread of your own"):
        made[0].context.forward(Record("later", "v", 8))
    run.pipe(1, "in", b"k", b"w", 9)
    assert [value for _topic, _key, value, *_ in run.written] == [b"v", b"w"]


def test_after_init_and_in_punctuators_it_is_forwarded() -> None:
    def schedule(context: ProcessorContext) -> None:
        context.schedule(1, PunctuationType.STREAM_TIME, lambda now: context.forward(Record("tick", None, now)))

    run = start(topology(lambda: Does(first=schedule, each=lambda context, record: context.forward(record))))
    run.pipe(0, "in", b"k", b"v", 7)
    assert [(key, timestamp) for _topic, key, _value, timestamp, *_ in run.written] == [(b"k", 7), (b"tick", 7)]


@pytest.mark.parametrize("given", [("k", "v", 3, ()), ("k", "v"), None, "v"])
def test_what_is_no_record_can_not_be_forwarded(given: Any) -> None:
    run = start(topology(lambda: Does(each=lambda context, _record: context.forward(given))))
    with pytest.raises(RecordError, match=r"can't forward .* of type \w+, expected a Record: change the one that came"):
        run.pipe(0, "in", b"k", b"v", 7)


class AwaitsFirst:
    async def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Returns:
    """A processor whose ``process`` returns what is given."""

    def __init__(self, given: Callable[[ProcessorContext, Record], Any]) -> None:
        self.given = given

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> Any:
        return self.given(self.context, record)


async def _awaits(_context: ProcessorContext, record: Record) -> Record:
    return record


async def _awaits_and_yields(_context: ProcessorContext, record: Record) -> Any:
    yield record


RETURNED = {
    "the record": (lambda _context, record: record, "process returned a record, which goes nowhere: hand it to context.forward"),
    "several": (lambda _context, record: [record, record], "process returned records, which go nowhere"),
    "a generator": (lambda context, record: (context.forward(each) for each in [record]), "process has yield or async in it"),
    "a coroutine": (_awaits, "process has yield or async in it"),
    "an async generator": (_awaits_and_yields, "process has yield or async in it"),
}


@pytest.mark.parametrize("what", RETURNED)
def test_what_a_processor_returns_would_be_lost_and_is_refused(what: str) -> None:
    given, expected = RETURNED[what]
    run = start(topology(lambda: Returns(given)))
    with pytest.raises(RecordError, match=expected):
        run.pipe(0, "in", b"k", b"v", 7)


@pytest.mark.parametrize("given", [None, 3, "v", [], ("k", "v"), {"k": "v"}])
def test_what_is_no_record_may_be_returned(given: Any) -> None:
    """As of a store's ``delete`` in the last line."""
    run = start(topology(lambda: Returns(lambda context, record: context.forward(record) or given)))
    run.pipe(0, "in", b"k", b"v", 7)
    assert len(run.written) == 1


def test_inits_and_punctuators_that_run_nothing_are_refused() -> None:
    async def waits(*_given: object) -> None:
        pass

    with pytest.raises(StopError, match="the processor of calls could not be made: TypeError: init has yield or async in it"):
        start(topology(AwaitsFirst))
    run = start(topology(lambda: Does(first=lambda context: context.schedule(1, PunctuationType.STREAM_TIME, waits))))
    with pytest.raises(Exception, match="the punctuator has yield or async in it"):
        run.pipe(0, "in", b"k", b"v", 7)


@pytest.mark.parametrize("made", [None, object(), Does])
def test_a_supplier_of_what_is_no_processor_is_named(made: Any) -> None:
    with pytest.raises(StopError, match="the processor of calls could not be made: TypeError"):
        start(topology(lambda: made))


def test_a_supplier_that_gives_one_object_twice_is_refused() -> None:
    """Two tasks would share it. Kafka Streams: ``#get() must return a new object each time it is called``."""
    shared = Does()
    program = topology(lambda: shared)

    def task(partition: int) -> TaskGraph:
        serdes = KeyValueSerdes(key=TEXT, value=TEXT)
        return TaskGraph(program, TaskId(0, partition), rows=lambda _name: None, default_serdes=serdes)  # type: ignore[arg-type,return-value]

    first = task(0)
    with pytest.raises(StopError, match=r"task 0_1: .*gave the same object again: return a new Does at each call"):
        task(1)
    assert first is not None


@pytest.mark.parametrize("kind", ["wall_clock_time", None, 1])
def test_a_punctuation_type_that_is_none_is_refused(kind: Any) -> None:
    """It was taken for stream time."""
    with pytest.raises(StopError, match=r"is no type of punctuation, expected PunctuationType\.STREAM_TIME or"):
        start(topology(lambda: Does(first=lambda context: context.schedule(1_000, kind, print))))


def test_a_punctuator_that_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(StopError, match="the punctuator is None, expected a function of the time"):
        start(topology(lambda: Does(first=lambda context: context.schedule(1_000, PunctuationType.STREAM_TIME, None))))  # type: ignore[arg-type]


WRONG_TIMES: list[Any] = [{"interval": "1s"}, {"interval": 1, "start_time": "06:00"}]


@pytest.mark.parametrize("given", WRONG_TIMES)
def test_a_wrong_time_of_a_punctuator_stops_and_is_no_batch_to_run_again(given: dict[str, Any]) -> None:
    """It was raised as it was, without a place; no handler was asked, and an instance ran the batch again for ever."""

    def schedule(context: ProcessorContext, _record: Record | None = None) -> None:
        context.schedule(**given, punctuation_type=PunctuationType.STREAM_TIME, punctuator=print)

    with pytest.raises(StopError, match="task 0_0: the processor of calls could not be made: TopologyError: schedule in calls: "):
        start(topology(lambda: Does(first=schedule)))
    run = start(topology(lambda: Does(each=schedule)))
    with pytest.raises(RecordError, match="in-0 at offset 0: the function of calls failed: TopologyError: schedule in calls: "):
        run.pipe(4, "in", b"k", b"v", 7)


def test_a_source_that_names_a_topic_twice_is_refused() -> None:
    """Kafka Streams: ``Topic in has already been registered by another source``."""
    with pytest.raises(TopologyError, match="add_source 'source': a topic is named twice: in, other, in"):
        TopologyBuilder().add_source("source", "in", "other", "in")


@pytest.mark.parametrize("asked", [lambda c, r: r.value(), lambda c, r: r.timestamp(), lambda c, r: c.record_metadata.topic()])
def test_an_attribute_that_java_calls_is_answered_with_what_to_write(asked: Callable[[ProcessorContext, Record], object]) -> None:
    run = start(topology(lambda: Does(each=asked)))
    with pytest.raises(RecordError, match=r"is not callable; what is a method in Java may be an attribute here: record\.value,"):
        run.pipe(0, "in", b"k", b"v", 7)


WINDOWS = Stores.window_store("windows", 1000, 100, key=TEXT, value=TEXT)
PLAIN = Stores.key_value_store("plain", key=TEXT, value=TEXT)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.store("windows").fetch("k", 0, 10), r"expected fetch\(key, start\), or fetch_range\(key, first, last, "),
        (lambda ctx: ctx.store("windows").put("k", "v"), r"expected put\(key, value, start, timestamp=None\)$"),
        (lambda ctx: ctx.store("plain").put("k", "v", 5), r"expected put\(key, value\), or put_all\(entries\)"),
        (lambda ctx: ctx.schedule(10, print), r"expected schedule\(interval, punctuation_type, punctuator, \*, start_time="),
        (lambda ctx: ctx.forward(Record("k", "v")), r"expected Record\(key, value, timestamp, headers=\(\)\)$"),
        (lambda ctx: ctx.store("windows").fetchAll(0, 10), "WindowAccess has no fetchAll: write fetch_all$"),
        (lambda ctx: ("k", "v").key, r"a pair is a tuple \(key, value\): write \[0\]$"),
        (lambda ctx: ("k", "v").value, r"a pair is a tuple \(key, value\): write \[1\]$"),
        (lambda ctx: Record("k", "v", 1).headers.add("h", b"v"), r"headers are a tuple of pairs, .*record\.with_headers\(\["),
        (lambda ctx: Record("k", "v", 1).headers.lastHeader("h"), r"record\.header\(name\) reads one$"),
        (lambda ctx: setattr(Record("k", "v", 1), "value", "w"), r"a record stays as it is: forward record\.with_value\("),
        (lambda ctx: ctx.store("windows").fetch("k", MIDNIGHT), r"write int\(value\.timestamp\(\) \* 1000\) of"),
        (lambda ctx: ctx.store("windows").fetch_range("k", MIDNIGHT, MIDNIGHT), r"are ms since the epoch: write int\("),
        (lambda ctx: (7).alias("id"), r"\.alias is a method of Columns, but the function is called with Python values: compute"),
        (lambda ctx: None.isNull(), r"\.isNull is a method of Columns, but the function is called with Python values: compute"),
    ],
)
@pytest.mark.parametrize("in_init", [False, True])
def test_a_call_as_in_java_is_answered_with_what_is_taken(call: Callable[[Any], Any], said: str, in_init: bool) -> None:
    given = Does(first=call) if in_init else Does(each=lambda context, _: call(context))
    builder = StreamsBuilder()
    for store in (WINDOWS, PLAIN):
        builder.add_state_store(store)
    given_once = [given]
    builder.stream("in", key=TEXT, value=TEXT).process(given_once.pop, "windows", "plain").to("out", key=TEXT, value=TEXT)
    with pytest.raises((StopError, AssertionError), match=said):
        start(builder.build()).pipe(0, "in", b"k", b"v", 1)

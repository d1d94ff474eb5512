"""What a task's graph does with records: order, stream time, punctuation, parts of a topology, and errors that say where."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F

from tests.operators.harness import MemoryRows, Run, start
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized
from tidemill.dsl.stores import Stores
from tidemill.errors import RecordError, StopError
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Change, Record
from tidemill.operators.task_graph import Produced, TaskGraph
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Topology

STRING, LONG = Serdes.string(), Serdes.long()
FIRST = RecordMetadata("in", 0, 7)


def graph_of(topology: Topology, **settings: Any) -> TaskGraph:
    rows: dict[str, MemoryRows] = {}
    return TaskGraph(
        topology, TaskId(0, 0), rows=lambda name: rows.setdefault(name, MemoryRows()),
        default_serdes=KeyValueSerdes(key=STRING, value=STRING),
        **settings,
    )


def values(produced: list[Produced]) -> list[Any]:
    return [made.record.value for made in produced]


def built(program: Any) -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def test_many_results_of_one_record_are_taken_on_the_way_in_their_order() -> None:
    def program(b: StreamsBuilder) -> None:
        b.stream("in").flat_map_values(per_record(lambda v: [str(n) for n in range(int(v))], STRING)).to("out")

    graph, taken = graph_of(built(program)), list[list[Any]]()
    graph.take_many = lambda produced: taken.append(values(produced))
    graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"2500", 1)
    taken.append(values(graph.take_produced()))
    assert [len(some) for some in taken] == [1000, 1000, 500]
    assert [value for some in taken for value in some] == [str(n) for n in range(2500)]


def fails_below(b: StreamsBuilder) -> None:
    passed = b.stream("in").filter(per_record(lambda k, v: True), name="first")
    passed.map_values(per_record(lambda v: 1 // 0, STRING), name="divides").to("out")


def test_an_error_of_a_user_function_names_node_topic_partition_and_offset() -> None:
    graph = graph_of(built(fails_below))
    where = r"task 0_0, in-0 at offset 7: the function of divides failed: ZeroDivisionError"
    with pytest.raises(RecordError, match=where) as told:
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"v", 1)
    assert isinstance(told.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("function", [F.lower, F.lit], ids=["no session", "assertion"])
def test_a_function_of_columns_in_the_place_of_one_of_values_is_told_so(
    function: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # a worker has none, whatever ran here before
    graph = graph_of(built(lambda b: b.stream("in").map_values(per_record(function, STRING), name="lowers").to("out")))
    said = r"the function of lowers failed: \w+: it is called with Python values, .* has called a function of PySpark"
    with pytest.raises(RecordError, match=said):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"v", 1)


@pytest.mark.parametrize(("function", "said"), [
    (lambda v: v.name, r"has no attribute 'name'; write \['name'\], or give the serde a class, as in Serdes.json\(Class\), for "),
    (lambda v: v.nmae, "has no attribute 'nmae'$"),
], ids=["a field", "no field"])  # fmt: skip
def test_a_field_asked_of_a_dict_as_an_attribute_is_answered_with_what_to_write(
    function: Callable[[Any], object], said: str
) -> None:
    order = Serdes.json("name string")
    graph = graph_of(built(lambda b: b.stream("in", value=order).map_values(per_record(function, STRING)).to("out")))
    with pytest.raises(RecordError, match=said):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b'{"name": "ada"}', 1)


def test_bytes_that_cannot_be_read_are_reported_with_their_place() -> None:
    graph = graph_of(built(lambda b: b.stream("in", value=LONG, name="numbers").to("out")))
    with pytest.raises(RecordError, match=r"in-0 at offset 7: .*numbers.*found 1 bytes, expected 8"):
        graph.read("numbers", FIRST, b"k", b"v", 1)


def test_a_value_that_the_sink_cannot_write_is_reported_with_the_sink() -> None:
    graph = graph_of(built(lambda b: b.stream("in").to("out", value=LONG, name="numbers")))
    with pytest.raises(RecordError, match=r"numbers.*can't write a value of type str"):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"v", 1)


def test_a_topic_extractor_names_the_topic_of_each_record_and_must_name_one() -> None:
    graph = graph_of(built(lambda b: b.stream("in").to(lambda key, value, record: value, name="routes")))
    graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"here", 1)
    assert [made.topic for made in graph.take_produced()] == ["here"]
    with pytest.raises(RecordError, match=r"the function of routes \(.*, line \d+\) failed: .*gave None, expected the name"):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", None, 1)


def test_a_negative_timestamp_without_an_extractor_is_an_error() -> None:
    graph = graph_of(built(lambda b: b.stream("in").to("out")))
    with pytest.raises(RecordError, match=r"timestamp is -1.*timestamp_extractor"):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"v", -1)


def test_nodes_outside_get_their_records_handed_over_in_order() -> None:
    every = Materialized(name="c", caching=False)
    topology = built(lambda b: b.stream("in").group_by_key().count(store=every).to_stream().to("out", value=LONG))
    aggregate = next(name for name in topology.nodes if name.startswith("KSTREAM-AGGREGATE"))
    to_stream = topology.children(aggregate)[0]
    graph = graph_of(topology, nodes={aggregate}, exits={to_stream: KeyValueSerdes(key=STRING, value=LONG)})
    for value in ("a", "b"):
        graph.process(aggregate, Record("k", value, 5), FIRST)
    assert [(given.node, given.key, given.value, given.record.value) for given in graph.take_handed_over()] == [
        (to_stream, b"k", LONG.serialize(1), Change(1)), (to_stream, b"k", LONG.serialize(2), Change(2)),
    ]
    assert graph.take_produced() == []
    assert graph.take_handed_over() == []


def test_a_value_that_is_changed_after_it_was_forwarded_leaves_as_it_was() -> None:
    class Collects:
        def init(self, context: ProcessorContext) -> None:
            self.context, self.seen = context, {"n": 0}

        def process(self, record: Record) -> None:
            for _ in range(2):
                self.seen["n"] += 1
                self.context.forward(record.with_value(self.seen))

    seen = Serdes.json("n bigint")
    topology = built(lambda b: b.stream("in").process(Collects, value=seen).map_values(lambda v: v["n"]).to("out", value=LONG))
    processor = next(name for name in topology.nodes if name.startswith("KSTREAM-PROCESSOR"))
    columns = topology.children(processor)[0]
    graph = graph_of(topology, nodes={processor}, exits={columns: KeyValueSerdes(key=STRING, value=seen)})
    for _ in range(2):
        graph.process(processor, Record("k", "v", 5), FIRST)
    assert [given.value for given in graph.take_handed_over()] == [b'{"n":1}', b'{"n":2}', b'{"n":3}', b'{"n":4}']


class _Scheduling:
    """Tells when it is called, and where from."""

    def __init__(self, interval: int, kind: PunctuationType, fails: bool = False) -> None:
        self.interval, self.kind, self.fails = interval, kind, fails

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.cancel = context.schedule(self.interval, self.kind, self.tick)

    def process(self, record: Record) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{record.value} of {metadata.topic}"))
        if record.value == "stop":
            self.cancel()

    def tick(self, now: int) -> None:
        if self.fails:
            raise ValueError("no tick")
        self.context.forward(Record("tick", f"{now} {self.context.record_metadata}", now))


def scheduled(interval: int, kind: PunctuationType, fails: bool = False) -> Run:
    topology = built(
        lambda b: b.stream("in").process(lambda: _Scheduling(interval, kind, fails), name="ticks").to("out", value=STRING)
    )
    return start(topology, wall_clock=1000)


def pipe(run: Run, *records: tuple[str, int]) -> list[str]:
    run.written.clear()
    for at, (value, timestamp) in enumerate(records):
        run.pipe(at, "in", b"k", value.encode(), timestamp)
    return [(value or b"").decode() for _topic, _key, value, _timestamp, _headers, _at in run.written]


def test_a_stream_time_punctuator_is_called_once_per_due_record_after_it_on_the_grid() -> None:
    run = scheduled(10, PunctuationType.STREAM_TIME)
    assert pipe(run, ("a", 3)) == ["a of in", "3 None"]
    assert pipe(run, ("b", 9), ("c", 10), ("d", 35), ("e", 39), ("f", 40)) == [
        "b of in", "c of in", "10 None", "d of in", "35 None", "e of in", "f of in", "40 None",
    ]


def test_a_cancelled_punctuator_is_not_called_again() -> None:
    run = scheduled(10, PunctuationType.STREAM_TIME)
    assert pipe(run, ("stop", 3), ("a", 50)) == ["stop of in", "a of in"]


def test_the_wall_clock_calls_once_however_far_it_moved() -> None:
    run = scheduled(10, PunctuationType.WALL_CLOCK_TIME)
    ticks = []
    for by_ms in (9, 1, 5, 32, 2, 1):
        run.written.clear()
        run.advance_wall_clock(0, by_ms)
        ticks.append([(value or b"").decode() for _topic, _key, value, *_rest in run.written])
    assert ticks == [[], ["1010 None"], [], ["1047 None"], [], ["1050 None"]]


def test_an_error_in_a_punctuator_names_its_node() -> None:
    run = scheduled(10, PunctuationType.WALL_CLOCK_TIME, fails=True)
    with pytest.raises(StopError, match="task 0_0, in a punctuator: the function of ticks failed: ValueError: no tick"):
        run.advance_wall_clock(0, 10)


def test_filtered_records_and_null_keys_move_the_stream_time_of_the_task() -> None:
    topology = built(lambda b: b.stream("in").filter(per_record(lambda k, v: False)).to("out"))
    graph = graph_of(topology)
    for key, timestamp in ((b"k", 5), (None, 9), (b"k", 7)):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, key, b"v", timestamp)
    assert graph.stream_time == 9


class _Rekeys:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_key("other"))


def test_a_processor_of_values_cannot_change_the_key() -> None:
    graph = graph_of(built(lambda b: b.stream("in").process_values(_Rekeys).to("out", value=STRING)))
    with pytest.raises(RecordError, match="the key 'k' became 'other'"):
        graph.read("KSTREAM-SOURCE-0000000000", FIRST, b"k", b"v", 1)


class _AsksFor:
    def __init__(self, store: str) -> None:
        self.store = store

    def init(self, context: ProcessorContext) -> None:
        context.store(self.store)

    def process(self, record: Record) -> None:
        raise AssertionError(record)


def test_a_store_that_is_not_connected_is_refused_when_the_processor_is_made() -> None:
    def program(b: StreamsBuilder) -> None:
        b.add_state_store(Stores.key_value_store("mine"))
        b.stream("in").process(lambda: _AsksFor("yours"), "mine", name="asks")

    with pytest.raises(StopError, match=r"asks could not be made: .*'yours' is not connected to asks \(connected: mine\)"):
        graph_of(built(program))

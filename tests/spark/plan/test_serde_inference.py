"""The serdes of what leaves a node: one rule, whether it runs record by record or in a vectorised step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import (
    JoinWindows,
    Materialized,
    ProcessorContext,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    per_batch,
    per_record,
)
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import entry_of, operations_of
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.serde_inference import SerdeInference
from tidemill.spark.plan.serde_rules import exit_edge, leaving_in_graph, leaving_in_step, of_foreign_key_join
from tidemill.spark.plan.stages import runs_vectorised, stages
from tidemill.topology.join_operations import ForeignKeyChange, ForeignKeyResolve, ForeignKeySubscribe
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology
from tidemill.topology.values import Serde

STRING, LONG, DOUBLE, SHORT = Serdes.string(), Serdes.long(), Serdes.double(), Serdes.short()


def pair(key: Serde | None, value: Serde | None) -> KeyValueSerdes:
    return KeyValueSerdes(key=key, value=value)


ARRIVING = pair(STRING, STRING)
DEFAULT = pair(DOUBLE, DOUBLE)
SESSIONS, WINDOWS = SessionWindows.of_inactivity_gap(5), TimeWindows.of_size(5)
Make = Callable[[Any], Any]


def _topology(make: Make) -> Topology:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING)).to_stream().to("out")
    return builder.build()


def _aggregate(stream: Any, **more: Any) -> Any:
    return stream.group_by_key().aggregate(lambda: 0, lambda k, v, a: a, **more)


def _windowed(stream: Any, windows: Any) -> Any:
    return stream.group_by_key().windowed_by(windows)


MAKES: dict[str, tuple[Make, Any]] = {
    "a count": (lambda s: s.group_by_key().count(), LONG),
    "a reduce": (lambda s: s.group_by_key().reduce(max), STRING),
    "an aggregate": (lambda s: _aggregate(s, value=SHORT), SHORT),
    "an aggregate of a store's serde": (lambda s: _aggregate(s, store=Materialized(name="s", value=SHORT)), SHORT),
    "an aggregate that says nothing": (_aggregate, DOUBLE),
    "a table": (lambda s: s.to_table(store="t"), STRING),
    "a table of another serde": (lambda s: s.to_table(store=Materialized(name="t", value=SHORT)), SHORT),
    "a count in windows": (lambda s: _windowed(s, WINDOWS).count(), LONG),
    "a count of sessions": (lambda s: _windowed(s, SESSIONS).count(), LONG),
    "a reduce of sessions": (lambda s: _windowed(s, SESSIONS).reduce(max), STRING),
    "an aggregate of sessions": (
        lambda s: _windowed(s, SESSIONS).aggregate(lambda: 0, lambda k, v, a: a, lambda k, a, b: a, value=SHORT), SHORT,
    ),
    "an aggregate of sessions that says nothing": (
        lambda s: _windowed(s, SESSIONS).aggregate(lambda: 0, lambda k, v, a: a, lambda k, a, b: a), DOUBLE,
    ),
}  # fmt: skip


def _first_kept(topology: Topology) -> str:
    return next(
        name for name, node in topology.nodes.items()
        if isinstance(node, ProcessorNode) and "store" in entry_of(node.operation).stores
    )


@pytest.mark.parametrize("what", MAKES)
def test_what_leaves_is_written_alike_in_a_step_and_record_by_record(what: str) -> None:
    make, expected = MAKES[what]
    topology = _topology(make)
    kept = _first_kept(topology)
    assert leaving_in_step(topology, kept, ARRIVING, DEFAULT).value == expected
    assert leaving_in_graph(topology, kept, [ARRIVING], DEFAULT).value == expected


@pytest.mark.parametrize(("windows", "expected"), [
    (WINDOWS, lambda key: TimeWindowedSerde(key, 5)),
    (SlidingWindows.of_time_difference(5), lambda key: TimeWindowedSerde(key, 5)),
    (SESSIONS, SessionWindowedSerde),
], ids=["time", "sliding", "session"])  # fmt: skip
def test_windowed_keys_of_keys_that_the_program_says_nothing_of_are_written_around_those_that_arrive(
    windows: Any, expected: Callable[[Any], Any]
) -> None:
    builder = StreamsBuilder()
    _windowed(builder.stream("in"), windows).count().to_stream().to("out")
    topology = builder.build()
    kept = _first_kept(topology)
    assert leaving_in_graph(topology, kept, [ARRIVING], DEFAULT).key == expected(STRING)
    assert leaving_in_step(topology, kept, ARRIVING, DEFAULT).key == expected(STRING)
    assert leaving_in_graph(topology, kept, [NO_SERDES], DEFAULT).key == expected(DOUBLE)
    assert leaving_in_graph(topology, kept, [NO_SERDES], NO_SERDES).key is None


class _Forwards:
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record)


@pytest.mark.parametrize(("make", "side"), [
    (lambda s: s.process_values(_Forwards), "value"),
    (lambda s: s.process(_Forwards).merge(s.process(_Forwards)), "value"),
    (lambda s: s.map(per_record(lambda k, v: (k, v))), "key"),
    (lambda s: s.join(s, max, JoinWindows.of_time_difference(1)), "value"),
], ids=["process_values", "merge", "map", "join"])  # fmt: skip
def test_a_sink_of_whose_records_nothing_says_how_to_write_them_is_refused_by_name(make: Make, side: str) -> None:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING)).to("out")
    said = rf"for the {side}s that KSTREAM-SINK-\d+ writes: give {side}= of the sink to out, or set default.{side}.serde$"
    with pytest.raises(TopologyError, match=said):
        compile_topology(None, builder.build(), "app")


def test_where_the_serde_before_a_function_of_columns_was_lost_is_said_by_name() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("in", key=STRING, value=STRING).select_key(per_record(lambda k, v: v), name="rekeyed")
    rekeyed.process_values(_Forwards, name="passes").filter(lambda k, v: k != "a", name="chosen").to("out", value=STRING)
    lost = pair(None, STRING)
    known = {"KSTREAM-SOURCE-0000000000": ARRIVING, "rekeyed": lost, "passes": lost}
    said = r"keys that enter chosen \(filter\), .*: give rekeyed \(select_key or group_by\) one \(wrap"
    with pytest.raises(TopologyError, match=said):
        exit_edge(builder.build(), "chosen", known)


@pytest.mark.parametrize(("left", "right", "lacks"), [
    (None, lambda s: s.to_table().map_values(per_record(lambda v: v)), r"values of its right table, KTABLE-MAPVALUES-\d+ \(m"),
    (lambda s: s.to_table().map_values(per_record(lambda v: v)), None, r"values of its left table, KTABLE-MAPVALUES-\d+ \(map"),
], ids=["right values", "left values"])  # fmt: skip
def test_a_join_by_foreign_key_says_which_serde_it_lacks_of_which_table(left: Any, right: Any, lacks: str) -> None:
    builder = StreamsBuilder()
    streams = [builder.stream(topic, key=STRING, value=STRING) for topic in ("l", "r")]
    tables = [stream.to_table() if make is None else make(stream) for make, stream in zip((left, right), streams, strict=True)]
    tables[0].join(tables[1], max, foreign_key=lambda value: value).to_stream().to("out", key=STRING, value=STRING)
    topology = builder.build()
    side = "key" if "keys" in lacks else "value"
    said = rf"join by foreign key KTABLE-FK-JOIN-\S+: no serde is named for the {lacks}.*give {side}= .*default.{side}.serde"
    with pytest.raises(TopologyError, match=said):
        compile_topology(None, topology, "app")
    assert compile_topology(None, topology, "app", default_serdes=ARRIVING)


@pytest.mark.parametrize(("side", "joins"), [("left", ForeignKeySubscribe), ("right", ForeignKeyChange)])
def test_keys_of_a_join_by_foreign_key_that_are_only_known_where_they_arrive_are_not_enough(side: str, joins: type) -> None:
    builder = StreamsBuilder()
    keyed = [builder.stream(topic, key=STRING, value=STRING).select_key(lambda k, v: v) for topic in ("l", "r")]
    left, right = (stream.to_table() for stream in keyed)
    left.join(right, max, foreign_key=lambda value: value).to_stream().to("out", key=STRING, value=STRING)
    topology = builder.build()
    [name] = [n for n, node in topology.nodes.items() if isinstance(node, ProcessorNode) and isinstance(node.operation, joins)]
    said = rf"keys of its {side} table, KSTREAM-TOTABLE-\d+ \(table.* give key= .* \(there they are written as long\)"
    with pytest.raises(TopologyError, match=said):
        of_foreign_key_join(topology, name, pair(LONG, STRING), {}, NO_SERDES)


def test_left_values_of_a_join_by_foreign_key_are_hashed_with_the_serde_that_they_are_known_to_have() -> None:
    builder = StreamsBuilder()
    left = builder.table("l", key=STRING, value=STRING).map_values(per_record(len))
    left.join(builder.table("r", key=STRING, value=STRING), max, foreign_key=str).to_stream().to("out")
    topology = builder.build()
    arriving = pair(STRING, DOUBLE)
    [asks] = operations_of(topology, ForeignKeySubscribe)
    [answered] = operations_of(topology, ForeignKeyResolve)
    known = {left.name: arriving}
    for name in (asks, answered):
        found = of_foreign_key_join(topology, name, arriving, known, NO_SERDES).operation
        assert isinstance(found, (ForeignKeySubscribe, ForeignKeyResolve))
        assert found.value_serde == DOUBLE
        default = of_foreign_key_join(topology, name, arriving, known, pair(None, STRING)).operation
        assert isinstance(default, (ForeignKeySubscribe, ForeignKeyResolve))
        assert default.value_serde == STRING


@pytest.mark.parametrize(("given", "said"), [
    ({}, r"keys and the values of in \(KSTREAM-SOURCE-\d+: give key= and value=\), where"),
    ({"key": STRING}, r"values of in \(KSTREAM-SOURCE-\d+: give value=\), where"),
])  # fmt: skip
def test_sources_without_serdes_are_named_with_their_topics_and_internal_ones_are_not(given: Any, said: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", **given).map(per_record(lambda k, v: (k, v))).group_by_key().count()
    with pytest.raises(TopologyError, match=rf"no serde for the {said} the topic is read"):
        compile_topology(None, builder.build(), "app")


def _settled(topology: Topology, default: KeyValueSerdes) -> SerdeInference:
    """With what the layers before the steps would have said: columns of text."""
    plan = stages(topology)
    serdes = SerdeInference(topology, plan, default)
    for name, node in topology.nodes.items():
        if isinstance(node, SourceNode):
            assert serdes.settle_source(name)
        elif runs_vectorised(topology, plan, name):
            serdes.entering[name] = ARRIVING
    for number in range(1, plan.last + 1):
        serdes.finish_step(number)
    return serdes


def test_a_step_whose_results_nothing_says_how_to_write_takes_the_serde_of_what_arrives() -> None:
    topology = _topology(_aggregate)
    assert _settled(topology, NO_SERDES).leaving[_first_kept(topology)] == ARRIVING


def test_a_peek_in_a_step_passes_on_the_bytes_that_came_whatever_the_stream_is_written_with() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=LONG).peek(lambda k, v: None).to("out")
    topology = builder.build()
    peek = next(name for name, node in topology.nodes.items() if isinstance(node, ProcessorNode))
    assert _settled(topology, NO_SERDES).leaving[peek] == ARRIVING


def _joined(**to: Any) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=STRING, value=STRING, store="t")
    builder.stream("in", key=STRING, value=STRING).join(table, lambda v, w: v).to("out", **to)
    return builder.build()


def test_a_join_in_a_step_writes_as_the_sink_below_it_then_as_the_default_says() -> None:
    for topology, default, expected in (
        (_joined(value=SHORT), DEFAULT, SHORT), (_joined(), DEFAULT, DOUBLE),
    ):  # fmt: skip
        plan = stages(topology)
        [join] = [name for group in plan.vectorised for name in group if name.startswith("KSTREAM-JOIN")]
        assert _settled(topology, default).leaving[join].value == expected


def test_a_join_in_a_step_writes_values_as_the_group_below_it_says_past_functions_of_columns_that_leave_them() -> None:
    builder = StreamsBuilder()
    table = builder.table("table", key=STRING, value=STRING, store="t")
    joined = builder.stream("in", key=STRING, value=STRING).join(table, lambda v, w: len(v + w))
    joined.filter(lambda k, v: v > 1).group_by(lambda k, v: v, key=LONG, value=SHORT).count()
    topology = builder.build()
    [join] = [name for group in stages(topology).vectorised for name in group if name.startswith("KSTREAM-JOIN")]
    assert _settled(topology, pair(None, STRING)).leaving[join].value == SHORT


@pytest.mark.parametrize(("below", "left", "expected"), [
    (lambda s: s.filter(lambda k, v: v > 1, name="columns"), pair(None, None), pair(LONG, SHORT)),
    (lambda s: s.select_key(lambda k, v: v, name="columns"), pair(STRING, None), pair(STRING, SHORT)),
    (lambda s: s.map_values(lambda v: v * 2, name="columns"), pair(None, STRING), pair(LONG, STRING)),
    (lambda s: s.filter(lambda k, v: v > 1, name="columns"), pair(STRING, DOUBLE), pair(STRING, DOUBLE)),
])  # fmt: skip
def test_where_a_processor_says_nothing_functions_of_columns_get_what_the_sink_below_them_says(
    below: Any, left: Any, expected: Any
) -> None:
    builder = StreamsBuilder()
    below(builder.stream("in", key=STRING, value=STRING).process(_Forwards, name="made")).to("out", key=LONG, value=SHORT)
    assert exit_edge(builder.build(), "columns", {"made": left}) == expected


def test_a_join_in_a_step_whose_results_nothing_says_how_to_write_is_refused_by_name() -> None:
    said = r"no serde for the values of KSTREAM-JOIN-\d+ \(join with a table\): give its result one"
    with pytest.raises(TopologyError, match=said):
        _settled(_joined(), NO_SERDES)


def test_what_a_long_chain_of_columns_passes_on_is_found_at_its_end() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=LONG, value=SHORT)
    for _ in range(2_000):
        stream = stream.filter(lambda k, v: v > 1)
    stream.to("out", name="sink")
    assert _settled(builder.build(), NO_SERDES).came_to("sink") == pair(LONG, SHORT)


def test_a_function_of_a_part_says_what_its_results_are_written_with() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_values(per_record(len, serde=SHORT)).filter(per_record(lambda k, v: True, serde=DOUBLE)).to("values")
    stream.select_key(per_record(lambda k, v: 1, serde=LONG)).to("keys")
    stream.map(per_record(lambda k, v: (1, 1), serde=(LONG, SHORT))).to("pairs")
    topology = builder.build()
    serdes = _settled(topology, NO_SERDES)
    sinks = {node.topic: serdes.entering[name] for name, node in topology.nodes.items() if hasattr(node, "topic_extractor")}
    assert sinks == {
        "values": pair(STRING, SHORT), "keys": pair(LONG, STRING), "pairs": pair(LONG, SHORT),
    }  # fmt: skip


def leaves(make: Make, default: KeyValueSerdes = NO_SERDES) -> KeyValueSerdes:
    """What leaves the first operator below a stream of text that arrives as text."""
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING))
    topology = builder.build()
    first = next(name for name, node in topology.nodes.items() if isinstance(node, ProcessorNode))
    return _settled(topology, default).leaving[first]


BATCH = per_batch(lambda keys, values: (keys, values))


@pytest.mark.parametrize(("make", "expected"), [
    (lambda s: s.map(per_batch(BATCH.function, (LONG, SHORT))).to("out"), pair(LONG, SHORT)),
    (lambda s: s.map(BATCH).to("out", key=LONG, value=SHORT), pair(LONG, SHORT)),
    (lambda s: s.map(per_batch(BATCH.function, (SHORT, LONG))).to("out", key=LONG, value=SHORT), pair(LONG, SHORT)),
    (lambda s: s.map_values(per_batch(BATCH.function, LONG)).to("out", value=SHORT), pair(STRING, SHORT)),
    (lambda s: s.map(BATCH).peek(print).filter(lambda k, v: True).to("out", key=LONG, value=SHORT), pair(LONG, SHORT)),
    (lambda s: s.flat_map(per_batch(BATCH.function, (LONG, SHORT))).to("out"), pair(LONG, SHORT)),
    (lambda s: s.flat_map_values(per_batch(BATCH.function, SHORT)).to("out"), pair(STRING, SHORT)),
    (lambda s: s.select_key(per_batch(BATCH.function, LONG)).to("out"), pair(LONG, STRING)),
    (lambda s: s.select_key(BATCH).group_by_key(key=LONG, value=SHORT).count(), pair(LONG, STRING)),
    (lambda s: s.map(BATCH).group_by_key(key=LONG, value=SHORT).reduce(max), pair(LONG, SHORT)),
])  # fmt: skip
def test_results_of_a_batch_are_written_as_their_only_sink_says_else_as_the_function_does(make: Make, expected: Any) -> None:
    assert leaves(make) == expected


def test_values_of_a_select_key_are_as_they_came_whatever_the_default_is() -> None:
    assert leaves(lambda s: s.select_key(BATCH).to("out"), DEFAULT) == pair(DOUBLE, STRING)


@pytest.mark.parametrize(("make", "side"), [
    (lambda s: s.select_key(BATCH).to("out"), "key"),
    (lambda s: s.map(per_batch(BATCH.function, (LONG, None))).to("out"), "value"),
])  # fmt: skip
def test_a_function_of_batches_of_whose_results_nothing_says_how_to_write_them_is_refused(make: Make, side: str) -> None:
    said = rf"no serde for the {side}s of KSTREAM-[A-Z-]+\d+ \([a-z_ ]+\): give its result one .*{side}="
    with pytest.raises(TopologyError, match=said):
        leaves(make)


@pytest.mark.parametrize("make", [
    lambda s, store: s.group_by_key().count(store=store), lambda s, store: _windowed(s, WINDOWS).count(store=store),
], ids=["a count", "a count in windows"])  # fmt: skip
def test_counts_that_a_store_keeps_in_another_form_are_made_record_by_record(make: Any) -> None:
    in_eight_bytes = stages(_topology(lambda s: make(s, Materialized(name="s", value=LONG))))
    in_two_bytes = stages(_topology(lambda s: make(s, Materialized(name="s", value=SHORT))))
    assert (len(in_eight_bytes.parts), len(in_two_bytes.parts)) == (0, 1)


def test_a_sink_of_a_step_reads_what_it_is_given_as_the_node_above_has_written_it() -> None:
    topology = _topology(lambda s: s.group_by_key().count())
    [sink] = [name for name, node in topology.nodes.items() if isinstance(node, SinkNode)]
    serdes = _settled(topology, DEFAULT)
    assert sink not in serdes.entering, "its records come from a node of its own step"
    assert serdes.at_sink(sink) == pair(STRING, LONG)


@pytest.mark.parametrize(("make", "said"), [
    (lambda keyed: keyed.to("out", value=STRING), r"that KSTREAM-SINK-\d+ writes: give key= of the sink to out,"),
    (
        lambda keyed: keyed.to_table(store=Materialized(name="rows", value=STRING)).to_stream().to("out", key=LONG),
        r"that KSTREAM-KEY-SELECT-\d+ \(select_key or group_by\) makes, which the repartition topic \S+ holds: .* give key= to",
    ),
    (
        lambda keyed: keyed.filter(per_record(lambda k, v: 1)).group_by_key(value=STRING).count().to_stream().to("out", key=LONG),
        r"that KSTREAM-KEY-SELECT-\d+ \(select_key or group_by\) makes, which the repartition topic \S+ holds: .* give key= to "
        r"the method below it \(a join takes it in joined=\)",
    ),
], ids=["a sink", "a table", "a group"])  # fmt: skip
def test_keys_that_nothing_says_how_to_write_are_refused_and_not_written_as_the_values_are(make: Make, said: str) -> None:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING).select_key(per_record(lambda k, v: len(v))))
    topology = builder.build()
    with pytest.raises(TopologyError, match=rf"no serde for the keys {said}.* or set default\.key\.serde$"):
        compile_topology(None, topology, "app")
    assert compile_topology(None, topology, "app", default_serdes=pair(LONG, None))


def test_a_sink_of_a_step_writes_keys_as_the_default_of_keys_says_not_as_that_of_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).select_key(BATCH).to("out")
    topology = builder.build()
    serdes = _settled(topology, pair(DOUBLE, LONG))
    [sink] = [name for name, node in topology.nodes.items() if isinstance(node, SinkNode)]
    [select] = serdes.leaving.keys() - {name for name, node in topology.nodes.items() if isinstance(node, SourceNode)}
    assert serdes.rewritten(sink, serdes.leaving[select])[0] is None, "its keys are in their bytes already"
    assert serdes.at_sink(sink).key == DOUBLE

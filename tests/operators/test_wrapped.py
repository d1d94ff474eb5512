"""Wrapped processors: what a wrapper sees, and that wrapping alone changes no result."""

from __future__ import annotations

import logging
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.operators import harness
from tests.operators.harness import Run, cases, compare, programs_in, run_case, start
from tests.operators.step_harness import StepRun
from tidemill import JoinWindows, Record, Serdes, Stores, StreamsBuilder, TimeWindows, Topology, TopologyBuilder
from tidemill.config.slices import TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.functions import per_record
from tidemill.errors import ConfigError, TopologyError
from tidemill.operators.wrapped import wrapped_topology
from tidemill.runtime.instance.configured_topology import configured_topology
from tidemill.spark.plan.graph_parts import graph_parts
from tidemill.topology.nodes import ProcessorNode

STRING = Serdes.string()
ROOMS = ("aggregates", "formats_windows", "joins", "more_joins", "processors", "stateless", "suppress", "tables", "windows")


class Counting:
    """Wraps every node, and counts what its processors are given."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.seen: Counter[str] = Counter()

    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        self.asked.append(name)
        return lambda: _Counted(self.seen, name, supplier())


class _Counted:
    def __init__(self, seen: Counter[str], name: str, inner: Any) -> None:
        self.seen, self.name, self.inner = seen, name, inner

    def init(self, context: Any) -> None:
        assert context.node == self.name
        if hasattr(self.inner, "init"):
            self.inner.init(context)

    def process(self, record: Record) -> None:
        self.seen[self.name] += 1
        self.inner.process(record)

    def close(self) -> None:
        if hasattr(self.inner, "close"):
            self.inner.close()


PROGRAMS = {
    name: program for room in ROOMS for name, program in programs_in(import_module(f"tests.operators.programs_{room}")).items()
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_wrapping_every_processor_changes_no_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()

    def wrapped(topology: Topology, *more: int) -> Run:
        return start(wrapped_topology(topology, counting), *more)

    monkeypatch.setattr(harness, "start", wrapped)
    case = cases()[name][0]
    assert compare(run_case(PROGRAMS[name], case), case) == []
    assert counting.seen.keys() <= set(counting.asked)
    assert bool(counting.seen) == bool(counting.asked)


class Only:
    """Wraps the nodes of these names in a processor that shouts; leaves all others as they are."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        return (lambda: _Shouting(supplier())) if name in self.names else supplier


class _Shouting:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def init(self, context: Any) -> None:
        self.inner.init(context)

    def process(self, record: Record) -> None:
        self.inner.process(record.with_value(record.value.upper()))


class _Repeats:
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record.with_value(record.value * 2))


def program() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_values(per_record(lambda value: value + "!", STRING), name="mapped").to("out")
    stream.process(_Repeats, name="repeats").to("out")
    stream.map_values(lambda value: value, name="columns").to("out")
    stream.group_by_key().count(store="counts", name="counted")
    return builder.build()


def test_only_what_is_wrapped_is_changed() -> None:
    topology = program()
    assert wrapped_topology(topology, Only()) == topology
    made = wrapped_topology(topology, Only("mapped", "repeats"))
    assert [name for name, node in made.nodes.items() if node != topology.nodes[name]] == ["mapped", "repeats"]


def test_a_function_of_columns_and_what_only_forwards_have_no_processor() -> None:
    counting = Counting()
    wrapped_topology(program(), counting)
    assert counting.asked == ["mapped", "repeats", "counted"]


def test_what_fills_global_and_read_only_stores_is_not_wrapped() -> None:
    """As in Kafka Streams, whose Topology wraps in addProcessor only."""
    counting = Counting()
    builder = StreamsBuilder()
    builder.global_table("rows", key=STRING, value=STRING, store="rows", name="table")
    topology = TopologyBuilder(builder.build())
    topology.add_global_store(Stores.key_value_store("all", key=STRING, value=STRING), "s1", "given", "fills-all", _Repeats)
    topology.add_read_only_state_store(Stores.key_value_store("own", key=STRING, value=STRING), "s2", "in", "fills-own", _Repeats)
    topology.add_source("s3", "other", key=STRING, value=STRING).add_processor("reads", _Repeats, "s3")
    topology.connect_processor_and_state_stores("reads", "own")
    wrapped_topology(topology.build(), counting)
    assert counting.asked == ["reads"]


def test_a_wrapper_gets_the_records_of_the_dsl_and_of_processors() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_values(per_record(lambda value: value + "?", STRING), name="mapped").to("out")
    stream.process(_Repeats, name="repeats").to("out")
    run = start(wrapped_topology(builder.build(), Only("mapped", "repeats")))
    run.pipe(0, "in", b"k", b"ab", 1)
    assert sorted(value for _topic, _key, value, *_rest in run.written if value is not None) == [b"AB?", b"ABAB"]


def nodes_in_parts(topology: Topology) -> set[str]:
    return {name for part in graph_parts(topology).parts for name in part.nodes}


def test_what_is_wrapped_runs_record_by_record_whatever_shortcut_it_has() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.group_by_key().windowed_by(TimeWindows.of_size(10)).count(store="windows", name="windowed")
    builder.stream("other", key=STRING, value=STRING).group_by_key().count(store="counts", name="counted")
    topology = builder.build()
    assert nodes_in_parts(topology) == set()
    assert nodes_in_parts(wrapped_topology(topology, Only("windowed"))) == {"windowed"}
    assert nodes_in_parts(wrapped_topology(topology, Only("counted"))) == {"counted"}


def test_the_setting_makes_the_wrapper() -> None:
    needed = {"application.id": "app"}

    class Configured(Counting):
        def configure(self, config: TopologyConfig) -> None:
            self.application = config.application_id

        def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
            assert self.application == "app"
            return super().wrap_processor_supplier(name, supplier)

    class Misconfigured(Counting):
        def configure(self, config: TopologyConfig) -> None:
            raise KeyError("shop.url")

    def wrapped(wrapper: object) -> set[str]:
        config = StreamsConfig.read_slice(TopologyConfig, {**needed, "processor.wrapper.class": wrapper})
        made = configured_topology(program(), config)
        return {name for name, node in made.nodes.items() if isinstance(node, ProcessorNode) and node.wrapped is not None}

    assert wrapped(Configured) == wrapped(Counting()) == {"mapped", "counted"}
    assert wrapped(f"{__name__}:Counting") == {"mapped", "counted"}
    for wrong, said in (
        ("nowhere:Counting", "nowhere:Counting can't be imported: .*expected module:Class"),
        (f"{__name__}:Absent", "can't be imported"),
        (object(), "has no wrap_processor_supplier; expected a class with"),
        ("Counting", "expected module:Class, a class or an object"),
        (Misconfigured, "its configure has failed: KeyError: 'shop.url'"),
    ):
        with pytest.raises(ConfigError, match=said):
            wrapped(wrong)


def test_a_wrapper_that_fails_or_gives_no_supplier_is_refused() -> None:
    class Fails:
        def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
            raise KeyError(name)

    class Nothing:
        def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
            return None

    with pytest.raises(TopologyError, match="wrap_processor_supplier failed on mapped: KeyError: 'mapped'"):
        wrapped_topology(program(), Fails())
    with pytest.raises(TopologyError, match="gave None for mapped, expected a supplier"):
        wrapped_topology(program(), Nothing())


def test_a_join_that_is_wrapped_has_no_shortcut() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("l", "r"))
    left.join(right, lambda a, b: a + b, JoinWindows.of_time_difference(10)).to("out")
    topology = builder.build()
    counting = Counting()
    run = start(wrapped_topology(topology, counting))
    run.pipe(0, "l", b"k", b"a", 1)
    run.pipe(1, "r", b"k", b"b", 2)
    assert [value for _topic, _key, value, *_rest in run.written] == [b"ab"]
    assert [counting.seen[name] for name in counting.asked] == [1, 1, 1, 1]


def test_the_wrapper_of_the_page_traces_what_it_names(caplog: pytest.LogCaptureFixture) -> None:
    page = (Path(__file__).parents[2] / "docs" / "processor-api.md").read_text(encoding="utf-8")
    code = page.split('```python title="tracing.py"\n')[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(_Repeats, name="orders-repeats").process(_Repeats, name="others").to("out")
    run = start(wrapped_topology(builder.build(), names["Tracing"]()))
    with caplog.at_level(logging.INFO, "orders"):
        run.pipe(0, "in", b"k", b"ab", 1)
    assert [value for _topic, _key, value, *_rest in run.written] == [b"abababab"]
    assert caplog.messages == ["orders-repeats: k at RecordMetadata(topic='in', partition=0, offset=0)"]
    run.graph.close()


def test_the_operator_in_a_wrapper_that_fails_to_close_is_closed() -> None:
    closed: list[str] = []

    class Same:
        def transform(self, _key: str, value: str | None) -> str | None:
            return value

        def close(self) -> None:
            closed.append("transformer")

    class Fails:
        def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
            return lambda: Failing(Counter(), name, supplier())

    class Failing(_Counted):
        def close(self) -> None:
            raise ValueError("not closed")

    builder = StreamsBuilder()
    builder.table("t", key=STRING, value=STRING).transform_values(Same, value=STRING).to_stream().to("out")
    run = start(wrapped_topology(builder.build(), Fails()))
    run.pipe(0, "t", b"k", b"v", 1)
    with pytest.raises(ValueError, match="not closed"):
        run.graph.close()
    assert closed == ["transformer"]


def test_in_steps_a_wrapped_program_gives_the_same() -> None:
    def built() -> Topology:
        builder = StreamsBuilder()
        left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("l", "r"))
        joined = left.join(right, lambda a, b: a + b, JoinWindows.of_time_difference(10))
        joined.group_by(per_record(lambda key, value: value, STRING), key=STRING, value=STRING).count(store="c").to_stream().to(
            "counts", value=Serdes.long()
        )
        left.group_by_key().windowed_by(TimeWindows.of_size(10)).count(store="w").to_stream(
            per_record(lambda key, value: key.key, STRING)
        ).to("windows", value=Serdes.long())
        return builder.build()

    counting = Counting()
    plain, wrapped = StepRun(built()), StepRun(wrapped_topology(built(), counting))
    batches: list[list[tuple[Any, ...]]] = [
        [("l", b"k", b"a", 1), ("r", b"k", b"b", 2), ("l", b"k", b"a", 3)], [("l", b"k", b"a", 30), ("r", b"k", b"b", 31)],
    ]  # fmt: skip
    for records in batches:
        for run in (plain, wrapped):
            run.pipe(records)
    assert sorted(wrapped.written, key=repr) == sorted(plain.written, key=repr)
    assert len(plain.written) > 6
    assert counting.seen.keys() == set(counting.asked)

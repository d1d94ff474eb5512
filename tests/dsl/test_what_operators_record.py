"""What the DSL writes into a topology besides names: operations, serdes, stores."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas
import pytest

from tidemill import Materialized, Serdes, StreamsBuilder, Suppressed, TimeWindows, Topology
from tidemill.dsl.stream import KStream
from tidemill.errors import TopologyError
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, Store, StoreKind

STRING, LONG, DOUBLE = Serdes.string(), Serdes.long(), Serdes.double()


def record(key: Any, value: Any) -> Any:
    return value


def one(value: Any) -> Any:
    return value


def serdes_of(stream: Any) -> tuple[Any, Any]:
    return stream.key_serde, stream.value_serde


def operation(topology: Topology, name: str) -> op.Operation:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node.operation


@pytest.fixture
def stream() -> KStream:
    return StreamsBuilder().stream("in", key=STRING, value=LONG)


# --- serdes ----------------------------------------------------------------------------------------------------------


def test_what_changes_neither_key_nor_value_keeps_both_serdes(stream: KStream) -> None:
    same = stream.filter(record).filter_not(record).peek(record)
    branches = same.split().branch(record).default_branch().values()
    assert all(serdes_of(kept) == (STRING, LONG) for kept in (same, same.merge(stream), *branches, same.to_table()))


def test_a_change_forgets_the_serde_of_what_it_changes(stream: KStream) -> None:
    assert serdes_of(stream.map_values(one)) == serdes_of(stream.flat_map_values(one)) == (STRING, None)
    assert serdes_of(stream.select_key(record)) == (None, LONG)
    assert serdes_of(stream.map(record)) == serdes_of(stream.flat_map(record)) == (None, None)


def test_a_merge_forgets_serdes_that_differ(stream: KStream) -> None:
    assert serdes_of(stream.merge(stream.map_values(one))) == (STRING, None)


def test_groups_and_repartitions_use_the_given_serde_else_the_known_one(stream: KStream) -> None:
    assert serdes_of(stream.group_by(record)) == (None, LONG)
    assert serdes_of(stream.group_by(record, key=DOUBLE)) == (DOUBLE, LONG)
    assert serdes_of(stream.group_by_key(value=DOUBLE)) == (STRING, DOUBLE)
    assert serdes_of(stream.repartition(key=DOUBLE)) == (DOUBLE, LONG)


def test_aggregates_have_the_serdes_of_their_results(stream: KStream) -> None:
    grouped = stream.group_by_key()
    assert serdes_of(grouped.count()) == (STRING, LONG)
    assert serdes_of(grouped.reduce(record)) == (STRING, LONG)
    assert serdes_of(grouped.aggregate(dict, lambda key, value, so_far: so_far)) == (STRING, None)
    assert serdes_of(grouped.aggregate(dict, lambda key, value, so_far: so_far, value=DOUBLE)) == (STRING, DOUBLE)


def test_tables_pass_their_serdes_on() -> None:
    table = StreamsBuilder().table("in", key=STRING, value=LONG)
    assert serdes_of(table) == serdes_of(table.filter(record)) == serdes_of(table.to_stream()) == (STRING, LONG)
    assert serdes_of(table.map_values(one)) == (STRING, None)
    assert serdes_of(table.map_values(one, value=DOUBLE)) == (STRING, DOUBLE)


def test_a_topic_is_written_with_the_given_serdes_else_the_known_ones(stream: KStream) -> None:
    stream.to("as-known", name="known")
    stream.to("as-given", key=DOUBLE, value=STRING, name="given")
    nodes = StreamsBuilderOf(stream).nodes
    assert serdes_of(nodes["known"]) == (STRING, LONG)
    assert serdes_of(nodes["given"]) == (DOUBLE, STRING)


def StreamsBuilderOf(stream: KStream) -> Topology:  # noqa: N802
    from tidemill.topology.lowering import lower

    return lower(stream.recorder.graph)


# --- functions -------------------------------------------------------------------------------------------------------


class Callable2:
    def __call__(self, key: Any, value: Any) -> Any:
        return key, value


@pytest.mark.parametrize(("function", "takes_key"), [
    (one, False), (record, True), (str.upper, False), (lambda value, more=None: (value, more), False),
    (lambda *columns: columns, False), (Callable2(), True), (max, False), (str, False),
])
def test_a_function_of_values_takes_the_key_only_if_it_needs_two_arguments(function: Any, takes_key: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.map_values(function, name="mapped").flat_map_values(function, name="flat")
    builder.table("table").map_values(function, name="table-mapped")
    topology = StreamsBuilderOf(stream)  # what is recorded: build() would say what is wrong with max as a function of Columns
    assert operation(topology, "mapped") == op.MapValues(function, takes_key)
    assert operation(topology, "flat") == op.FlatMapValues(function, takes_key)
    assert operation(topology, "table-mapped") == op.TableMapValues(function, takes_key)


def test_operators_on_python_values_take_the_function_inside_a_udf() -> None:
    from pyspark.sql import functions
    builder = StreamsBuilder()
    longer, shout = (lambda a, v: max(a, v, key=len)), (lambda value: value.upper())  # with hints, udf() warns
    stream = builder.stream("in").peek(functions.udf(longer), name="peeked")
    stream.group_by_key().reduce(functions.udf(longer), store="s", name="reduced")
    stream.map_values(functions.udf(shout), name="mapped")
    topology = builder.build()
    assert operation(topology, "peeked") == op.Peek(longer)
    assert operation(topology, "reduced") == op.Reduce("s", longer)
    assert operation(topology, "mapped") != op.MapValues(shout)  # a Column function: Spark calls it as a UDF


def test_a_partial_takes_what_is_left_of_its_function_s_arguments() -> None:
    def tagged(tag: str, one: Any, other: Any) -> Any:
        return tag, one, other

    builder = StreamsBuilder()
    stream, everywhere = builder.stream("in", key=STRING, value=STRING), builder.global_table("g", key=STRING, value=STRING)
    left, right = (builder.table(topic, key=STRING, value=STRING) for topic in "lr")
    left.join(right, partial(tagged, "t"), foreign_key=partial(getattr, "text"))
    stream.join(right, partial(tagged, "t")).join(everywhere, partial(tagged, "t"), selector=lambda key, value: value)
    nodes = (node for node in builder.build().nodes.values() if isinstance(node, ProcessorNode))
    takes_key = [node.operation.takes_key for node in nodes if hasattr(node.operation, "takes_key")]
    assert takes_key == [False] * 4  # the foreign key's function and three joiners


def test_a_udf_of_whole_batches_is_refused_where_single_values_are_passed() -> None:
    from pyspark.sql import functions, types

    @functions.pandas_udf(types.LongType())  # type: ignore[untyped-decorator]
    def batches(aggregate: pandas.Series, value: pandas.Series) -> pandas.Series:
        return aggregate + value

    with pytest.raises(TopologyError, match=r"reduce: got a UDF of whole batches .* give a plain Python function"):
        StreamsBuilder().stream("in").group_by_key().reduce(batches)


def test_a_split_keeps_predicates_and_children_in_their_order() -> None:
    builder = StreamsBuilder()
    split = builder.stream("in").split(name="s-")
    branches = split.branch(record, name="a").branch(record).default_branch(name="rest")
    assert operation(builder.build(), "s-") == op.Branch((record, record), ("s-a", "s-2"), "s-rest")
    assert list(branches) == ["s-a", "s-2", "s-rest"]


def test_consumed_branches_are_not_among_the_results_and_functions_replace_theirs() -> None:
    split = StreamsBuilder().stream("in").split(name="s-")
    branches = (
        split.branch(record, name="consumed", consumer=lambda s: s.to("out"))
        .branch(record, name="mapped", function=lambda s: s.filter(record, name="filtered"))
        .branch(record, name="dropped", function=lambda s: None)
        .no_default_branch()
    )
    assert {name: branch.name for name, branch in branches.items()} == {"s-mapped": "filtered"}


def test_prints_are_labelled_with_the_node_above_unless_told() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="src").print(name="plain")
    builder.stream("in").print("mine", name="labelled")
    topology = builder.build()
    assert operation(topology, "plain") == op.Print("src")
    assert operation(topology, "labelled") == op.Print("mine")


# --- stores ----------------------------------------------------------------------------------------------------------


def test_a_described_store_is_kept_as_described() -> None:
    builder = StreamsBuilder()
    asked = Materialized(
        name="counts", key=DOUBLE, persistent=False, caching=False, changelog_config={"segment.ms": "5"}
    )
    table = builder.stream("in", key=STRING).group_by_key().count(store=asked)
    assert builder.build().stores["counts"] == Store(
        name="counts", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key_serde=DOUBLE, value_serde=LONG, logged=True,
        persistent=False, caching=False, changelog_config={"segment.ms": "5"},
    )
    assert table.store_name == "counts"


def test_only_a_named_store_can_be_queried() -> None:
    builder = StreamsBuilder()
    assert builder.stream("in").group_by_key().count().store_name is None
    assert builder.table("t").store_name is None
    assert builder.table("u", store="named").store_name == "named"
    assert builder.stream("in").to_table(store=Materialized(key=STRING)).store_name is None


def test_a_table_operator_has_a_store_only_by_name() -> None:
    builder = StreamsBuilder()
    table = builder.table("in")
    table.filter_not(record, store="kept", name="with")
    table.filter(record, store=Materialized(value=LONG), name="without")
    topology = builder.build()
    assert operation(topology, "with") == op.TableFilter(record, True, "kept")
    assert operation(topology, "without") == op.TableFilter(record, False, None, forgets_versions=True)
    assert list(topology.stores) == ["kept"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("stored", [False, True])
def test_joins_of_a_table_with_what_is_made_of_it_are_followed_once_though_they_have_many_paths(stored: bool) -> None:
    """40 of them have 2**40 paths: recording them and describing them never ended."""
    table = (builder := StreamsBuilder()).table("in", key=STRING, value=LONG)
    for number in range(40):
        table = table.filter(record).join(table.map_values(one), record, store=f"store-{number}" if stored else None)
    topology = builder.build()
    assert all(node.sends_old for node in topology.nodes.values() if isinstance(node, ProcessorNode) and "FILTER" in node.name)
    assert topology.describe().count("Processor: ") == len(topology.nodes) - 1


@pytest.mark.timeout(60)
def test_the_grace_of_windows_is_found_once_above_joins_that_have_many_paths() -> None:
    windows = TimeWindows.of_size(10, grace=7)
    table = (builder := StreamsBuilder()).stream("in", key=STRING, value=LONG).group_by_key().windowed_by(windows).count()
    for _ in range(40):
        table = table.join(table.map_values(one), record)
    table.suppress(Suppressed.until_window_closes(name="held")).to_stream().to("out")
    held = operation(builder.build(), "held")
    assert isinstance(held, op.Suppress)
    assert held.grace_ms == 7


def test_the_public_package_needs_no_spark() -> None:
    import subprocess
    import sys

    script = "import sys, tidemill; tidemill.StreamsBuilder(); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0

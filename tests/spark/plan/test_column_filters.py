"""A table's filter of Columns in the plan: of changes where the table above knows old values, as it is elsewhere."""

from __future__ import annotations

from tidemill import KTable, Materialized, Serdes, StreamsBuilder, per_record
from tidemill.spark.plan.planned_topology import planned
from tidemill.spark.plan.stages import stages
from tidemill.topology.nodes import ProcessorNode, Topology
from tidemill.topology.operations import TableFilter, TableMapValues
from tidemill.topology.spark_operations import ChangedValues

TEXT, LONG = Serdes.string(), Serdes.long()


def counted(builder: StreamsBuilder) -> KTable:
    return builder.stream("in", key=TEXT, value=TEXT).group_by_key().count(store="n")


def operation(topology: Topology, name: str) -> object:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    return node.operation


def test_a_filter_gets_the_changes_of_the_table_above() -> None:
    builder = StreamsBuilder()
    counted(builder).filter(lambda key, n: n > 1, name="many").to_stream().to("out", key=TEXT, value=LONG)
    found = planned(builder.build())
    assert found.parents["many"] == ("many|changes",)
    assert operation(found, "many|changes") == ChangedValues()
    match operation(found, "many"):
        case TableFilter(of_changes=True, gives_changes=False):
            pass
        case other:
            raise AssertionError(other)
    assert stages(builder.build()).step_of["many|changes"] == 1, "in the step of the count"
    assert planned(found) == found


def test_what_lies_between_is_computed_of_both_values_and_left_out_where_nobody_else_reads_it() -> None:
    builder = StreamsBuilder()
    doubled = counted(builder).map_values(lambda n: n * 2, name="doubled")
    some = doubled.filter(lambda key, n: n > 1, name="some")
    some.filter(lambda key, n: n < 9, name="few").to_stream().to("out", key=TEXT, value=LONG)
    found = planned(builder.build())
    assert found.parents["few"] == ("few|some",)
    assert found.parents["few|some"] == ("few|doubled",)
    assert found.parents["few|doubled"] == ("few|changes",)
    match operation(found, "few|doubled"), operation(found, "few|some"), operation(found, "few"):
        case TableMapValues(of_changes=True), TableFilter(gives_changes=True), TableFilter(gives_changes=False):
            pass
        case others:
            raise AssertionError(others)
    assert "doubled" not in found.nodes
    assert "some" not in found.nodes
    doubled.to_stream().to("all", key=TEXT, value=LONG)
    assert "doubled" in planned(builder.build()).nodes


def test_other_filters_stay_as_they_are() -> None:
    builder = StreamsBuilder()
    counted(builder).filter(per_record(lambda key, n: n > 1)).to_stream().to("python", key=TEXT, value=LONG)
    counted_again = builder.stream("more", key=TEXT, value=TEXT).group_by_key().count(store="m")
    counted_again.filter(lambda key, n: n > 1, store="kept").to_stream().to("kept", key=TEXT, value=LONG)
    builder.table("rows", key=TEXT, value=LONG).filter(lambda key, n: n > 1).to_stream().to("bare", key=TEXT, value=LONG)
    versioned = Materialized(name="v", history_retention=1_000)
    old = builder.table("old", key=TEXT, value=LONG, store=versioned)
    old.filter(lambda key, n: n > 1).to_stream().to("v", key=TEXT, value=LONG)
    topology = builder.build()
    assert planned(topology) == topology

"""reduce(of_columns(f)): two steps of the plan with a layer before each, and what it can't be used with."""

from __future__ import annotations

import pytest

from tidemill import Materialized, Serdes, StreamsBuilder, of_columns
from tidemill.errors import TopologyError
from tidemill.spark.plan.planned_topology import merge_functions, planned
from tidemill.spark.plan.stages import stages
from tidemill.steps.rows.codecs_wire import EntriesSerde
from tidemill.topology.nodes import Topology
from tidemill.topology.spark_operations import HeldAggregates, MergedAggregates

TEXT = Serdes.string()
NODE = "KSTREAM-REDUCE-0000000001"


def program(python: bool = False) -> StreamsBuilder:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    table = grouped.reduce(max if python else of_columns(lambda a, b: a), store="r")
    table.to_stream().to("out")
    return builder


def test_it_is_described_as_any_reduce() -> None:
    assert program().build().describe() == program(python=True).build().describe()


def test_the_plan_looks_up_in_one_step_and_writes_in_the_next() -> None:
    topology: Topology = program().build()
    plan = stages(topology)
    assert NODE in planned(topology).nodes
    assert plan.step_of[NODE + "|held"] == 1
    assert plan.step_of[NODE] == plan.last == 2
    assert set(merge_functions(topology)) == {NODE + "|held"}
    assert stages(program(python=True).build()).last == 1
    assert planned(planned(topology)) == planned(topology)


def test_the_values_of_a_key_are_one_value_that_catalyst_can_read() -> None:
    texts, numbers = EntriesSerde(TEXT), EntriesSerde(Serdes.double())
    assert texts.serialize([(7, "é"), (-1, ""), (8, None)]) == b"7:c3a9,-1:,8:-"
    assert numbers.serialize([(7, -0.0), (9, 5e-324)]) == b"7:-0.0,9:5e-324"
    assert texts.sql_type == "array<struct<ts:bigint,v:string>>"
    assert EntriesSerde(Serdes.uuid()).sql_type == "array<struct<ts:bigint,v:string>>"


def test_the_function_stays_in_the_driver() -> None:
    operations = [getattr(node, "operation", None) for node in planned(program().build()).nodes.values()]
    assert HeldAggregates("r") in operations
    assert MergedAggregates("r") in operations


def test_who_needs_each_change_refuses_it() -> None:
    builder = program()
    table = builder.stream("more", key=TEXT, value=TEXT).group_by_key().reduce(of_columns(lambda a, b: a))
    table.group_by(lambda key, value: (value, key), key=TEXT, value=TEXT).count()
    with pytest.raises(TopologyError, match="needs that table's changes and rows as Python values: reduce with a plain"):
        stages(builder.build())
    builder = program()
    table = builder.stream("more", key=TEXT, value=TEXT).group_by_key().reduce(of_columns(lambda a, b: a))
    builder.stream("third", key=TEXT, value=TEXT).join(table, lambda a, b: a).to("joined", value=TEXT)
    with pytest.raises(TopologyError, match="reduce with a plain Python function"):
        stages(builder.build())


def test_what_it_takes_is_checked_when_it_is_written() -> None:
    grouped = StreamsBuilder().stream("in", key=TEXT, value=TEXT).group_by_key()
    with pytest.raises(TopologyError, match="of_columns: expected a function"):
        of_columns("a + b")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="reduce"):
        grouped.reduce(of_columns(lambda a: a))
    with pytest.raises(TopologyError, match="versioned store"):
        grouped.reduce(of_columns(lambda a, b: a), store=Materialized(name="v", history_retention=1_000))

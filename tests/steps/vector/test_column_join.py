"""Joins with of_columns(f): described as any join, one step and one layer of the plan, and the results of Python joiners."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import Joined, JoinWindows, Materialized, Serdes, StreamsBuilder, of_columns, per_record
from tidemill.errors import TopologyError
from tidemill.spark.plan.planned_topology import planned
from tidemill.spark.plan.stages import stages
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.testing import TestRecord
from tidemill.topology.nodes import ProcessorNode
from tidemill.topology.operations import MapValues
from tidemill.topology.spark_operations import both_sides

TEXT, LONG = Serdes.string(), Serdes.long()
WINDOWS = JoinWindows.of_time_difference(100, grace=50)
EXAMPLE = of_columns(F.concat)


def program(joiner: Any) -> StreamsBuilder:
    """Every kind of join that takes a joiner of Columns, each of streams and tables of its own."""
    b = StreamsBuilder()
    for kind in ("join", "left_join", "outer_join"):
        left, right = b.stream(f"left-{kind}", key=TEXT, value=TEXT), b.stream(f"right-{kind}", key=TEXT, value=TEXT)
        getattr(left, kind)(right, joiner, WINDOWS).to(f"{kind}-streams")
        if kind != "outer_join":
            table = b.table(f"table-{kind}", key=TEXT, value=TEXT)
            stream = b.stream(f"stream-{kind}", key=TEXT, value=TEXT)
            getattr(stream, kind)(table, joiner, name=f"named-{kind}").to(f"{kind}-table")
    everywhere = b.global_table("everywhere", key=TEXT, value=TEXT)
    for kind in ("join", "left_join"):
        stream = b.stream(f"global-{kind}", key=TEXT, value=TEXT)
        getattr(stream, kind)(everywhere, joiner, selector=lambda key, value: value).to(f"{kind}-global")
    itself = b.stream("itself", key=TEXT, value=TEXT)
    itself.join(itself, joiner, WINDOWS).to("with-itself")
    return b


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_it_is_described_as_any_join(optimization: str) -> None:
    of_values = program(lambda left, right: left).build(optimization=optimization)
    made = program(EXAMPLE).build(optimization=optimization)
    assert made.describe() == of_values.describe()
    assert set(made.stores) == set(of_values.stores)


@pytest.mark.parametrize("optimization", ["none", "all"])
def test_the_join_hands_on_pairs_and_keeps_no_function(optimization: str) -> None:
    topology = program(EXAMPLE).build(optimization=optimization)
    made = planned(topology)
    assert planned(made) == made
    joins = [n.operation for n in made.nodes.values() if isinstance(n, ProcessorNode) and hasattr(n.operation, "joiner")]
    assert joins
    assert all(join.joiner is both_sides for join in joins)
    below = {name: node for name, node in made.nodes.items() if name + "|pair" in made.nodes}
    assert len(below) == 8
    assert all(isinstance(node, ProcessorNode) and isinstance(node.operation, MapValues) for node in below.values())
    assert all(not node.stores for node in below.values())  # type: ignore[union-attr]
    plan = stages(topology)
    assert {plan.step_of[name + "|pair"] for name in below} == {1}
    assert not below.keys() & plan.step_of.keys()
    assert plan.last == 2


def test_a_join_goes_on_in_its_own_step_only_with_python_values() -> None:
    b = StreamsBuilder()
    table = b.table("table", key=TEXT, value=TEXT)
    joined = b.stream("in", key=TEXT, value=TEXT).join(table, EXAMPLE, name="first")
    joined.left_join(table, lambda left, right: left, name="second").to("out")
    refused = r"first works on columns, but is between .*second.*: give it a function of Python values .*without of_columns"
    with pytest.raises(TopologyError, match=refused):
        stages(b.build())


def test_joins_without_a_form_for_columns_refuse_them() -> None:
    b = StreamsBuilder()
    table, other = b.table("table", key=TEXT, value=TEXT), b.table("other", key=TEXT, value=TEXT)
    stream = b.stream("in", key=TEXT, value=TEXT)
    refused = r"of_columns\(...\) is for reduce .* and for the joins of a stream; expected a function"
    with pytest.raises(TopologyError, match=refused):
        table.join(other, EXAMPLE)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=refused):
        table.left_join(other, EXAMPLE, foreign_key=lambda value: value)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=refused):
        stream.group_by_key().aggregate(lambda: "", of_columns(lambda key, value, aggregate: value))  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"can't be called with \(left, right\)"):
        stream.join(table, of_columns(lambda left: left))


def test_a_pair_travels_as_text_and_bytes() -> None:
    assert PairSerde(TEXT, LONG).serialize(("é", -5)) == b"0000000002+\xc3\xa9-5"
    assert PairSerde(TEXT, LONG).serialize(("", None)) == b"0000000000-"
    assert PairSerde(Serdes.boolean(), Serdes.float()).serialize((None, 0.1)) == b"-000000001+0.10000000149011612"
    assert PairSerde(Serdes.uuid(), Serdes.json("a int")).sql_type == "struct<left:string,right:struct<a:int>>"


# --- on Spark ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tidemill_session(spark: SparkSession) -> SparkSession:
    """The run's own session, since a process can have one."""
    return spark


ROW = Serdes.json("n bigint, t string")
KINDS: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "join": (ROW, LONG, Serdes.json("a bigint, b bigint"), lambda left, right: F.struct(left["n"].alias("a"), right.alias("b")),
             lambda left, right: {"a": left["n"], "b": right}),
    "left_join": (TEXT, Serdes.double(), Serdes.json("k string, a string, b double"),
                  lambda key, left, right: F.struct(key.alias("k"), left.alias("a"), right.alias("b")),
                  lambda key, left, right: {"k": key, "a": left, "b": right}),
    "outer_join": (Serdes.uuid(), Serdes.boolean(), Serdes.json("a string, b boolean"),
                   lambda left, right: F.struct(left.alias("a"), right.alias("b")),
                   lambda left, right: {"a": None if left is None else str(left), "b": right}),
    "table": (Serdes.float(), ROW, Serdes.json("a double, b string"),
              lambda left, right: F.struct(left.cast("double").alias("a"), right["t"].alias("b")),
              lambda left, right: {"a": left, "b": right["t"]}),
    "left_table": (Serdes.integer(), Serdes.bytes(), Serdes.json("a int, b binary"),
                   lambda left, right: F.struct(left.alias("a"), right.alias("b")),
                   lambda left, right: {"a": left, "b": right}),
    "versioned": (LONG, TEXT, Serdes.json("a bigint, b string"),
                  lambda left, right: F.struct(left.alias("a"), right.alias("b")),
                  lambda left, right: {"a": left, "b": right}),
    "global": (LONG, ROW, Serdes.json("a bigint, b string"),
               lambda left, right: F.struct(left.alias("a"), right["t"].alias("b")),
               lambda left, right: {"a": left, "b": None if right is None else right["t"]}),
}  # fmt: skip
VALUES: dict[str, list[Any]] = {
    "json": [{"n": 3, "t": "x\"y"}, {"n": None, "t": "é"}, {"n": -(2**40), "t": ""}],
    "long": [1, -(2**63), 2**63 - 1],
    "integer": [0, -7, 2**31 - 1],
    "string": ["a", "", "0000000002+é"],
    "double": [0.1, -1e300, 2.5e-300],
    "float": [0.5, 0.10000000149011612, -3.4028234663852886e38],
    "boolean": [True, False, True],
    "uuid": ["00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"],
    "bytes": [b"\0\xff", b"", b"+"],
}


def _joined(b: StreamsBuilder, kind: str, of: str) -> Any:
    left_serde, right_serde, serde, columns, values = KINDS[kind]
    joiner = of_columns(columns) if of == "columns" else per_record(values, serde)
    left = b.stream(f"left-{kind}-{of}", key=TEXT, value=left_serde)
    if "join" in kind:
        return getattr(left, kind)(b.stream(f"right-{kind}-{of}", key=TEXT, value=right_serde), joiner, WINDOWS)
    if kind == "global":
        everywhere = b.global_table(f"right-{kind}-{of}", key=TEXT, value=right_serde)
        return left.left_join(everywhere, joiner, selector=lambda key, value: key)
    store = Materialized(name=f"{kind}-{of}", history_retention=1_000) if kind == "versioned" else f"{kind}-{of}"
    table = b.table(f"right-{kind}-{of}", key=TEXT, value=right_serde, store=store)
    if kind == "table":
        return left.join(table, joiner)
    return left.left_join(table, joiner, joined=Joined(grace=20) if kind == "versioned" else None)


@pytest.mark.spark
def test_a_joiner_of_columns_makes_what_one_of_python_values_makes(topology_test_driver: Any) -> None:
    b = StreamsBuilder()
    for kind in KINDS:
        for of in ("columns", "values"):
            _joined(b, kind, of).to(f"out-{kind}-{of}", value=KINDS[kind][2])
    driver = topology_test_driver(b)
    for kind, (left, right, *_) in KINDS.items():
        for of in ("columns", "values"):
            for round_ in range(2):
                for number, (side, serde) in enumerate((("right", right), ("left", left), ("right", right))):
                    values, begin = [*VALUES[serde.name], None], 1_000 * round_ + 60 * number
                    records = [
                        TestRecord(None if at == 7 else f"k{at % 3}", values[at % len(values)], begin + 7 * at)
                        for at in range(9)
                    ]
                    driver.create_input_topic(f"{side}-{kind}-{of}", TEXT, serde).pipe_records(records, batch=None)

    def results(kind: str, of: str) -> list[Any]:
        topic = driver.create_output_topic(f"out-{kind}-{of}", TEXT, KINDS[kind][2])
        return [(record.key, record.value, record.timestamp) for record in topic.read_records()]

    for kind in KINDS:
        made = results(kind, "columns")
        assert len(made) > 8, kind
        assert made == results(kind, "values"), kind


@pytest.mark.spark
def test_what_a_joiner_of_columns_makes_goes_on_as_columns(topology_test_driver: Any) -> None:
    b = StreamsBuilder()
    lines = b.stream("lines", key=TEXT, value=TEXT).map_values(F.upper)
    table = b.table("table", key=TEXT, value=LONG, store="table")
    joined = lines.left_join(table, of_columns(lambda line, count: F.concat_ws("-", line, F.coalesce(count, F.lit(0)))))
    joined.filter(lambda _, text: text != "B-0").group_by(lambda _, text: text).count(store="counts")
    driver = topology_test_driver(b, {"default.key.serde": "string", "default.value.serde": "string"})
    driver.create_input_topic("table", TEXT, LONG).pipe_input("k", 5)
    lines_in = driver.create_input_topic("lines", TEXT, TEXT)
    lines_in.pipe_records([TestRecord("k", "a"), TestRecord("l", "a"), TestRecord("l", "b"), TestRecord("k", "a")], batch=None)
    assert {key: count for key, (count, _) in driver.store("counts").all()} == {"A-5": 2, "A-0": 1}




class LooksUp:
    """Puts what a global store has of a record's key before its value."""

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.store("everywhere")

    def process(self, record: Any) -> None:
        self._context.forward(record.with_value(f"{self._store.get(record.key)[0]}-{record.value}"))


@pytest.mark.spark
def test_a_processor_above_functions_of_columns_sees_the_global_stores(topology_test_driver: Any) -> None:
    b = StreamsBuilder()
    b.global_table("rows", key=TEXT, value=TEXT, store="everywhere")
    b.stream("in", key=TEXT, value=TEXT).process_values(LooksUp, value=TEXT).map_values(F.upper).to("out", value=TEXT)
    driver = topology_test_driver(b)
    driver.create_input_topic("rows", TEXT, TEXT).pipe_input("k", "row")
    driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
    assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == [("k", "ROW-V")]
    assert [(key, value) for key, (value, _) in driver.store("everywhere").all()] == [("k", "row")]


def _page(name: str) -> StreamsBuilder:
    """The program of a page."""
    lines = (Path(__file__).parents[3] / "docs" / "dsl" / name).read_text(encoding="utf-8").splitlines()
    names: dict[str, Any] = {}
    exec(textwrap.dedent("\n".join(line for line in lines if line.startswith("    ") or not line.strip())), names)
    made: StreamsBuilder = names["builder"]
    return made


@pytest.mark.spark
def test_the_page_of_joins_has_a_joiner_of_columns_beside_one_of_values(topology_test_driver: Any) -> None:
    driver = topology_test_driver(_page("joins.md"), {"default.key.serde": "string", "default.value.serde": "string"})
    driver.create_input_topic("users", TEXT, TEXT).pipe_input("k", "Ada")
    orders = driver.create_input_topic("orders", TEXT, TEXT)
    orders.pipe_records([TestRecord("k", "tea"), TestRecord("l", "rum")])
    made = {topic: driver.create_output_topic(topic, TEXT, TEXT).read_key_values() for topic in ("named", "named-or-not")}
    assert made == {"named": [("k", "tea by Ada")], "named-or-not": [("k", "tea by Ada"), ("l", "rum by unknown")]}


@pytest.mark.spark
def test_the_page_of_aggregates_merges_what_is_no_merge_by_itself(topology_test_driver: Any) -> None:
    driver = topology_test_driver(_page("aggregates.md"))
    records = [TestRecord("ab"[at % 2], 10 * at) for at in range(7)]
    driver.create_input_topic("amounts", TEXT, LONG).pipe_records(records, batch=3)
    assert driver.create_output_topic("means", TEXT, Serdes.double()).read_key_values_to_dict() == {"a": 30.0, "b": 30.0}
    rows = {name: {key: value for key, (value, _) in driver.store(name).all()} for name in ("largest", "parts")}
    assert rows["largest"] == {"a": 60, "b": 50}
    assert rows["parts"] == {"a": {"total": 120, "orders": 4}, "b": {"total": 90, "orders": 3}}

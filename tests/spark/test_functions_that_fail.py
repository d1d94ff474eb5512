"""What a function of Columns does wrong when the plan is made is said with its operator, file and line."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tidemill import Serdes, StreamsBuilder, of_columns
from tidemill.columns.recorded import recorded_columns
from tidemill.dsl.stream import KStream
from tidemill.errors import ColumnMistakeError, TopologyError
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.lowering import lower
from tidemill.topology.nodes import Topology

pytestmark = pytest.mark.spark
TEXT = Serdes.string()
ORDER = Serdes.json("customer string, amount double, tags array<string>")


def unchecked(write: Callable[[KStream], object]) -> Topology:
    """A program's topology, whose functions nobody has looked at."""
    builder = StreamsBuilder()
    write(builder.stream("in", key=TEXT, value=ORDER))
    return lower(builder._recorder.graph)


def compiled(session: SparkSession, topology: Topology) -> None:
    compile_topology(session, topology, "app", default_serdes=KeyValueSerdes(key=TEXT, value=TEXT), presum=True)


FAILING: dict[str, tuple[Callable[[KStream], object], type[TopologyError], str]] = {
    "a mistake": (
        lambda s: s.map_values(lambda v: v["customer"].lower(), name="lowered").to("out", value=TEXT),
        ColumnMistakeError,
        r"map_values lowered \(.*test_functions_that_fail.py, line \d+\): `v\['customer'\].lower\(\)` calls .* Write F.lower",
    ),
    "a mistake behind what needs a session": (
        lambda s: s.map_values(lambda v: F.udf(lambda x: x, "string")(v["customer"]).lower(), name="lowered").to("out"),
        ColumnMistakeError, r"map_values lowered .* calls .lower\(\)",
    ),
    "a predicate that asks for truth": (
        lambda s: s.filter(lambda k, v: v["amount"] > 1 and k != "a", name="some").to("out"),
        ColumnMistakeError, r"filter some .* Write \(v\['amount'\] > 1\) & \(k != 'a'\)",
    ),
    "a field that is not there": (
        lambda s: s.map_values(lambda v: v["amout"], name="spelt").to("out", value=Serdes.double()),
        TopologyError, r"map_values spelt \(.*, line \d+\): Spark can't compute what the function gives: .*amout",
    ),
    "a field that is not there, in a predicate": (
        lambda s: s.filter(lambda k, v: v["amout"] > 3, name="spelt").to("out"),
        TopologyError, r"filter spelt \(.*, line \d+\): Spark can't compute what the function gives: .*amout",
    ),
    "a field that is not there, in a branch": (
        lambda s: s.split(name="spelt").branch(lambda k, v: v["amout"] > 3).no_default_branch()["spelt1"].to("out"),
        TopologyError, r"branch spelt \(.*, line \d+\): Spark can't compute what the function gives: .*amout",
    ),
    "a field that is not there, in a table": (
        lambda s: s.to_table().filter(lambda k, v: v["amout"] > 3, name="spelt").to_stream().to("out"),
        TopologyError, r"filter spelt \(.*, line \d+\): Spark can't compute what the function gives: .*amout",
    ),
    "a key that the default serde does not write": (
        lambda s: s.select_key(lambda k, v: v["amount"]).group_by_key(name="sums").count(),
        TopologyError, r"into \S+ \(topic sums-repartition\), key by default.key.serde: .* type double, but the serde string ",
    ),
    "structs of other names in an array": (
        lambda s: s.flat_map(lambda k, v: F.array(F.struct(k, v["customer"]), F.struct(v["customer"], k)), name="two").to("out"),
        TopologyError, r"flat_map two \(.*, line \d+\): .* give all of them the same, as in F.struct\(a.alias\(\"key\"\), ",
    ),
    "a predicate that is no boolean": (
        lambda s: s.filter(lambda k, v: v["tags"], name="some").to("out"),
        TopologyError, r"filter some \(.*, line \d+\): the function gives array<string>, expected a boolean",
    ),
    "an error of the function's own": (
        lambda s: s.map_values(lambda v: undefined + v, name="broken").to("out"),  # type: ignore[name-defined]  # noqa: F821
        TopologyError, r"map_values broken \(.*, line \d+\): the function failed while the plan was made: NameError: .*undefined",
    ),
    "what Spark has no literal for": (
        lambda s: s.map_values(lambda v: 1j, name="complex").to("out"),
        TopologyError, r"map_values complex \(.*, line \d+\): the function gives 1j of type complex, expected a Column or a co",
    ),
    "a reduce": (
        lambda s: s.group_by_key().reduce(of_columns(max), name="most").to_stream().to("out"),
        ColumnMistakeError, r"reduce most.*asks whether a Column is true.*, or leave of_columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAILING)
def test_what_fails_in_the_plan_is_said_of_the_function(spark: SparkSession, what: str) -> None:
    write, kind, said = FAILING[what]
    with pytest.raises(TopologyError, match=said) as raised:
        compiled(spark, unchecked(write))
    assert type(raised.value) is kind


def test_with_a_session_functions_are_looked_at_with_its_columns(spark: SparkSession) -> None:
    seen: list[Column] = []
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(lambda v: seen.append(v) or v.split(","), name="split")
    with pytest.raises(ColumnMistakeError, match=r"map_values split .* calls .split\(\), .*F.split\(v, ','\)"):
        builder.build()
    assert [column._jc.toString() for column in seen] == ["value"]


def test_columns_from_before_the_session_are_made_in_it(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may keep Columns (a memo): those of the look at its functions must work when the plan is made."""
    shout = F.udf(lambda text: text.upper(), StringType())

    @functools.cache
    def kept() -> Column:
        return F.concat(F.lit("<"), shout(F.lit("a")), F.lit(5).cast(StringType()))

    context = spark.sparkContext
    monkeypatch.setattr(type(context), "_active_spark_context", None)
    with recorded_columns():
        made = kept()
    monkeypatch.undo()
    assert kept() is made
    assert spark.range(1).select(F.concat(made, F.col("id")).alias("text")).first().text == "<A50"  # type: ignore[union-attr]

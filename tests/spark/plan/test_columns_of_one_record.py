"""Functions of Columns that can't be expressions of one record's key and value: each is refused with what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder, of_columns
from tidemill.errors import TopologyError
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.topology.key_value_serdes import KeyValueSerdes

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT = Serdes.string()


def compiled(spark: SparkSession, builder: StreamsBuilder) -> None:
    compile_topology(spark, builder.build(), "app", default_serdes=KeyValueSerdes(key=TEXT, value=TEXT), presum=True)


def mapped(spark: SparkSession, function: Callable[[Any], Any], value: Any = TEXT) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=value).map_values(function).to("out", value=value)
    compiled(spark, builder)


@pytest.mark.parametrize(("function", "instead"), [
    (lambda v: F.row_number().over(Window.orderBy(v)).cast("string"), "gives a window.*windowed_by"),
    (lambda v: F.struct(F.window(F.to_timestamp(v), "5 minutes")), "gives a window.*windowed_by"),
    (lambda v: F.max(F.upper(v)), "gives an aggregate.*reduce or aggregate"),
    (lambda v: F.concat(v, F.max(v)), "gives an aggregate.*reduce or aggregate"),
    (lambda v: F.explode(F.split(v, " ")), "makes several rows: take flat_map_values"),
    (lambda v: F.upper(F.explode(F.split(v, " "))), "makes several rows: take flat_map_values"),
    (lambda v: F.posexplode(F.split(v, " ")), "makes several rows: take flat_map_values"),
    (lambda v: F.coalesce(F.lag(v), v), "gives a window.*windowed_by"),
    (lambda v: v.desc(), r"an order \(desc\(\) in an expression\)"),
    (lambda v: F.struct(v.asc()), r"an order \(asc\(\) in an expression\)"),
])  # fmt: skip
def test_what_is_of_several_records_is_refused_with_what_to_use_instead(
    spark: SparkSession, function: Callable[[Any], Any], instead: str
) -> None:
    with pytest.raises(TopologyError, match=rf"map_values KSTREAM-MAPVALUES-0000000001 \(.*, line \d+\): .*{instead}"):
        mapped(spark, function)


def test_so_it_is_in_a_predicate(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.filter(lambda key, value: F.row_number().over(Window.partitionBy(key).orderBy(value)) == 1).to("out")
    with pytest.raises(TopologyError, match=r"filter KSTREAM-FILTER-0000000001 .* gives a window"):
        compiled(spark, builder)


@pytest.mark.parametrize("function", [lambda _: F.upper("value"), lambda _: F.expr("upper(value)"), lambda _: F.col("value")])
def test_a_column_that_is_named_is_refused(spark: SparkSession, function: Callable[[Any], Any]) -> None:
    """It would be what the row travels as, and not the function's argument."""
    with pytest.raises(TopologyError, match="the function names the column 'value', but there are none to be named"):
        mapped(spark, function)


@pytest.mark.parametrize("function", [
    lambda _: F.struct("*"),
    lambda v: F.concat_ws(",", v["a"], "*"),
    lambda _: F.expr("hash(*)"),
    lambda _: F.struct(F.col("value.*")),
    lambda _: F.coalesce("*"),
    lambda v: F.array(v["a"], "*"),
    lambda _: F.upper("*"),
    lambda _: F.col("*") + 1,
    lambda _: F.col("*").cast("string"),
    lambda _: F.col("value.*") == "x",
])  # fmt: skip
def test_so_are_all_columns_of_a_row(spark: SparkSession, function: Callable[[Any], Any]) -> None:
    """They would be what the row travels as: a record's place, and its bytes."""
    with pytest.raises(TopologyError, match=r'map_values .* gives columns by "\*", which are none of its arguments'):
        mapped(spark, function, Serdes.json("a string"))


@pytest.mark.parametrize("function", [
    lambda _: F.expr("x -> x + 1"), lambda _: F.expr("(x, y) -> x"), lambda v: F.concat(v, F.expr("x->x")),
])  # fmt: skip
def test_a_function_of_sql_text_is_no_value(spark: SparkSession, function: Callable[[Any], Any]) -> None:
    with pytest.raises(TopologyError, match=r"a function of SQL text .* write the whole in Python, as in F.transform"):
        mapped(spark, function)


def test_a_column_of_another_dataframe_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", 1)], "name string, n int")
    with pytest.raises(TopologyError, match=r"a column of a DataFrame \(name\), which is none of its arguments.*join_dataframe"):
        mapped(spark, lambda v: F.concat(v, frame["name"]))


def test_text_with_a_star_and_nulls_in_it_is_text(spark: SparkSession) -> None:
    mapped(spark, lambda v: F.concat(v, F.lit("* NULLS FIRST"), (F.length(v) * 2).cast("string")))
    with pytest.raises(TopologyError, match=r"Spark can't compute what the function gives.*DATATYPE_MISMATCH"):
        mapped(spark, lambda v: F.concat(v, F.lit("(*)")) + F.array(v))


@pytest.mark.parametrize("wrong", [
    lambda orders: orders.filter(lambda key, order: order["tags"] == "x"),
    lambda orders: orders.map(lambda key, order: (key, order["tags"] == "x")),
    lambda orders: orders.flat_map_values(lambda order: F.array(order["tags"] == "x")),
])  # fmt: skip
def test_an_error_of_types_names_the_parameters_and_not_how_the_record_is_read(
    spark: SparkSession, wrong: Callable[[Any], Any]
) -> None:
    """A time in JSON is read by a long expression, and functions above would be written out as well."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=Serdes.json("at timestamp, tags array<string>"))
    later = stream.map_values(lambda order: order.withField("at", order["at"] + F.expr("interval 1 day")))
    wrong(later).to("out")
    with pytest.raises(TopologyError, match=r'Cannot resolve "\(order\.tags = x\)" due to data type mismatch'):
        compiled(spark, builder)


def test_a_reduce_that_gives_another_type_is_refused_as_other_functions_are(spark: SparkSession) -> None:
    payment = Serdes.json("amount decimal(12,2)")
    builder = StreamsBuilder()
    payments = builder.stream("in", key=TEXT, value=payment)
    total = of_columns(lambda total, paid: F.struct((total["amount"] + paid["amount"]).alias("amount")))
    payments.group_by_key().reduce(total, store="totals").to_stream().to("out")
    made = r"makes a struct<amount:decimal\(13,2\)> of two values of type struct<amount:decimal\(12,2\)>.*\.cast\("
    with pytest.raises(TopologyError, match=rf"^reduce KSTREAM-REDUCE-0000000001 \(.*, line \d+\): .*{made}"):
        compiled(spark, builder)


@pytest.mark.parametrize(("schema", "policy"), [("at timestamp", "LEGACY"), ("days array<date>", "legacy")])
def test_a_session_that_misreads_times_is_refused_where_json_has_some(spark: SparkSession, schema: str, policy: str) -> None:
    spark.conf.set("spark.sql.legacy.timeParserPolicy", policy)
    try:
        with pytest.raises(TopologyError, match=r"spark.sql.legacy.timeParserPolicy is LEGACY.*remove the setting"):
            mapped(spark, lambda v: v, Serdes.json(schema))
        mapped(spark, lambda v: v, Serdes.json("n int"))
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


def test_two_fields_of_one_name_are_refused_for_a_schema_with_one(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.map_values(lambda v: F.struct(v.alias("x"), F.lit("1").alias("x"))).to("out", value=Serdes.json("x string"))
    with pytest.raises(TopologyError, match="the column has two fields of one name: x, x"):
        compiled(spark, builder)


@pytest.mark.parametrize(("function", "why"), [
    (lambda _: F.struct(), r"value: a struct has no fields"),
    (lambda v: F.struct(F.struct(v.alias("x"), v.alias("x")).alias("in")), "value: a struct has two fields of one name: x, x"),
    (F.to_date, r"value: no serde for a column of type date: cast it.* or give a serde of your own"),
])  # fmt: skip
def test_a_column_without_a_serde_is_refused_with_the_place_where_one_is_needed(
    spark: SparkSession, function: Callable[[Any], Any], why: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(function).to("out")
    here = r"\S+test_columns_of_one_record\.py, line \d+"
    with pytest.raises(TopologyError, match=rf"into KSTREAM-SINK-0000000002 \(topic out; {here}\), {why}"):
        compile_topology(spark, builder.build(), "app", presum=True)

"""UDFs of PySpark in functions of Columns: each kind gets the records of its operator, and nothing else that is in the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from tidemill import Serdes, StreamsBuilder, of_columns
from tidemill.errors import TopologyError
from tidemill.testing import TestRecord, TopologyTestDriver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()
PAIR = Serdes.json("number bigint, text string")
NUMBERS = Serdes.json("numbers array<bigint>")
COUNT = 300
"""More than a UDF's buffer holds."""


@pytest.fixture(scope="module")
def driver(spark: SparkSession) -> Iterator[TopologyTestDriver]:
    """Functions that fail on null, and on text that is no number; between them another topic, whose rows they must not get."""
    builder = StreamsBuilder()
    texts = builder.stream("texts", key=TEXT, value=TEXT).filter(lambda _, text: text.isNotNull())
    texts.map_values(F.udf(lambda text: text.upper(), StringType())).to("udf")
    texts.map_values(F.udf(lambda text: text.upper(), StringType(), useArrow=True)).to("arrow-optimised")
    joined = F.udf(lambda key, text, ending: key + text + ending, StringType())
    texts.map_values(lambda key, text: joined(key, text=text, ending=F.lit("!"))).to("named")
    short, rest = texts.split(name="by-").branch(F.udf(lambda _, text: len(text) < 3, BooleanType())).default_branch().values()
    short.to("short")
    rest.to("rest")
    numbers = builder.stream("numbers", key=TEXT, value=LONG)
    numbers.map_values(F.pandas_udf(kinds, StringType())).to("pandas", value=TEXT)
    numbers.map_values(F.pandas_udf(pairs, PAIR_TYPE)).to("structs", value=PAIR)
    numbers.filter(F.pandas_udf(lambda _, number: number % 2 == 0, BooleanType())).map_values(
        F.arrow_udf(lambda number: pc.add(number, 1), LongType())
    ).to("arrow", value=LONG)
    structs = builder.stream("structs-in", key=TEXT, value=PAIR)
    structs.map_values(F.pandas_udf(fields, StringType())).to("fields", value=TEXT)
    with TopologyTestDriver(builder, session=spark) as made:
        yield made


PAIR_TYPE = StructType([StructField("number", LongType()), StructField("text", StringType())])


def kinds(numbers: pd.Series) -> pd.Series:
    return numbers.astype(str) + numbers.dtype.name


def pairs(numbers: pd.Series) -> pd.DataFrame:
    return pd.DataFrame({"number": numbers, "text": numbers.astype(str)})


def fields(values: pd.DataFrame) -> pd.Series:
    return values["number"].astype(str) + values["number"].dtype.name + values["text"]


def test_a_udf_of_values_gets_the_records_of_its_operator_alone(driver: TopologyTestDriver) -> None:
    texts = driver.create_input_topic("texts", TEXT, TEXT)
    texts.pipe_records([TestRecord("k", "a"), TestRecord("k", None), TestRecord("k", "bcd")], batch=None)
    driver.create_input_topic("numbers", TEXT, LONG).pipe_input("k", 0)
    found = {name: driver.create_output_topic(name, TEXT, TEXT) for name in ("udf", "arrow-optimised", "named", "short", "rest")}
    assert {name: [record.value for record in topic.read_records()] for name, topic in found.items()} == {
        "udf": ["A", "BCD"], "arrow-optimised": ["A", "BCD"], "named": ["ka!", "kbcd!"], "short": ["a"], "rest": ["bcd"],
    }  # fmt: skip


def test_a_udf_of_batches_gets_them_typed_as_they_are(driver: TopologyTestDriver) -> None:
    """With nulls among them whole numbers would be floats, which lose digits."""
    read = {name: driver.create_output_topic(name, TEXT, TEXT) for name in ("pandas", "fields")}
    outputs = driver.create_output_topic("structs", TEXT, PAIR), driver.create_output_topic("arrow", TEXT, LONG)
    for topic in (*read.values(), *outputs):
        topic.read_records()
    large = range(2**62, 2**62 + COUNT)
    driver.create_input_topic("numbers", TEXT, LONG).pipe_records([TestRecord("k", number) for number in large], batch=None)
    structs = [TestRecord("k", {"number": number, "text": "t"}) for number in large]
    driver.create_input_topic("structs-in", TEXT, PAIR).pipe_records(structs, batch=None)
    assert [record.value for record in read["pandas"].read_records()] == [f"{number}int64" for number in large]
    assert [record.value for record in read["fields"].read_records()] == [f"{number}int64t" for number in large]
    assert [record.value for record in outputs[0].read_records()] == [{"number": n, "text": str(n)} for n in large]
    assert [record.value for record in outputs[1].read_records()] == [n + 1 for n in large if n % 2 == 0]


def test_whole_numbers_stay_whole_where_pandas_has_the_arguments_of_a_udf_of_values(spark: SparkSession) -> None:
    conversion = "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled"
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=LONG).map_values(F.udf(repr, StringType(), useArrow=True)).to("out", value=TEXT)
    spark.conf.set(conversion, "true")
    try:
        with TopologyTestDriver(builder, session=spark) as made:
            made.create_input_topic("in", TEXT, LONG).pipe_records([TestRecord("k", 2**53 + 1), TestRecord("k", 2)], batch=None)
            assert made.create_output_topic("out", TEXT, TEXT).read_values() == ["9007199254740993", "2"]
    finally:
        spark.conf.unset(conversion)


@pytest.mark.parametrize("beside_another", [False, True], ids=["alone", "beside a call of the same UDF as an object"])
def test_a_udf_that_is_called_by_its_name_is_refused_since_its_rows_can_not_be_told(
    spark: SparkSession, beside_another: bool
) -> None:
    louder = spark.udf.register("louder", lambda text: text.upper(), StringType())
    builder = StreamsBuilder()
    texts = builder.stream("in", key=TEXT, value=TEXT)
    texts.map_values(lambda text: F.call_udf("louder", text)).to("out")
    if beside_another:
        texts.map_values(louder).to("other")
    with pytest.raises(TopologyError, match="registered under"):
        TopologyTestDriver(builder, session=spark)


def test_a_udf_of_iterators_is_refused(spark: SparkSession) -> None:
    def upper(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        return (batch.str.upper() for batch in batches)

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(F.pandas_udf(upper, StringType())).to("out")
    with pytest.raises(TopologyError, match="iterator of batches"):
        TopologyTestDriver(builder, session=spark)


def one_more(numbers: pd.Series) -> pd.Series:
    return numbers + 1


def one_more_of_arrays(numbers: pa.Array) -> pa.Array:
    return pc.add(numbers, 1)


def one_more_in_each(arrays: pd.Series) -> pd.Series:
    return arrays.map(lambda numbers: numbers + 1)


@pytest.mark.parametrize("udf", [
    F.udf(lambda number: number + 1, LongType()), F.pandas_udf(one_more, LongType()), F.arrow_udf(one_more_of_arrays, LongType()),
], ids=["of values", "pandas", "arrow"])
def test_a_udf_in_a_lambda_is_refused_with_what_to_write(spark: SparkSession, udf: Callable[[Column], Column]) -> None:
    builder = StreamsBuilder()
    lists = builder.stream("lists", key=TEXT, value=NUMBERS)
    lists.map_values(lambda value: F.size(F.transform(value["numbers"], lambda number: udf(number) + 1))).to("out")
    with pytest.raises(TopologyError, match=r"a UDF is in the lambda .*F.transform.*: give the UDF the whole array"):
        TopologyTestDriver(builder, session=spark)


@pytest.mark.parametrize("udf", [
    F.udf(lambda number: number + 1, LongType()), F.pandas_udf(one_more, LongType()), F.arrow_udf(one_more_of_arrays, LongType()),
], ids=["of values", "pandas", "arrow"])
def test_a_udf_in_the_function_of_columns_of_a_reduce_is_refused_with_what_to_write(
    spark: SparkSession, udf: Callable[[Column], Column]
) -> None:
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=TEXT, value=LONG).group_by_key(name="by-name")
    numbers.reduce(of_columns(lambda total, number: total + udf(number)), name="sums", store="sums")
    with pytest.raises(TopologyError, match=r"reduce sums .*calls a UDF.*in a map_values above, or reduce with a plain Python f"):
        TopologyTestDriver(builder, session=spark)


def test_a_joiner_of_columns_calls_a_udf(spark: SparkSession) -> None:
    builder = StreamsBuilder()
    names, numbers = builder.stream("names", key=TEXT, value=TEXT), builder.table("numbers", key=TEXT, value=LONG)
    more = F.udf(lambda number: number + 1, LongType())
    names.join(numbers, of_columns(lambda name, number: F.concat(name, more(number).cast("string")))).to("out", value=TEXT)
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("numbers", TEXT, LONG).pipe_input("a", 1)
        driver.create_input_topic("names", TEXT, TEXT).pipe_input("a", "x")
        assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["x2"]


def test_a_udf_gets_a_whole_array(spark: SparkSession) -> None:
    more = F.pandas_udf(one_more_in_each, ArrayType(LongType()))
    builder = StreamsBuilder()
    lists = builder.stream("lists", key=TEXT, value=NUMBERS)
    lists.map_values(lambda value: F.element_at(more(value["numbers"]), -1)).to("out", value=LONG)
    with TopologyTestDriver(builder, session=spark) as driver:
        driver.create_input_topic("lists", TEXT, NUMBERS).pipe_input("a", {"numbers": [1, 2, 3]})
        assert driver.create_output_topic("out", TEXT, LONG).read_values() == [4]


def test_tables_with_stores_are_made_by_udfs(spark: SparkSession) -> None:
    """A function that calls a UDF holds what can't be sent to a worker: it stays in the driver."""
    builder = StreamsBuilder()
    is_short = F.udf(lambda _, text: len(text or "") < 4, BooleanType())
    upper = F.udf(lambda text: text and text.upper(), StringType())
    short = builder.table("texts", key=TEXT, value=TEXT).filter(lambda key, text: is_short(key, text), store="short")  # noqa: PLW0108
    short.map_values(lambda text: upper(text), store="upper").to_stream().to("out")  # noqa: PLW0108
    with TopologyTestDriver(builder, session=spark) as driver:
        texts = driver.create_input_topic("texts", TEXT, TEXT)
        texts.pipe_records([TestRecord("a", "one"), TestRecord("b", "three"), TestRecord("c", None)], batch=2)
        assert [list(driver.store(name).all()) for name in ("short", "upper")] == [[("a", ("one", 0))], [("a", ("ONE", 0))]]
        texts.pipe_records([TestRecord("a", "three"), TestRecord("b", "two")], batch=2)
        assert list(driver.store("upper").all()) == [("b", ("TWO", 0))]

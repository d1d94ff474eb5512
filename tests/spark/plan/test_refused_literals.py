"""Literals that Java refuses for every record are refused when the plan is made, with function, literal and Java's reason."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder
from tidemill.errors import TopologyError
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.topology.key_value_serdes import KeyValueSerdes

pytestmark = pytest.mark.spark
TEXT = Serdes.string()


def compiled(session: SparkSession, function: Callable[[Column], Column]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(function, name="made").to("out", key=TEXT, value=TEXT)
    compile_topology(session, builder.build(), "app", default_serdes=KeyValueSerdes(key=TEXT, value=TEXT), presum=True)


REFUSED: dict[str, tuple[Callable[[Column], Column], str]] = {
    "rlike": (lambda v: F.when(v.rlike("("), v), r"rlike can't work with '\('.*PatternSyntaxException: Unclosed group"),
    "split": (lambda v: F.split(v, "[")[0], r"split can't work with '\['.*Unclosed character class"),
    "a replacement": (lambda v: F.regexp_replace(v, "(a)", "$2"), r"replace can't work with '\(a\)' and '\$2'.*No group 2"),
    "a group": (lambda v: F.regexp_extract(v, "(a)", 5), r"can't work with '\(a\)' and '5'.*between 0 and 1, but got 5"),
    "in a function of elements": (
        lambda v: F.transform(F.array(v), lambda each: F.regexp_replace(each, "(", ""))[0], r"replace can't work with '\('",
    ),
    "a function that Spark has another for": (lambda v: F.regexp_substr(v, F.lit("(")), r"can't work with '\('"),
    "str_to_map": (lambda v: F.str_to_map(v, F.lit("("))["a"], r"str_to_map can't work with '\('"),
    "like": (lambda v: F.when(v.like("a\\x"), v), r"like can't work with 'a\\\\x'.*ESC_IN_THE_MIDDLE"),
    "date_format": (lambda v: F.date_format(F.to_timestamp(v), "YYYY"), r"date_format can't work with 'YYYY'.*DATETIME_"),
    "to_date": (lambda v: F.to_date(v, "foo").cast("string"), r"to_date can't work with 'foo'.*INVALID_DATETIME_PATTERN"),
    "to_json": (
        lambda v: F.to_json(F.struct(F.to_timestamp(v)), {"timestampFormat": "foo"}), r"can't work, .*INVALID_DATETIME_PATTERN",
    ),
    "from_json": (lambda v: F.from_json(v, "a string", {"mode": "DROPMALFORMED"})["a"], r"from_json can't work.*DROPMALFORMED"),
    "a time zone": (lambda v: F.from_utc_timestamp(F.to_timestamp(v), "Mars").cast("string"), r"work with 'Mars'.*TIMEZONE"),
    "a charset": (lambda v: F.decode(v.cast("binary"), "foo"), r"can't work with 'foo'.*CHARSET.*decode"),
    "format_string": (lambda v: F.format_string("%d", v), r"format_string can't work with '%d'.*IllegalFormatConversion"),
    "a key, which is not shown": (
        lambda v: F.base64(F.aes_encrypt(v, F.lit("hush"))), r"functions can't work, whatever the record.*AES_KEY_LENGTH",
    ),
    "a mode of aes_encrypt": (
        lambda v: F.base64(F.aes_encrypt(v, F.lit("hush" * 4), F.lit("FOO"), F.lit("BAR"))), r"can't work.*AES_MODE",
    ),
    "xpath": (lambda v: F.xpath_string(v, F.lit("//a[")), r"can't work, whatever .*RuntimeException: Invalid XPath '//a\['"),
    "parse_url": (lambda v: F.parse_url(v, F.lit("QUERY"), F.lit("(")), r"can't work, .*PatternSyntaxException: Unclosed group"),
    "variant_get": (
        lambda v: F.variant_get(F.parse_json(v), "a[", "string"), r"variant_get can't work with 'a\['.*INVALID_VARIANT_GET_PATH",
    ),
    "a sequence of literals": (
        lambda v: F.concat(v, F.sequence(F.lit(1), F.lit(5), F.lit(-1))[0].cast("string")), r"work with '1' and '5'.*boundaries",
    ),
    "schema_of_json": (lambda v: F.concat(v, F.schema_of_json(F.lit("{a"))), r"can't work, whatever the record.*JsonParse"),
    "url_decode": (lambda v: F.concat(v, F.url_decode(F.lit("%zz"))), r"can't work.*Illegal hex characters"),
    "from_xml": (lambda v: F.from_xml(v, "a string", {"mode": "DROPMALFORMED"})["a"], r"from_xml can't work.*DROPMALFORMED"),
    "to_csv": (lambda v: F.to_csv(F.struct(F.to_timestamp(v)), {"timestampFormat": "foo"}), r"to_csv can't work, .*DATETIME_"),
    "to_xml": (lambda v: F.to_xml(F.struct(F.to_timestamp(v)), {"timestampFormat": "foo"}), r"to_xml can't work, .*DATETIME_"),
    "slice": (lambda v: F.slice(F.split(v, ","), 0, 1)[0], r"slice can't work with '0'.*START"),
    "array_insert": (lambda v: F.array_insert(F.split(v, ","), 0, F.lit("x"))[0], r"array_insert can't work with '0'.*OF_ZERO"),
    "bit_get": (lambda v: F.bit_get(F.length(v), F.lit(99)).cast("string"), r"bit_get can't work with '99'.*BIT_POSITION_RANGE"),
    "elt": (lambda v: F.elt(F.lit(9), v, v), r"elt can't work with '9'.*INVALID_ARRAY_INDEX"),
    "a division by zero": (lambda v: F.lit(1) / F.lit(0), r"fails, whatever the record\. Correct it: \[DIVIDE_BY_ZERO\]"),
    "a cast": (lambda v: F.concat(v, F.lit("x").cast("int").cast("string")), r"whatever the record.*'x' of the type.*malformed"),
    "a sum": (lambda v: F.length(v) + (F.lit(2**31 - 1) + F.lit(1)), r"whatever the record.*ARITHMETIC_OVERFLOW"),
    "a date": (lambda v: F.concat(v, F.to_date(F.lit("someday")).cast("string")), r"the record.*'someday' of the type"),
    "what the analysis raises": (lambda v: F.collate(v, "foo"), r"Spark can't compute.*COLLATION_INVALID_NAME"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_literal_that_no_record_can_go_with_is_refused_with_its_function(spark: SparkSession, what: str) -> None:
    function, said = REFUSED[what]
    with pytest.raises(TopologyError, match=rf"map_values made \(.*test_refused_literals.py, line \d+\): .*{said}") as raised:
        compiled(spark, function)
    assert "hush" not in str(raised.value)
    assert "\n" not in str(raised.value)


ACCEPTED: dict[str, Callable[[Column], Column]] = {
    "a pattern": lambda v: F.regexp_replace(v, "(a+)b", "$1"),
    "a pattern with a comment": lambda v: F.regexp_replace(v, "(?x) (a) # b", "$1"),
    "no pattern": lambda v: F.regexp_replace(v, F.lit(None), ""),
    "a pattern from the record": lambda v: F.when(F.call_function("rlike", F.lit("a"), F.concat(F.lit("("), v)), v),
    "a format that an empty text does not have": lambda v: F.to_date(v, "yyyy-MM-dd").cast("string"),
    "an index that an empty array does not have": lambda v: F.element_at(F.split(v, ","), 3),
    "a charset from the record": lambda v: F.call_function("decode", F.lit(b"x"), v),
    "a format of two values": lambda v: F.format_string("%s %d", v, F.length(v)),
    "an xpath": lambda v: F.xpath_string(v, F.lit("//a[@b='c']")),
    "a part of a url": lambda v: F.parse_url(v, F.lit("QUERY"), F.lit("k")),
    "a path in a variant": lambda v: F.variant_get(F.parse_json(v), "$.a[0]", "string"),
    "a sequence to the record's number": lambda v: F.sequence(F.lit(1), F.length(v), F.lit(2))[0].cast("string"),
    "a slice from the record's place": lambda v: F.slice(F.split(v, ","), F.length(v), 1)[0],
    "a constant that some records come to": lambda v: F.when(v == "x", F.lit(1) / F.lit(0)).otherwise(2).cast("string"),
    "an error that some records come to": lambda v: F.when(v == "x", F.raise_error(F.lit("no x"))).otherwise(v),
    "an error that all records come to": lambda v: F.raise_error(v).cast("string"),
    "a clock": lambda v: F.concat(v, F.current_timestamp().cast("string")),
    "a constant null": lambda v: F.concat(v, F.try_divide(F.lit(1), F.lit(0)).cast("string")),
    "a type without a neutral value": lambda v: F.st_asbinary(
        F.st_setsrid(F.st_geomfromwkb(F.unhex(F.split(v, ",")[0])), F.lit(4326))
    ).cast("string"),
    "a udf of a literal": lambda v: F.udf(lambda text: text, "string")(F.lit("a")),
    "a udf": lambda v: F.split(F.udf(lambda text: text, "string")(v), ",")[0],
}


@pytest.mark.parametrize("what", ACCEPTED)
def test_what_some_record_may_go_with_is_left_to_the_records(spark: SparkSession, what: str) -> None:
    compiled(spark, ACCEPTED[what])

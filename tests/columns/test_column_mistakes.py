"""Functions that take a Column for one record's value are refused when the program is built, each with a way out that works."""

# What stands here is wrong: that is what it is for.
# ruff: noqa: UP030, UP031, UP032, PLW0108
from __future__ import annotations

import base64
import datetime
import decimal
import hashlib
import json
import math
import os
import re
import struct
import sys
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tidemill import JoinWindows, Serdes, StreamsBuilder, of_columns, per_record
from tidemill.columns.recorded import recorded_columns
from tidemill.dsl.stream import KStream
from tidemill.errors import ColumnMistakeError

of_calls = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not know which call of a function it is in")

NAMES = {"ada": 1}
TEXT = Serdes.string()
USER = Serdes.json("name string, at string, age bigint, home struct<city: string>, tags array<string>, scores map<string,int>")


@F.udf(returnType=StringType())
def SHOUT(value):  # type: ignore[no-untyped-def]  # noqa: N802  # PySpark warns of types that it can't use
    return value.upper()


class Colour(Enum):
    RED = "red"


def helper_of_two(one: Any, two: Any) -> Any:
    return one


def forgets_to_return(v: Any) -> Any:
    F.lower(v)


def has_an_if(v: Any) -> Any:
    if v["age"] > 17:
        return "adult"
    return "child"


def has_a_loop(v: Any) -> Any:
    found = []
    for tag in v["tags"]:
        found.append(tag)
    return found


def yields(v: Any) -> Any:
    yield v["name"]


async def _waits(v: Any) -> Any:
    return v


def waits(v: Any) -> Any:
    return _waits(v)


def helper(text: Any) -> Any:
    return text.strip()


NOT_CALLABLE, TRUE, EACH = "which a Column does not have", "asks whether a Column is true", "goes through the elements"
AS_TEXT, IN, LOOKED_UP = "makes text of", "asks with `in` what a Column holds", "looks a Column up"
NUMBERS = "which is for numbers"

VALUES: list[tuple[Callable[[Any], Any], str, str | None]] = [
    # methods of Python's values
    (lambda v: v["name"].lower(), f"calls .lower(), {NOT_CALLABLE}", "F.lower(v['name'])"),
    (lambda v: v["home"].get("city"), f"calls .get(), {NOT_CALLABLE}", "v['home']['city']"),
    (
        lambda v: v["name"].split(), f"calls .split(), {NOT_CALLABLE}",
        r"F.regexp_extract_all(v['name'], F.lit('\\S+'), F.lit(0))",
    ),
    (lambda v: v["name"].hex(), f"calls .hex(), {NOT_CALLABLE}", "F.lower(F.hex(v['name']))"),
    (lambda v: v["name"].split(","), f"calls .split(), {NOT_CALLABLE}", "F.split(v['name'], ',')"),
    (lambda v: v["name"].split("|")[0], f"calls .split(), {NOT_CALLABLE}", r"F.split(v['name'], '\\|')[0]"),
    (lambda v: v["name"].split(",", 1)[1], f"calls .split(), {NOT_CALLABLE}", "F.split(v['name'], ',', 2)[1]"),
    (lambda v: v["name"].split(",", maxsplit=1), f"calls .split(), {NOT_CALLABLE}", None),
    (lambda v: v["name"].removesuffix(), f"calls .removesuffix(), {NOT_CALLABLE}", None),
    (lambda v: v["name"].strip().title(), f"calls .strip(), {NOT_CALLABLE}", r"F.initcap(F.trim(v['name'], F.lit(' \t\r\n')))"),
    (lambda v: v["name"].replace("a", "b"), f"calls .replace(), {NOT_CALLABLE}", "F.replace(v['name'], F.lit('a'), F.lit('b'))"),
    (
        lambda v: v["name"].zfill(9), f"calls .zfill(), {NOT_CALLABLE}",
        "F.lpad(v['name'], F.greatest(F.length(v['name']), F.lit(9)), '0')",
    ),
    (
        lambda v: v["name"].capitalize(), f"calls .capitalize(), {NOT_CALLABLE}",
        "F.concat(F.upper(F.left(v['name'], F.lit(1))), F.lower(F.substr(v['name'], F.lit(2))))",
    ),
    (lambda v: v["name"].isdigit(), f"calls .isdigit(), {NOT_CALLABLE}", "v['name'].rlike('^[0-9]+$')"),
    (lambda v: v["name"].encode(), f"calls .encode(), {NOT_CALLABLE}", "F.encode(v['name'], 'UTF-8')"),
    (lambda v: v["name"].toUpperCase(), f"calls .toUpperCase(), {NOT_CALLABLE}", "F.upper(v['name'])"),
    (
        lambda v: v["name"].substring(1, 3), f"calls .substring(), {NOT_CALLABLE}",
        "F.substr(v['name'], F.lit(1 + 1), F.lit(3 - 1))",
    ),
    (lambda v: not v["name"].isEmpty(), f"calls .isEmpty(), {NOT_CALLABLE}", "~(v['name'] == '')"),
    (lambda v: v["name"].startsWith("a"), f"calls .startsWith(), {NOT_CALLABLE}", "v['name'].startswith('a')"),
    (lambda v: v["scores"].items(), f"calls .items(), {NOT_CALLABLE}", "F.map_entries(v['scores'])"),
    (lambda v: v["tags"].append("new"), f"calls .append(), {NOT_CALLABLE}", "F.array_append(v['tags'], F.lit('new'))"),
    (lambda v: v.update(age=1), f"calls .update(), {NOT_CALLABLE}", None),
    (lambda v: v.home.city.upper(), f"calls .upper(), {NOT_CALLABLE}", "F.upper(v.home.city)"),
    (lambda v: helper(v["name"]), f"`text.strip()` calls .strip(), {NOT_CALLABLE}", r"F.trim(text, F.lit(' \t\r\n'))"),
    (
        lambda v: F.overlay(v["name"], replace=v["at"].lower(), pos=1), "`v['at'].lower()` calls .lower()",
        "F.overlay(v['name'], replace=F.lower(v['at']), pos=1)",
    ),
    # truth
    (lambda v: "adult" if v["age"] > 17 else "child", TRUE, "F.when(v['age'] > 17, 'adult').otherwise('child')"),
    (has_an_if, TRUE, "F.when(v['age'] > 17, ...).otherwise(...)"),
    (lambda v: v["age"] > 1 and v["age"] < 9, TRUE, "(v['age'] > 1) & (v['age'] < 9)"),
    (lambda v: v["age"] < 1 or v["age"] > 9, TRUE, "(v['age'] < 1) | (v['age'] > 9)"),
    (lambda v: v["name"] or "nobody", TRUE, "F.coalesce(v['name'], F.lit('nobody'))"),
    (lambda v: not v["age"] > 3, TRUE, "~(v['age'] > 3)"),
    (lambda v: 1 < v["age"] < 9, TRUE, "(1 < v['age']) & (v['age'] < 9)"),
    (lambda v: max(v["age"], 18), TRUE, "F.greatest(v['age'], F.lit(18))"),
    (lambda v: min(v["age"], 18), TRUE, "F.least(v['age'], F.lit(18))"),
    (lambda v: bool(v["age"]), TRUE, "v['age'] != 0"),
    # what is inside
    (lambda v: "a" in v["name"], IN, "v['name'].contains('a')"),
    (lambda v: "a" in v["tags"], IN, "F.array_contains(v['tags'], 'a')"),
    (lambda v: "a" not in v["scores"], IN, "~F.map_contains_key(v['scores'], 'a')"),
    (lambda v: v["name"] in ("ada", "grace"), TRUE, "v['name'].isin(['ada', 'grace'])"),
    (lambda v: v["name"] in NAMES, LOOKED_UP, "v['name'].isin([*NAMES])"),
    (lambda v: NAMES[v["name"]], LOOKED_UP, "F.create_map(*[F.lit(each) for pair in NAMES.items() for each in pair])[v['name']]"),
    (
        lambda v: NAMES.get(v["name"]), "hands a Column to NAMES.get()",
        "F.create_map(*[F.lit(each) for pair in NAMES.items() for each in pair])[v['name']]",
    ),
    (lambda v: v["name"][:3], "takes a slice of a Column", "F.substring(v['name'], 1, 3)"),
    (lambda v: v["name"][1:], "takes a slice of a Column", "F.substr(v['name'], F.lit(2))"),
    (lambda v: v["name"][:-1], "takes a slice of a Column", "F.substr(v['name'], F.lit(1), F.length(v['name']) - 1)"),
    (lambda v: v["tags"][:2], "takes a slice of a Column", "F.slice(v['tags'], 1, 2)"),
    (lambda v: v["tags"][1:], "takes a slice of a Column", "F.slice(v['tags'], 2, F.size(v['tags']))"),
    (lambda v: v["name"][::-1], "takes a slice of a Column", "F.reverse(v['name'])"),
    # functions of Python's
    (lambda v: len(v["name"]), "hands a Column to len()", "F.length(v['name'])"),
    (lambda v: len(v["tags"]), "hands a Column to len()", "F.size(v['tags'])"),
    (lambda v: int(v["name"]), "hands a Column to int()", "v['name'].cast('bigint')"),
    (lambda v: float(v["name"]), "hands a Column to float()", "v['name'].cast('double')"),
    (lambda v: dict(v), "hands a Column to dict()", "v"),
    (lambda v: abs(v["age"]), "hands a Column to abs()", "F.abs(v['age'])"),
    (lambda v: round(v["age"], 2), "hands a Column to round()", "F.bround(v['age'], 2)"),
    (
        lambda v: divmod(v["age"], 7), "hands a Column to divmod()",
        "F.struct(F.floor(v['age'] / 7), F.pmod(v['age'], 7))",
    ),
    (lambda v: chr(v["age"]), "hands a Column to chr()", "F.char(v['age'])"),
    (
        lambda v: range(v["age"]), "hands a Column to range()",
        "F.filter(F.sequence(F.lit(0), v['age']), lambda each: each < v['age'])",
    ),
    (lambda v: json.loads(v["name"]), "hands a Column to json.loads()", "F.from_json(v['name'], 'field string')"),
    (lambda v: json.dumps(v), "hands a Column to json.dumps()", "F.to_json(v)"),
    (lambda v: re.match("a.c", v["name"]), "hands a Column to re.match()", "v['name'].rlike('^a.c')"),
    (lambda v: re.sub("a", "b", v["name"]), "hands a Column to re.sub()", "F.regexp_replace(v['name'], 'a', 'b')"),
    (lambda v: math.sqrt(v["age"]), "hands a Column to math.sqrt()", "F.sqrt(v['age'])"),
    (lambda v: math.floor(v["age"]), "hands a Column to math.floor()", "F.floor(v['age'])"),
    (
        lambda v: datetime.datetime.fromisoformat(v["at"]), "hands a Column to datetime.datetime.fromisoformat()",
        "F.to_timestamp(v['at'])",
    ),
    (
        lambda v: datetime.datetime.fromtimestamp(v["age"]), "hands a Column to datetime.datetime.fromtimestamp()",
        "F.timestamp_seconds(v['age'])",
    ),
    (lambda v: decimal.Decimal(v["name"]), "hands a Column to decimal.Decimal()", "v['name'].cast('decimal(38,9)')"),
    (lambda v: base64.b64decode(v["name"]), "hands a Column to base64.b64decode()", "F.unbase64(v['name'])"),
    (lambda v: hashlib.md5(v["name"]).digest(), "hands a Column to hashlib.md5()", "F.unhex(F.md5(v['name']))"),
    (lambda v: hashlib.md5(v["name"]).hexdigest(), "hands a Column to hashlib.md5()", "F.md5(v['name'])"),
    (
        lambda v: hashlib.sha256(v["name"].encode()).hexdigest(), f"calls .encode(), {NOT_CALLABLE}",
        "F.sha2(F.encode(v['name'], 'UTF-8'), 256)",
    ),
    (lambda v: struct.pack(">q", v["age"]), "hands a Column to struct.pack()", None),
    (lambda v: os.path.join("a", v["name"]), "hands a Column to os.path.join()", None),
    (lambda v: uuid.UUID(v["name"]), TRUE, None),
    (str.upper, "uses a Column as a Python value", "lambda value: F.upper(value)"),
    (len, "uses a Column as a Python value", "lambda value: F.length(value)"),
    (json.loads, "uses a Column as a Python value", "lambda value: F.from_json(value, 'field string')"),
    # elements
    (lambda v: [tag.upper() for tag in v["tags"]], EACH, "F.transform(v['tags'], lambda tag: F.upper(tag))"),
    (lambda v: [tag for tag in v["tags"] if tag != "x"], EACH, "F.filter(v['tags'], lambda tag: tag != 'x')"),
    (lambda v: any(tag == "x" for tag in v["tags"]), EACH, "F.exists(v['tags'], lambda tag: tag == 'x')"),
    (has_a_loop, EACH, "F.transform(v['tags'], lambda tag: ...)"),
    (lambda v: list(v["tags"]), EACH, "v['tags']"),
    (lambda v: sorted(v["tags"]), EACH, "F.array_sort(v['tags'])"),
    (lambda v: sorted(v["tags"], reverse=True), EACH, None),
    (lambda v: min(v["tags"]), EACH, "F.array_min(v['tags'])"),
    (lambda v: ",".join(v["tags"]), "hands a Column to ','.join()", "F.array_join(v['tags'], ',')"),
    (lambda v: F.transform(v["tags"], lambda tag: tag.lower()), f"`tag.lower()` calls .lower(), {NOT_CALLABLE}", "F.lower(tag)"),
    (
        lambda v: F.transform(v["tags"], lambda tag: 1), "gives a Python value where a function has to give a Column",
        "F.transform(v['tags'], lambda tag: F.lit(1))",
    ),
    # text
    (lambda v: f"{v['name']}!", AS_TEXT, "F.format_string('%s!', v['name'])"),
    (
        lambda v: f"{v['age']:.1f} of {v['name']}", "uses a Column as a Python value",
        "F.format_string('%.1f of %s', v['age'].cast('double'), v['name'])",
    ),
    (lambda v: str(v["age"]), AS_TEXT, "v['age'].cast('string')"),
    (lambda v: "%s-%s" % (v["name"], v["age"]), AS_TEXT, "F.format_string('%s-%s', v['name'], v['age'])"),
    (lambda v: "{} {}".format(v["name"], v["age"]), AS_TEXT, "F.format_string('%s %s', v['name'], v['age'])"),
    (
        lambda v: "{1} {0:5d}".format(v["age"], v["name"]), "hands a Column to",
        "F.format_string('%s %5d', v['name'], v['age'])",
    ),
    (lambda v: "{0[name]}".format(v), AS_TEXT, None),
    (lambda v: F.lower(f"{v['name']}"), AS_TEXT, "F.lower(F.format_string('%s', v['name']))"),
    (lambda v: v["name"] + "!", f"uses text with +, {NUMBERS}", "F.concat(v['name'], F.lit('!'))"),
    (lambda v: "at " + v["at"] + ": " + v["name"], NUMBERS, "F.concat(F.lit('at '), v['at'], F.lit(': '), v['name'])"),
    (lambda v: v["age"] // 2, "uses an operator that Columns do not have", "F.floor(v['age'] / 2)"),
    (lambda v: v["age"] << 1, "uses an operator that Columns do not have", "F.shiftleft(v['age'], 1)"),
    # what is given
    (
        lambda v: {"who": v["name"], "kind": "user"}, "gives a dict, expected a Column",
        "F.struct(v['name'].alias('who'), F.lit('user').alias('kind'))",
    ),
    (lambda v: {**v, "kind": "user"}, "calls what a Column does not have", "v.withField('kind', F.lit('user'))"),
    (lambda v: {**v, **NAMES}, "calls what a Column does not have", None),
    (lambda v: {**NAMES, "ada": v["age"]}, "gives a dict, expected a Column", None),
    (lambda v: (v["name"], v["age"]), "gives a tuple, expected a Column", "F.struct(v['name'], v['age'])"),
    (lambda v: [v["name"], v["at"]], "gives a list, expected a Column", "F.array(v['name'], v['at'])"),
    (lambda v: {v["name"], v["at"]}, LOOKED_UP, "F.array(v['name'], v['at'])"),
    (lambda v: sys.stdout.write, "gives a function, expected a Column", None),
    (lambda v: NAMES.__contains__(v) and v, "hands a Column to NAMES.__contains__()", None),
    (lambda v: iter([v]), "gives a list_iterator, expected a Column", None),
    (forgets_to_return, "gives nothing (None)", None),
    (lambda v: print(v["name"]), "gives nothing (None)", None),
    (waits, "gives a coroutine, expected a Column", None),
    # a field that is named like a method of Column
    (lambda v: v.name, "finds Column's method .name, not the field 'name'", "v['name']"),
    (lambda v: v.name.lower(), "takes Column's method .name for a field", "F.lower(v['name'])"),
    (lambda v: F.when(v.name == "ada", 1), "finds Column's method .name, not the field 'name'", "v['name']"),
]

PREDICATES: list[tuple[Callable[[Any, Any], Any], str, str | None]] = [
    (lambda k, v: v["age"] > 17 and k != "root", TRUE, "(v['age'] > 17) & (k != 'root')"),
    (lambda k, v: v is not None, "compares a Column with None by `is`, which is decided once", "v.isNotNull()"),
    (
        lambda k, v: v["name"].startswith("a") and len(v["name"]) > 3, TRUE,
        "v['name'].startswith('a') & (F.length(v['name']) > 3)",
    ),
    (lambda k, v: k in ["ada"], TRUE, "k.isin(['ada'])"),
    (lambda k, v: v.name == "ada", "finds Column's method .name, not the field 'name'", "v['name']"),
    (lambda k, v: all(tag != "" for tag in v["tags"]), EACH, "F.forall(v['tags'], lambda tag: tag != '')"),
]
PAIRS: list[tuple[Callable[[Any, Any], Any], str, str | None]] = [
    (lambda k, v: v, "gives a Column, expected a pair (key, value)", None),
    (lambda k, v: [v, k], "gives a list, expected a pair (key, value)", "(v, k)"),
    (lambda k, v: {k: v}, LOOKED_UP, "(k, v)"),
    (lambda k, v: (k.lower(), v), f"calls .lower(), {NOT_CALLABLE}", "(F.lower(k), v)"),
    (lambda k, v: (k, {"age": v["age"]}), "gives a dict, expected", "(k, F.struct(v['age'].alias('age')))"),
]
ROWS: list[tuple[Callable[[Any, Any], Any], str, str | None]] = [
    (lambda k, v: [(k, v)], "gives a list, expected an array Column", "F.array(F.struct(k, v))"),
    (lambda k, v: [("x", v)], "gives a list, expected an array Column", "F.array(F.struct(F.lit('x'), v))"),
    (
        lambda k, v: [(k, v["name"]), ("x", v["at"])], "gives a list, expected an array Column",
        "F.array(F.struct(k.alias('key'), v['name'].alias('value')), F.struct(F.lit('x').alias('key'), v['at'].alias('value')))",
    ),
    (lambda k, v: (k, v), "gives a tuple, expected an array Column", "F.array(F.struct(k, v))"),
    (lambda k, v: [(k, tag) for tag in v["tags"]], EACH, "F.transform(v['tags'], lambda tag: F.struct(k, tag))"),
]
MISTAKES = [
    *(("map_values", *each) for each in VALUES),
    *(("filter", *each) for each in PREDICATES),
    *(("map", *each) for each in PAIRS),
    *(("flat_map", *each) for each in ROWS),
    ("flat_map_values", yields, "gives a generator, expected an array Column", None),
]


OF_ARGUMENTS: list[tuple[str, Callable[..., Any], str, str]] = [
    ("flat_map", lambda k, v: F.array((k, v["name"])), "a tuple to F.array()", "Write F.array(F.struct(k, v['name']))."),
    ("flat_map", lambda k, v: F.array([(k, "x")]), "a tuple to F.array()", "Write F.array(F.struct(k, F.lit('x')))."),
    (
        "flat_map", lambda k, v: F.array((k, v["name"]), (k, "x")), "a tuple to F.array()",
        "Write F.array(F.struct(k.alias('key'), v['name'].alias('value')), F.struct(k.alias('key'), F.lit('x').alias('value'))).",
    ),
    ("map_values", lambda v: F.greatest(v["age"], 5, 7), "an int to F.greatest()", "(v['age'], F.lit(5), F.lit(7))."),
    ("map_values", lambda v: F.concat(F.coalesce(v["at"], None), "x"), "to F.coalesce()", "F.coalesce(v['at'], F.lit(None))."),
    ("map_values", lambda v: F.array_union(v["tags"], ["x"]), "a list to F.array_union()", "(v['tags'], F.array(F.lit('x')))."),
    ("map_values", lambda v: F.datediff(v["at"], datetime.date(2024, 1, 1)), "a date to F.datediff()", "constant as F.lit(...)"),
    ("filter", lambda k, v: F.coalesce(v["age"] > 3, False), "a bool to F.coalesce()", "F.coalesce(v['age'] > 3, F.lit(False))."),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _no_session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test does not ask for a session, none is seen that an earlier test has left in this process."""
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(SparkContext, "_active_spark_context", None)


def error_of(write: Callable[[KStream], object]) -> ColumnMistakeError:
    """Of a program that is built without a JVM."""
    builder = StreamsBuilder()
    write(builder.stream("in", key=TEXT, value=USER))
    with pytest.raises(ColumnMistakeError) as raised:
        builder.build()
    assert SparkContext._active_spark_context is None or SparkContext._active_spark_context._jvm is not None
    return raised.value


@of_calls
@pytest.mark.parametrize(("operator", "function", "what", "instead"), OF_ARGUMENTS)
def test_a_value_where_pyspark_takes_columns_only_is_answered_with_the_column_that_it_is(
    operator: str, function: Any, what: str, instead: str
) -> None:
    said = str(error_of(lambda stream: getattr(stream, operator)(function)))
    assert f"hands {what}" in said or f"{what}, which takes Columns" in said
    assert instead in said
    assert "per_record" not in said


@of_calls
@pytest.mark.spark
@pytest.mark.parametrize(("operator", "function", "what"), [each[:3] for each in MISTAKES])
def test_a_mistake_is_reported_where_a_session_runs_as_in_a_notebook(
    spark: SparkSession, operator: str, function: Any, what: str
) -> None:
    assert what in str(error_of(lambda stream: getattr(stream, operator)(function)))


@pytest.mark.spark
@pytest.mark.parametrize(
    "function",
    [
        lambda v: F.lit(f"{v}!"),
        lambda v: F.concat(F.lit(f"{v}"), v["name"]),
        lambda v: v["name"] == F.lit(f"{v['name']}"),
        lambda v: F.when(v["age"] == 1, f"{v}").otherwise("none"),
    ],
    ids=["alone", "in a function", "in an operator", "in when"],
)
def test_text_of_a_column_is_reported_where_a_session_runs_and_makes_a_constant_of_it(
    spark: SparkSession, function: Callable[[Any], Any]
) -> None:
    assert "makes text of a Column" in str(error_of(lambda stream: stream.map_values(function)))


@of_calls
@pytest.mark.parametrize(("operator", "function", "what", "instead"), MISTAKES)
def test_a_mistake_is_reported_with_a_way_to_write_it(operator: str, function: Any, what: str, instead: str | None) -> None:
    error = error_of(lambda stream: getattr(stream, operator)(function))
    assert what in str(error)
    assert f"{operator} KSTREAM-" in str(error)
    assert "per_record(" in str(error)
    assert error.operator == operator
    if instead is not None:
        assert f"Write {instead}, or to get values per_record(" in str(error)
    if instead is None:
        assert "Write it with pyspark.sql.functions" in str(error) or "Return a Column" in str(error)
    if hasattr(function, "__code__") and function is not json.loads:
        assert error.file == __file__
        assert error.line is not None


def test_more_than_fifty_kinds_are_reported() -> None:
    assert len(MISTAKES) > 100


INSTEAD = [(operator, instead) for operator, _, _, instead in MISTAKES if instead is not None and "..." not in instead]


@pytest.mark.parametrize(("operator", "instead"), INSTEAD)
def test_what_is_written_instead_is_no_mistake(operator: str, instead: str) -> None:
    names = {"F": F, "NAMES": NAMES}
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=USER)
    takes = "k, v" if operator != "map_values" else "v"
    function = eval(instead if instead.startswith("lambda value") else f"lambda {takes}: {_alone(instead)}", names)
    getattr(stream, operator)(function)
    assert len(builder.build().nodes) == 2


def _alone(instead: str) -> str:
    """Suggestions for a function within stand for its argument."""
    return re.sub(r"\((text|tag)\b", "(v['name']", instead) if "lambda" not in instead else instead


@of_calls
def test_the_sentence_has_operator_place_type_and_both_ways() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(lambda line: line.lower(), name="lowered")
    line = test_the_sentence_has_operator_place_type_and_both_ways.__code__.co_firstlineno + 3
    with pytest.raises(ColumnMistakeError) as raised:
        builder.build()
    assert str(raised.value) == (
        f"map_values lowered ({__file__}, line {line}): `line.lower()` calls .lower(), which a Column does not have; line"
        " (string) is a PySpark Column, part of an expression for Spark and not one record's value. Write F.lower(line), or"
        " to get values per_record(lambda line: line.lower(), serde=...)."
    )
    error = raised.value
    assert (error.node, error.operator, error.file, error.line) == ("lowered", "map_values", __file__, line)


OTHER_OPERATORS: dict[str, tuple[Callable[[StreamsBuilder, KStream], object], str]] = {
    "filter_not": (lambda b, s: s.filter_not(lambda k, v: k in ("a",)), "filter_not KSTREAM-FILTER-"),
    "select_key": (lambda b, s: s.select_key(lambda k, v: k.lower()), "select_key or group_by KSTREAM-KEY-SELECT-"),
    "group_by": (lambda b, s: s.group_by(lambda k, v: v["name"].lower(), key=TEXT).count(), "select_key or group_by KSTREAM-"),
    "flat_map_values": (lambda b, s: s.flat_map_values(lambda v: v["name"].split()), "flat_map_values KSTREAM-FLATMAPVALUES-"),
    "branch": (lambda b, s: s.split().branch(lambda k, v: not v["age"]).no_default_branch(), "branch KSTREAM-BRANCH-"),
    "a table's filter": (lambda b, s: s.to_table().filter(lambda k, v: not v["age"]), "filter KTABLE-FILTER-"),
    "a table's map_values": (lambda b, s: s.to_table().map_values(lambda v: v["name"].lower()), "map_values KTABLE-MAPVALUES-"),
    "reduce": (
        lambda b, s: s.group_by_key().reduce(of_columns(lambda a, v: max(a, v))),
        "Write F.greatest(a, v), or leave of_columns(...) away to get values.",
    ),
    "join": (
        lambda b, s: s.join(b.stream("o"), of_columns(lambda a, v: a or v), JoinWindows.of_time_difference(5)),
        "or leave of_columns(...) away to get values.",
    ),
    "join with a table": (
        lambda b, s: s.join(b.table("o"), of_columns(lambda k, a, v: k.lower())), "k, a and v are PySpark Columns",
    ),
    "join_dataframe's selector": (
        lambda b, s: s.join_dataframe(lambda session: session, on="id", selector=lambda k, v: int(k)),
        "join_dataframe: selector KSTREAM-JOIN-",
    ),
    "join_dataframe's joiner": (
        lambda b, s: s.join_dataframe(lambda session: session, lambda v, row: row["id"] or v, on="id"),
        "behind the join only.",
    ),
}


@pytest.mark.parametrize("operator", OTHER_OPERATORS)
def test_every_operator_of_columns_is_looked_at(operator: str) -> None:
    write, said = OTHER_OPERATORS[operator]
    builder = StreamsBuilder()
    write(builder, builder.stream("in", key=TEXT, value=USER))
    with pytest.raises(ColumnMistakeError, match=re.escape(said)):
        builder.build()


def nothing_said(v: Any) -> Any:
    """Keeps nothing of a value."""


def says_none(v: Any) -> Any:
    if v is None:
        return None
    return None


RIGHT: dict[str, Callable[[KStream], object]] = {
    "a constant": lambda s: s.map_values(lambda v: "seen"),
    "a constant list": lambda s: s.flat_map_values(lambda v: ["a", "b"]),
    "null for all": lambda s: s.map_values(lambda v: None),
    "null that is said": lambda s: s.map_values(says_none),
    "a function that does nothing": lambda s: s.map_values(nothing_said),
    "a constant predicate": lambda s: s.filter(lambda k, v: True),
    "is None beside a Column": lambda s: s.map_values(lambda v: None if v is None else v["age"] * 2),
    "a name that comes later": lambda s: s.map_values(lambda v: not_yet_there(v)),  # type: ignore[name-defined]  # noqa: F821
    "an error of the program's own": lambda s: s.map_values(lambda v: 1 / 0),
    "a call with too few arguments": lambda s: s.map_values(lambda v: helper_of_two(v)),  # type: ignore[call-arg]
    "a session of its own": lambda s: s.map_values(lambda v: F.udf(lambda x: x, "string")(v)),
    "a Column that is shown": lambda s: s.map_values(lambda v: v.alias(str(v))),
    "numbers in text": lambda s: s.map_values(lambda v: v["age"] + "1"),
    "times in text": lambda s: s.map_values(lambda v: v["at"].cast("timestamp") - "2024-01-01 00:00:00"),
    "not a number": lambda s: s.map_values(lambda v: v["age"].cast("double") + "NaN"),
    "methods of Columns": lambda s: s.filter(lambda k, v: v["name"].startswith("a") | ~v["age"].isNull()),
    "fields as attributes": lambda s: s.map_values(lambda v: v.home.city),
    "a method that is called": lambda s: s.map_values(lambda v: v["age"].name("years")),
    "Python's own values": lambda s: s.map_values(lambda v: F.lit(len("abc")) if len(NAMES) > 5 else v["name"]),
    "types as objects": lambda s: s.map_values(lambda v: v["age"].cast(LongType())),
    "schemas as objects": lambda s: s.map_values(lambda v: F.from_json(v["name"], StructType([StructField("a", LongType())]))),
    "higher-order functions": lambda s: s.map_values(lambda v: F.aggregate(v["tags"], F.lit(0), lambda n, t: n + F.size(t))),
    "a udf": lambda s: s.map_values(SHOUT),
    "a udf that is called": lambda s: s.map_values(lambda v: SHOUT(v["name"])),
    "the wall clock": lambda s: s.map_values(lambda v: F.current_timestamp()),
    "a struct": lambda s: s.map_values(lambda v: F.struct(v["name"], (v["age"] + 1).alias("age"))),
    "a value of per_record": lambda s: s.map_values(per_record(lambda v: v["name"].lower(), TEXT)),
    "an enum": lambda s: s.map_values(lambda v: F.lit(Colour.RED)),
    "a numpy number": lambda s: s.map_values(lambda v: v["age"] + numpy.int64(3)),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_no_mistake_is_built(what: str) -> None:
    builder = StreamsBuilder()
    RIGHT[what](builder.stream("in", key=TEXT, value=USER))
    assert len(builder.build().nodes) == 2


def test_without_source_text_the_operator_is_reported_all_the_same() -> None:
    function = eval("lambda v: v.lower()")
    text = str(error_of(lambda stream: stream.map_values(function, name="lowered")))
    assert text.startswith("map_values lowered (<string>, line 1): the function calls what a Column does not have; v (struct<")
    assert "per_record(the function, serde=...)" in text


def test_where_the_interpreter_gives_no_columns_the_function_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.columns.source_code._spans", lambda code: iter(()))  # Python 3.10
    text = str(error_of(lambda stream: stream.map_values(lambda value: value["name"].lower())))
    assert "`lambda value: value['name'].lower()` calls what a Column does not have" in text
    assert "Write F.lower(value['name']), or" in text


@pytest.mark.parametrize("function", [function for function, _, _ in VALUES])
def test_without_them_all_are_refused_too(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    monkeypatch.setattr("tidemill.columns.source_code._spans", lambda code: iter(()))
    assert "map_values KSTREAM-MAPVALUES-0000000001" in str(error_of(lambda stream: stream.map_values(function)))


def test_lambdas_on_one_line_are_told_apart_by_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.columns.source_code._spans", lambda code: iter(()))
    _, second = lambda value: value["name"].upper(), lambda value: value["name"].lower()
    assert "Write F.lower(value['name']), or" in str(error_of(lambda stream: stream.map_values(second)))


def test_functions_are_called_with_columns_only_once() -> None:
    seen: list[Any] = []
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda k, v: seen.append((k, v)) or k.isNotNull()).peek(lambda k, v: seen.append("a value"))
    builder.build()
    assert len(seen) == 1


def test_looking_leaves_nothing_behind() -> None:
    before = SparkContext._active_spark_context
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda v: SHOUT(v))
    builder.build()
    assert SparkContext._active_spark_context is before
    assert SHOUT._unwrapped._judf_placeholder is None or before is not None
    with recorded_columns() as column_of:
        assert type(column_of("key")).__module__ == "pyspark.sql.classic.column"
    assert SparkContext._active_spark_context is before

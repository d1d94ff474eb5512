"""JSON serdes: schemas as DDL text, and values that must fit them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.errors import SerdeError, TopologyError


@pytest.mark.parametrize(("schema", "sql_type"), [
    ("a int", "struct<a:int>"),
    (" A  STRING , b:BIGINT ", "struct<A:string,b:bigint>"),
    ("struct<a: integer, b: array<long>>", "struct<a:int,b:array<bigint>>"),
    ("m map<string, struct<x:real,y:byte>>", "struct<m:map<string,struct<x:float,y:tinyint>>>"),
    ("`odd name` boolean, `a``b` short, `struct` binary", "struct<`odd name`:boolean,`a``b`:smallint,struct:binary>"),
    ("struct string", "struct<struct:string>"),
    ("2nd double", "struct<`2nd`:double>"),
])
def test_a_schema_is_read_and_written_as_sparks_ddl(schema: str, sql_type: str) -> None:
    assert Serdes.json(schema).sql_type == sql_type
    assert Serdes.json(sql_type).sql_type == sql_type


@pytest.mark.parametrize(("schema", "problem"), [
    ("", "expected the name of a field, found 'the end'"),
    ("a", "unknown type 'the end'"),
    ("a timestamp", "unknown type 'timestamp'"),
    ("a int b int", "expected ',', found 'b'"),
    ("a int, a string", "the field 'a' is there twice"),
    ("a array<int", "expected '>', found 'the end'"),
    ("a map<int,int>", "the keys of a map must be strings"),
    ("struct<a:int>>", "unexpected '>'"),
    ("a int; b int", "unexpected ';'"),
])
def test_a_schema_that_can_not_be_read_is_refused(schema: str, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        Serdes.json(schema)


def test_fields_outside_the_schema_are_ignored_and_missing_ones_are_null() -> None:
    serde = Serdes.json("a int, b string")
    assert serde.deserialize(b'{"c": [1], "a": 5}') == {"a": 5, "b": None}


def test_null_fields_are_not_written() -> None:
    assert Serdes.json("a int, s struct<x:int>").serialize({"a": None, "s": {"x": None}}) == b'{"s":{}}'


class Row(tuple):
    """Like a row of Spark."""

    def asDict(self) -> dict[str, Any]:  # noqa: N802
        return {"a": self[0]}


def test_rows_of_spark_are_written_as_their_fields() -> None:
    assert Serdes.json("s struct<a:int>").serialize({"s": Row([1])}) == b'{"s":{"a":1}}'


@pytest.mark.parametrize(("data", "problem"), [
    (b"\xff", "are not JSON text in UTF-8"),
    (b'{"a": 1', "are not JSON text in UTF-8"),
    (b"null", "found the text null, expected an object"),
    (b"[1]", "value is of type list, expected struct<"),
    (b'{"a": "1"}', "value.a is of type str, expected int"),
    (b'{"a": true}', "value.a is of type bool, expected int"),
    (b'{"a": 2147483648}', "value.a is 2147483648, which does not fit in its type int"),
    (b'{"t": ["x", 1]}', r"value.t\[1\] is of type int, expected string"),
    (b'{"m": {"k": "x"}}', r"value.m\['k'\] is of type str, expected double"),
    (b'{"b": "*"}', "value.b is not base64 text"),
    (b'{"b": 1}', "value.b is not base64 text"),
])
def test_json_that_does_not_fit_the_schema_is_refused_with_its_place(data: bytes, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json("a int, t array<string>, m map<string,double>, b binary").deserialize(data)


@pytest.mark.parametrize(("value", "problem"), [
    ({"x": 1}, "has the field 'x', which its schema struct<a:int,d:double> lacks"),
    ({"a": "1"}, "value.a is of type str, expected int"),
    ({"a": 2**31}, "does not fit in its type int"),
    ({"d": float("nan")}, "NaN and infinite numbers have no form in JSON"),
    ({"d": 10**400}, "value.d is too large"),
    ("text", "value is of type str, expected struct<"),
])
def test_values_that_do_not_fit_the_schema_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json("a int, d double").serialize(value)


VALUES = st.fixed_dictionaries({
    "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    "t": st.none() | st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]))),
    "m": st.none() | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.booleans()),
    "s": st.none() | st.fixed_dictionaries({
        "b": st.none() | st.binary(), "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    }),
})


@given(VALUES)
def test_every_value_of_the_schema_comes_back(value: dict[str, Any]) -> None:
    serde = Serdes.json("n long, t array<string>, m map<string,boolean>, s struct<b:binary,d:double>")
    assert serde.deserialize(serde.serialize(value)) == value

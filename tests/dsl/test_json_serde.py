"""JSON serdes: schemas as DDL text, and values that must fit them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
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
    ("d dec(4, 2), n numeric, t timestamp_ltz, l timestamp_ntz, w DATE",
     "struct<d:decimal(4,2),n:decimal(10,0),t:timestamp,l:timestamp_ntz,w:date>"),
    ("a int NOT NULL COMMENT 'it''s', b struct<c: string not null> comment \"x, y\"".replace("''", "\\'"),
     "struct<a:int,b:struct<c:string>>"),
])
def test_a_schema_is_read_and_written_as_sparks_ddl(schema: str, sql_type: str) -> None:
    assert Serdes.json(schema).sql_type == sql_type
    assert Serdes.json(sql_type).sql_type == sql_type


@pytest.mark.parametrize(("schema", "problem"), [
    ("", "expected the name of a field, found 'the end'"),
    ("a", "unknown type 'the end'"),
    ("a money", "unknown type 'money'"),
    ("a varchar(3)", "JSON has no form for the type varchar: use string"),
    ("a decimal(39,2)", r"decimal\(39,2\) is none: expected 1 to 38 digits"),
    ("a decimal(2,3)", r"decimal\(2,3\) is none"),
    ("a decimal(x)", "expected a number of digits, found 'x'"),
    ("a int comment", "expected the comment's text in quotes"),
    ("a int b int", "expected ',', found 'b'"),
    ("a int, a string", "the field 'a' is there twice"),
    ("a array<int", "expected '>', found 'the end'"),
    ("a map<int,int>", "the keys of a map must be strings"),
    ("struct<a:int>>", "unexpected '>'"),
    ("a int; b int", "unexpected ';'"),
    ("array<string>", "a document is an object; a list, a map or a scalar is one of its fields: 'items array<string>', or a doc"),
    (" MAP<string,bigint> ", "'items MAP<string,bigint>'"),
    ("bigint", "'items bigint'"),
    ("decimal(12,2)", r"'items decimal\(12,2\)'"),
])
def test_a_schema_that_can_not_be_read_is_refused(schema: str, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        Serdes.json(schema)


def test_a_field_may_be_named_like_a_type() -> None:
    assert Serdes.json("map string, `array` array<string>").sql_type == "struct<map:string,array:array<string>>"


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


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"i": Decimal(1)}, "value.i is of type decimal.Decimal, expected int"),
        ({"d": Decimal("1.5")}, "value.d is of type decimal.Decimal, expected double"),
        ({"b": np.True_}, "value.b is of type numpy.bool_?, expected boolean"),
    ],
)
def test_what_can_not_be_written_is_not_called_by_the_name_of_what_is_expected(value: dict[str, Any], message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        Serdes.json("i int, d double, b boolean").serialize(value)


@pytest.mark.parametrize(("value", "problem"), [
    ({"x": 1}, "has the field 'x', which its schema struct<a:int,d:double> lacks: leave it out, or add it"),
    ({"A": 1}, "has the field 'A', which its schema struct<a:int,d:double> lacks: write 'a', or leave it out"),
    ({"a": "1"}, "value.a is of type str, expected int"),
    ({"a": 2**31}, "does not fit in its type int"),
    ({"d": float("nan")}, "NaN and infinite numbers have no form in JSON"),
    ({"d": 10**400}, "value.d is too large"),
    ("text", "value is of type str, expected struct<"),
])
def test_values_that_do_not_fit_the_schema_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json("a int, d double").serialize(value)


SERDE = Serdes.json(
    "s string, d double, f float, i int, b boolean, t array<int>, m map<string,int>, o struct<s:string>, x binary"
)


@pytest.mark.parametrize("text", [
    '{"s":12.5}', '{"d":"12.5"}', '{"d":"NaN"}', '{"d":""}', '{"i":1.0}', '{"i":"1"}', '{"i":1e3}', '{"b":"true"}', '{"b":1}',
    '{"d":true}', '{"s":["a"]}', '{"o":"{}"}', '{"o":[]}', '{"t":{}}', '{"t":1}', '{"m":[1]}', '{"m":{"a":"1"}}', '{"o":{"s":1}}',
    '{"d":1e400}', '{"d":-1e400}', '{"f":3.5e38}', '{"d":NaN}', '{"d":Infinity}', '{"d":-Infinity}', '{"d":01}', '{"d":+1}',
    '{"d":.5}', '{"d":5.}', '{"d":0x1}', "{'s':'a'}", '{s:"a"}', '{"s":"a",}', '{"s":"a"} trailing', '{"s":"a"}{}', '{"s":"a"}}',
    '{"s":"a"/* c */}', '{"s":"a"}//c', '["ada",12.5]', '"text"', "12", "true", "null", "", " ", "{", '{"s"', '{"s":"a',
    '\ufeff{"s":"a"}', '{"s":"a"}\x00', '\u00a0{"s":"a"}', '{"s":"\t"}', '{"s":"\\x41"}', '{"s":"\\ud800"}',
    '{"s":"\\udc00\\ud800"}',
    '{"unknown":"\\ud800"}', '{"\\udfff":1}', '{"d":1,"d":1}', '{"unknown":1,"unknown":2}', '{"m":{"a":1,"a":2}}',
    '{"unknown":{"a":1,"a":1}}', '{"s":"a","\\u0073":"b"}', '{"x":"YQ="}', '{"x":"Y Q="}', '{"x":"Y_-="}',
    '{"x":"YQ==YQ=="}', '{"x":"="}',
    '{"unknown":NaN}', '{"unknown":tru}', '{"t":[1,]}', '{"t":[2147483648]}',
])  # fmt: skip
def test_what_is_no_object_of_the_schema_is_refused_and_never_null(text: str) -> None:
    with pytest.raises(SerdeError, match="json: "):
        SERDE.deserialize(text.encode())


@pytest.mark.parametrize("data", [
    b'{"s":"\xff"}', b'{"s":"\xed\xa0\x80"}', b'{"unknown":"\xc0\xaf"}', '{"s":"a"}'.encode("utf-16"),
    '{"s":"a"}'.encode("utf-16-le"),
    '{"s":"a"}'.encode("utf-32"), b'{"s":"caf\xe9"}',
])  # fmt: skip
def test_bytes_that_are_not_utf_8_are_refused(data: bytes) -> None:
    with pytest.raises(SerdeError, match="are not JSON text in UTF-8"):
        SERDE.deserialize(data)


@pytest.mark.parametrize(("text", "field", "value"), [
    (' \t\r\n{ "s" : "a" } \n', "s", "a"), ('{"d":12}', "d", 12.0), ('{"d":-0.0}', "d", -0.0), ('{"d":1e5}', "d", 1e5),
    ('{"d":1e-400}', "d", 0.0), ('{"d":9007199254740993}', "d", 9007199254740992.0), ('{"f":0.1}', "f", 0.10000000149011612),
    ('{"i":-0}', "i", 0), ('{"s":"\\ud83d\\ude00"}', "s", "\U0001f600"), ('{"s":"\\\\ud800"}', "s", "\\ud800"),
    ('{"s":"\\u0000"}', "s", "\0"),
    ('{"s":"\ufeff\x7f"}', "s", "\ufeff\x7f"), ('{"\\u0073":"a"}', "s", "a"), ('{"S":"a"}', "s", None),
    ('{"s":null}', "s", None), ("{}", "s", None),
    ('{"t":[1,null]}', "t", [1, None]), ('{"m":{"":null}}', "m", {"": None}), ('{"o":{"s":null,"u":1}}', "o", {"s": None}),
    ('{"x":"YR=="}', "x", b"a"), ('{"x":""}', "x", b""), ('{"unknown":[{"a":"1"},{"a":2}],"s":"a"}', "s", "a"),
])  # fmt: skip
def test_what_is_an_object_of_the_schema_is_read(text: str, field: str, value: Any) -> None:
    read = SERDE.deserialize(text.encode())
    assert read is not None
    assert repr(read[field]) == repr(value)


def deep(levels: int) -> bytes:
    return b'{"u":' + b'[{"a":' * (levels // 2) + b"1" + b"}]" * (levels // 2) + b"}"


@pytest.mark.parametrize("good", [
    deep(98), b'{"s":"' + b"[" * 5_000 + b'"}', b'{"u":[' + b"[]," * 5_000 + b"[]]}", b'{"d":' + b"1" * 300 + b"}",
    b'{"u":' + b"1" * 1_000 + b"}", b'{"s":"' + b"1" * 5_000 + b'"}', b'{"s":"\\\\\\"' + b"1" * 5_000 + b'"}',
    b'{"' + b"n" * 50_000 + b'":1}',
    b'{"s":"' + b"n" * 100_000 + b'"}',
])  # fmt: skip
def test_large_objects_within_the_limits_are_read(good: bytes) -> None:
    assert SERDE.deserialize(good) is not None


@pytest.mark.parametrize(("bad", "problem"), [
    (deep(100), "nested more than 100 levels deep"),
    (b'{"u":' + b"[" * 1_000_000, "nested more than 100 levels deep"),
    (b'{"u":"\\\\",' * 200 + b'"u":' + b"[" * 200, "nested more than 100"),
    (b'{"u":' + b"1" * 1_001 + b"}", "a number has more than 1000 characters"),
    (b'{"d":0.' + b"1" * 5_000_000 + b"}", "a number has more than 1000 characters"),
    (b'{"' + b"n" * 50_001 + b'":1}', "name of a member has more than 50000 bytes"),
    (b'{"o":{"' + "é".encode() * 25_001 + b'":1}}', "name of a member has more than 50000 bytes"),
    (b'{"s":"' + b"n" * (16 * 1024 * 1024) + b'"}', "found 16777224 bytes, expected at most 16777216"),
    (b'"\\"' * 1_000_000, "characters follow the JSON text"),
])  # fmt: skip
def test_objects_beyond_the_limits_are_refused_with_the_limit(bad: bytes, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        SERDE.deserialize(bad)


def test_a_map_is_not_written_under_a_name_that_no_reader_takes() -> None:
    serde = Serdes.json("m map<string,int>")
    for longest in ("n" * 50_000, "€" * 16_666):
        assert serde.deserialize(serde.serialize({"m": {longest: 1}})) == {"m": {longest: 1}}
        with pytest.raises(SerdeError, match="a name of more than 50000 bytes"):
            serde.serialize({"m": {longest + "€": 1}})


def test_the_limit_of_bytes_is_the_serdes() -> None:
    small = Serdes.json("s string", max_bytes=9)
    assert small.deserialize(b'{"s":"a"}') == {"s": "a"}
    with pytest.raises(SerdeError, match="found 10 bytes, expected at most 9"):
        small.deserialize(b'{"s":"ab"}')
    with pytest.raises(TopologyError, match="max_bytes is 1, expected a number of bytes of at least 2"):
        Serdes.json("s string", max_bytes=1)


@pytest.mark.parametrize(("number", "text"), [
    (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (12.5, "12.5"), (-0.1, "-0.1"), (0.001, "0.001"), (0.000999, "9.99E-4"),
    (1e7, "1.0E7"),
    (9999999.0, "9999999.0"), (123456789.0, "1.23456789E8"), (1e16, "1.0E16"), (5e-324, "4.9E-324"), (1e-5, "1.0E-5"), (3, "3.0"),
    (1.7976931348623157e308, "1.7976931348623157E308"), (100.0, "100.0"), (-1234567.125, "-1234567.125"), (1e23, "1.0E23"),
])  # fmt: skip
def test_numbers_are_written_in_javas_form(number: float, text: str) -> None:
    assert Serdes.json("d double").serialize({"d": number}) == f'{{"d":{text}}}'.encode()


@pytest.mark.parametrize(("number", "text"), [
    (0.1, "0.1"), (0.10000000149011612, "0.1"), (16777216.0, "1.6777216E7"), (3.4028234663852886e38, "3.4028235E38"),
    (1.401298464324817e-45, "1.4E-45"), (-0.0, "-0.0"), (1e10, "1.0E10"),
])  # fmt: skip
def test_floats_are_written_with_the_digits_of_a_float(number: float, text: str) -> None:
    assert Serdes.json("f float").serialize({"f": number}) == f'{{"f":{text}}}'.encode()


def test_characters_are_escaped_as_java_does() -> None:
    assert Serdes.json("s string").serialize({"s": '"\\/\b\t\n\f\r\x0b\x1f\x7fé\u2028\U0001f600\ud83d\ude00\ud800'}) == (
        '{"s":"\\"\\\\/\\b\\t\\n\\f\\r\\u000B\\u001F\x7fé\u2028\U0001f600\U0001f600?"}'.encode()
    )


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_number_comes_back(double: float, single: float) -> None:
    serde = Serdes.json("d double, f float")
    read = serde.deserialize(serde.serialize({"d": double, "f": single}))
    assert repr(read) == repr({"d": double, "f": single})


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

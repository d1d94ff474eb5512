"""Kafka's bytes for keys and values."""

from __future__ import annotations

import math
import pickle
import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.dsl.serdes import serde_by_name
from tidemill.errors import ConfigError, SerdeError
from tidemill.topology.nodes import Serde

ALL: list[Serde] = [
    Serdes.string(), Serdes.bytes(), Serdes.long(), Serdes.integer(), Serdes.double(), Serdes.json("a int"),
    Serdes.short(), Serdes.float(), Serdes.boolean(), Serdes.uuid(),
]


@pytest.mark.parametrize(("serde", "value", "hexadecimal"), [
    (Serdes.string(), "é€", "c3a9e282ac"),
    (Serdes.string(), "", ""),
    (Serdes.bytes(), b"\x00\xff", "00ff"),
    (Serdes.long(), 1, "0000000000000001"),
    (Serdes.long(), -2, "fffffffffffffffe"),
    (Serdes.integer(), 258, "00000102"),
    (Serdes.double(), 1.5, "3ff8000000000000"),
    (Serdes.short(), -2, "fffe"),
    (Serdes.float(), 1.5, "3fc00000"),
    (Serdes.boolean(), True, "01"),
    (Serdes.boolean(), False, "00"),
    (Serdes.uuid(), uuid.UUID(int=1), b"00000000-0000-0000-0000-000000000001".hex()),
    (Serdes.json("a int, b string"), {"b": "é", "a": 1}, '{"a":1,"b":"é"}'.encode().hex()),
])
def test_values_are_written_as_java_writes_them_and_read_back(serde: Serde, value: Any, hexadecimal: str) -> None:
    assert serde.serialize(value) == bytes.fromhex(hexadecimal)
    assert serde.deserialize(bytes.fromhex(hexadecimal)) == value


@pytest.mark.parametrize("serde", ALL, ids=lambda serde: serde.name)
def test_null_stays_null_and_serdes_travel_as_equal_values(serde: Serde) -> None:
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert pickle.loads(pickle.dumps(serde)) == serde
    assert hash(pickle.loads(pickle.dumps(serde))) == hash(serde)


def test_sql_types_are_sparks() -> None:
    assert [serde.sql_type for serde in ALL] == ["string", "binary", "bigint", "int", "double", "struct<a:int>",
                                                "smallint", "float", "boolean", "string"]


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_comes_back(number: int) -> None:
    assert Serdes.long().deserialize(Serdes.long().serialize(number)) == number


@given(st.floats(allow_nan=False))
def test_every_double_comes_back(number: float) -> None:
    assert Serdes.double().deserialize(Serdes.double().serialize(number)) == number


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    assert Serdes.string().deserialize(Serdes.string().serialize(text)) == text


def test_nan_is_written_as_javas() -> None:
    negative_nan = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert Serdes.double().serialize(negative_nan) == bytes.fromhex("7ff8000000000000")
    assert math.isnan(Serdes.double().deserialize(bytes.fromhex("7ff8000000000000")) or 0)


def test_malformed_text_is_read_with_replacement_characters_as_in_java() -> None:
    assert Serdes.string().deserialize(b"a\xffb") == "a\ufffdb"
    assert Serdes.string().serialize("\ud800") == b"?"


@pytest.mark.parametrize(("serde", "expected"), [(Serdes.long(), 8), (Serdes.integer(), 4), (Serdes.double(), 8)])
def test_a_wrong_length_is_refused_with_both_lengths(serde: Serde, expected: int) -> None:
    with pytest.raises(SerdeError, match=rf"{serde.name}: found 3 bytes, expected {expected}"):
        serde.deserialize(b"abc")


@pytest.mark.parametrize(("serde", "value", "message"), [
    (Serdes.string(), 1, "string: can't write a value of type int, expected str"),
    (Serdes.bytes(), "a", "bytes: can't write a value of type str, expected bytes"),
    (Serdes.long(), 1.0, "long: can't write a value of type float, expected int"),
    (Serdes.long(), True, "long: can't write a value of type bool"),
    (Serdes.long(), 2**63, "does not fit in 8 bytes"),
    (Serdes.integer(), 2**31, "does not fit in 4 bytes"),
    (Serdes.double(), "1", "double: can't write a value of type str"),
    (Serdes.double(), 10**400, "too large for a double"),
])
def test_a_value_of_another_type_is_refused(serde: Serde, value: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=message):
        serde.serialize(value)


@pytest.mark.parametrize(("name", "serde"), [
    ("string", Serdes.string()),
    (" Long ", Serdes.long()),
    ("org.apache.kafka.common.serialization.Serdes$IntegerSerde", Serdes.integer()),
    ("org.apache.kafka.common.serialization.Serdes$ByteArraySerde", Serdes.bytes()),
    ("DoubleSerde", Serdes.double()),
    ("json:a int", Serdes.json("a int")),
])
def test_settings_name_serdes_shortly_or_by_javas_class(name: str, serde: Serde) -> None:
    assert serde_by_name(name) == serde


def test_an_unknown_serde_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown serde 'strng'.*did you mean 'string'\?"):
        serde_by_name("strng")


@pytest.mark.parametrize(("serde", "data"), [
    (Serdes.boolean(), b"\x02"), (Serdes.boolean(), b""), (Serdes.uuid(), b"no uuid"), (Serdes.float(), b"\0" * 8),
])
def test_bytes_of_something_else_are_refused(serde: Serde, data: bytes) -> None:
    with pytest.raises(SerdeError, match=serde.name):
        serde.deserialize(data)


def test_a_float_that_is_too_large_is_refused_and_nan_is_javas() -> None:
    assert Serdes.float().serialize(math.nan) == bytes.fromhex("7fc00000")
    with pytest.raises(SerdeError, match="too large"):
        Serdes.float().serialize(1e300)

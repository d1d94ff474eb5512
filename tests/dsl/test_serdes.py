"""Kafka's bytes for keys and values."""

from __future__ import annotations

import math
import pickle
import struct
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes, Windowed, WindowedSerdes
from tidemill.dsl.serdes import serde_by_name
from tidemill.dsl.serdes_json import JsonSerde
from tidemill.errors import ConfigError, SerdeError
from tidemill.topology.values import Serde

ALL: list[Serde] = [
    Serdes.string(), Serdes.bytes(), Serdes.long(), Serdes.integer(), Serdes.double(), Serdes.json("a int"),
    Serdes.short(), Serdes.float(), Serdes.boolean(), Serdes.uuid(), Serdes.void(),
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
                                                "smallint", "float", "boolean", "string", "binary"]


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_void_is_null_and_nothing_else(data: bytes) -> None:
    assert serde_by_name("org.apache.kafka.common.serialization.Serdes$VoidSerde") is serde_by_name("void") is Serdes.void()
    with pytest.raises(SerdeError, match=f"void: found {len(data)} bytes, expected null"):
        Serdes.void().deserialize(data)
    with pytest.raises(SerdeError, match="void: can't write a value of type bytes, expected None"):
        Serdes.void().serialize(data)


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


@pytest.mark.parametrize(("data", "text"), [
    (b"\xed\xa0\x80x", "\ufffdx"), (b"\xed\xbf\xbf\xed\xa0\x80", "\ufffd\ufffd"), (b"\xed\xa0", "\ufffd"),
    (b"\xed\xbf\xff", "\ufffd\ufffd"),
    (b"\xed", "\ufffd"), (b"\xed\x80", "\ufffd"), (b"\xe0\x80\x80", "\ufffd\ufffd\ufffd"), (b"\xf0\x9f\x98", "\ufffd"),
    (b"\xc0\xaf", "\ufffd\ufffd"),
    (b"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"), (b"\xe2(\xa1", "\ufffd(\ufffd"), (b"a\xe1\x80", "a\ufffd"),
    (b"\xee\x90\xed\xbf\xe1", "\ufffd\ufffd\ufffd"),
])  # fmt: skip
def test_each_malformed_sequence_is_one_replacement_character_where_it_is_in_java(data: bytes, text: str) -> None:
    assert Serdes.string().deserialize(data) == text


def test_two_halves_of_a_surrogate_pair_are_written_as_the_character_that_they_are() -> None:
    assert Serdes.string().serialize("a\ud83d\ude00b\ud83d") == "a\U0001f600b?".encode()


@pytest.mark.parametrize(("text", "number"), [
    ("123E4567-E89B-12D3-A456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
    ("1-2-3-4-5", "00000001-0002-0003-0004-000000000005"),
    ("fffffffff-1-1-1-1", "ffffffff-0001-0001-0001-000000000001"),
])  # fmt: skip
def test_uuids_are_read_as_java_reads_them(text: str, number: str) -> None:
    assert Serdes.uuid().deserialize(text.encode()) == uuid.UUID(number)


@pytest.mark.parametrize("text", [
    "123e4567e89b12d3a456426614174000", "{123e4567-e89b-12d3-a456-426614174000}", "urn:uuid:123e4567-e89b-12d3-a456-426614174000",
    "123e4567-e89b-12d3-a456-426614174000 ", "1-2-3-4", "1-2-3-4-5-6", "1--3-4-5", "1-2-3-4-0x5", "8000000000000000-1-1-1-1", "",
])  # fmt: skip
def test_text_that_java_refuses_is_no_uuid(text: str) -> None:
    with pytest.raises(SerdeError, match="is not the text of a UUID"):
        Serdes.uuid().deserialize(text.encode())


@pytest.mark.parametrize(("serde", "expected"), [(Serdes.long(), 8), (Serdes.integer(), 4), (Serdes.double(), 8)])
def test_a_wrong_length_is_refused_with_both_lengths(serde: Serde, expected: int) -> None:
    with pytest.raises(SerdeError, match=rf"{serde.name}: found 3 bytes, expected {expected}"):
        serde.deserialize(b"abc")


@pytest.mark.parametrize(("serde", "value", "message"), [
    (Serdes.string(), 1, "string: can't write a value of type int, expected str"),
    (Serdes.string(), Windowed("k", 0, 10), "expected str; give windowed keys WindowedSerdes.time_windowed_serde_from"),
    (Serdes.bytes(), "a", "bytes: can't write a value of type str, expected bytes"),
    (Serdes.long(), 1.0, "long: can't write a value of type float, expected int"),
    (Serdes.long(), True, "long: can't write a value of type bool"),
    (Serdes.long(), 2**63, "does not fit in 8 bytes"),
    (Serdes.integer(), 2**31, "does not fit in 4 bytes"),
    (Serdes.double(), "1", "double: can't write a value of type str"),
    (Serdes.boolean(), np.bool_(True), r"can't write a value of type numpy.bool\w*, expected bool; write value.item\(\), or"),
    (Serdes.json("n bigint"), {"n": np.int64(3)}, r"type numpy.int64, expected bigint as in the schema; write value.item\(\)$"),
    (Serdes.json("n bigint"), 3, "type int, expected struct<n:bigint> as in the schema; give the operator or the topic the"),
    (Serdes.double(), 10**400, "too large for a double"),
    (Serdes.double(), 2**53 + 1, r"9007199254740993 is beyond the whole numbers that a double has; write float\(value\), which"),
    (Serdes.float(), -(2**24) - 1, r"-16777217 is beyond the whole numbers that a float has; .* or use Serdes\.long\(\)"),
    (Serdes.json("d double"), {"d": 2**53 + 1}, r"value\.d is 9007199254740993, .* its type double has: write float\(value\)"),
    (Serdes.json("f array<float>"), {"f": [2**24 + 1]}, r"value\.f\[0\] is 16777217, which is beyond .* its type float has"),
    (Serdes.long(), 1.0, r'expected int; write int\(value\), of a column of pandas astype\("Int64"\), or give the operator'),
    (Serdes.string(), 1, r"expected str; write str\(value\), or give the operator"),
    (Serdes.json("m map<string,int>"), {"m": [("a", 1)]}, r"expected map<string,int> .*; write dict\(value\), or of pyarrow"),
    (Serdes.json("m map<string,int>"), {"m": {1: 1}}, r"value\.m has the key 1 of type int, expected text: its type"),
    (Serdes.json("n array<int>"), {"n": {1, 2}}, r"is of type set, expected array<int> as in the schema; write list\(value\)$"),
    (Serdes.json("n bigint"), {"n": pd.NA}, r"NAType, expected bigint as in the schema; write None$"),
    (Serdes.json("s string"), {"s": b"a"}, r"expected string as in the schema; write value\.decode\(\)$"),
    (Serdes.json("n decimal(9,2)"), {"n": 1.5}, r"expected decimal\(9,2\) as in the schema; write Decimal\(str\(value\)\)$"),
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


@given(st.integers(-(2**70), 2**70) | st.integers(-(2**60), 2**60).map(lambda number: number * 2**40) | st.just(10**200))
def test_a_whole_number_is_written_whole_or_refused(number: int) -> None:
    json = Serdes.json("d double, f float")
    for serde, field in ((Serdes.double(), ""), (Serdes.float(), ""), (json, "d"), (json, "f")):
        try:
            read = serde.deserialize(serde.serialize({field: number} if field else number))
        except SerdeError:
            assert abs(number) > 2**24
        else:
            assert (read[field] if field else read) == number  # type: ignore[index]


def test_a_float_that_is_too_large_is_refused_and_nan_is_javas() -> None:
    assert Serdes.float().serialize(math.nan) == bytes.fromhex("7fc00000")
    with pytest.raises(SerdeError, match="too large"):
        Serdes.float().serialize(1e300)


@pytest.mark.parametrize(("serde", "key"), [
    (WindowedSerdes.time_windowed_serde_from(Serdes.string(), 10), Windowed("k", 2**63, 2**63 + 10)),
    (WindowedSerdes.time_windowed_serde_from(Serdes.string(), 10), Windowed("k", "now", 10)),  # type: ignore[arg-type]
    (WindowedSerdes.session_windowed_serde_from(Serdes.string()), Windowed("k", 0.5, 2**63)),  # type: ignore[arg-type]
])  # fmt: skip
def test_window_times_that_do_not_fit_are_refused_with_what_they_are(serde: Serde, key: Windowed) -> None:
    with pytest.raises(SerdeError, match=r"_windowed: .*(9223372036854775808|'now').*: a window's times are whole ms"):
        serde.serialize(key)


IN_TIME = WindowedSerdes.time_windowed_serde_from(Serdes.string(), 10)
IN_SESSION = WindowedSerdes.session_windowed_serde_from(Serdes.string())


@pytest.mark.parametrize(("serde", "times"), [
    (IN_TIME, (-1,)), (IN_TIME, (-(2**63),)), (IN_SESSION, (-1, -1)), (IN_SESSION, (5, -1)), (IN_SESSION, (1, 2)),
])  # fmt: skip
def test_bytes_that_are_no_window_are_not_read_nor_written_as_in_java(serde: Serde, times: tuple[int, ...]) -> None:
    with pytest.raises(SerdeError, match=rf"_windowed: found a window from {times[-1]} to -?\d+, which is none"):
        serde.deserialize(b"key" + struct.pack(f">{len(times)}q", *times))
    with pytest.raises(SerdeError, match=r"a window's times are whole ms .* from 0 on, its end not before its start"):
        serde.serialize(Windowed("key", times[-1], times[0]))


@pytest.mark.parametrize("serde", [IN_TIME, IN_SESSION])
def test_a_null_key_in_a_window_is_not_written_as_an_empty_one(serde: Serde) -> None:
    assert serde.deserialize(serde.serialize(Windowed("", 0, 10))) == Windowed("", 0, 10)
    with pytest.raises(SerdeError, match="the key in the window is null"):
        serde.serialize(Windowed(None, 0, 10))


class Marked(JsonSerde):
    """Derived, with other arguments, and state that is no field."""

    mark: bytes

    def __init__(self, mark: bytes) -> None:
        super().__init__("a string", 99)
        object.__setattr__(self, "mark", mark)  # it is frozen, as all serdes are

    def serialize(self, value: object) -> bytes | None:
        return self.mark + (super().serialize(value) or b"")


def test_a_derived_serde_travels_with_all_that_it_has_and_equals_those_with_the_same() -> None:
    came = pickle.loads(pickle.dumps(Marked(b"x")))
    assert (came.serialize({"a": "b"}), came.max_bytes) == (b'x{"a":"b"}', 99)
    assert came == Marked(b"x") != Marked(b"y")
    assert (hash(came), came == Serdes.json("a string", max_bytes=99)) == (hash(Marked(b"x")), False)

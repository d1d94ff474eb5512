"""Bytes for serdes to read, drawn by Hypothesis: what they write, what is nearly that, and garbage."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

from hypothesis import strategies as st

from tidemill.dsl.serdes import Serdes

SCHEMA = (
    "s string, d double, f float, i int, n bigint, y tinyint, b boolean, x binary, t array<string>, m map<string,double>,"
    " o struct<s:string,i:int>"
)
TIMES_SCHEMA = (
    "e decimal(12,3), h decimal(38,18), w date, z timestamp, l timestamp_ntz, d double, k int NOT NULL,"
    " m map<string,array<timestamp>>, o struct<e:decimal(4,0),w:date NOT NULL>"
)


@dataclass
class Inner:
    w: date
    e: Annotated[Decimal, "decimal(4,0)"] = Decimal(7)


@dataclass
class Times:
    """Values of a class, with defaults."""

    k: Annotated[int, "int"]
    e: Annotated[Decimal, "decimal(12,3)"] = Decimal("0.5")
    h: Decimal | None = None
    w: date | None = None
    z: datetime | None = None
    l: Annotated[datetime, "timestamp_ntz"] | None = None
    d: float = 1.5
    u: UUID | None = None
    m: dict[str, list[datetime | None]] = field(default_factory=dict)
    o: Inner | None = None


_NUMBERS = [
    "0", "-0", "1", "-1", "1.0", "-0.0", "12.5", "1e5", "1E+2", "1e-7", "0.001", "1e400", "1e-400", "3.5e38", "0.1", "16777217",
    "127", "128", "2147483647", "2147483648", "9007199254740993", "9223372036854775807", "9223372036854775808", "4.9e-324",
    "01", "+1", ".5", "5.", "1e", "0x1f", "NaN", "Infinity", "-Infinity", "1_0", "1" * 400, "1" * 1000, "1" * 1001,
    "0." + "1" * 1001,
]  # fmt: skip
_TEXTS = [
    '""', '"ada"', '"12.5"', '"NaN"', '"true"', '"null"', "'ada'", '"é€😀"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00\\ud800"',
    '"\\u0000\\u001f\\u007f\\u2028"', '"\\/\\b\\f\\n\\r\\t\\\\\\""', '"\t"', '"\\x41"', '"YQ=="', '"YR=="', '"YQ="',
    '"Y Q="', '"Y_-="',
    '"unclosed', '"\ufeff\u00ad"',
]  # fmt: skip
_OTHERS = [
    "true", "false", "null", "True", "nul", "[]", "{}", '["a",null,"b"]', '["a",1]', "[1,]", '{"a":1,"a":2}',
    '{"a":1.5,"b":null}',
    '{"a":"1"}', '{"i":1}', '{"i":"1","s":2}', '{"s":"x","u":[{"v":{}}]}', '{"i":1,"i":1}', "[" * 90 + "]" * 90,
    "[" * 101 + "]" * 101,
    "[[]", "]", "/* c */ 1", "", "1 2", '{"' + "n" * 300 + '":1}',
]  # fmt: skip
_SPACES = ["", " ", "\n", "\t \r\n", "\u00a0", "\x0b", "\x00", "\ufeff", "//c\n"]
_BEHIND = ["", "", "", "", " ", "\n", " trailing", "}", "{}", ",", "1", "\x00", "\x1a"]
_NAMES = ["s", "d", "f", "i", "n", "y", "b", "x", "t", "m", "o", "S", "unknown", "", "\\u0073", "é"]


_TIMES = [
    '"2026-01-31"', '"2026-1-31"', '"2026-02-30"', '"0001-01-01"', '"9999-12-31"', '"0000-01-01"', '"10000-01-01"',
    '"1582-10-10"', '"2026-01-31T12:00:00Z"', '"2026-01-31 12:00:00.5Z"', '"2026-01-31T12:00Z"', '"2026-01-31T24:00:00Z"',
    '"2026-01-31T23:59:60Z"',
    '"2026-01-31T12:00:00.123456789+02:00"', '"2026-01-31T12:00:00-0930"', '"2026-01-31T12:00:00+02"', '"2026-01-31T12:00:00"',
    '"2026-01-31T12:00:00.000001"', '"0001-01-01T00:00:00+01:00"', '"0001-01-01T00:00:00Z"', '"9999-12-31T23:59:59.999999Z"',
    '"9999-12-31T23:59:59-01:00"', '"1582-10-10T12:00:00Z"', '"1883-11-18T12:00:00.25Z"', '"2026-01-31T12:00:00+18:00"',
    '"2026-01-31T12:00:00+18:01"', '"2026-01-31T12:00:00+02:60"', '"2026-01-31T12:00:00 Z"', '"2026-01-31t12:00:00z"',
    '"2026-01-31T12:00:00[Europe/Paris]"', '"2026-01-31T12:00:00.Z"', '"20260131T120000Z"', '"1769860800"', "1769860800", '""',
]  # fmt: skip
_DECIMALS = [
    "12.345", "12.3450", "12.3456", "123456789.999", "1234567890", "-0.000", "-0.001", "1e3", "1E-3", "1e-18", "0e9999", "1e9999",
    "1e-9999", "1e999999999", "99999999999999999999.999999999999999999", "100000000000000000000", "9999", "10000", "0.1",
    '"12.5"', '"-007.50"', '"1e2"', '"12,5"', '" 1"', '"1."', '".5"', '"NaN"', '"٣"', "0.000000000000000001", "-0.0000010",
]  # fmt: skip
_TIMES_NAMES = ["e", "h", "w", "z", "l", "d", "m", "o", "u", "unknown"]


def times_texts() -> st.SearchStrategy[bytes]:
    """As ``json_texts``, of TIMES_SCHEMA; most have the member that it requires."""
    scalars = st.sampled_from(_TIMES) | st.sampled_from(_DECIMALS) | _finite().map(repr) | st.datetimes().map(_quoted_time)
    inner = st.builds('{{"w":{},"e":{}}}'.format, scalars, scalars) | st.builds('{{"k":[{},null,{}]}}'.format, scalars, scalars)
    members = st.lists(st.tuples(st.sampled_from(_TIMES_NAMES), scalars | inner | st.just("null")), max_size=3)
    first = st.sampled_from(['"k":1', '"k":1', '"k":1', '"k":null', '"k":1.0', '"S":1'])

    def text(first: str, members: list[tuple[str, str]]) -> bytes:
        inside = ",".join([first, *(f'"{name}":{token}' for name, token in members)])
        return f"{{{inside}}}".encode()

    return st.builds(text, first, members)


def _quoted_time(found: datetime) -> str:
    return f'"{found.isoformat()}+03:30"'


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """An object whose members mostly are the schema's; some are not what JSON is."""
    tokens = st.sampled_from(_NUMBERS) | st.sampled_from(_TEXTS) | st.sampled_from(_OTHERS) | _finite().map(repr)
    space = st.just("") if draw(st.integers(0, 3)) else st.sampled_from(_SPACES)
    members = draw(st.lists(st.tuples(st.sampled_from(_NAMES), tokens), max_size=3))
    inside = ",".join(f'{draw(space)}"{name}"{draw(space)}:{draw(space)}{token}' for name, token in members)
    text = f"{draw(space)}{{{inside}{draw(space)}}}{draw(st.sampled_from(_BEHIND))}"
    form = draw(st.integers(0, 40))
    return text.encode("utf-16" if form == 0 else "utf-16-be" if form == 1 else "utf-32" if form == 2 else "utf-8", "replace")


def _finite() -> st.SearchStrategy[float]:
    return st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def changed(draw: st.DrawFn, inner: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with one of them taken out, put in or replaced."""
    data = draw(inner)
    at = draw(st.integers(0, len(data)))
    byte = draw(st.sampled_from([b"", b"\x00", b"\xff", b"\x80", b"\xc0", b"\xed", b'"', b"\\", b"{", b"}", b"9", b"\xa0"]))
    return data[:at] + byte + data[at + draw(st.integers(0, 1)) :]


_PIECES = [b"a", b"\n", b"\x00", b"\x7f", b"\x80", b"\xbf", b"\xc2", b"\xc0\xaf", b"\xe0\x80", b"\xe2\x82\xac", b"\xe2\x82",
    b"\xed\xa0\x80",
           b"\xed\xa0", b"\xed\xbf\xbf", b"\xed\x9f\xbf", b"\xf0\x9f\x98\x80", b"\xf0\x9f\x98", b"\xf0\x90",
           b"\xf4\x90\x80\x80", b"\xf5",
           b"\xff\xfe", b"\xef\xbb\xbf"]  # fmt: skip


def texts() -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(_PIECES), max_size=6).map(b"".join) | st.text().map(str.encode) | st.binary(max_size=8)


_DOUBLES = ["7ff8000000000000", "fff8000000000000", "7ff0000000000001", "7fffffffffffffff", "7ff0000000000000",
    "8000000000000000",
            "0000000000000001", "7fefffffffffffff"]  # fmt: skip
_FLOATS = ["7fc00000", "ffc00000", "7f800001", "7fffffff", "7f800000", "80000000", "00000001", "7f7fffff"]
_UUIDS = [
    b"00000000-0000-0000-0000-000000000001", b"123E4567-E89B-12D3-A456-426614174000", b"1-2-3-4-5", b"{1-2-3-4-5}", b"1-2-3-4",
    b"123e4567e89b12d3a456426614174000", b"urn:uuid:123e4567-e89b-12d3-a456-426614174000", b"fffffffff-1-1-1-1", b"-1-2-3-4-5",
    b"123e4567-e89b-12d3-a456-426614174000 ", b"8000000000000000-1-1-1-1", b"7fffffffffffffff-1-1-1-1", b"1--3-4-5",
    b"1-2-3-4-0x5",
    b"123e4567-e89b-12d3-a456-42661417400g", "１-2-3-4-5".encode(),
]  # fmt: skip


def of_width(width: int, *special: str) -> st.SearchStrategy[bytes]:
    known = [bytes.fromhex(one) for one in special] or [bytes(width), b"\xff" * width, b"\x80" + bytes(width - 1)]
    return st.binary(min_size=width, max_size=width) | st.sampled_from(known) | st.binary(max_size=10)


def spread(value: Any) -> bytes:
    return struct.pack(">d", value)


SERDES: dict[str, Any] = {
    "string": Serdes.string(), "bytes": Serdes.bytes(), "long": Serdes.long(), "integer": Serdes.integer(),
    "short": Serdes.short(), "double": Serdes.double(), "float": Serdes.float(), "boolean": Serdes.boolean(),
    "uuid": Serdes.uuid(), "json": Serdes.json(SCHEMA), "json-times": Serdes.json(TIMES_SCHEMA), "json-class": Serdes.json(Times),
    "json-document": Serdes.json(),
}  # fmt: skip
BYTES_FOR: dict[str, st.SearchStrategy[bytes]] = {
    "string": texts(),
    "bytes": texts(),
    "long": of_width(8),
    "integer": of_width(4),
    "short": of_width(2),
    "double": of_width(8, *_DOUBLES) | _finite().map(spread),
    "float": of_width(4, *_FLOATS),
    "boolean": st.sampled_from([b"\0", b"\1", b"\2", b"\xff", b"", b"\0\0", b"true"]),
    "uuid": st.sampled_from(_UUIDS) | st.uuids().map(lambda found: str(found).encode()) | st.binary(max_size=4),
    "json": json_texts() | changed(json_texts()),
    "json-times": times_texts() | changed(times_texts()),
    "json-class": times_texts(),
    "json-document": json_texts() | changed(json_texts()),
}
"""By the serde's name, and of JSON by the kind of schema."""

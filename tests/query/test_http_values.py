"""Keys over HTTP: what is shown can be asked for, and pages in text lose and double none, whatever the keys' serde is."""

from __future__ import annotations

import json
import math
import uuid
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, ClassVar
from urllib.parse import quote

import pyarrow as pa
import pytest

from tests.query.stand_ins import ask, store_info
from tests.query.test_http_app import ARROW, app, sentence, table
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.query.http_values import has_text
from tidemill.topology.windows import Windowed

EVERY_TYPE = Serdes.json("t timestamp, n timestamp_ntz, p decimal(9,2), x double, f float, b binary, d date, l array<int>")


class Reversed:
    """A serde of an application's own, which expects nothing but its type."""

    name: ClassVar[str] = "reversed"
    sql_type: ClassVar[str] = "struct<word:string>"

    def serialize(self, value: Any) -> bytes | None:
        return None if value is None else bytes(value["word"][::-1].encode())

    def deserialize(self, data: bytes | None) -> Any:
        return None if data is None else {"word": data.decode()[::-1]}


KEYS: list[tuple[Any, list[Any]]] = [
    (Serdes.string(), ["", "a", "é", "\0", "a/b", "..", ".", "%2F", "+", " ", "😀", "a" * 600, "null", '"', "&?#"]),
    (Serdes.long(), [0, -1, 1, 2**63 - 1, -(2**63)]),
    (Serdes.integer(), [0, -1, 2**31 - 1, -(2**31)]),
    (Serdes.short(), [0, -1, 32767, -32768]),
    (Serdes.double(), [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf, 5e-324, 1e23]),
    (Serdes.float(), [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf]),
    (Serdes.boolean(), [True, False]),
    (Serdes.bytes(), [b"", b"\0", b"\xff" * 3, b"abc"]),
    (Serdes.uuid(), [uuid.UUID(int=0), uuid.UUID(int=5)]),
    (Serdes.json(), [{"b": "é/%", "a": None}, {"b": 1e7}, [], [1, "1"], 0, True, 0.5]),
    (Serdes.json("a string, n bigint"), [{"a": "é/%", "n": 1}, {"a": None, "n": None}, {"a": '"\\\n', "n": -5}]),
    (
        EVERY_TYPE,
        [
            {
                "t": datetime(2026, 1, 31, 12, tzinfo=timezone.utc), "n": datetime(2026, 1, 31, 1), "p": Decimal("1.50"),
                "x": 1e7, "f": 0.1, "b": b"\0\xff", "d": date(2026, 1, 31), "l": [1, None],
            },
            {"p": Decimal("-0.10"), "x": -0.0, "f": 1e-9, "b": b"", "l": []},
        ],
    ),
    (WindowedSerdes.time_windowed_serde_from(Serdes.string(), 60), [Windowed("", 0, 60), Windowed("é/", 60, 120)]),
    (WindowedSerdes.time_windowed_serde_from(Serdes.double(), 60), [Windowed(math.nan, 0, 60), Windowed(-0.0, 0, 60)]),
    (WindowedSerdes.session_windowed_serde_from(Serdes.bytes()), [Windowed(b"\xff", 7, 7), Windowed(b"", 0, 2**63 - 1)]),
    (WindowedSerdes.session_windowed_serde_from(EVERY_TYPE), [Windowed({"b": b"\1", "p": Decimal("1.10")}, 0, 9)]),
    (Reversed(), [{"word": "abc"}, {"word": "é/"}]),
]  # fmt: skip
FORMS = pytest.mark.parametrize(("serde", "keys"), KEYS, ids=[f"{number}-{serde.name}" for number, (serde, _) in enumerate(KEYS)])


@FORMS
def test_a_key_is_asked_for_as_it_is_shown(serde: Any, keys: list[Any]) -> None:
    here = app(list(zip(keys, range(len(keys)), strict=True)), store_info(key=serde))
    shown = ask(here, "/stores/counts").json["entries"]
    assert len(shown) == len(keys)
    for entry in shown:
        text = entry["key"] if isinstance(entry["key"], str) else json.dumps(entry["key"])
        found = ask(here, f"/stores/counts/{quote(text, safe='')}")
        assert (found.status, found.json["value"]) == (200, entry["value"]), text


@FORMS
def test_pages_of_one_entry_have_each_key_once(serde: Any, keys: list[Any]) -> None:
    here = app(list(zip(keys, range(len(keys)), strict=True)), store_info(key=serde))
    found, target = [], "/stores/counts?limit=1"
    for _ in keys:
        page = ask(here, target)
        assert page.status == 200, page.json
        found += page.json["entries"]
        target = f"/stores/counts?limit=1&from={quote(str(page.json['next']), safe='')}"
    assert page.json["next"] is None
    assert found == ask(here, "/stores/counts").json["entries"]


def test_a_key_that_is_a_text_as_json_is_in_quotes_in_an_address() -> None:
    here = app([("abc", 1), ("1", 2), (1, 3)], store_info(key=Serdes.json()))
    assert [ask(here, f"/stores/counts/{quote(text)}").json["value"] for text in ('"abc"', '"1"', "1")] == [1, 2, 3]
    assert ask(here, "/stores/counts/abc").status == 400
    assert ask(here, "/stores/counts?limit=1").json["next"] == '"abc"'


FOREIGN: list[tuple[Any, list[bytes]]] = [
    (Serdes.json("id bigint, x double"), [b'{"id":1,"x":1}', b'{"id": 2}', b'{"x":1.0,"id":3}', b' {"id":4}', b'{"id":5,"y":0}']),
    (Serdes.json("name string"), [b'{"name":"\\u00fc"}', b'{"name":null}', b'{"name":"a\\/b"}']),
    (Serdes.string(), [b"\xff", b"\xfe\xff"]),
    (Serdes.double(), [bytes.fromhex("fff8000000000001")]),
    (Serdes.uuid(), [b"1-2-3-4-5"]),
]


class Foreign:
    """A serde whose keys may have been written by another program: as the bytes that are given."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.name, self.sql_type = inner, inner.name, inner.sql_type

    def serialize(self, value: Any) -> bytes | None:
        found: bytes | None = value if isinstance(value, bytes) else self.inner.serialize(value)
        return found

    def deserialize(self, data: bytes | None) -> Any:
        return self.inner.deserialize(data)


@pytest.mark.parametrize(("serde", "written"), FOREIGN, ids=[f"{n}-{serde.name}" for n, (serde, _) in enumerate(FOREIGN)])
def test_no_page_goes_on_from_another_key_than_the_one_that_comes_next(serde: Any, written: list[bytes]) -> None:
    """The text of such a key gives other bytes: keys between the two would be lost, or come twice."""
    store = store_info(key=Foreign(serde))
    first, second = sorted(written)[:2] if len(written) > 1 else (b"", written[0])
    here = app([(first, 1), (second, 2)], store)
    refused = ask(here, "/stores/counts?limit=1")
    assert refused.status == 400
    assert "keys=hex" in sentence(refused)
    page = ask(here, "/stores/counts?limit=1&keys=hex")
    rest = ask(here, f"/stores/counts?limit=1&keys=hex&from={page.json['next']}")
    assert [entry["value"] for reply in (page, rest) for entry in reply.json["entries"]] == [1, 2]
    assert not any(has_text(store, key) for key in written)


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (Serdes.uuid(), "no-uuid"),
        (Serdes.boolean(), "yes"),
        (Serdes.boolean(), "1"),
        (WindowedSerdes.session_windowed_serde_from(Serdes.string()), '["a",0]'),
        (WindowedSerdes.session_windowed_serde_from(Serdes.string()), '{"key":"a"}'),
        (WindowedSerdes.session_windowed_serde_from(Serdes.string()), '["a","b","c"]'),
        (WindowedSerdes.session_windowed_serde_from(Serdes.bytes()), '["zz",0,1]'),
        (WindowedSerdes.session_windowed_serde_from(Serdes.long()), '["1",0,1]'),
        (Reversed(), "5"),
        (Reversed(), '{"other":1}'),
    ],
)
def test_text_that_is_no_key_is_refused(serde: Any, text: str) -> None:
    reply = ask(app([], store_info(key=serde)), f"/stores/counts/{quote(text, safe='')}")
    assert reply.status == 400
    assert sentence(reply)


@pytest.mark.parametrize(
    ("serde", "values", "arrow_type", "shown"),
    [
        (Serdes.short(), [-1], pa.int16(), [-1]),
        (Serdes.float(), [1.5], pa.float32(), [1.5]),
        (Serdes.boolean(), [True], pa.bool_(), [True]),
        (Serdes.uuid(), [uuid.UUID(int=5)], pa.string(), [str(uuid.UUID(int=5))]),
        (WindowedSerdes.session_windowed_serde_from(Serdes.long()), [Windowed(-5, 0, 9)], pa.string(), ["[-5, 0, 9]"]),
        (Reversed(), [{"word": "abc"}], pa.string(), ['{"word": "abc"}']),
        (Serdes.json("d decimal(9,2)"), [{"d": Decimal("1.50")}], pa.string(), ['{"d":1.50}']),
    ],
)
def test_every_serde_has_a_column_in_arrow(serde: Any, values: list[Any], arrow_type: pa.DataType, shown: list[Any]) -> None:
    as_values = table(ask(app([("k", values[0])], store_info(value=serde)), "/stores/counts", headers=ARROW))["value"]
    as_keys = table(ask(app([(values[0], 1)], store_info(key=serde)), "/stores/counts", headers=ARROW))["key"]
    assert as_values.type == as_keys.type == arrow_type
    assert as_values.to_pylist() == as_keys.to_pylist() == shown

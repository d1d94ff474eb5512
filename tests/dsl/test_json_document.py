"""The JSON serde without a schema: which values have a text, which texts have a value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.dsl.serdes import serde_by_name
from tidemill.errors import SerdeError

SERDE = Serdes.json()
SCALARS = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(st.none() | inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), st.none() | inner)
)


class Level(Enum):
    HIGH = 2


class Grade(IntEnum):
    FIRST = 1


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int | None = None


@given(value=VALUES)
def test_each_value_of_json_is_read_as_it_was_written(value: Any) -> None:
    data = SERDE.serialize(value)
    found = SERDE.deserialize(data)
    assert found == value
    assert SERDE.serialize(found) == data


def test_it_is_what_no_schema_and_the_name_json_give() -> None:
    assert serde_by_name("json") == SERDE == Serdes.json(None)
    assert Serdes.json(max_bytes=100) != SERDE
    assert SERDE.sql_type == "string"


def test_a_record_without_a_value_is_none() -> None:
    assert SERDE.serialize(None) is None
    assert SERDE.deserialize(None) is None


@pytest.mark.parametrize(("value", "text"), [
    ({"b": 1, "a": None, "t": [True, None]}, '{"b":1,"a":null,"t":[true,null]}'),
    ({"n": 1e7, "d": Decimal("12.50"), "i": 10**40}, '{"n":1.0E7,"d":12.50,"i":1' + "0" * 40 + "}"),
    (Point(1), '{"x":1,"y":null}'),
    ((Colour.RED, UUID(int=1)), '["red","00000000-0000-0000-0000-000000000001"]'),
    ("é\n", '"é\\n"'),
    ([Level.HIGH, Grade.FIRST], "[2,1]"),
])
def test_the_text_of_a_value(value: Any, text: str) -> None:
    assert SERDE.serialize(value) == text.encode()


def containing_itself() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


@pytest.mark.parametrize(("value", "problem"), [
    ({"at": [date(2026, 1, 31)]}, r"\['at'\]\[0\] is of type datetime.date, which has no form in JSON; write value.isoformat"),
    ({1, 2}, "value is of type set, which has no form in JSON; write list\\(value\\)$"),
    ({"n": np.int64(3)}, r"value\['n'\] is of type numpy.int64, which has no form in JSON; write value.item\(\)$"),
    (np.array([3]), r"value is of type numpy.ndarray, which has no form in JSON; write value.tolist\(\)$"),
    ({"counts": {1: 2}}, r"value\['counts'\] has the member 1, expected names that are text, such as '1'"),
    (b"text", "value is of type bytes, which has no form in JSON; write text or a number$"),
    ([float("nan")], r"value\[0\] is not finite"),
    ([Decimal("Infinity")], r"value\[0\] is not finite"),
    (containing_itself(), "nested too deep, or contains itself"),
    ({"deep": [[[]]] * 40 + [eval("[" * 101 + "]" * 101)]}, "nested more than 100 levels deep"),  # a literal
    (10**1001, "more than 1000 characters"),
    ("x" * 200, "found 202 bytes, expected at most 100; raise the serde's max_bytes"),
])
def test_what_has_no_text_that_could_be_read_is_not_written(value: Any, problem: str) -> None:
    serde = Serdes.json(max_bytes=100) if isinstance(value, str) else SERDE
    with pytest.raises(SerdeError, match=problem):
        serde.serialize(value)


@pytest.mark.parametrize(("data", "problem"), [
    (b"null", "found the text null, expected a document"),
    (b"", "0 bytes are not JSON text"),
    (b'{"a":1}{"a":2}', "7 characters follow the JSON text, expected nothing more"),
    (b'{"a":1,"a":2}', "has the member 'a' more than once"),
    (b'{"a":[1e400]}', "the number 1e400 is too large for a float"),
    (b"[NaN]", "NaN is not JSON"),
    (b'"\\ud800"', "half of a surrogate pair"),
    (b"\xff", "not JSON text in UTF-8"),
    (b"[" * 101 + b"]" * 101, "more than 100 levels deep"),
])
def test_text_that_is_no_document_is_refused(data: bytes, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        SERDE.deserialize(data)

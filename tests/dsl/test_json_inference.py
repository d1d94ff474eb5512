"""Schemas inferred from JSON that is there: types, conflicts, and that the sample can be read with them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.dsl.json_inference import infer_schema
from tidemill.errors import ConfigError


def ddl_of(*objects: Any, is_required: bool = False) -> str:
    return infer_schema([json.dumps(one).encode() for one in objects], is_required=is_required).ddl


@pytest.mark.parametrize(("objects", "ddl"), [
    ([{"a": 1, "b": 1.5, "c": True, "d": "x"}], "a bigint,\nb double,\nc boolean,\nd string"),
    ([{"a": 1}, {"a": 2.5}, {"a": None}], "a double"),
    ([{"a": 1 << 63}], "a decimal(38,0)"),
    ([{"a": 10**40}], "a double"),
    ([{"a": "2026-01-31"}, {"a": "2026-02-01"}], "a date"),
    ([{"a": "2026-01-31"}, {"a": "none"}], "a string"),
    ([{"a": "2026-01-31T10:00:00Z"}, {"a": "2026-01-31 10:00:00.5+02:00"}], "a timestamp"),
    ([{"a": "2026-01-31T10:00:00"}], "a timestamp_ntz"),
    ([{"a": [1, None, 2]}, {"a": []}], "a array<bigint>"),
    ([{"a": {"x": 1}}, {"a": {"y y": [{"z": 1}]}}], "a struct<x:bigint,`y y`:array<struct<z:bigint>>>"),
    ([{"a,b": {"c:d": 1}}], "`a,b` struct<`c:d`:bigint>"),
])  # fmt: skip
def test_the_narrowest_type_that_all_values_fit(objects: list[Any], ddl: str) -> None:
    assert ddl_of(*objects) == ddl


def test_fields_that_every_object_has_are_required_if_that_is_asked_for() -> None:
    objects = {"a": 1, "s": {"x": 1, "y": 1}}, {"a": 2, "b": 3, "s": {"x": 2}}, {"a": 2, "b": None, "s": {"x": 2}}
    assert ddl_of(*objects, is_required=True) == "a bigint NOT NULL,\ns struct<x:bigint NOT NULL,y:bigint> NOT NULL,\nb bigint"


def test_an_object_with_very_many_names_is_a_map() -> None:
    found = infer_schema([json.dumps({"by_user": {f"user{at}": at}}).encode() for at in range(300)])
    assert found.ddl == "by_user map<string,bigint>"
    assert found.notes == ("value.by_user: 300 names in 300 objects, taken as those of a map",)


def test_conflicts_are_said_with_an_example() -> None:
    found = infer_schema([b'{"a":1,"n":null}', b'{"a":2}', b'{"a":"12,5"}', b'{"a":[]}', b"77", b"nope"])
    assert found.ddl == "a bigint,\nn string"
    assert found.notes == (
        "2 of 6 records are no JSON objects, the first: json: found number, expected an object",
        "value.a: 2 numbers, taken as bigint; 1 arrays (such as '[]') would be refused",
        "value.a: 2 numbers, taken as bigint; 1 texts (such as '12,5') would be refused",
        "value.n: always null, taken as string",
    )


@pytest.mark.parametrize(("texts", "problem"), [
    ([], "no records"),
    ([b"x", b"[]"], "no JSON object among 2 records; the first: json: 1 bytes are not JSON"),
    ([b"{}"], "have no fields in common"),
])  # fmt: skip
def test_where_there_is_nothing_to_infer_from_that_is_said(texts: list[bytes], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        infer_schema(texts)


NAMES = st.sampled_from(["a", "b", "c d", "e`f"])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    ["x", "2026-01-31", "2026-01-31T00:00:00Z", "2026-01-31T00:00:00"]
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)


@given(st.dictionaries(NAMES, VALUES, min_size=1), st.booleans())
def test_a_sample_is_read_with_its_schema_unless_a_conflict_was_said(value: dict[str, Any], is_required: bool) -> None:
    text = json.dumps(value).encode()
    found = infer_schema([text], is_required=is_required)
    if not any("would be refused" in note for note in found.notes):
        assert set(Serdes.json(found.ddl).deserialize(text)) == set(value)


def test_as_a_dataclass_it_is_python_that_runs_and_reads_the_same(tmp_path: Path) -> None:
    values = [
        {"date": "2026-01-31", "at": "2026-01-31T00:00:00Z", "items": [{"sku": "a", "n": 1}], "by": {}, "big": 1 << 70},
        {"date": "2026-02-01", "at": "2026-01-31T00:00:00Z", "items": [], "local": "2026-01-31T00:00:00"},
    ]  # fmt: skip
    texts = [json.dumps(value).encode() for value in values]
    found = infer_schema(texts, is_required=True)
    file = tmp_path / "inferred_orders.py"
    file.write_text(found.as_dataclass("Orders"))
    spec = importlib.util.spec_from_file_location("inferred_orders", file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["inferred_orders"] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        serde: Any = Serdes.json(module.Orders)
        by_ddl: Any = Serdes.json(found.ddl)
        assert sorted(serde.sql_type[7:-1].split(",")) == sorted(by_ddl.sql_type[7:-1].split(","))
        read = serde.deserialize(texts[0])
        assert (read.items[0].sku, read.local) == ("a", None)
    finally:
        del sys.modules["inferred_orders"]


@pytest.mark.parametrize(
    ("text", "imported"),
    [
        (b'{"date": 1, "Decimal": "x"}', set()),
        (b'{"day": "2026-01-31"}', {"date"}),
        (b'{"at": [{"inner": "2026-01-31T00:00:00Z"}], "of": 1180591620717411303424}', {"datetime", "Decimal", "Annotated"}),
    ],
)
def test_a_dataclass_imports_what_it_needs_and_no_more(text: bytes, imported: set[str]) -> None:
    source = infer_schema([text]).as_dataclass("Orders")
    lines = [line for line in source.splitlines() if line.startswith("from ") and "dataclass" not in line and "__" not in line]
    assert {name for line in lines for name in line.partition(" import ")[2].split(", ")} == imported


def test_a_name_that_no_dataclass_can_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="the field 'class' has no name that a dataclass can have: print the schema as DDL"):
        infer_schema([b'{"class": 1}']).as_dataclass("Orders")


@pytest.mark.parametrize(("value", "classes"), [
    ({"item": {"price": {"net": 1}}, "item_price": {"gross": "x"}}, ["OrderItemPrice", "OrderItem", "OrderItemPrice2", "Order"]),
    ({"a": {"n": 1}, "A": {"t": "x"}, "_": {"m": 1}}, ["OrderA", "OrderA2", "Order2", "Order"]),
])  # fmt: skip
def test_each_struct_has_a_class_of_its_own_name(value: dict[str, Any], classes: list[str]) -> None:
    """Python takes the last class of a name: values of the others were read as missing."""
    text = json.dumps(value).encode()
    source = infer_schema([text]).as_dataclass("Order")
    assert re.findall(r"class (\w+):", source) == classes
    module = ModuleType("inferred_order")
    sys.modules["inferred_order"] = module
    try:
        exec(source, module.__dict__)
        serde: Any = Serdes.json(module.Order)
        assert json.loads(serde.serialize(serde.deserialize(text))) == value
    finally:
        del sys.modules["inferred_order"]


def test_a_class_has_no_name_that_its_annotations_use() -> None:
    source = infer_schema([b'{"d": 1180591620717411303424}']).as_dataclass("Decimal")
    assert "class Decimal2:" in source
    with pytest.raises(ConfigError, match="the field 'list' would hide Python's type of that name: print the schema as DDL"):
        infer_schema([b'{"list": [1], "id": 1}']).as_dataclass("Order")
    assert "list: int | None = None" in infer_schema([b'{"list": 1}']).as_dataclass("Order")

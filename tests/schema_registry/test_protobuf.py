"""Protobuf through confluent-kafka's registry client and its in-memory registry."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tidemill.errors import SerdeError, TopologyError
from tidemill.schema_registry import SchemaRegistry

_TYPES = descriptor_pb2.FieldDescriptorProto


def _messages() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    item = file.message_type.add(name="Item")
    item.field.add(name="sku", number=1, type=_TYPES.TYPE_STRING, label=1)
    file.enum_type.add(name="Kind").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=_TYPES.TYPE_INT64, label=1)
    order.field.add(name="items", number=2, type=_TYPES.TYPE_MESSAGE, type_name=".shop.Item", label=3)
    order.field.add(name="first", number=3, type=_TYPES.TYPE_MESSAGE, type_name=".shop.Item", label=1)
    order.field.add(name="raw", number=4, type=_TYPES.TYPE_BYTES, label=1)
    order.field.add(name="kind", number=5, type=_TYPES.TYPE_ENUM, type_name=".shop.Kind", label=1)
    order.field.add(name="weight", number=6, type=_TYPES.TYPE_FLOAT, label=1)
    order.field.add(name="kinds", number=8, type=_TYPES.TYPE_ENUM, type_name=".shop.Kind", label=3)
    entry = order.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_TYPES.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_TYPES.TYPE_UINT32, label=1)
    order.field.add(name="stock", number=7, type=_TYPES.TYPE_MESSAGE, type_name=".shop.Order.StockEntry", label=3)
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="child", number=1, type=_TYPES.TYPE_MESSAGE, type_name=".shop.Tree", label=1)
    file.message_type.add(name="Nothing")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


POOL = _messages()
VALUE = {
    "id": 5, "items": [{"sku": "a"}, {"sku": "b"}], "first": None, "raw": b"\x01", "kind": "PAID",
    "weight": 1.5, "stock": {"a": 3}, "kinds": ["NEW"],
}  # fmt: skip


def message(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"shop.{name}"))


def test_a_message_comes_back_as_it_was_with_null_for_what_was_not_set() -> None:
    serde = SchemaRegistry("mock://protobuf").protobuf(message("Order"))
    assert serde.deserialize(serde.serialize(VALUE)) == VALUE
    assert serde.deserialize(serde.serialize({**VALUE, "first": {"sku": "c"}})) == {**VALUE, "first": {"sku": "c"}}
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    assert serde.sql_type == (
        "struct<`id`:bigint,`items`:array<struct<`sku`:string>>,`first`:struct<`sku`:string>,`raw`:binary,`kind`:string,"
        "`weight`:float,`kinds`:array<string>,`stock`:map<string,bigint>>"
    )


def test_an_enum_number_that_this_version_has_no_name_for_is_written_as_it_came() -> None:
    serde = SchemaRegistry("mock://protobuf").protobuf(message("Order"))
    data = serde.serialize({**VALUE, "kind": 5, "kinds": [1, -7]})
    value = serde.deserialize(data)
    assert (value["kind"], value["kinds"]) == ("5", ["PAID", "-7"])
    assert serde.serialize(value) == data


@pytest.mark.parametrize("data", [b"", b"plain text", b"\x00\x00\x00\x00\x01\x00\xff\xff"])
def test_bytes_of_something_else_are_a_serde_error(data: bytes) -> None:
    serde = SchemaRegistry("mock://garbage").protobuf(message("Order"))
    serde.serialize(VALUE)
    with pytest.raises(SerdeError, match="protobuf"):
        serde.deserialize(data)


@pytest.mark.parametrize("value", [{"nope": 1}, {"id": "one"}, [1], "text"])
def test_a_value_that_does_not_fit_the_message_is_refused(value: Any) -> None:
    with pytest.raises(SerdeError, match="protobuf: can't write"):
        SchemaRegistry("mock://misfits").protobuf(message("Order")).serialize(value)


@pytest.mark.parametrize(("name", "why"), [("Tree", "contains itself"), ("Nothing", "no fields")])
def test_a_message_without_a_spark_type_is_refused_when_the_serde_is_made(name: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        SchemaRegistry("mock://types").protobuf(message(name))


def test_what_is_no_message_class_is_refused() -> None:
    with pytest.raises(TopologyError, match="not a generated message class"):
        SchemaRegistry("mock://types").protobuf(dict)

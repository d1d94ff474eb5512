"""Protobuf through confluent-kafka's registry client and its in-memory registry."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
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


def test_equal_maps_are_equal_bytes_in_the_order_of_their_keys() -> None:
    serde = SchemaRegistry("mock://maps").protobuf(message("Order"))
    stock = {f"k{number:02}": number for number in range(40)}
    data = serde.serialize({"stock": stock})
    assert data == serde.serialize({"stock": dict(reversed(stock.items()))})
    assert data.endswith(b"".join(b"\x3a\x07\x0a\x03" + key.encode() + bytes((0x10, number)) for key, number in stock.items()))
    value = serde.deserialize(data)
    assert list(value["stock"]) == list(stock)
    assert serde.serialize(value) == data


@pytest.mark.parametrize("data", [b"", b"plain text", b"\x00\x00\x00\x00\x01\x00\xff\xff"])
def test_bytes_of_something_else_are_a_serde_error(data: bytes) -> None:
    serde = SchemaRegistry("mock://garbage").protobuf(message("Order"))
    serde.serialize(VALUE)
    with pytest.raises(SerdeError, match="protobuf"):
        serde.deserialize(data)


@pytest.mark.parametrize("place", [b"\xff" * 1_000_000, b"\xfe\x01" + b"\0" * 50, b"\x80\x80\x06" + b"\1" * 30_000, b"\x02", b""])
def test_the_place_of_a_message_in_its_schema_is_read_from_few_bytes(place: bytes) -> None:
    serde = SchemaRegistry("mock://places").protobuf(message("Order"))
    data = serde.serialize(VALUE)
    with pytest.raises(SerdeError, match=rf"no end of the message's place in its schema within {min(len(place) + 5, 510)} bytes"):
        serde.deserialize(data[:5] + place)


def test_a_message_in_others_is_found_by_its_place_in_the_schema() -> None:
    outer = made(("inner", 1, (("deep", 1, (("a", 1, "int32"),)),)))
    inner = outer.DESCRIPTOR.nested_types[0].nested_types[0]
    serde = SchemaRegistry("mock://places").protobuf(message_factory.GetMessageClass(inner))
    data = serde.serialize({"a": 7})
    assert data[5:] == b"\x06\x02\0\0\x08\x07"
    assert serde.deserialize(data) == {"a": 7}


def test_the_file_of_a_message_is_not_copied_for_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    serde = SchemaRegistry("mock://copies").protobuf(message("Order"))
    data = serde.serialize(VALUE)
    assert serde.deserialize(data) == VALUE
    monkeypatch.delattr(ProtobufDeserializer, "_get_message_desc")
    assert serde.deserialize(data) == VALUE


@pytest.mark.parametrize("value", [{"nope": 1}, {"id": "one"}, [1], "text"])
def test_a_value_that_does_not_fit_the_message_is_refused(value: Any) -> None:
    with pytest.raises(SerdeError, match="protobuf: can't write"):
        SchemaRegistry("mock://misfits").protobuf(message("Order")).serialize(value)


@pytest.mark.parametrize(("field", "value", "why"), [
    ("id", 1.5, "'float' object cannot be interpreted as an integer"), ("id", 2**63, "Value out of range"),
    ("kind", "LOST", "unknown enum label"), ("items", [None], "got <class 'NoneType'>"),
    ("stock", {"a": -1}, "Value out of range"), ("raw", "x", "expected bytes, str found"),
])  # fmt: skip
def test_the_field_that_does_not_fit_is_named(field: str, value: Any, why: str) -> None:
    with pytest.raises(SerdeError, match=rf"protobuf: can't write a value: ValueError: shop\.Order\.{field}: .*{why}"):
        SchemaRegistry("mock://misfits").protobuf(message("Order")).serialize({**VALUE, field: value})


def test_of_the_fields_of_a_oneof_no_value_is_left_out() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="paid.proto", package="p", syntax="proto3")
    paid = file.message_type.add(name="Paid")
    paid.oneof_decl.add(name="by")
    for number, name in enumerate(("cash", "card", "note"), 1):
        paid.field.add(name=name, number=number, type=_TYPES.TYPE_STRING, label=1, oneof_index=0)
    outer = file.message_type.add(name="Outer")
    outer.field.add(name="paid", number=1, type=_TYPES.TYPE_MESSAGE, type_name=".p.Paid", label=3)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    serde = SchemaRegistry("mock://oneof").protobuf(message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer")))
    one = {"paid": [{"cash": None, "card": "", "note": None}]}
    assert serde.deserialize(serde.serialize(one)) == one
    with pytest.raises(SerdeError, match=r"p\.Paid\.by is one of several fields, and cash and note have values; leave one"):
        serde.serialize({"paid": [{"cash": "", "card": None, "note": "x"}]})


def with_oneof(*members: str) -> Any:
    """A message of two numbers, these of which are in a ``oneof``."""
    file = descriptor_pb2.FileDescriptorProto(name="of.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    if members:
        message.oneof_decl.add(name="one")
    for number, name in enumerate("ab", 1):
        field = message.field.add(name=name, number=number, type=_TYPES.TYPE_INT32, label=1)
        if name in members:
            field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M"))


@pytest.mark.parametrize("members", ["", "a", "b"])
def test_fields_that_may_have_values_at_once_are_not_read_as_a_oneof_with_the_last_of_them(members: str) -> None:
    found = r"its fields p\.M\.a and p\.M\.b may have values at once, expected one of them in p\.M\.one"
    with pytest.raises(SerdeError, match=f"protobuf: {found}; the topic holds other data"):
        passed(with_oneof(*members), with_oneof("a", "b"), {"a": 1, "b": 2})


def test_a_oneof_is_read_as_one_with_more_fields_or_as_fields() -> None:
    assert passed(with_oneof("a", "b"), with_oneof(), {"b": 2}) == {"a": 0, "b": 2}
    assert passed(with_oneof("a"), with_oneof("b"), {"a": 1, "b": 2}) == {"a": 1, "b": 2}
    assert passed(with_oneof("a", "b"), with_oneof("a", "b"), {"a": 0}) == {"a": 0, "b": None}
    assert passed(made(("a", 1, "int32")), with_oneof("a", "b"), {"a": 5}) == {"a": 5, "b": None}


def test_text_of_proto2_that_is_not_utf8_is_not_read_as_bytes() -> None:
    serde = SchemaRegistry("mock://malformed").protobuf(made(("a", 1, "string"), ("l", 2, "string", 3), syntax="proto2"))
    data = serde.serialize({})
    assert serde.deserialize(data + b"\x0a\x02\xc3\xa9") == {"a": "\u00e9", "l": []}
    for field, number in (("a", b"\x0a"), ("l", b"\x12")):
        with pytest.raises(SerdeError, match=rf"can't read a value: ValueError: the text of p\.M\.{field} is not UTF-8"):
            serde.deserialize(data + number + b"\x02\xc3\x28")


@pytest.mark.parametrize(("name", "why"), [("Tree", "contains itself"), ("Nothing", "no fields")])
def test_a_message_without_a_spark_type_is_refused_when_the_serde_is_made(name: str, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        SchemaRegistry("mock://types").protobuf(message(name))


@pytest.mark.parametrize("name", ["DESCRIPTOR", "HasField", "SerializeToString"])
def test_a_field_that_hides_what_messages_are_read_and_written_with_is_refused_when_the_serde_is_made(name: str) -> None:
    outer = made(("id", 1, "int64"), ("inner", 2, ((name, 1, "string"),)))
    with pytest.raises(TopologyError, match=rf"the field p\.M\.Inner\.{name} hides an attribute of that name"):
        SchemaRegistry("mock://types").protobuf(outer)


def test_what_is_no_message_class_is_refused() -> None:
    with pytest.raises(TopologyError, match="not a generated message class"):
        SchemaRegistry("mock://types").protobuf(dict)


def made(*fields: tuple[Any, ...], name: str = "M", package: str = "p", syntax: str = "proto3") -> Any:
    """A message with these fields: name, number, type and label; a message as type is one with such fields."""
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package=package, syntax=syntax)
    file.enum_type.add(name="E").value.add(name="NONE", number=0)

    def add(message: Any, fields: tuple[tuple[Any, ...], ...]) -> None:
        for field, number, kind, *label in fields:
            added = message.field.add(name=field, number=number, label=label[0] if label else 1)
            if isinstance(kind, tuple):
                add(message.nested_type.add(name="Inner"), kind)
                added.type, added.type_name = _TYPES.TYPE_MESSAGE, "Inner"
            else:
                added.type = _TYPES.Type.Value(f"TYPE_{kind.upper()}")
                if kind == "enum":
                    added.type_name = f".{package}.E"

    add(file.message_type.add(name="First"), (("x", 1, "int32"),))
    add(file.message_type.add(name=name), fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))


def passed(writer: Any, reader: Any, value: Any) -> Any:
    registry = SchemaRegistry(f"mock://{id(writer)}-{id(reader)}")
    return registry.protobuf(reader).deserialize(registry.protobuf(writer).serialize(value))


@pytest.mark.parametrize(("writer", "reader", "message"), [
    (made(("a", 1, "int64")), made(("a", 1, "string")), r"its field p\.M\.a is of type int64, expected string"),
    (made(("a", 1, "string")), made(("a", 1, "int64")), "is of type string, expected int64"),
    (made(("a", 1, "int64")), made(("a", 1, "sint64")), "is of type int64, expected sint64"),
    (made(("a", 1, "double")), made(("a", 1, "float")), "is of type double, expected float"),
    (made(("a", 1, "int32", 3)), made(("a", 1, "int32")), r"its field p\.M\.a is a list, expected one int32"),
    (made(("a", 1, "int32", 3), syntax="proto2"), made(("a", 1, "int32"), syntax="proto2"), "is a list, expected one int32"),
    (made(("a", 1, (("b", 1, "fixed32"),))), made(("a", 1, (("b", 1, "float"),))), r"p\.M\.Inner\.b is of type fixed32"),
    (made(("a", 1, "int64"), name="Payment"), made(("a", 1, "int64")), r"the record is a p\.Payment, expected p\.M"),
])  # fmt: skip
def test_a_record_that_is_no_such_message_is_refused_and_its_fields_are_not_taken_for_others(
    writer: Any, reader: Any, message: str
) -> None:
    with pytest.raises(SerdeError, match=f"protobuf: .*{message}.*; the topic holds other data"):
        passed(writer, reader, {})


@pytest.mark.parametrize(("writer", "reader", "value", "read"), [
    (made(("a", 1, "int32"), package="q"), made(("b", 1, "int64"), ("c", 2, "string")), {"a": 5}, {"b": 5, "c": ""}),
    (made(("a", 1, "string")), made(("a", 1, "bytes")), {"a": "x"}, {"a": b"x"}),
    (made(("a", 1, "int32")), made(("a", 1, "int32", 3)), {"a": 5}, {"a": [5]}),
    (made(("a", 1, "bool")), made(("a", 1, "enum")), {"a": True}, {"a": "1"}),
    (made(("a", 1, (("b", 1, "uint32"),))), made(("a", 1, (("b", 1, "int64"),))), {"a": {"b": 7}}, {"a": {"b": 7}}),
    (made(("gone", 1, "string"), ("a", 2, "int32")), made(("a", 2, "int32")), {"gone": "x", "a": 5}, {"a": 5}),
])  # fmt: skip
def test_a_message_whose_fields_are_written_alike_is_read(writer: Any, reader: Any, value: Any, read: Any) -> None:
    assert passed(writer, reader, value) == read


def test_a_required_field_that_is_not_there_is_not_read_as_null() -> None:
    with pytest.raises(SerdeError, match=r"protobuf: a p\.M lacks the required a"):
        passed(made(("b", 2, "int32"), syntax="proto2"), made(("b", 2, "int32"), ("a", 1, "int32", 2), syntax="proto2"), {"b": 1})


def test_a_field_that_is_not_set_is_the_default_that_its_schema_names() -> None:
    """As in Protobuf itself: only proto2 has them. One of a oneof is not set because another one is."""
    file = descriptor_pb2.FileDescriptorProto(name="defaults.proto", package="p", syntax="proto2")
    for name, number in (("A", 1), ("B", 2)):
        (file.enum_type or [file.enum_type.add(name="E")])[0].value.add(name=name, number=number)
    m = file.message_type.add(name="M")
    m.field.add(name="n", number=1, type=_TYPES.TYPE_INT32, label=1, default_value="5")
    m.field.add(name="text", number=2, type=_TYPES.TYPE_STRING, label=1, default_value="x")
    m.field.add(name="kind", number=3, type=_TYPES.TYPE_ENUM, type_name=".p.E", label=1, default_value="B")
    m.field.add(name="without", number=4, type=_TYPES.TYPE_INT32, label=1)
    m.oneof_decl.add(name="either")
    m.field.add(name="one", number=5, type=_TYPES.TYPE_INT32, label=1, default_value="7", oneof_index=0)
    m.field.add(name="other", number=6, type=_TYPES.TYPE_INT32, label=1, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    serde = SchemaRegistry("mock://defaults").protobuf(message_factory.GetMessageClass(pool.FindMessageTypeByName("p.M")))
    data = serde.serialize({})
    unset = {"n": 5, "text": "x", "kind": "B", "without": None, "one": None, "other": None}
    assert serde.deserialize(data) == unset
    assert serde.deserialize(serde.serialize(unset)) == unset
    assert serde.deserialize(serde.serialize({"n": 0, "kind": "A", "other": 1})) == {**unset, "n": 0, "kind": "A", "other": 1}
    assert serde.deserialize(data + b"\x18\x09") == unset  # an enum's value that it lacks


def test_a_number_that_is_too_large_for_a_float_is_not_made_infinite() -> None:
    message = made(("a", 1, "float"), ("l", 2, "float", 3))
    assert passed(message, message, {"a": float("inf"), "l": [1]}) == {"a": float("inf"), "l": [1.0]}
    for value in ({"a": 1e300}, {"l": [1, 10**40]}):
        with pytest.raises(SerdeError, match=r"p\.M\.[al]: the number is too large for a float"):
            passed(message, message, value)


def test_a_whole_number_is_not_rounded_to_one_that_a_double_or_float_has() -> None:
    message = made(("d", 1, "double"), ("f", 2, "float", 3))
    assert passed(message, message, {"d": 2**60, "f": [2**24]}) == {"d": 2.0**60, "f": [2.0**24]}
    for value, said in (({"d": 2**53 + 1}, "M.d: 9007199254740993"), ({"f": [2**24 + 1]}, "M.f: 16777217")):
        with pytest.raises(SerdeError, match=rf"p\.{said} is beyond the whole numbers that a (double|float) has; write float"):
            passed(message, message, value)


def test_the_pairs_that_pyarrow_makes_of_a_map_are_refused_with_what_to_write() -> None:
    with pytest.raises(SerdeError, match=r"shop\.Order\.stock: the map is of type list, expected a dict; write dict\(value\)"):
        SchemaRegistry("mock://pairs").protobuf(message("Order")).serialize({**VALUE, "stock": [("a", 1)]})

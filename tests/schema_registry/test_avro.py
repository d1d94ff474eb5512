"""Avro through confluent-kafka's registry client and its in-memory registry."""

from __future__ import annotations

import json
import pickle
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.schema_registry import Schema

from tidemill.errors import ConfigError, RetriableError, SerdeError, TopologyError
from tidemill.schema_registry import SchemaRegistry

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "until", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "scores", "type": {"type": "map", "values": "double"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "item", "type": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "bytes"}]}},
        {"name": "other", "type": ["null", "Item"]},
    ],
}  # fmt: skip
VALUE = {
    "id": 1, "who": None, "at": 1_700_000_000_123, "until": 1_700_000_000_123_456, "day": 19_000, "tags": ["a", "b"],
    "scores": {"x": 0.5}, "kind": "B", "item": {"sku": b"\x00"}, "other": {"sku": b"\x01"},
}  # fmt: skip


def avro(schema: Any, name: str = "avro") -> Any:
    return SchemaRegistry(f"mock://{name}").avro(json.dumps(schema))


def test_a_record_comes_back_as_it_was_and_its_logical_times_as_numbers() -> None:
    serde = avro(ORDER)
    data = serde.serialize(VALUE)
    assert data[0] == 0
    assert serde.deserialize(data) == VALUE
    assert serde.sql_type == (
        "struct<`id`:bigint,`who`:string,`at`:bigint,`until`:bigint,`day`:int,`tags`:array<string>,`scores`:map<string,double>,"
        "`kind`:string,`item`:struct<`sku`:binary>,`other`:struct<`sku`:binary>>"
    )


def test_null_stays_null_and_the_serde_travels_to_workers() -> None:
    serde = avro(ORDER)
    assert serde.serialize(None) is None
    assert serde.deserialize(None) is None
    there = pickle.loads(pickle.dumps(serde))
    assert there == serde
    assert there.deserialize(serde.serialize(VALUE)) == VALUE


def test_a_value_written_with_an_older_schema_is_resolved_to_the_readers() -> None:
    older = avro({"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}, "evolving")
    newer = avro(
        {"type": "record", "name": "User", "fields": [
            {"name": "id", "type": "long"}, {"name": "town", "type": "string", "default": "?"},
        ]}, "evolving",
    )  # fmt: skip
    assert newer.deserialize(older.serialize({"id": 7})) == {"id": 7, "town": "?"}


@pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b"plain text", b"\x00\x00\x00\x00\x01", b"\x00\x7f\xff\xff\xff\x00"])
def test_bytes_of_something_else_are_a_serde_error(data: bytes) -> None:
    serde = avro(ORDER)
    serde.serialize(VALUE)
    with pytest.raises(SerdeError, match="avro"):
        serde.deserialize(data)


def written(schema: Any, payload: bytes, name: str) -> bytes:
    """A value whose writer has registered ``schema``."""
    client = SchemaRegistry(f"mock://{name}").client()
    return b"\0" + client.register_schema(name, Schema(json.dumps(schema), "AVRO")).to_bytes(4, "big") + payload


def long(number: int) -> bytes:
    """As Avro writes it."""
    rest, found = number << 1, b""
    while rest > 127:
        found, rest = found + bytes([rest & 127 | 128]), rest >> 7
    return found + bytes([rest])


EMPTY = {"type": "record", "name": "E", "fields": [
    {"name": "n", "type": "null"}, {"name": "x", "type": {"type": "fixed", "name": "F", "size": 0}},
]}  # fmt: skip


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "record", "name": "O", "fields": [{"name": "e", "type": EMPTY}]}])
def test_an_array_whose_items_take_no_bytes_is_not_read_however_many_it_says_it_has(items: Any) -> None:
    writers = {"type": "record", "name": "User", "fields": [
        {"name": "id", "type": "int"}, {"name": "more", "type": {"type": "array", "items": items}},
    ]}  # fmt: skip
    data = written(writers, b"\2" + long(10**9) + b"\0", "endless")
    with pytest.raises(SerdeError, match="nothing bounds how many there are"):
        avro({"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}, "endless").deserialize(data)


@pytest.mark.parametrize("items", ["int", ["null", "int"], {"type": "array", "items": "int"}, {"type": "map", "values": "null"}])
def test_a_count_of_items_that_are_not_there_is_refused_at_the_end_of_the_bytes(items: Any) -> None:
    readers = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
    fields = [*readers["fields"], {"name": "more", "type": {"type": "array", "items": items}}]
    data = written({**readers, "fields": fields}, b"\2" + long(10**9), "counted")
    with pytest.raises(SerdeError, match="can't read a value"):
        avro(readers, "counted").deserialize(data)


def test_a_schema_that_contains_itself_is_read_as_far_as_the_stack_goes_and_no_deeper() -> None:
    fields = [{"name": "id", "type": "int"}]
    readers = {"type": "record", "name": "User", "namespace": "shop", "fields": fields}
    data = written({**readers, "fields": [*fields, {"name": "boss", "type": ["null", "User"]}]}, b"", "nested")
    serde = avro(readers, "nested")
    assert serde.deserialize(data + b"\2\2" * 1_000 + b"\2\0") == {"id": 1}
    with pytest.raises(SerdeError, match="contains itself, of which at most 4000 bytes are read, found 2000007"):
        serde.deserialize(data + b"\2\2" * 1_000_000 + b"\2\0")


def of_two(depth: int, leaf: str) -> Any:
    """A record of two records of two records ..., each of which is written out once."""
    schema: Any = leaf
    for level in range(depth, -1, -1):
        again = leaf if level == depth else f"R{level + 1}"
        schema = {"type": "record", "name": f"R{level}", "fields": [{"name": "a", "type": schema}, {"name": "b", "type": again}]}
    return schema


@pytest.mark.parametrize("where", [lambda inner: inner, lambda inner: ["null", inner], lambda inner: {"type": "array", "items": {
    "type": "record", "name": "Item", "fields": [{"name": "id", "type": "int"}, {"name": "many", "type": inner}]}}])  # fmt: skip
def test_records_of_records_that_take_no_bytes_are_not_read(where: Any) -> None:
    readers = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
    fields = [*readers["fields"], {"name": "more", "type": where(of_two(60, "null"))}]
    data = written({**readers, "fields": fields}, b"\2\2\2\0", "twos")
    with pytest.raises(SerdeError, match="a record of more than 1000 values that take no bytes"):
        avro(readers, "twos").deserialize(data)


def test_records_of_records_that_take_bytes_end_with_them() -> None:
    data = written(of_two(60, "int"), b"\2" * 100, "long")
    with pytest.raises(SerdeError, match="can't read a value"):
        avro({"type": "record", "name": "R0", "fields": [{"name": "c", "type": "int", "default": 1}]}, "long").deserialize(data)


def test_an_array_with_the_name_of_a_record_hides_nothing() -> None:
    """Avro gives names to records, enums and fixed only."""
    readers = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "int"}]}
    hiding = {"type": "array", "name": "Empty", "items": "int"}
    empty = {"type": "record", "name": "Empty", "fields": []}
    parts = [hiding, empty, {"type": "array", "name": "Empty", "items": "Empty"}]
    fields = [*readers["fields"], *({"name": f"f{at}", "type": part} for at, part in enumerate(parts))]
    data = written({**readers, "fields": fields}, b"\2\0" + long(10**9) + b"\0", "hiding")
    with pytest.raises(SerdeError, match="nothing bounds how many there are"):
        avro(readers, "hiding").deserialize(data)


def test_a_value_that_does_not_fit_the_schema_is_refused_with_the_field() -> None:
    with pytest.raises(SerdeError, match="id"):
        avro(ORDER).serialize({**VALUE, "id": "one"})


@pytest.mark.parametrize(("kind", "value"), [
    ("int", 1.5), ("int", 1 << 31), ("long", 1 << 63), ("int", True), (["null", "int"], 2.5),
])  # fmt: skip
def test_a_number_that_is_none_of_its_type_is_refused_and_not_cut(kind: Any, value: Any) -> None:
    with pytest.raises(SerdeError, match=r"avro: can't write a value: ValueError: R\.a is <.*expected"):
        avro(record(("a", kind))).serialize({"a": value})


def test_names_have_the_namespace_that_they_are_in() -> None:
    def record(name: str, *types: Any, **others: str) -> dict[str, Any]:
        fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(types)]
        return {"type": "record", "name": name, **others, "fields": fields}

    inner = record("Item", "long")
    serde = avro(record("Order", inner, "com.shop.Item", ["null", "Item"], namespace="com.shop"))
    assert serde.sql_type == "struct<`f0`:struct<`f0`:bigint>,`f1`:struct<`f0`:bigint>,`f2`:struct<`f0`:bigint>>"
    assert avro(record("a.X", record("b.X", "int"), record("c.X", "string"), "b.X")).sql_type == (
        "struct<`f0`:struct<`f0`:int>,`f1`:struct<`f0`:string>,`f2`:struct<`f0`:int>>"
    )
    value = {"f0": {"f0": 1}, "f1": {"f0": 2}, "f2": None}
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (["int", "string"], "union"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}, r"leave its logicalType out.*10\^-1\)"),
        ({"type": "record", "name": "Tree", "fields": [{"name": "child", "type": ["null", "Tree"]}]}, "contains itself"),
        ({"type": "record", "name": "Nothing", "fields": []}, "no fields"),
        ("strnig", "unknown type"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "at", "type": "com.shop.Place"}]},
            r"unknown type 'com\.shop\.Place'.*write its schema in full .* where it is used first",
        ),
        (
            [{"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "fixed", "name": "F", "size": 4}],
            r"a list of the types E, F, as some \.avsc files are, .*; give the name .*, such as avro\(schema, name='F'\)",
        ),
    ],
)
def test_a_schema_without_a_spark_type_is_refused_when_the_serde_is_made(schema: Any, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        avro(schema)


SEVERAL = json.dumps([
    {"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "by", "type": ["null", "Customer"]},
        {"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
            {"name": "kind", "type": "Kind"}, {"name": "home", "type": "old.Kind"},
        ]}}},
        {"name": "last", "type": "Item"}, {"name": "kinds", "type": {"type": "map", "values": "shop.Kind"}},
    ]},
    {"type": "record", "name": "shop.Customer", "fields": [{"name": "kind", "type": "Kind"}]},
    {"type": "enum", "name": "shop.Kind", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "Kind", "namespace": "old", "size": 2},
    {"type": "record", "name": "Tree", "fields": [{"name": "child", "type": ["null", "Tree"]}]},
])  # fmt: skip


def test_one_of_the_types_of_a_text_is_chosen_by_its_name_with_those_that_it_uses() -> None:
    registry = SchemaRegistry("mock://several")
    item = {"kind": "A", "home": b"xy"}
    for name, value in (
        ("Order", {"by": {"kind": "B"}, "items": [item], "last": item, "kinds": {"k": "B"}}), ("shop.Item", item),
        ("Customer", {"kind": "A"}), ("shop.Kind", "B"), ("old.Kind", b"xy"),
    ):  # fmt: skip
        serde = registry.avro(SEVERAL, name=name)
        data = serde.serialize(value)
        assert data is not None
        assert serde.deserialize(data) == value
        assert registry.client().get_latest_version(name if "." in name else f"shop.{name}").schema_id == data[4]
        schema = registry.client().get_schema(data[4])
        assert schema.schema_str is not None
        assert registry.avro(schema.schema_str).deserialize(data) == value


@pytest.mark.parametrize(("schema", "name", "why"), [
    (SEVERAL, "Kind", r"several types named 'Kind'; give the full name; its types are shop\.Kind, old\.Kind"),
    (SEVERAL, "Orders", r"no type 'Orders'; its types are shop\.Order, shop\.Item, shop\.Customer, shop\.Kind, old\.Kind, Tree"),
    (SEVERAL, "Tree", "Tree contains itself"), ('["null", "int"]', "int", "no type 'int'; its types are without names"),
    ('[{"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}]', "F", "two different types"),
    ("order.avsc", "Order", "not JSON"), ('{"type": "array"}', "Order", "can't be read: KeyError"),
])  # fmt: skip
def test_a_name_that_is_not_that_of_one_type_is_refused_with_those_that_there_are(schema: str, name: str, why: str) -> None:
    with pytest.raises(TopologyError, match=f"^avro: .*{why}"):
        SchemaRegistry("mock://several").avro(schema, name=name)


def test_a_record_of_another_name_is_refused_with_both_names_and_read_under_an_alias() -> None:
    def schema(name: str, **more: Any) -> Any:
        return {"type": "record", "name": name, **more, "fields": [{"name": "id", "type": "int"}]}

    data = avro(schema("com.shop.Order"), "names").serialize({"id": 1})
    said = r'the record is a com\.shop\.Order, expected a Sale; .* the name com.*, or "aliases": \["com\.shop\.Order"\]'
    with pytest.raises(SerdeError, match=rf"can't read a value: ValueError: {said}; its schema's id is 1$"):
        avro(schema("Sale"), "names").deserialize(data)
    assert avro(schema("Sale", aliases=["com.shop.Order"]), "names").deserialize(data) == {"id": 1}
    assert avro(schema("Order"), "names").deserialize(data) == {"id": 1}
    with pytest.raises(SerdeError, match=r"SchemaResolutionError: [Ss]chema mismatch"):
        avro(schema("Sale"), "names").deserialize(written(["null", "long"], b"\2\2", "names"))
    more = {**schema("Order"), "fields": [*schema("Order")["fields"], {"name": "new", "type": "int"}]}
    with pytest.raises(SerdeError, match="No default value for field new in Order"):
        avro(more, "names").deserialize(data)


def test_text_that_is_no_schema_is_refused() -> None:
    with pytest.raises(TopologyError, match=r"not JSON.*of a file give what is in it"):
        SchemaRegistry("mock://x").avro("order.avsc")
    for schema in ({"type": "string"}, Path("order.avsc")):  # as a program without a type checker may
        with pytest.raises(TopologyError, match=r"expected the schema's JSON text, got a \w+; .*json.dumps"):
            SchemaRegistry("mock://x").avro(cast("str", schema))


def test_a_registry_that_does_not_answer_can_be_tried_again_and_is_named() -> None:
    registry = SchemaRegistry("http://127.0.0.1:9", {"max.retries": 0, "timeout": 1})
    with pytest.raises(RetriableError, match=r"127\.0\.0\.1:9"):
        registry.avro('"string"').serialize("x")


def test_an_unknown_setting_is_refused_and_credentials_are_not_shown() -> None:
    registry = SchemaRegistry("http://localhost:1", {"basic.auth.user.info": "me:secret", "no.such.setting": 1})
    assert "secret" not in repr(registry)
    with pytest.raises(ConfigError, match=r"no\.such\.setting") as refused:
        registry.client()
    assert "secret" not in str(refused.value)


def record(*fields: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind, **more} for name, kind, *rest in fields
                                                      for more in (rest or [{}])]}  # fmt: skip


def logical(kind: str, name: str) -> Any:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(("writer", "reader", "stored"), [
    (logical("long", "timestamp-millis"), "long", 5), (logical("int", "date"), "int", 5),
    (logical("int", "time-millis"), "int", 5),
    (logical("long", "timestamp-micros"), ["null", "long"], 5), ("long", logical("long", "timestamp-millis"), 5),
    (logical("long", "timestamp-micros"), logical("long", "timestamp-millis"), 5_000),
    ({**logical("bytes", "decimal"), "precision": 4, "scale": 2}, "bytes", b"\x01"),
    (logical("long", "timestamp-micros"), logical("long", "timestamp-micros"), 1 << 62),
    (logical("int", "date"), logical("int", "date"), 1 << 30), (*[logical("int", "time-millis")] * 2, 86_400_000),
    (logical("string", "uuid"), "string", "12345678-1234-5678-1234-56781234ABCD"), (*[logical("string", "uuid")] * 2, "none"),
])  # fmt: skip
def test_values_are_read_as_they_are_stored_whatever_logical_type_their_writer_or_reader_has(
    writer: Any, reader: Any, stored: Any
) -> None:
    text = stored.encode() if isinstance(stored, str) else stored
    payload = long(stored) if isinstance(stored, int) else long(len(text)) + text
    data = written(record(("a", writer)), payload, "stored")
    assert avro(record(("a", reader)), "stored").deserialize(data) == {"a": stored}


def test_defaults_are_values_of_their_types_at_every_depth() -> None:
    inner = {"type": "record", "name": "S", "fields": [
        {"name": "x", "type": "int", "default": 7}, {"name": "y", "type": "bytes", "default": "\u00ff"},
    ]}  # fmt: skip
    reader = record(
        ("b", "bytes", {"default": "\u00ff\u0001"}), ("f", {"type": "fixed", "name": "F", "size": 1}, {"default": "\u00fe"}),
        ("u", ["bytes", "null"], {"default": "a"}), ("s", inner, {"default": {"y": "\u00fd"}}),
        ("l", {"type": "array", "items": "S"}, {"default": [{}]}), ("n", ["null", "S"], {"default": None}),
    )  # fmt: skip
    data = written(record(("gone", "int")), long(1), "defaults")
    assert avro(reader, "defaults").deserialize(data) == {
        "b": b"\xff\x01", "f": b"\xfe", "u": b"a", "s": {"x": 7, "y": b"\xfd"}, "l": [{"x": 7, "y": b"\xff"}], "n": None,
    }  # fmt: skip


NESTED = record(("items", {"type": "array", "items": {"type": "record", "name": "Item", "fields": [
    {"name": "size", "type": "float"}, {"name": "tags", "type": {"type": "map", "values": ["null", "float"]}},
]}}), ("last", ["null", "Item"]))  # fmt: skip
ITEM = {"size": 1.5, "tags": {"a": None}}


@pytest.mark.parametrize(("value", "message"), [
    ({"items": [], "last": None, "note": "lost"}, r"the value has the field 'note', which its schema R lacks; leave it out"),
    ({"items": [ITEM, {**ITEM, "Size": 1}], "last": None}, r"the value\.items\[\] has the field 'Size', which its schema Item"),
    ({"items": [], "last": {**ITEM, "-type": "Item"}}, r"the value\.last has the field '-type'"),
    ({"items": [{**ITEM, "size": 1e300}], "last": None}, r"the value\.items\[\]\.size is too large for its type float"),
    ({"items": [], "last": {**ITEM, "tags": {"a": 10**40}}}, r"the value\.last\.tags\['a'\] is too large for its type float"),
    ({"items": [{**ITEM, "size": 2**24 + 1}], "last": None}, r"the value\.items\[\]\.size is 16777217, which is beyond"),
])  # fmt: skip
def test_no_part_of_a_value_is_left_out_or_made_infinite(value: Any, message: str) -> None:
    with pytest.raises(SerdeError, match=f"avro: can't write a value: ValueError: {message}"):
        avro(NESTED).serialize(value)


def test_a_time_is_written_from_one_with_a_time_zone_only_and_a_double_has_a_limit() -> None:
    at = logical("long", "timestamp-millis")
    local = logical("long", "local-timestamp-millis")
    serde = avro(record(("at", at), ("until", ["null", at]), ("local", local), ("d", "double")))
    second, value = datetime(1970, 1, 1, 0, 0, 1), {"until": None, "local": datetime(1970, 1, 1, 0, 0, 1), "d": 1}
    east = timezone(timedelta(hours=1))
    assert serde.deserialize(serde.serialize({**value, "at": second.replace(hour=1, tzinfo=east)})) == {
        "at": 1000, "until": None, "local": 1000, "d": 1.0,
    }  # fmt: skip
    for place, other in (("at", {"at": second}), ("until", {"at": 5, "until": second})):
        with pytest.raises(SerdeError, match=rf"ValueError: the value\.{place} is a time without a time zone"):
            serde.serialize({**value, **other})
    with pytest.raises(SerdeError, match=r"ValueError: the value\.d is too large for its type double"):
        serde.serialize({**value, "at": 5, "d": 10**400})


@pytest.mark.parametrize(("kind", "wider", "small", "large"), [
    ("int", "long", 0, 2**31),
    (["null", "int"], ["null", "long"], None, -(2**31) - 1),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [], [1, 2**63 - 1]),
    ({"type": "int", "logicalType": "date"}, "long", 0, 2**31),
])  # fmt: skip
def test_an_int_of_more_than_32_bits_is_refused_as_it_is_in_columns(kind: Any, wider: Any, small: Any, large: Any) -> None:
    serde = avro(record(("a", kind)))
    data = serde.serialize({"a": small})[:5] + avro(record(("a", wider)), "other").serialize({"a": large})[5:]
    with pytest.raises(SerdeError, match=r"can't read a value: ValueError: an int is -?\d+, which does not fit in 32 bits"):
        serde.deserialize(data)


def test_what_is_infinite_a_pair_or_has_a_default_is_written_as_it_is() -> None:
    serde = avro(record(("a", "float"), ("pair", ["null", {"type": "array", "items": "string"}]), ("d", "int", {"default": 5})))
    data = serde.serialize({"a": float("inf"), "pair": ("null", "string")})
    assert serde.deserialize(data) == {"a": float("inf"), "pair": ["null", "string"], "d": 5}


@pytest.mark.parametrize(("schema", "value"), [
    (["null", record(("a", "int"))], {"a": 1}), ({**record(("a", "int")), "type": "error"}, {"a": 1}), ("bytes", b""),
    ("string", ""),
])  # fmt: skip
def test_unusual_schemas_and_values_of_no_bytes_come_back(schema: Any, value: Any) -> None:
    serde = avro(schema, "unusual")
    assert serde.deserialize(serde.serialize(value)) == value
    assert serde.serialize(None) is None


def test_a_writer_whose_records_take_no_bytes_is_read_with_the_readers_defaults() -> None:
    serde = avro(record(("a", "int", {"default": 5})), "empty")
    assert serde.deserialize(written({"type": "record", "name": "R", "fields": []}, b"", "empty")) == {"a": 5}
    with pytest.raises(SerdeError, match="can't read a value"):
        serde.deserialize(written(record(("a", "int")), b"", "empty"))


def test_bytes_by_themselves_are_read_as_bytes_or_text_and_nothing_else() -> None:
    data = written("bytes", "\u00e9".encode(), "raw")
    assert (avro("bytes", "raw").deserialize(data), avro("string", "raw").deserialize(data)) == (b"\xc3\xa9", "\u00e9")
    for schema, payload in (("string", b"\xff"), ("int", b"x"), (record(("a", "int", {"default": 5})), b"x")):
        with pytest.raises(SerdeError, match="can't read a value"):
            avro(schema, "raw").deserialize(written("bytes", payload, "raw"))


def test_defaults_of_numbers_with_a_point_are_such_numbers() -> None:
    inner = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "float", "default": 0.1}]}
    reader = record(
        ("d", "double", {"default": 3}), ("n", "double", {"default": "NaN"}), ("none", ["null", inner], {"default": None}),
        ("s", "S", {"default": {}}),
    )  # fmt: skip
    value = avro(reader, "numbers").deserialize(written(record(("gone", "int")), long(1), "numbers"))
    assert repr(value) == "{'d': 3.0, 'n': nan, 'none': None, 's': {'x': 0.10000000149011612}}"


@pytest.mark.parametrize("schema", [
    record(("a", "int", {"default": "x"})), record(("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})),
    record(("a", {"type": {"type": "int"}})), record(("a", "int"), ("a", "int")), {"type": "array"}, {"name": "x"},
    {"type": "record", "name": "R", "fields": 5}, {"type": "record", "fields": [{"name": "a", "type": "int"}]},
    record(("a", {"type": "fixed", "name": "F", "size": 1}), ("b", {"type": "fixed", "name": "F", "size": 2})),
])  # fmt: skip
def test_a_schema_that_no_record_can_be_read_with_is_refused_when_the_serde_is_made(schema: Any) -> None:
    with pytest.raises(TopologyError, match=r"^avro: "):
        avro(schema)

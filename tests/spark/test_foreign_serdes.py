"""Serdes that the JVM does not know, on the real plan: what Python reads is what PySpark's functions see, and back."""

from __future__ import annotations

import json
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import (
    KStream,
    Materialized,
    Processor,
    ProcessorContext,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    of_columns,
    per_record,
)
from tidemill import Record as TidemillRecord
from tidemill.dsl.serdes import StringSerde, WholeNumberSerde
from tidemill.dsl.serdes_json import JsonSerde
from tidemill.errors import SerdeError, TopologyError
from tidemill.schema_registry import SchemaRegistry
from tidemill.testing import TopologyTestDriver
from tidemill.topology.values import Serde

pytestmark = pytest.mark.spark

ORDER = json.dumps(
    {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "pieces", "type": "int"}]}
)


@dataclass(frozen=True)
class Fahrenheit:
    """A serde of a user's own: degrees Celsius in Python and Spark, Fahrenheit as text on the wire."""

    name: ClassVar[str] = "fahrenheit"
    sql_type: ClassVar[str] = "double"

    def serialize(self, value: float | None) -> bytes | None:
        return None if value is None else f"{value * 9 / 5 + 32:.1f}F".encode()

    def deserialize(self, data: bytes | None) -> float | None:
        if data is None:
            return None
        if not data.endswith(b"F"):
            raise SerdeError("fahrenheit: no F")
        return (float(data[:-1]) - 32) * 5 / 9


class Lower(StringSerde):
    """Derived from a serde of the library: text is small in Python and Spark and large on the wire."""

    def serialize(self, value: object) -> bytes | None:
        written = super().serialize(value)
        return None if written is None else written.upper()

    def deserialize(self, data: bytes | None) -> str | None:
        return None if data is None else data.decode().lower()


class LittleEndian(WholeNumberSerde):
    def __init__(self) -> None:
        super().__init__("little", "bigint", 8)

    def serialize(self, value: object) -> bytes | None:
        written = super().serialize(value)
        return None if written is None else written[::-1]

    def deserialize(self, data: bytes | None) -> int | None:
        return super().deserialize(None if data is None else data[::-1])


class Marked(JsonSerde):
    """Has state that is no field."""

    mark: bytes

    def __init__(self, mark: bytes) -> None:
        super().__init__("item string")
        object.__setattr__(self, "mark", mark)  # it is frozen, as all serdes are

    def serialize(self, value: object) -> bytes | None:
        written = super().serialize(value)
        return None if written is None else self.mark + written

    def deserialize(self, data: bytes | None) -> dict[str, Any] | None:
        return super().deserialize(None if data is None else data.removeprefix(self.mark))


class _Registry(BaseHTTPRequestHandler):
    """The two calls of a schema registry that serdes make, answered by the client library's in-memory one."""

    held = SchemaRegistryClient.new_client({"url": "mock://behind-http"})

    def do_GET(self) -> None:
        if not self.path.startswith("/schemas/ids/"):
            self.send_error(404)
            return
        self._answer({"schema": self.held.get_schema(int(self.path.split("/")[3].split("?")[0])).schema_str})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        schema = Schema(body["schema"], body.get("schemaType", "AVRO"))
        self._answer({"id": self.held.register_schema(self.path.split("/")[2], schema)})

    def _answer(self, found: dict[str, Any]) -> None:
        data = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SchemaRegistry(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def run(spark: SparkSession, tmp_path: Path, builder: StreamsBuilder, *records: Record, handler: str = "fail") -> list[Record]:
    program = Program(spark, builder.build(), tmp_path, handler=handler)
    program.pipe([("in", record) for record in records])
    return program.outputs.get("out", [])


def test_avro_is_a_struct_in_the_jvm_and_avro_again_in_stores_and_sinks(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistry
) -> None:
    orders, builder = registry.avro(ORDER), StreamsBuilder()
    stream = builder.stream("in", key=Serdes.string(), value=orders)
    doubled = stream.map_values(lambda v: F.struct(F.upper(v["item"]).alias("item"), (v["pieces"] * 2).alias("pieces")))
    grouped = doubled.group_by_key(key=Serdes.string(), value=orders)
    total = grouped.reduce(lambda a, v: {"item": v["item"], "pieces": a["pieces"] + v["pieces"]}, store="total")
    total.to_stream().to("out", value=orders)
    sent = [Record(b"k", orders.serialize({"item": "tea", "pieces": n})) for n in (1, 2)]
    found = run(spark, tmp_path, builder, *sent)
    assert [orders.deserialize(record.value) for record in found] == [{"item": "TEA", "pieces": 6}]


def test_numbers_without_a_form_in_json_reach_python_functions_behind_those_of_columns(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistry
) -> None:
    number = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "double"}]}
    numbers, builder, text = registry.avro(json.dumps(number)), StreamsBuilder(), Serdes.string()
    halves = builder.stream("in", key=text, value=numbers).map_values(lambda v: F.struct((v["n"] / 2).alias("n")))
    seen = halves.map_values(per_record(lambda v: {"n": v["n"] * 2}))
    seen.to("out", value=numbers)
    seen.filter(per_record(lambda key, _: key == "json")).to("as-json", value=Serdes.json("n double"))
    _reduced(halves, Materialized(name="last", key=text, value=numbers)).to_stream().to("last", value=numbers)
    program = Program(spark, builder.build(), tmp_path)
    written = [numbers.serialize({"n": n}) for n in (float("nan"), float("-inf"), 0.5)]
    program.pipe([("in", Record(b"k%d" % at, value)) for at, value in enumerate(written)])
    assert [record.value for record in program.outputs["out"]] == written
    assert [repr(numbers.deserialize(record.value)["n"]) for record in program.outputs["last"]] == ["nan", "-inf", "0.25"]
    with pytest.raises(Exception, match="NaN and infinite numbers have no form in JSON"):
        program.pipe([("in", Record(b"json", written[0]))])


_PASSED_ON: dict[str, Callable[[KStream], KStream]] = {
    "peek at what was read": lambda s: s.peek(lambda key, value: None),
    "peek behind columns": lambda s: s.filter(lambda key, value: value.isNotNull()).peek(lambda key, value: None),
    "peek twice": lambda s: s.filter(lambda key, value: value.isNotNull()).peek(lambda *_: None).peek(lambda *_: None),
    "a processor behind columns": lambda s: s.filter(lambda key, value: value.isNotNull()).process(_Forwards),
    "an aggregate": lambda s: (
        s.filter(lambda key, value: value.isNotNull())
        .group_by_key()
        .aggregate(lambda: {"n": 0.0}, lambda key, value, _: value, store=Materialized(key=s.key_serde, value=s.value_serde))
        .to_stream()
    ),
    "a window": lambda s: (
        s.filter(lambda key, value: value.isNotNull())
        .group_by_key()
        .windowed_by(TimeWindows.of_size(10))
        .reduce(lambda _, value: value)
        .to_stream()
        .select_key(per_record(lambda key, _: key.key, s.key_serde))
    ),
}


class _Forwards(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: TidemillRecord) -> None:
        self.context.forward(record)


@pytest.mark.parametrize("what", _PASSED_ON)
def test_avro_with_numbers_without_a_form_in_json_passes_python_functions_as_it_is(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistry, what: str
) -> None:
    number = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "double"}]}
    numbers, builder = registry.avro(json.dumps(number)), StreamsBuilder()
    _PASSED_ON[what](builder.stream("in", key=numbers, value=numbers)).to("out", key=numbers, value=numbers)
    written = [numbers.serialize({"n": n}) for n in (float("nan"), float("-inf"), 0.5)]
    found = run(spark, tmp_path, builder, *(Record(value, value) for value in written))
    assert [(record.key, record.value) for record in found] == [(value, value) for value in written]


@pytest.mark.parametrize("value", [Serdes.json("n double"), None], ids=["a serde", "by its type"])
def test_a_topic_of_json_gets_no_such_number_behind_peek(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistry, value: Serde | None
) -> None:
    number = {"type": "record", "name": "Number", "fields": [{"name": "n", "type": "double"}]}
    numbers, builder, text = registry.avro(json.dumps(number)), StreamsBuilder(), Serdes.string()
    same = builder.stream("in", key=text, value=numbers).map_values(lambda v: F.struct(v["n"].alias("n")))
    same.peek(lambda key, value: None).to("out", key=text, value=value)
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("in", Record(b"k", numbers.serialize({"n": 0.5})))])
    assert [record.value for record in program.outputs["out"]] == [b'{"n":0.5}']
    with pytest.raises(Exception, match="NaN and infinite numbers have no form in JSON"):
        program.pipe([("in", Record(b"k", numbers.serialize({"n": float("nan")})))])


@dataclass(frozen=True)
class Hexadecimal:
    """A serde of a user's own whose values are bytes, but not those on the wire."""

    name: ClassVar[str] = "hexadecimal"
    sql_type: ClassVar[str] = "binary"

    def serialize(self, value: bytes | None) -> bytes | None:
        return None if value is None else value.hex().encode()

    def deserialize(self, data: bytes | None) -> bytes | None:
        return None if data is None else bytes.fromhex(data.decode())


def _has_value(key: Any, value: Any) -> Any:
    return value.isNotNull()


_BYTES_PASSED_ON: dict[str, Callable[[KStream, Serde], KStream]] = {
    "peek": lambda s, _: s.peek(lambda key, value: None),
    "columns and peek": lambda s, _: s.map_values(lambda value: F.concat(value, F.lit(b""))).peek(lambda key, value: None),
    "a table behind peek": lambda s, serde: (
        s.peek(lambda key, value: None).to_table(store="t", key=serde, value=serde).to_stream()
    ),
    "an aggregate behind peek": lambda s, serde: (
        _reduced(s.filter(_has_value).peek(lambda key, value: None), Materialized(name="t", key=serde, value=serde)).to_stream()
    ),
}


@pytest.mark.parametrize("what", _BYTES_PASSED_ON)
@pytest.mark.parametrize("kind", ["avro", "own"])
def test_a_serde_whose_values_are_bytes_writes_its_own_behind_functions_in_batches(
    tidemill_session: SparkSession, registry: SchemaRegistry, what: str, kind: str
) -> None:
    serde, builder = registry.avro('"bytes"') if kind == "avro" else Hexadecimal(), StreamsBuilder()
    passed = _BYTES_PASSED_ON[what](builder.stream("in", key=serde, value=serde), serde)
    passed.to("out", key=serde, value=serde)
    passed.to("raw", key=Serdes.bytes(), value=Serdes.bytes())
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        driver.create_input_topic("in", serde, serde).pipe_input(b"k", b"\xff")
        assert driver.create_output_topic("out", serde, serde).read_key_values() == [(b"k", b"\xff")]
        assert driver.create_output_topic("raw", Serdes.bytes(), Serdes.bytes()).read_key_values() == [(b"k", b"\xff")]
        if "behind" in what:
            assert driver.store("t").get(b"k") == (b"\xff", 0)


_REFUSED: dict[str, tuple[Serde, Callable[[Any], Any], str]] = {
    "a uuid": (Serdes.uuid(), lambda v: F.concat(v, F.lit("")), "is not the text of a UUID"),
    "a required field": (Serdes.json("n int NOT NULL"), lambda v: F.struct(v.try_cast("int").alias("n")), "missing or null"),
}


@pytest.mark.parametrize("what", _REFUSED)
@pytest.mark.parametrize("into", ["a topic", "a table"])
def test_what_a_serde_refuses_is_not_written_behind_functions_in_batches_either(
    tidemill_session: SparkSession, what: str, into: str
) -> None:
    (serde, function, why), builder, text = _REFUSED[what], StreamsBuilder(), Serdes.string()
    seen = builder.stream("in", key=text, value=text).map_values(function).peek(lambda key, value: None)
    if into == "a topic":
        seen.to("out", key=text, value=serde)
    else:
        seen.to_table(store="t", key=text, value=serde)
    with TopologyTestDriver(builder, session=tidemill_session) as driver, pytest.raises(Exception, match=why):
        driver.create_input_topic("in", text, text).pipe_input("k", "none")


def test_a_uuid_behind_functions_in_batches_is_written_in_its_own_form(tidemill_session: SparkSession) -> None:
    builder, text = StreamsBuilder(), Serdes.string()
    upper = builder.stream("in", key=text, value=text).map_values(F.upper)
    upper.peek(lambda key, value: None).to("out", key=text, value=Serdes.uuid())
    one = uuid.UUID(int=0xABC)
    with TopologyTestDriver(builder, session=tidemill_session) as driver:
        driver.create_input_topic("in", text, text).pipe_input("k", str(one))
        assert driver.create_output_topic("out", text, text).read_value() == str(one)


def _fails(*_: object) -> Any:
    raise ValueError


class _FailingProcessor(Processor):
    def process(self, record: TidemillRecord) -> None:
        raise ValueError


_FAILING: dict[str, Callable[[KStream], object]] = {
    "peek": lambda s: s.peek(_fails),
    "peek behind columns": lambda s: s.filter(_has_value).peek(_fails),
    "peek behind peek and columns": lambda s: s.filter(_has_value).peek(print).peek(print).filter(_has_value).peek(_fails),
    "a processor behind columns": lambda s: s.filter(_has_value).process(_FailingProcessor),
    "an aggregate behind columns": lambda s: (
        s.filter(_has_value).group_by_key().aggregate(lambda: 0, _fails, value=Serdes.long(), store="a")
    ),
    "a window behind columns": lambda s: (
        s.filter(_has_value)
        .group_by_key()
        .windowed_by(TimeWindows.of_size(10))
        .aggregate(lambda: 0, _fails, value=Serdes.long(), store="a")
    ),
}


@pytest.mark.parametrize("what", _FAILING)
def test_a_dead_letter_has_the_bytes_of_the_sources_serde_where_columns_pass_the_record_on(
    tidemill_session: SparkSession, registry: SchemaRegistry, what: str
) -> None:
    orders, builder, settings = registry.avro(ORDER), StreamsBuilder(), {"errors.dead.letter.queue.topic.name": "letters"}
    _FAILING[what](builder.stream("in", key=orders, value=Fahrenheit()))
    settings["processing.exception.handler"] = "dead-letter"
    with TopologyTestDriver(builder, settings, session=tidemill_session) as driver:
        driver.create_input_topic("in", orders, Fahrenheit()).pipe_input({"item": "tea", "pieces": 2}, 20.0)
        (letter,) = driver.create_output_topic("letters", Serdes.bytes(), Serdes.bytes()).read_records()
    assert (letter.key, letter.value) == (orders.serialize({"item": "tea", "pieces": 2}), b"68.0F")


def test_what_avro_can_not_read_is_set_aside_and_the_rest_goes_on(
    spark: SparkSession, tmp_path: Path, registry: SchemaRegistry
) -> None:
    orders, builder = registry.avro(ORDER), StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=orders).map_values(lambda v: v["item"]).to("out", value=Serdes.string())
    good = Record(b"k", orders.serialize({"item": "tea", "pieces": 1}))
    found = run(spark, tmp_path, builder, Record(b"k", b"no avro"), good, handler="continue")
    assert [record.value for record in found] == [b"tea"]


def test_a_serde_of_the_users_own_is_what_its_spark_type_says(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=Serdes.uuid(), value=Fahrenheit())
    stream.map(lambda k, v: (F.upper(k), v + 10.0)).to("out", key=Serdes.uuid(), value=Fahrenheit())
    key = uuid.UUID(int=0xABCDEF)
    found = run(spark, tmp_path, builder, Record(str(key).encode(), b"50.0F"), Record(str(key).encode(), None))
    assert [(record.key, record.value) for record in found] == [(str(key).encode(), b"68.0F"), (str(key).encode(), None)]


def _price(document: dict[str, Any]) -> float:
    assert isinstance(document, dict)  # a text would have no price, and no error
    return float(document["price"])


def test_documents_without_a_schema_are_text_in_columns_and_dicts_in_python(spark: SparkSession, tmp_path: Path) -> None:
    text, document, builder = Serdes.string(), Serdes.json(), StreamsBuilder()
    dear = builder.stream("in", key=document, value=document).filter(
        lambda _key, value: F.get_json_object(value, "$.price").cast("double") > 1
    )
    dear.map_values(lambda value: F.from_json(value, "item string")["item"]).to("items", value=text)
    dear.map_values(per_record(_price, Serdes.double())).to("prices", value=Serdes.double())
    dear.map_values(lambda value: F.to_json(F.struct(value.alias("was")))).to("columns", value=document)
    kept = Materialized(name="totals", value=document)
    totals = dear.group_by_key().aggregate(
        dict, lambda _key, value, total: {**total, value["item"]: _price(value)}, store=kept
    )
    totals.to_stream().to("totals")
    program = Program(spark, builder.build(), tmp_path)
    for value in (b'{"item":"gum","price":0.5}', b'{ "price" : 2, "item":"tea", "tags":[null] }', b'{"item":"oil","price":1e1}'):
        program.pipe([("in", Record(b'{"shop" :1}', value))])
    tea, oil = '{"price":2,"item":"tea","tags":[null]}', '{"item":"oil","price":10.0}'
    assert {name: [r.value for r in program.outputs[name]] for name in ("items", "prices", "columns", "totals")} == {
        "items": [b"tea", b"oil"],
        "prices": [struct.pack(">d", 2), struct.pack(">d", 10)],
        "columns": [json.dumps({"was": one}, separators=(",", ":")).encode() for one in (tea, oil)],
        "totals": [b'{"tea":2.0}', b'{"tea":2.0,"oil":10.0}'],
    }
    assert {r.key for r in program.outputs["totals"]} == {b'{"shop":1}'}


def test_behind_functions_of_columns_that_pass_it_on_a_uuid_is_none_of_text(spark: SparkSession, tmp_path: Path) -> None:
    builder, ids, kept = StreamsBuilder(), Serdes.uuid(), Serdes.integer()
    stream = builder.stream("in", key=ids, value=ids).filter(lambda key, value: F.length(value) > F.length(F.lit("")))
    stream.map(per_record(lambda key, value: (key.version, value.version), (kept, kept))).to("out", key=kept, value=kept)
    data = b"123e4567-e89b-42d3-a456-426614174000"
    assert [(r.key, r.value) for r in run(spark, tmp_path, builder, Record(data, data))] == [(struct.pack(">i", 4),) * 2]


def test_a_column_whose_text_is_no_document_is_not_written_as_one(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.json()).map_values(lambda value: F.substring(value, 1, 3)).to(
        "out", value=Serdes.json()
    )
    with pytest.raises(Exception, match="not JSON text in UTF-8"):
        run(spark, tmp_path, builder, Record(b"k", b'{"a":1}'))


def test_small_numbers_and_truth_values_are_columns_of_their_type(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=Serdes.short(), value=Serdes.float())
    stream.map(lambda k, v: (k > 1, (v * 2).cast("float"))).to("out", key=Serdes.boolean(), value=Serdes.float())
    records = [Record(struct.pack(">h", n), struct.pack(">f", n + 0.5)) for n in (1, 2)]
    found = run(spark, tmp_path, builder, *records)
    assert [(r.key, r.value) for r in found] == [(b"\0", struct.pack(">f", 3.0)), (b"\1", struct.pack(">f", 5.0))]


def test_a_boolean_of_another_byte_is_unreadable(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.boolean()).filter(lambda k, v: v).to("out")
    records = [Record(b"k", b"\2"), Record(b"k", b"\1"), Record(b"k", b"\0")]
    assert [r.value for r in run(spark, tmp_path, builder, *records, handler="continue")] == [b"\1"]


def test_a_serde_whose_spark_type_nothing_stands_for_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    class Maps(Fahrenheit):
        sql_type: ClassVar[str] = "map<string,string>"

    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Maps()).to("out")
    with pytest.raises(TopologyError, match=r"expected a struct, as in 'struct<ids: array<bigint>>', or one of string"):
        run(spark, tmp_path, builder)


DERIVED: list[tuple[Serde, Serde, bytes, bytes, Callable[[Any], Any], bytes]] = [
    (Lower(), Serdes.string(), b"TEA", b"tea", lambda v: F.concat(v, F.lit("pot")), b"TEAPOT"),
    (LittleEndian(), Serdes.long(), b"\2" + bytes(7), bytes(7) + b"\2", lambda v: v + 1, b"\3" + bytes(7)),
    (
        Marked(b"A"), Marked(b"B"), b'A{"item":"tea"}', b'B{"item":"tea"}',
        lambda v: F.struct(F.upper(v["item"]).alias("item")), b'A{"item":"TEA"}',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("derived", "own", "written", "as_own", "function", "changed"), DERIVED, ids=["text", "number", "JSON"])
def test_what_a_derived_serde_does_in_another_way_is_done(
    spark: SparkSession, tmp_path: Path, derived: Serde, own: Serde, written: bytes, as_own: bytes, function: Any, changed: bytes
) -> None:
    """It has the Spark type of the serde that it is derived from, and other bytes."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=derived, value=derived)
    stream.map_values(function).to("changed", value=derived)
    stream.to("as-own", key=own, value=own)
    stream.group_by_key().reduce(lambda _before, value: value, store="kept").to_stream().to("reduced")
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("in", Record(written, written))])
    assert {topic: [(r.key, r.value) for r in records] for topic, records in program.outputs.items()} == {
        "changed": [(written, changed)],
        "as-own": [(as_own, as_own)],
        "app-kept-changelog": [(written, written)],
        "reduced": [(written, written)],
    }


@pytest.mark.parametrize("is_behind_python", [False, True])
@pytest.mark.parametrize("joiner", [of_columns(F.concat), lambda mine, row: mine + row])
def test_a_table_is_looked_up_by_the_bytes_of_its_own_keys(
    spark: SparkSession, tmp_path: Path, joiner: Any, *, is_behind_python: bool
) -> None:
    """What the JVM has in place of a key is other bytes than the key in the table's store."""
    builder, degrees, text = StreamsBuilder(), Fahrenheit(), Serdes.string()
    table = builder.table("table-in", key=degrees, value=text)
    stream = builder.stream("in", key=degrees, value=text)
    if is_behind_python:
        stream = stream.peek(lambda _key, _value: None)
    stream.join(table, joiner).to("out", key=degrees, value=text)
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("table-in", Record(b"50.0F", b"stored")), ("table-in", Record(b"68.0F", b"first"))])
    program.pipe([("in", Record(b"50.0F", b"a ")), ("table-in", Record(b"68.0F", b"now")), ("in", Record(b"68.0F", b"b "))])
    assert [(r.key, r.value) for r in program.outputs["out"]] == [(b"50.0F", b"a stored"), (b"68.0F", b"b now")]


def test_rows_of_avro_keys_are_found(spark: SparkSession, tmp_path: Path, registry: SchemaRegistry) -> None:
    orders, builder, text = registry.avro(ORDER), StreamsBuilder(), Serdes.string()
    table = builder.table("table-in", key=orders, value=text)
    builder.stream("in", key=orders, value=text).join(table, lambda mine, row: mine + row).to("out", key=orders, value=text)
    program, key = Program(spark, builder.build(), tmp_path), orders.serialize({"item": "tea", "pieces": 1})
    program.pipe([("table-in", Record(key, b"row"))])
    program.pipe([("in", Record(key, b"mine+"))])
    assert [(r.key, r.value) for r in program.outputs["out"]] == [(key, b"mine+row")]


def _reduced(stream: Any, kept: Materialized) -> Any:
    return stream.group_by_key(key=kept.key, value=kept.value).reduce(lambda _before, value: value, store=kept)


KEPT: dict[str, tuple[Callable[[Any, Materialized], Any], bytes]] = {
    "count": (lambda s, kept: s.group_by_key(key=kept.key).count(store=replace(kept, value=None)), b""),
    "reduce": (_reduced, b""),
    "to_table": (lambda s, kept: s.to_table(store=kept), b""),
    "windowed count": (
        lambda s, kept: s.group_by_key(key=kept.key).windowed_by(TimeWindows.of_size(9)).count(store=replace(kept, value=None)),
        bytes(8),
    ),
}


@pytest.mark.parametrize("what", KEPT)
def test_a_store_behind_a_python_function_has_its_serdes_bytes(spark: SparkSession, tmp_path: Path, what: str) -> None:
    builder, degrees, text = StreamsBuilder(), Fahrenheit(), Serdes.string()
    make, window = KEPT[what]
    stream = builder.stream("in", key=degrees, value=text).peek(lambda _key, _value: None)
    make(stream, Materialized(name="kept", key=degrees, value=text)).to_stream().to("out")
    program = Program(spark, builder.build(), tmp_path)
    program.pipe([("in", Record(b"50.0F", b"a", timestamp=0))])
    logged, out = (program.outputs[topic] for topic in ("app-kept-changelog", "out"))
    assert ([r.key for r in out], [r.key[: len(b"50.0F" + window)] for r in logged]) == ([b"50.0F" + window], [b"50.0F" + window])

"""The serdes of JSON: of a schema's dicts, of a class's instances, and of documents without a schema.

Decides which of the readers and writers of ``json_reading`` and ``json_writing`` make up each serde.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from tidemill.dsl.json_classes import Shape, with_shape
from tidemill.dsl.json_reading import MAX_BYTES, TextReader, read_document, text_reader
from tidemill.dsl.json_schema import StructType, parse_schema
from tidemill.dsl.json_writing import Writer, write_document, write_json, writer_of
from tidemill.dsl.stateful_serde import StatefulSerde
from tidemill.errors import TopologyError
from tidemill.topology.values import Value


@dataclass(frozen=True, slots=True, eq=False)
class JsonSerde(StatefulSerde):
    """UTF-8 JSON text of one object, with the fields of a schema; values are dicts.

    Missing fields are read as None and None is not written; members outside the schema are ignored when read. All else that is
    not as the schema says is refused (``json_reading``). ``max_bytes``: of one text.
    """

    schema: str
    max_bytes: int = MAX_BYTES
    name: ClassVar[str] = "json"
    _type: StructType = field(init=False, repr=False, compare=False)
    _read: TextReader = field(init=False, repr=False, compare=False)
    _writer: Writer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_max_bytes(self.max_bytes)
        parsed = parse_schema(self.schema)
        object.__setattr__(self, "_type", parsed)
        object.__setattr__(self, "_read", text_reader(parsed, self.max_bytes))
        object.__setattr__(self, "_writer", writer_of(parsed))

    @property
    def sql_type(self) -> str:
        return self._type.ddl

    @property
    def type(self) -> StructType:
        """The schema, parsed."""
        return self._type

    def serialize(self, value: object) -> bytes | None:
        return None if value is None else write_json(value, self._writer)

    def deserialize(self, data: bytes | None) -> dict[str, Value] | None:
        return None if data is None else self._read(bytes(data))


@dataclass(frozen=True, slots=True, eq=False)
class JsonClassSerde(StatefulSerde):
    """UTF-8 JSON text of one object; values are instances of a dataclass or of a Pydantic model.

    Read and refused as by ``JsonSerde`` with the class's fields; what the class itself raises is a refusal, too. Functions of
    Columns see the fields of the instance, defaults included.
    """

    type: StructType
    shape: Shape
    max_bytes: int = MAX_BYTES
    name: ClassVar[str] = "json"
    _read: TextReader = field(init=False, repr=False, compare=False)
    _writer: Writer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_max_bytes(self.max_bytes)
        object.__setattr__(self, "_read", text_reader(self.type, self.max_bytes, maker=with_shape(self.shape)))
        object.__setattr__(self, "_writer", writer_of(self.type))

    @property
    def sql_type(self) -> str:
        return self.type.ddl

    def serialize(self, value: object) -> bytes | None:
        return None if value is None else write_json(value, self._writer)

    def deserialize(self, data: bytes | None) -> Value:
        return None if data is None else self._read(bytes(data))


@dataclass(frozen=True, slots=True, eq=False)
class JsonDocumentSerde(StatefulSerde):
    """UTF-8 JSON text of any value but null, without a schema; values are dicts, lists, texts, numbers and booleans.

    Functions of Columns get the text, as it is written here. Members keep their order and may be null.
    """

    max_bytes: int = MAX_BYTES
    name: ClassVar[str] = "json"
    sql_type: ClassVar[str] = "string"

    def __post_init__(self) -> None:
        _check_max_bytes(self.max_bytes)

    def serialize(self, value: object) -> bytes | None:
        return None if value is None else write_document(value, self.max_bytes)

    def deserialize(self, data: bytes | None) -> Value:
        return None if data is None else read_document(bytes(data), self.max_bytes)


def _check_max_bytes(max_bytes: object) -> None:
    if not isinstance(max_bytes, int) or isinstance(max_bytes, bool) or max_bytes < 2:
        raise TopologyError(f"json: max_bytes is {max_bytes!r}, expected a number of bytes of at least 2")

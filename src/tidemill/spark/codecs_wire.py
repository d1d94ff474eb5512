"""How a serde's bytes travel between a Python step and the JVM; no JVM needed.

Numbers of fixed width are the bigint and double columns of ``rows``. A serde that Catalyst does not know (Avro, a UUID, one of
the user's) is replaced by the native one of its Spark type, which Python steps write on the way in and read on the way out.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemill.dsl.serdes import (
    BooleanSerde,
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    JsonSerde,
    Serdes,
    StringSerde,
    WholeNumberSerde,
)
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde, from_spark, to_spark
from tidemill.errors import TopologyError
from tidemill.topology.windows import Windowed


class Physical(Enum):
    """Which of a side's three columns carries it: bytes, ``_num`` or ``_dbl``."""

    BYTES = ""
    NUMBER = "_num"
    DOUBLE = "_dbl"


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """A serde of fixed length: its bytes and how to convert them."""

    width: int
    code: str

    def encode(self, value: Any) -> bytes:
        return struct.pack(self.code, value)

    def decode(self, data: bytes) -> Any:
        return struct.unpack(self.code, data)[0]

    def can_read(self, data: bytes) -> bool:
        return len(data) == self.width and (self.code != _BOOLEAN or data in (b"\0", b"\1"))

    @property
    def kind(self) -> Physical:
        return Physical.DOUBLE if self.code in (">d", ">f") else Physical.NUMBER


_BOOLEAN = ">b"
_FIXED = {
    "bigint": FixedWidth(8, ">q"), "int": FixedWidth(4, ">i"), "smallint": FixedWidth(2, ">h"), "double": FixedWidth(8, ">d"),
    "float": FixedWidth(4, ">f"), "boolean": FixedWidth(1, _BOOLEAN),
}  # fmt: skip


def fixed_width(sql_type: str) -> FixedWidth | None:
    return _FIXED.get(sql_type)


def physical(sql_type: str) -> Physical:
    fixed = fixed_width(sql_type)
    return Physical.BYTES if fixed is None else fixed.kind


_NATIVE = (StringSerde, BytesSerde, WholeNumberSerde, DoubleSerde, FloatSerde, BooleanSerde, JsonSerde)
_BY_TYPE = {
    "string": Serdes.string, "binary": Serdes.bytes, "bigint": Serdes.long, "int": Serdes.integer, "smallint": Serdes.short,
    "double": Serdes.double, "float": Serdes.float, "boolean": Serdes.boolean,
}  # fmt: skip


def transit_of(serde: Any) -> Any | None:
    """The native serde that stands for ``serde`` between Python and the JVM; None for one that is native itself.

    Raises:
        TopologyError: no native serde has its Spark type.
    """
    if isinstance(serde, _NATIVE):
        return None
    if serde.sql_type in _BY_TYPE:
        return _BY_TYPE[serde.sql_type]()
    if serde.sql_type.startswith("struct<"):
        return Serdes.json(serde.sql_type)
    raise TopologyError(
        f"the serde {serde.name} has the Spark type {serde.sql_type}; expected a struct or one of {', '.join(_BY_TYPE)}"
    )


def in_transit(serde: Any) -> Any:
    """The serde of what the JVM sees."""
    return transit_of(serde) or serde


def for_the_jvm(serde: Any, data: bytes | None) -> bytes | None:
    """Bytes of a serde that has one in transit, as that one's; SerdeError where they can't be read."""
    value, transit = serde.deserialize(data), in_transit(serde)
    if isinstance(value, Windowed):
        value = to_spark(value)
    elif transit.sql_type == "string" and value is not None:
        value = str(value)  # a UUID and the like
    written: bytes | None = transit.serialize(value)
    return written


def from_the_jvm(serde: Any, data: bytes | None) -> bytes | None:
    """The other way round."""
    value = in_transit(serde).deserialize(data)
    if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        value = from_spark(value)
    written: bytes | None = serde.serialize(value)
    return written

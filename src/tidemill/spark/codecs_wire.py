"""Numbers of fixed width between their bytes on the wire and the bigint and double columns of ``rows``; no JVM needed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any


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


_FIXED = {"bigint": FixedWidth(8, ">q"), "int": FixedWidth(4, ">i"), "double": FixedWidth(8, ">d")}


def fixed_width(sql_type: str) -> FixedWidth | None:
    return _FIXED.get(sql_type)


def physical(sql_type: str) -> Physical:
    if sql_type in ("bigint", "int"):
        return Physical.NUMBER
    return Physical.DOUBLE if sql_type == "double" else Physical.BYTES

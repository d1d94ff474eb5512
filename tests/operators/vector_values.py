"""Values of the vectors as bytes and back: serdes by the names that the vectors use, windowed keys as dicts."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from tidemill import Serdes

_PLAIN = {"String": Serdes.string(), "Long": Serdes.long(), "Integer": Serdes.integer(), "Double": Serdes.double()}
_TIMES = struct.Struct(">q")
_TIME_WINDOWED = re.compile(r"TimeWindowed<(\w+)>\((\d+)\)")
_SESSION_WINDOWED = re.compile(r"SessionWindowed<(\w+)>")


def writer(name: str) -> Callable[[Any], bytes | None]:
    return _PLAIN[name].serialize


def reader(name: str) -> Callable[[bytes | None], Any]:
    """Reads bytes as the named serde; windowed keys become ``{key, start, end}``."""
    if found := _TIME_WINDOWED.fullmatch(name):
        inner, size = _PLAIN[found[1]], int(found[2])

        def time_windowed(data: bytes | None) -> Any:
            assert data is not None
            start = _TIMES.unpack_from(data, len(data) - 8)[0]
            return {"key": inner.deserialize(data[:-8]), "start": start, "end": start + size}

        return time_windowed
    if found := _SESSION_WINDOWED.fullmatch(name):
        inner = _PLAIN[found[1]]

        def session_windowed(data: bytes | None) -> Any:
            assert data is not None
            end, start = _TIMES.unpack_from(data, len(data) - 16)[0], _TIMES.unpack_from(data, len(data) - 8)[0]
            return {"key": inner.deserialize(data[:-16]), "start": start, "end": end}

        return session_windowed
    return _PLAIN[name].deserialize

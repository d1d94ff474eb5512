"""Record headers as one binary column.

Decides their form between the steps of a plan, which nothing outside it sees: for each header the length of its name and the
name, then the length of its value (-1: null) and the value; lengths are four bytes, big-endian. One binary column, because a
nested one would rule out fast hash aggregation of every row, with headers or without. What is not of this form, or cut short, is
a SerdeError: no header is made up of it.
"""

from __future__ import annotations

import struct

from tidemill.errors import SerdeError
from tidemill.task.raw_records import Headers

_LENGTH = struct.Struct(">i")


def packed(headers: Headers | None) -> bytes | None:
    """None for none."""
    if not headers:
        return None
    parts: list[bytes] = []
    for name, value in headers:
        raw = name.encode()
        parts += (_LENGTH.pack(len(raw)), raw)
        parts += (_LENGTH.pack(-1),) if value is None else (_LENGTH.pack(len(value)), value)
    return b"".join(parts)


def unpacked(data: bytes | None) -> list[tuple[str, bytes | None]] | None:
    if not data:
        return None
    headers: list[tuple[str, bytes | None]] = []
    at = 0
    while at < len(data):
        name, at = _taken(data, at)
        value, at = _taken(data, at)
        if name is None:
            raise SerdeError(f"{len(data)} bytes of headers hold a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError as problem:
            raise SerdeError(f"the name of a header is no UTF-8: {problem}") from problem
    return headers


def _taken(data: bytes, at: int) -> tuple[bytes | None, int]:
    begin = at + _LENGTH.size
    length = _LENGTH.unpack_from(data, at)[0] if begin <= len(data) else 0
    end = begin + max(0, length)
    if end > len(data) or length < -1:
        raise SerdeError(f"{len(data)} bytes of headers end before byte {end}: they are cut short, or of another form")
    return (None, begin) if length < 0 else (data[begin:end], end)

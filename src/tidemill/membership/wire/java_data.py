"""Big-endian fields as ``java.io.DataOutput`` and Kafka's message protocol write them, read with every bound checked.

Decides how a number, a string and a length are laid out; which fields a payload has is decided by its own module.
Invariant: nothing is allocated before the bytes that it needs are known to be there, so a garbled length costs nothing.
"""

from __future__ import annotations

import re
from struct import Struct

from tidemill.errors import WireFormatError

_INT8 = Struct(">b")
_INT16 = Struct(">h")
_UINT16 = Struct(">H")
_INT32 = Struct(">i")
_INT64 = Struct(">q")

UTF_LIMIT = 65_535
"""Most bytes of a string in modified UTF-8."""

_SURROGATES = re.compile("[\ud800-\udfff]")
_FOUR_BYTE_LEAD = re.compile(rb"[\xf0-\xff]")


def to_modified_utf8(text: str) -> bytes:
    """Java's modified UTF-8: NUL as C0 80, characters beyond the first plane as two encoded surrogates."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    as_units = "".join(chr(units[at] << 8 | units[at + 1]) for at in range(0, len(units), 2))
    return as_units.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def from_modified_utf8(data: bytes) -> str:
    """Inverse of ``to_modified_utf8``; UnicodeDecodeError if ``data`` is not of that form."""
    if data.isascii():
        return data.decode("ascii")
    odd = _FOUR_BYTE_LEAD.search(data)
    if odd:
        raise UnicodeDecodeError("modified-utf-8", data, odd.start(), odd.end(), "byte that the form does not use")
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    if _SURROGATES.search(text):
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    return text


class DataWriter:
    """Collects fields; ``bytes()`` joins them."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> None:
        self._parts.append(_INT8.pack(value))

    def int16(self, value: int) -> None:
        self._parts.append(_INT16.pack(value))

    def int32(self, value: int) -> None:
        self._parts.append(_INT32.pack(value))

    def int64(self, value: int) -> None:
        self._parts.append(_INT64.pack(value))

    def raw(self, data: bytes) -> None:
        self._parts.append(data)

    def sized_bytes(self, data: bytes) -> None:
        """An int32 length, then the bytes."""
        self._parts.append(_INT32.pack(len(data)))
        self._parts.append(data)

    def utf(self, text: str) -> None:
        """``DataOutput.writeUTF``: an unsigned 16-bit length, then modified UTF-8."""
        data = to_modified_utf8(text)
        if len(data) > UTF_LIMIT:
            raise WireFormatError(f"a string of {len(data)} bytes can't be encoded: at most {UTF_LIMIT} are allowed")
        self._parts.append(_UINT16.pack(len(data)))
        self._parts.append(data)

    def bytes(self) -> bytes:
        return b"".join(self._parts)


class DataReader:
    """Reads fields in order; every failure is a WireFormatError that names the payload, the field and the position."""

    __slots__ = ("_data", "_payload", "position")

    def __init__(self, data: bytes, payload: str) -> None:
        self._data = data
        self._payload = payload
        self.position = 0

    @property
    def remaining(self) -> int:
        return len(self._data) - self.position

    def refuse(self, found: str) -> WireFormatError:
        """The error for what was found at this position, to be raised by the caller."""
        return WireFormatError(
            f"{self._payload} of {len(self._data)} bytes can't be decoded: at byte {self.position} {found}; "
            "a member of the group sends another format, or the bytes were damaged"
        )

    def int8(self, field: str) -> int:
        return self._number(_INT8, field)

    def int16(self, field: str) -> int:
        return self._number(_INT16, field)

    def int32(self, field: str) -> int:
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        return self._number(_INT64, field)

    def id_number(self, field: str) -> int:
        """An int32 that names a sub-topology, a partition or the like: never negative."""
        value = self.int32(field)
        if value < 0:
            raise self.refuse(f"{field} is {value}, expected 0 or more")
        return value

    def count(self, field: str, *, least_bytes_each: int) -> int:
        """An int32 number of elements, refused at once if so many can't be in the bytes that are left."""
        value = self.int32(field)
        if value < 0 or value * least_bytes_each > self.remaining:
            raise self.refuse(
                f"the number of {field} is {value}, expected 0 to {self.remaining // least_bytes_each} "
                f"({self.remaining} bytes are left)"
            )
        return value

    def take(self, length: int, field: str) -> bytes:
        if length < 0 or length > self.remaining:
            raise self.refuse(f"{field} has length {length}, but {self.remaining} bytes are left")
        start = self.position
        self.position = start + length
        return self._data[start : self.position]

    def peek(self, length: int) -> bytes:
        """The next bytes, of which ``count`` has found that they are there; the position stays."""
        return self._data[self.position : self.position + length]

    def sized_bytes(self, field: str) -> bytes:
        return self.take(self.int32(f"length of {field}"), field)

    def utf(self, field: str) -> str:
        """``DataInput.readUTF``."""
        data = self.take(self._number(_UINT16, f"length of {field}"), field)
        try:
            return from_modified_utf8(data)
        except UnicodeDecodeError as cause:
            raise self.refuse(f"{field} is not modified UTF-8 ({cause.reason})") from cause

    def utf8(self, data: bytes, field: str) -> str:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as cause:
            raise self.refuse(f"{field} is not UTF-8 ({cause.reason})") from cause

    def end(self) -> None:
        """Nothing may follow."""
        if self.remaining:
            raise self.refuse(f"{self.remaining} bytes follow the last field")

    def _number(self, form: Struct, field: str) -> int:
        start = self.position
        end = start + form.size
        if end > len(self._data):
            raise self.refuse(f"{field} needs {form.size} bytes, but {self.remaining} are left")
        self.position = end
        value: int = form.unpack_from(self._data, start)[0]
        return value

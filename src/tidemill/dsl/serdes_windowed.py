"""Serdes of windowed keys with Kafka's bytes: TimeWindowed in topics is key | start 8, SessionWindowed key | end 8 | start 8.

A time-windowed key says nothing about its window's size, so a reader has to know it. Leaves the bytes of a store's
changelog, which carry a sequence number as well, to the stores.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import ClassVar

from tidemill.dsl.arguments import required_serde
from tidemill.errors import SerdeError
from tidemill.spellings import Spelled
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.values import Serde
from tidemill.topology.windows import MAX_TIME, AnyWindows, SessionWindows, SlidingWindows, Windowed, Windows, own_windows

_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_LONG_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class TimeWindowedSerde:
    """Keys in windows of ``size`` ms (of sliding windows: the time difference), or in the program's own."""

    inner: Serde
    size: int
    own_windows: Windows | None = None
    name: ClassVar[str] = "time_windowed"
    window_bytes: ClassVar[int] = 8

    @property
    def sql_type(self) -> str:
        return _sql_type(self.inner)

    def serialize(self, value: Windowed | None) -> bytes | None:
        if value is None:
            return None
        return _inner_bytes(self.name, self.inner, value) + _packed(self.name, _LONG, value.start)

    def deserialize(self, data: bytes | None) -> Windowed | None:
        if data is None:
            return None
        _check_length(self.name, data, 8)
        start = _LONG.unpack_from(data, len(data) - 8)[0]
        end = min(start + self.size, _LONG_MAX) if self.own_windows is None else self.own_windows.end_of(start)
        _check_times(self.name, start, end)
        return Windowed(self.inner.deserialize(data[:-8]), start, end)


@dataclass(frozen=True, slots=True)
class SessionWindowedSerde:
    """Keys in sessions, which carry both of their ends."""

    inner: Serde
    name: ClassVar[str] = "session_windowed"
    window_bytes: ClassVar[int] = 16

    @property
    def sql_type(self) -> str:
        return _sql_type(self.inner)

    def serialize(self, value: Windowed | None) -> bytes | None:
        if value is None:
            return None
        return _inner_bytes(self.name, self.inner, value) + _packed(self.name, _TWO_LONGS, value.end, value.start)

    def deserialize(self, data: bytes | None) -> Windowed | None:
        if data is None:
            return None
        _check_length(self.name, data, 16)
        end, start = _TWO_LONGS.unpack_from(data, len(data) - 16)
        _check_times(self.name, start, end)
        return Windowed(self.inner.deserialize(data[:-16]), start, end)


def window_bytes_of(serde: Serde | None) -> int:
    """Number of bytes at the end of a key that hold its window; 0 where keys are not windowed."""
    return serde.window_bytes if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)) else 0


def windowed_serde(key: Serde | None, windows: AnyWindows) -> Serde | None:
    """The serde of keys in windows; None where that of the keys is not known."""
    if key is None:
        return None
    match windows:
        case Windows(size=size):
            return TimeWindowedSerde(key, MAX_TIME if size is None else size, own_windows(windows))
        case SlidingWindows(difference=difference):
            return TimeWindowedSerde(key, difference)
        case SessionWindows():
            return SessionWindowedSerde(key)


class WindowedSerdes(Spelled):
    """Serdes for the keys of windowed tables, named as in ``org.apache.kafka.streams.kstream.WindowedSerdes``."""

    @staticmethod
    def time_windowed_serde_from(inner: Serde, size: Duration) -> TimeWindowedSerde:
        """Keys in time or sliding windows: the bytes of ``inner``, then the start, eight bytes. ``size``: the windows', ms or
        timedelta.

        Spark type: a struct of key, start and end; ``Windowed`` in Python functions. The bytes do not tell the size: a reader
        with another one gets other ends.
        """
        return TimeWindowedSerde(required_serde(inner, "time_windowed_serde_from: inner"), milliseconds(size, "size"))

    @staticmethod
    def session_windowed_serde_from(inner: Serde) -> SessionWindowedSerde:
        """Keys in sessions: the bytes of ``inner``, then end and start, eight bytes each. Types as of
        ``time_windowed_serde_from``.
        """
        return SessionWindowedSerde(required_serde(inner, "session_windowed_serde_from: inner"))


def _sql_type(inner: Serde) -> str:
    return f"struct<key:{inner.sql_type},start:bigint,end:bigint>"


def _inner_bytes(name: str, inner: Serde, value: object) -> bytes:
    if not isinstance(value, Windowed):
        raise SerdeError(
            f"{name}: can't write a key of type {type(value).__name__}, expected Windowed: only keys of windowed tables have"
            " this serde; name the serde of the keys that you make yourself"
        )
    data = inner.serialize(value.key)
    if data is None:
        raise SerdeError(f"{name}: the key in the window is null, which has no bytes; drop such records before the window")
    return data


def _packed(name: str, form: Struct, *times: int) -> bytes:
    """The bytes of a window's end, where it is written, and start."""
    try:
        data = form.pack(*times)
    except StructError:
        data = b""
    if not data or not 0 <= times[-1] <= times[0]:
        found = " and ".join(map(repr, times))
        what = "a window's times are whole ms that fit in 8 bytes, from 0 on, its end not before its start"
        raise SerdeError(f"{name}: {found}: {what}")
    return data


def _check_length(name: str, data: bytes, least: int) -> None:
    if len(data) < least:
        raise SerdeError(
            f"{name}: found {len(data)} bytes, expected {least} or more; the topic's keys are not windowed, or by another serde"
        )


def _check_times(name: str, start: int, end: int) -> None:
    """Refuses what Java's windows refuse."""
    if start < 0 or end < start:
        raise SerdeError(
            f"{name}: found a window from {start} to {end}, which is none; the topic's keys are not windowed, or by another serde"
        )

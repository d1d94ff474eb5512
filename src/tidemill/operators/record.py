"""Records and changes of tables between the nodes of a task, and the validity of what functions of the program return for them.

Keys and values are Python values; bytes exist at sources, sinks and stores only. Both are named tuples and not dataclasses:
several are created for each record on its way, and a frozen dataclass takes four times as long to create.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from operator import index
from typing import Any, NamedTuple

from tidemill.printable import repr_of
from tidemill.spellings import spelled
from tidemill.topology.values import Key, Value

Headers = tuple[tuple[str, "bytes | None"], ...]
LATEST_TIME = 2**63 - 1
UNKNOWN_TIME = -1
"""No record has set a time yet (Kafka Streams' RecordQueue.UNKNOWN)."""
TIMES_ARE_MS = "times of records and stores are ms since the epoch"
OF_A_DATETIME = "write int(value.timestamp() * 1000) of a datetime"


@spelled
class Record(NamedTuple):
    """A record on its way; what a Processor gets and forwards (org.apache.kafka.streams.processor.api.Record). A named tuple.

    ``timestamp`` is in ms since the epoch, ``headers`` are pairs of name and bytes. Between the nodes of a table ``value`` is a
    ``Change``.
    """

    key: Key
    value: Value
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Key) -> Record:
        """The same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Value) -> Record:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        """The same record at another time, in ms since the epoch."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Headers) -> Record:
        """The same record with these headers, pairs of name and bytes, in place of its own."""
        return Record(self.key, self.value, self.timestamp, headers)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name (``lastHeader``); None if there is none."""
        return next((value for found, value in reversed(self.headers) if found == name), None)


class SourceRecord(Record):
    """A record as extractors of timestamps and of topic names get it, with its place: of the record that was read, or, behind
    operators, of the one that it was made of.

    ``topic``, ``partition`` and ``offset`` are None where no record has caused it, as in a punctuator.
    """

    # Any in place of None: in most programs a record has caused it, and a type checker would refuse record.topic + "-late".
    topic: str | Any
    partition: int | Any
    offset: int | Any

    @staticmethod
    def of(record: Record, topic: str, partition: int, offset: int | None) -> SourceRecord:
        """``record`` with its place; without one where there is no ``offset``."""
        found = SourceRecord(*record)
        is_placed = offset is not None
        found.topic, found.partition, found.offset = topic if is_placed else None, partition if is_placed else None, offset
        return found


def why_no_timestamp(given: Any) -> str:
    """The fault of a timestamp that a function of the program gave; empty if there is none."""
    try:
        number = index(given)
    except TypeError:
        found = f"{repr_of(given)} is of type {type(given).__name__}"
        return f"the timestamp {found}, expected milliseconds since the epoch as an int"
    if 0 <= number <= LATEST_TIME:
        return ""
    return f"the timestamp is {number}, expected one from 0 to {LATEST_TIME} (milliseconds since the epoch)"


def require_times(*times: object) -> None:
    """TypeError for a time that a store is read by and is no whole number of ms."""
    for given in times:
        try:
            index(given)  # type: ignore[arg-type]
        except TypeError:
            advice = f": {OF_A_DATETIME}" if hasattr(given, "timestamp") else ""
            raise TypeError(f"a time is {repr_of(given)}, expected an int; {TIMES_ARE_MS}{advice}") from None


def invalid_timestamp(timestamp: int) -> str:
    """The error for a record of a source without an extractor (``FailOnInvalidTimestamp``)."""
    return (
        f"the record's timestamp is {timestamp}, expected 0 or later. Give the source a timestamp_extractor(record, "
        "partition_time): one that gives record.timestamp drops such records, and partition_time is the partition's latest. A"
        " global table asks none: write its row again"
    )


def extracted_time(given: Any) -> int:
    """The timestamp that an extractor gave; below 0 the record is to be dropped.

    Raises:
        ValueError: it is no int, or too large for a timestamp.
    """
    if type(given) is int and given <= LATEST_TIME:
        return given
    problem = why_no_timestamp(given)
    if problem and not (isinstance(given, int) and given < 0):
        raise ValueError(f"it gave no timestamp: {problem}")
    return index(given)


def why_no_headers(given: object) -> str:
    """The fault of headers that a function of the program gave; empty if there is none.

    The client library ends the whole process where a name is no UTF-8, and cuts one off at a zero character.
    """
    if not isinstance(given, (tuple, list)):
        return f"the headers are of type {type(given).__name__}, expected a tuple of (name, bytes)"
    for header in given:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            return f"a header is {repr_of(header)}, expected a pair of name and bytes"
        name, value = header
        if not isinstance(name, str):
            return f"the name of a header is of type {type(name).__name__}, expected str"
        if value is not None and not isinstance(value, bytes):
            return f"the value of the header {name!r} is of type {type(value).__name__}, expected bytes or None: encode it"
        if not name.isascii() or "\0" in name:
            try:
                name.encode()
            except UnicodeEncodeError:
                return f"the name of a header, {name!r}, has no form in UTF-8"
            if "\0" in name:
                return f"the name of a header, {name!r}, holds a zero character, which clients take for its end"
    return ""


class Change(NamedTuple):
    """A change of a table's row. ``old`` is only known where the node sends old values (``Context.sends_old``).

    ``is_latest``: False for a change of a versioned table that is not the newest of its key.
    """

    new: Value
    old: Value = None
    is_latest: bool = True


def is_same_value(one: object, other: object) -> bool:
    """Equality as in Java (``equals``), and so of the serialized bytes; also within structs, arrays and windowed keys.

    Python's ``==`` differs for numbers: NaN is not equal to itself, 0.0 equals -0.0, and decimals of different scales are equal.
    In doubt values are unequal: two keys taken for one give wrong results, one key taken for two an additional intermediate one.
    """
    if one is other:
        return True
    if isinstance(one, float) and isinstance(other, float):
        if one != other:
            return math.isnan(one) and math.isnan(other)
        return math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_value(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    return type(one) is type(other) and one == other


record_of: Callable[[tuple[Key, Value, int, Headers]], Record] = partial(tuple.__new__, Record)
"""A record of its four parts. Takes half as long as ``Record(...)``: for what every record on its way needs."""
change_of: Callable[[tuple[Value, Value, bool]], Change] = partial(tuple.__new__, Change)
"""A change of its three parts, likewise."""

"""What travels between the nodes of a task: records, and the changes of tables.

Keys and values are Python values; bytes exist at sources, sinks and stores only. Both are named tuples and not
dataclasses: several are made for each record on its way, and a frozen dataclass takes four times as long to make.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

Headers = tuple[tuple[str, "bytes | None"], ...]


class Record(NamedTuple):
    """A record on its way; what a Processor gets and forwards (org.apache.kafka.streams.processor.api.Record). A named tuple.

    ``timestamp`` is in ms since the epoch, ``headers`` are pairs of name and bytes. Between the nodes of a table ``value`` is a
    ``Change``.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        """The same record with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
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


class Change(NamedTuple):
    """A change of a table's row. ``old`` is only known where the node sends old values (``Context.sends_old``).

    ``is_latest``: False for a change of a versioned table that is not the newest of its key.
    """

    new: Any
    old: Any = None
    is_latest: bool = True


record_of: Callable[[tuple[Any, Any, int, Headers]], Record] = partial(tuple.__new__, Record)
"""A record of its four parts. Takes half as long as ``Record(...)``: for what every record on its way needs."""
change_of: Callable[[tuple[Any, Any, bool]], Change] = partial(tuple.__new__, Change)
"""A change of its three parts, likewise."""

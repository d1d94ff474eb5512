"""What travels between the nodes of a task: records, and the changes of tables.

Keys and values are Python values; bytes exist at sources, sinks and stores only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

Headers = tuple[tuple[str, "bytes | None"], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """A record on its way; what a Processor gets and forwards. Between the nodes of a table ``value`` is a ``Change``."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Headers) -> Record:
        return replace(self, headers=headers)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a table's row. ``old`` is only known where the operation says that it sends old values.

    ``is_latest``: False for a change of a versioned table that is not the newest of its key.
    """

    new: Any
    old: Any = None
    is_latest: bool = True

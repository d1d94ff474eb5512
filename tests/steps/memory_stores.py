"""One task's stores in memory, for steps without a disk."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidemill.ids import TaskId
from tidemill.task.batch import StorePositions


@dataclass
class MemoryStores:
    """``rows`` by store; a store that has none yet need not be there."""

    task: TaskId
    rows: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    is_behind: bool = False
    _sorted: dict[str, list[bytes]] = field(default_factory=dict)
    """The keys in order, of stores that were scanned since they were written."""

    @property
    def at(self) -> StorePositions:
        return StorePositions(task=self.task, changelog=dict(self.positions), is_behind=self.is_behind)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        rows = self.rows.get(store, {})
        return [rows.get(key) for key in keys]

    def get(self, store: str, key: bytes) -> bytes | None:
        return self.rows.get(store, {}).get(key)

    @contextmanager
    def snapshot(self) -> Iterator[MemoryStores]:
        yield self

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = self.rows.get(store, {})
        if store not in self._sorted:
            self._sorted[store] = sorted(rows)
        keys = self._sorted[store]
        first = 0 if low is None else bisect.bisect_left(keys, low)
        last = len(keys) if high is None else bisect.bisect_left(keys, high)
        found = [(key, rows[key]) for key in keys[first:last]]
        return reversed(found) if reverse else iter(found)

    def entries(self, store: str) -> int:
        return len(self.rows.get(store, {}))

    def check(self, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> None: ...

    def empty(self, store: str) -> None:
        self.rows.pop(store, None)
        self._sorted.pop(store, None)

    def apply(self, writes: Mapping[str, Mapping[bytes, bytes | None]], changelog: Mapping[str, int]) -> None:
        for store, written in writes.items():
            rows = self.rows.setdefault(store, {})
            for key, row in written.items():
                if row is None:
                    rows.pop(key, None)
                else:
                    rows[key] = row
            self._sorted.pop(store, None)
        self.positions.update(changelog)

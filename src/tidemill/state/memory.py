"""The state of one task in memory: the same contract as ``lmdb``, gone with its process.

For stores that are declared in-memory (spec B8): at a restart they are restored from the changelog, so positions begin at 0.
Only the process that made it can use it; calls from several threads are safe, each sees whole batches.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidemill.errors import StateBehindError, StateError
from tidemill.state.store import CheckedWrites, Positions, Writes, require_epoch_kept, unknown_store


class MemoryTaskState:
    """``TaskStores`` in dictionaries; keys are sorted when a scan follows a change of the set of keys."""

    def __init__(self, name: str, stores: Sequence[str]) -> None:
        self._name = name
        self._entries: dict[str, dict[bytes, bytes]] = {store: {} for store in sorted(stores)}
        self._sorted_keys: dict[str, list[bytes]] = {}
        self._positions = Positions()
        self._lock = threading.Lock()
        self._is_open = True

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        entries = self._store(store)
        with self._lock:
            return list(map(entries.get, keys))

    def scan(
        self,
        store: str,
        low: bytes | None = None,
        high: bytes | None = None,
        *,
        reverse: bool = False,
        chunk: int = 1000,
    ) -> Iterator[tuple[bytes, bytes]]:
        more = True
        while more:
            entries = self._store(store)
            with self._lock:
                ordered = self._ordered(store)
                start = 0 if low is None else bisect_left(ordered, low)
                end = len(ordered) if high is None else bisect_left(ordered, high)
                chosen = ordered[max(start, end - chunk) : end][::-1] if reverse else ordered[start:end][:chunk]
                found = [(key, entries[key]) for key in chosen]
            more = len(found) == chunk
            if found and reverse:
                high = found[-1][0]
            elif found:
                low = found[-1][0] + b"\0"
            yield from found

    def positions(self) -> Positions:
        self._require_open()
        return self._positions

    def claim(self, epoch: str) -> Positions:
        self._require_open()
        with self._lock:
            self._positions = replace(self._positions, epoch=epoch)
            return self._positions

    def check(self, writes: Writes) -> CheckedWrites:
        puts: dict[str, list[tuple[bytes, bytes]]] = {}
        deletes: dict[str, list[bytes]] = {}
        for store, items in writes.items():
            self._store(store)
            last = dict(items)
            puts[store] = [(key, value) for key, value in last.items() if value is not None]
            deletes[store] = [key for key, value in last.items() if value is None]
        return CheckedWrites(puts=puts, deletes=deletes)

    def apply(self, *, expected: Positions, new: Positions, writes: Writes | CheckedWrites) -> None:
        require_epoch_kept(expected, new)
        checked = writes if isinstance(writes, CheckedWrites) else self.check(writes)
        self._require_open()
        with self._lock:
            found = self._positions
            if not expected.may_follow(found):
                raise StateBehindError(
                    self._name,
                    expected_epoch=expected.epoch,
                    found_epoch=found.epoch,
                    expected_offsets=expected.changelog,
                    found_offsets=found.changelog,
                )
            for store, puts in checked.puts.items():
                entries = self._entries[store]
                count = len(entries)
                entries.update(puts)
                removed = [entries.pop(key, None) is not None for key in checked.deletes[store]]
                if any(removed) or len(entries) != count:
                    self._sorted_keys.pop(store, None)
            self._positions = replace(new, changelog=dict(new.changelog), inputs=dict(new.inputs))

    def wipe(self, store: str | None = None) -> None:
        wiped = self.stores if store is None else (store,)
        for name in wiped:
            self._store(name)
        with self._lock:
            for name in wiped:
                self._entries[name].clear()
                self._sorted_keys.pop(name, None)
            kept = {name: at for name, at in self._positions.changelog.items() if name not in wiped}
            inputs = {} if store is None else self._positions.inputs
            self._positions = replace(self._positions, changelog=kept, inputs=inputs)

    def close(self, *, clean: bool) -> None:  # noqa: ARG002 - nothing is kept, cleanly or not
        self._is_open = False
        self._entries = {store: {} for store in self._entries}
        self._sorted_keys = {}

    def _ordered(self, store: str) -> list[bytes]:
        known = self._sorted_keys.get(store)
        if known is None:
            known = self._sorted_keys[store] = sorted(self._entries[store])
        return known

    def _store(self, store: str) -> dict[bytes, bytes]:
        self._require_open()
        try:
            return self._entries[store]
        except KeyError:
            raise StateError(unknown_store(self._name, store, self.stores)) from None

    def _require_open(self) -> None:
        if not self._is_open:
            raise StateError(f"the state of {self._name} is closed")

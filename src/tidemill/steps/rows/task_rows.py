"""The rows of one store of one task as operators see them: this batch's writes over what the task's state holds.

The worker's ``operators.rows.Rows``. Reads go to the state as it was when the batch began, unless the batch itself has
written the key; nothing here writes the state: writes and changelog records are collected in ``Written``, and the last step
sends and applies them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any
from weakref import ref

from sortedcontainers import SortedList

from tidemill.steps.step_state import StoreReader, StoreView, Written

_NEVER = object()
_FIRST_PIECE = 16
Headers = tuple[tuple[str, "bytes | None"], ...]


class _NoState:
    """The state of a task that keeps none."""

    def get(self, store: str, key: bytes) -> bytes | None:
        del store, key
        return None

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        del store, low, high, reverse
        return iter(())

    def entries(self, store: str) -> int:
        del store
        return 0


NO_STATE: StoreView = _NoState()


@contextmanager
def opened(reader: StoreReader | None) -> Iterator[StoreView]:
    """A view of a task's stores; of a task that keeps none, an empty one."""
    if reader is None:
        yield NO_STATE
    else:
        with reader.snapshot() as view:
            yield view


class _Released(dict[bytes, "bytes | None"]):
    """In place of a batch's writes: whoever reads or writes a store of a task that is over hears it. Rows that another owner may
    have changed by now must not be read as none, and writes that no batch commits must not look as if they were made."""

    def _refuse(self, *_arguments: object, **_more: object) -> Any:
        raise TypeError(
            "a closed processor can't use its stores, in close or later, as its last batch is over: read and write them"
            " in process, or in a punctuator"
        )

    get = update = __getitem__ = __setitem__ = __contains__ = __len__ = __iter__ = _refuse


class TaskRows:
    """Lives as long as the operators that use it; ``begin`` binds it to the next batch, and after ``release`` it refuses its use.
    ``logs_last``: of the records of a key in a batch only the last one goes to the changelog, as below a cache of Kafka
    Streams'."""

    def __init__(self, store: str, *, logged: bool, logs_last: bool = False) -> None:
        self._store, self.is_logged = store, logged
        self._logged: dict[bytes, int] | None = {} if logs_last else None
        """The place of each key's record in the log."""
        self.begin(NO_STATE, Written())

    def begin(self, view: StoreView, written: Written) -> None:
        self._view, self._written, self._rows = view, written, written.rows
        self._get = view.get
        self._sorted: SortedList[bytes] | None = None
        self._scans: set[ref[_WrittenRows]] = set()
        self._entries: int | None = None
        """The number of rows; None: not asked for yet."""
        self._empty: tuple[bytes, bytes | None] | None = None
        """A range of keys, from the first to before the second (None: to the end), in which there is no row, as the last scan has
        found. Scans pass it over: else who takes the first row again and again would meet all that were taken before."""
        if self._logged is not None:
            self._logged.clear()

    def release(self) -> None:
        """The task is over."""
        self.begin(NO_STATE, Written(rows=_Released()))

    def get(self, key: bytes) -> bytes | None:
        row = self._rows.get(key, _NEVER)
        if row is _NEVER:
            return self._get(self._store, key)
        return row  # type: ignore[return-value]

    def put(self, key: bytes, row: bytes | None) -> None:
        if self._scans:
            self._note_in_scans(key)
        if self._sorted is not None and key not in self._rows:
            self._sorted.add(key)
        if self._entries is not None:
            self._entries += (row is not None) - (self.get(key) is not None)
        self._rows[key] = row
        if row is not None and self._empty is not None and _is_in(key, self._empty):
            self._empty = (self._empty[0], key) if self._empty[0] < key else None

    def put_many(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """``put`` of several."""
        self._keep_scans()
        self._sorted = self._empty = self._entries = None
        self._rows.update(rows)

    def log_many(self, records: Iterable[tuple[bytes, bytes | None, int | None, Headers]]) -> None:
        """``log`` of several, each of which is logged: key, value, timestamp, headers."""
        if self.is_logged:
            self._written.log.extend(records)

    def entries(self) -> int:
        if self._entries is None:
            held = sum(self._get(self._store, key) is not None for key in self._rows)
            mine = sum(row is not None for row in self._rows.values())
            self._entries = self._view.entries(self._store) - held + mine
        return self._entries

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if not self._rows:
            return self._view.scan(self._store, low, high, reverse=reverse)
        first, end = self._without_empty(low or b"", high, reverse=reverse)
        held = self._view.scan(self._store, first, end, reverse=reverse)
        if self._sorted is None:
            self._sorted = SortedList(self._rows)
        if next(self._sorted.irange(first, end, (True, False), reverse), None) is None:
            return held
        mine = _WrittenRows(self._sorted, self._rows, first, end, reverse)
        self._scans.add(ref(mine, self._scans.discard))
        found = _merged(mine, held, reverse)
        nearest = next(found, None)
        if nearest is None:
            self._note_empty(first, end)
            return iter(())
        if reverse:
            self._note_empty(nearest[0] + b"\0", end)
        else:
            self._note_empty(first, nearest[0])
        return chain((nearest,), found)

    def _without_empty(self, low: bytes, high: bytes | None, *, reverse: bool) -> tuple[bytes, bytes | None]:
        """The bounds of a scan without the keys at its beginning of which it is known that they have no rows."""
        if self._empty is None:
            return low, high
        first, end = self._empty
        if not reverse:
            if first <= low and (end is None or low < end):
                return (low, low) if end is None else (end, high)
        elif (end is None or (high is not None and high <= end)) and (high is None or first < high):
            return low, first
        return low, high

    def _note_empty(self, first: bytes, end: bytes | None) -> None:
        if end is not None and end <= first:
            return
        if self._empty is not None:
            other_first, other_end = self._empty
            if (other_end is None or first <= other_end) and (end is None or other_first <= end):  # one goes on from the other
                first = min(first, other_first)
                end = None if end is None or other_end is None else max(end, other_end)
        self._empty = first, end

    def _note_in_scans(self, key: bytes) -> None:
        """Before a write: whoever iterates still gets the row as it was."""
        row = self._rows.get(key, _NEVER)
        for held in list(self._scans):
            scan = held()
            if scan is None or not scan.note(key, row):
                self._scans.discard(held)

    def _keep_scans(self) -> None:
        """Before a write of many: whoever iterates still gets the rows as they were."""
        while self._scans:
            scan = self._scans.pop()()
            if scan is not None:
                scan.keep()

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = ()) -> None:
        if not self.is_logged:
            return
        log, record = self._written.log, (key, value, timestamp, headers)
        at = len(log) if self._logged is None else self._logged.setdefault(key, len(log))
        if at == len(log):
            log.append(record)
        else:
            log[at] = record


class _WrittenRows:
    """The rows of a range as they are now, in pieces that grow: who looks at the first ones only pays for these.

    ``note``, or ``keep``, is to be called before any of them changes.
    """

    def __init__(
        self, keys: SortedList[bytes], rows: Mapping[bytes, bytes | None], low: bytes | None, high: bytes | None, reverse: bool
    ) -> None:
        self._keys, self._rows, self._low, self._high, self._reverse = keys, rows, low, high, reverse
        self._includes_low, self._size = True, _FIRST_PIECE
        self._before: dict[bytes, object] = {}
        """What rows that have changed since were at the beginning: the row, None or ``_NEVER``."""
        self._piece: Iterator[tuple[bytes, bytes | None]] = iter(())
        self._has_more = True

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None]]:
        return self

    def __next__(self) -> tuple[bytes, bytes | None]:
        while True:
            for found in self._piece:
                return found
            if not self._has_more:
                raise StopIteration
            self._piece = iter(self._read(self._size))
            self._size *= 2

    def note(self, key: bytes, row: object) -> bool:
        """A key's row before it changes. False: all rows were read."""
        if self._has_more:
            self._before.setdefault(key, row)
        return self._has_more

    def keep(self) -> None:
        """Reads what is left, so that it can change."""
        if self._has_more:
            self._piece = chain(self._piece, self._read(None))

    def _read(self, size: int | None) -> list[tuple[bytes, bytes | None]]:
        inclusive = (self._includes_low, False)
        keys = list(islice(self._keys.irange(self._low, self._high, inclusive, self._reverse), size))
        self._has_more = size is not None and len(keys) == size
        if self._has_more:
            if self._reverse:
                self._high = keys[-1]
            else:
                self._low, self._includes_low = keys[-1], False
        rows, before = self._rows, self._before
        if not before:
            return [(key, rows[key]) for key in keys]
        found = ((key, before.get(key, rows[key])) for key in keys)
        return [(key, row) for key, row in found if row is not _NEVER]  # type: ignore[misc]


def _is_in(key: bytes, bounds: tuple[bytes, bytes | None]) -> bool:
    return bounds[0] <= key and (bounds[1] is None or key < bounds[1])


def _merged(
    mine: Iterator[tuple[bytes, bytes | None]], held: Iterator[tuple[bytes, bytes]], reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Both in their order; of two rows with one key the batch's counts, and None is no row."""
    other = next(held, None)
    for key, row in mine:
        while other is not None and (other[0] > key if reverse else other[0] < key):
            yield other
            other = next(held, None)
        if other is not None and other[0] == key:
            other = next(held, None)
        if row is not None:
            yield key, row
    while other is not None:
        yield other
        other = next(held, None)

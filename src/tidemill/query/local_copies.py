"""The copies of stores that this instance has, read in the driver while workers write them.

Decides which copy may be read:

- A running active task's, always. What is read is some committed batch: workers write stores after their Kafka transaction, in
  one LMDB transaction, of which a reader sees all or nothing.
- An active task's whose last batch was lost, at the committed state, as long as its files hold at least what they held while it
  ran. A wiped store that is being filled again does not.
- A standby's, or that of an active task that is being restored, only by those who take stale answers. What is read is what the
  changelog had up to some committed record, which may be in the middle of a batch.

Who has which task is handed in at each question; the files' snapshots are ``state``'s.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from tidemill.errors import InvalidStateStoreError, StateError
from tidemill.ids import TaskId
from tidemill.membership.member_state import Role
from tidemill.operators.key_value_store import after_prefix
from tidemill.operators.versioned_store import NEWEST_END, as_timestamped, newest_row_key
from tidemill.query.store_info import StoreInfo
from tidemill.state.lmdb import TaskState
from tidemill.state.store import Positions

_FIRST_CHUNK, _LARGEST_CHUNK, _CHUNK_BYTES = 16, 1000, 1 << 20
"""Chunks of a scan: rows of the first and of the largest one, and bytes, by the size of the rows before."""
_TRIES = 20
_COMMIT_LIMIT_S = 0.3
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopy:
    """A task that this instance holds. ``epoch``: of one assignment; ``positions``: its stores', as the worker last said.
    ``is_confirmed``: the group has said a moment ago that it is held here, so no other instance can run it as active.
    ``applied``: set once its stores have all that was committed by then; None: they have."""

    task: TaskId
    role: Role
    directory: Path
    is_running: bool = False
    is_confirmed: bool = False
    applied: threading.Event | None = None
    epoch: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)


class BatchBetweenError(StateError):
    """A batch was applied between reads that were to see one commit."""


class StoreSnapshot(Protocol):
    """A task's stores as one commit has left them."""

    def positions(self) -> Positions: ...

    def get(self, store: str, key: bytes) -> bytes | None: ...

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]: ...


class ReadState(Protocol):
    """A task's stores, open for reading, wherever they lie."""

    @property
    def directory(self) -> Path: ...

    def positions(self) -> Positions: ...

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False, chunk: int = 1000
    ) -> Iterator[tuple[bytes, bytes]]: ...

    def entries(self, store: str) -> int: ...

    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """Many reads of one commit; to be closed soon. BatchBetweenError at its end: they were not, read again."""

    def close(self, *, clean: bool) -> None: ...


OpenState = Callable[[Path], ReadState]


class CopyReader:
    """One store of one copy, open. All errors are InvalidStateStoreError: the copy was wiped, closed or given up meanwhile.

    ``least_position``: what the files must hold to be believed."""

    def __init__(self, state: ReadState, store: StoreInfo, copy: LocalCopy, least_position: int) -> None:
        self._state, self._store, self.least_position = state, store, least_position
        self.task, self.role, self.is_running = copy.task, copy.role, copy.is_running
        self._is_newest = copy.is_running and copy.is_confirmed and copy.role is Role.ACTIVE
        self._applied = copy.applied
        self.reached = 0
        """Its position when it was last looked at, which each read does when it is done: nothing that was read is from later."""

    @property
    def partition(self) -> int:
        return self.task.partition

    @property
    def directory(self) -> Path:
        """Folder of its files, for other processes to open."""
        return self._state.directory

    def position(self) -> int:
        """The changelog offset up to which the store has everything (the next to read)."""
        try:
            return self._believed(self._state.positions())
        except StateError as error:
            raise self._gone(str(error)) from error

    def _believed(self, positions: Positions) -> int:
        found = positions.changelog.get(self._store.name, 0)
        if found < self.least_position:
            raise self._gone(f"its files were wiped and are being restored (offset {found} of {self.least_position})")
        self.reached = found
        return found

    def require(self, offset: int) -> None:
        """Reads of the copy from now on are from ``offset`` or later.

        InvalidStateStoreError if it is before ``offset``; not of a running active that the group has confirmed: what others have
        read is in it, though a standby's position may count a transaction's marker that its own does not. But while it commits,
        standbys may have the batch before it has: the end of that is waited for, a moment.
        """
        found = self.position()
        if found < offset:
            has_all = self._is_newest and (self._applied is None or self._applied.wait(_COMMIT_LIMIT_S))
            found = self.position()
            if found < offset and not has_all:
                raise self._gone(f"it is at offset {found}, expected {offset} or later")
        self.least_position = max(self.least_position, found)

    def get(self, key: bytes) -> bytes | None:
        """The entry of a key; of a versioned store its newest version, as a timestamped store has a value."""
        if not self._store.is_versioned:
            return self.row(key)
        found = self.row(newest_row_key(key))
        return None if found is None else as_timestamped(found)

    def scan(self, low: bytes | None, high: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries with ``low <= key <= high``, in the order of the keys' bytes, or against it."""
        return self._entries(low, None if high is None else high + b"\0", reverse=reverse)

    def prefix_scan(self, prefix: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose keys begin with ``prefix``, in the same order."""
        return self._entries(prefix, after_prefix(prefix), reverse=reverse)

    def _entries(self, low: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        if not self._store.is_versioned:
            yield from self.rows(low, end, reverse=reverse)
            return
        last = NEWEST_END if end is None else newest_row_key(end)
        for row_key, row in self.rows(newest_row_key(low or b""), last, reverse=reverse):
            entry = as_timestamped(row)
            if entry is not None:
                yield row_key[1:], entry

    def row(self, key: bytes) -> bytes | None:
        """A row as the store's class has written it."""
        return self._read(lambda: self._state.get_many(self._store.name, [key])[0])

    def rows(self, low: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < end``; each chunk, of about ``_CHUNK_BYTES``, is a snapshot of its own."""
        size = _FIRST_CHUNK
        while True:
            rows = self._read(partial(self._chunk, low, end, size, reverse=reverse))
            yield from rows
            if len(rows) < size:
                return
            held_bytes = sum(len(key) + len(row) for key, row in rows)
            low, end = (low, rows[-1][0]) if reverse else (rows[-1][0] + b"\0", end)
            size = min(_LARGEST_CHUNK, 4 * size, max(_FIRST_CHUNK, _CHUNK_BYTES * size // max(1, held_bytes)))

    def _chunk(self, low: bytes | None, end: bytes | None, size: int, *, reverse: bool) -> list[tuple[bytes, bytes]]:
        return list(islice(self._state.scan(self._store.name, low, end, reverse=reverse, chunk=size), size))

    def _read(self, read: Callable[[], T]) -> T:
        """What was read is only as good as what the files stood for: afterwards, and before, since a wiped store may be whole
        again afterwards."""
        try:
            self._believed(self._state.positions())
            found = read()
            self._believed(self._state.positions())
        except StateError as error:
            raise self._gone(str(error)) from error
        return found

    def at_one_commit(self, read: Callable[[StoreSnapshot], T]) -> T:
        """The result of many reads of one commit: for a few rows, since files can't grow meanwhile."""
        between: StateError | None = None
        for _ in range(_TRIES):
            try:
                with self._state.snapshot() as view:
                    self._believed(view.positions())
                    return read(view)
            except BatchBetweenError as error:
                between = error
            except StateError as error:
                raise self._gone(str(error)) from error
        raise self._gone(f"{between}, {_TRIES} times over") from between

    def entries(self) -> int:
        if self._store.is_versioned:  # which has rows of older versions, too
            return sum(1 for _ in self.scan(None, None))
        try:
            return self._state.entries(self._store.name)
        except StateError as error:
            raise self._gone(str(error)) from error

    def _gone(self, why: str) -> InvalidStateStoreError:
        return InvalidStateStoreError(
            f"{self._store.name} of task {self.task} can't be read now: {why}", store=self._store.name
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCopies:
    """The copies of a store by partition, and why others that are here can't be read."""

    readers: Mapping[int, CopyReader]
    refused: Mapping[int, str]


Wanted = Callable[[TaskId], bool]


class LocalCopies:
    """``held`` gives those of the wanted tasks that this instance has at that moment, ``open_state`` how one's folder is opened;
    may be used from any thread."""

    def __init__(
        self, held: Callable[[Wanted], Sequence[LocalCopy]], open_state: OpenState = TaskState.open_to_read
    ) -> None:
        self._held, self._open_state = held, open_state
        self._lock = threading.Lock()
        self._states: dict[Path, ReadState] = {}
        self._ran_at: dict[TaskId, tuple[str, Mapping[str, int]]] = {}
        self.is_closed = False

    def refresh(self) -> None:
        """Notes what runs, and closes what is not held any more; to be called when tasks have changed."""
        with self._lock:
            held = self._held(lambda _: True)
            self._note(held)
            tasks, directories = {copy.task for copy in held}, {copy.directory for copy in held}
            self._ran_at = {task: at for task, at in self._ran_at.items() if task in tasks}
            self._close([folder for folder in self._states if directories.isdisjoint((folder, *folder.parents))])

    def open(self, store: StoreInfo, *, stale: bool, partitions: Collection[int] | None = None) -> OpenCopies:
        """The store's copies, of these partitions only if given; ``stale``: those behind, too."""
        readers: dict[int, CopyReader] = {}
        refused: dict[int, str] = {}

        def is_asked(task: TaskId) -> bool:
            return task.subtopology == store.subtopology and (partitions is None or task.partition in partitions)

        with self._lock:
            held = self._held(is_asked)
            self._note(held)
            for copy in held:
                number = copy.task.partition
                least = self._least_position(copy, store.name)
                if copy.role is Role.STANDBY and not stale:
                    continue
                if least is None and not stale:
                    refused[number] = f"task {copy.task} is being restored here"
                    continue
                try:
                    readers[number] = CopyReader(self._state(copy.directory / store.folder), store, copy, least or 0)
                except StateError as error:
                    refused[number] = f"task {copy.task} can't be opened yet: {error}"
        return OpenCopies(readers=readers, refused=refused)

    def close(self) -> None:
        """Closes every file; nothing can be opened after it."""
        with self._lock:
            self.is_closed = True
            self._close(list(self._states))

    def _state(self, folder: Path) -> ReadState:
        if self.is_closed:
            raise StateError(f"{folder} is closed: the instance has ended")
        if folder not in self._states:
            self._states[folder] = self._open_state(folder)
        return self._states[folder]

    def _least_position(self, copy: LocalCopy, store: str) -> int | None:
        """None: this copy has never run since it was assigned."""
        epoch, positions = self._ran_at.get(copy.task, ("", {}))
        return positions.get(store, 0) if epoch == copy.epoch != "" else None

    def _note(self, held: Sequence[LocalCopy]) -> None:
        for copy in held:
            if copy.role is Role.STANDBY:
                self._ran_at.pop(copy.task, None)  # others write it meanwhile, and a promotion keeps the epoch
            elif copy.is_running:
                self._ran_at[copy.task] = (copy.epoch, copy.positions)

    def _close(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            with suppress(StateError):  # files that are no longer read; the stream thread must not fail
                self._states.pop(folder).close(clean=False)

"""LMDB environments of this process: one per data file, however many users it has, and none kept over a fork.

LMDB forbids opening a file twice in a process, moving a map while a transaction is open, and using an environment in a forked
child. So users share a ``SharedEnvironment``; its gate counts open transactions, and what moves the map (growing it, adopting a
size that another process chose, opening the file again after it was replaced) waits until there are none. After a fork the
child leaves what it inherited untouched; using or opening it there raises a StateError.

Decides nothing about contents: names of databases come from the caller. LMDB's errors come out as StateError, CorruptStateError,
and as the latter what a reader of the contents raises as a ContentsError.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import lmdb

from tidemill.errors import CorruptStateError, NoStateYetError, StateError
from tidemill.state.directory import DATA_FILE, LMDB_LOCK_FILE
from tidemill.state.durability import TAKES_NOTHING, disk_problem, needing_the_disk, with_its_blocks
from tidemill.state.pages import require_complete

_MAX_DATABASES = 256
_MAX_READERS = 512
_LOCK_BYTES = (_MAX_READERS - 1) * 64
"""What LMDB's lock file has at least: a cache line for each reader, and its head. It must not be longer than LMDB makes it, which
another process may have done meanwhile: who has mapped it shorter would look beyond his map."""
_ATTEMPTS = 10
_GATE_LIMIT_S = 60.0
"""Longest wait, in s, between transactions of this process and a resize of the map; each takes well under a second."""

_CORRUPT = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.PanicError)


class ContentsError(Exception):
    """Raised within a transaction, by who reads bytes there that no owner has written."""


class Databases(NamedTuple):
    """An open transaction and the databases that it was opened for, in the order of their names in the call."""

    transaction: lmdb.Transaction[bytes]
    handles: tuple[lmdb._Database, ...]


class SharedEnvironment:
    """An environment with its databases and its gate. Made by ``open_environment`` only."""

    def __init__(self, directory: Path, *, read_only: bool, map_size: int) -> None:
        self.directory = directory
        self.read_only = read_only
        self.users = 0
        self._pid = os.getpid()
        self.is_inherited = False
        """This process is a child of the one that opened it."""
        self._gate = threading.Condition()
        self._open_transactions = 0
        self._is_exclusive = False
        self._databases: dict[bytes, lmdb._Database] = {}
        self._map_size = map_size
        self._open()

    def read(self, *names: bytes) -> AbstractContextManager[Databases]:
        """A read transaction over some databases: one snapshot. Keep it well under a second: what it sees can't be reused.

        Raises KeyError if there is no such database.
        """
        return self._transaction(names, write=False)

    def write(self, *names: bytes) -> AbstractContextManager[Databases]:
        """A write transaction, committed at the end of the block, aborted by any exception; lmdb.MapFullError passes as it is.

        Raises KeyError if there is no such database.
        """
        return self._transaction(names, write=True)

    @contextmanager
    def exclusive(self) -> Iterator[lmdb.Environment]:
        """The bare environment while this process has no transaction; never ask for it inside of one."""
        self._require_own_process()
        with self._gate:
            self._wait_for_the_map()
            self._is_exclusive = True
        try:
            with self._gate:
                if not self._gate.wait_for(lambda: self._open_transactions == 0, _GATE_LIMIT_S):
                    raise StateError(
                        f"{self.directory}: {self._open_transactions} reads of this process have not ended for "
                        f"{_GATE_LIMIT_S:.0f} s, and the file's map can't be moved meanwhile: close iterators over stores "
                        "that are read no further"
                    )
            with self._errors():
                yield self._environment
        finally:
            with self._gate:
                self._is_exclusive = False
                self._gate.notify_all()

    def create_databases(self, names: Sequence[bytes]) -> None:
        """Make those that do not exist; never inside of a transaction."""
        with self.exclusive() as environment:
            for name in names:
                self._databases[name] = _open_database(environment, name, create=True)

    def grow(self, needed: int) -> None:
        """Double the map until it holds `needed` bytes. Raises StateError if the machine refuses."""
        with self.exclusive() as environment:
            size = environment.info()["map_size"]
            while size < needed:
                size *= 2
            try:
                environment.set_mapsize(size)
            except (lmdb.Error, OverflowError) as refusal:
                self._reopen(environment)  # LMDB has given up the old map.
                raise StateError(
                    f"{self.directory}: the store's map can't grow to {size} bytes ({refusal}); "
                    "is the address space limited (ulimit -v)?"
                ) from refusal
            self._map_size = size

    def size(self) -> tuple[int, int]:
        """(bytes of the map, bytes in use up to the last page)."""
        with self._errors():
            self._require_own_process()
            information = self._environment.info()
            page_size = self._environment.stat()["psize"]
        return information["map_size"], (information["last_pgno"] + 1) * page_size

    def reader_check(self) -> int:
        """Free the reader slots of dead processes; how many there were."""
        self._require_own_process()
        with self._errors():
            return self._environment.reader_check()

    def reopen_writable(self, map_size: int) -> None:
        """Turn a read-only environment into a writable one, for all its users."""
        if self.read_only:
            with self.exclusive() as environment:
                self.read_only, self._map_size = False, map_size
                self._reopen(environment)

    def close(self) -> None:
        """Close the file; only ``close_environment`` calls this."""
        with self.exclusive() as environment:
            environment.close()

    def is_replaced(self) -> bool:
        """True if another file (or none) is where this environment's was: its directory was wiped."""
        return not self._is_usable or _identity(self.directory) != self._file

    def sync(self) -> None:
        """Bring everything that was committed to the disk."""
        with self._errors():
            self._environment.sync(True)

    @contextmanager
    def _transaction(self, names: tuple[bytes, ...], *, write: bool) -> Iterator[Databases]:
        transaction = self._begin(names, write=write)
        try:
            with self._errors():
                try:
                    yield Databases(transaction, tuple(self._databases[name] for name in names))
                except BaseException:
                    with self._no_newcomers():
                        transaction.abort()
                    raise
                transaction.commit()
        finally:
            self._leave()

    @contextmanager
    def _no_newcomers(self) -> Iterator[None]:
        """Without it the binding's abort, which waits for a moment without calls, starved for seconds while readers were busy."""
        with self._gate:
            is_mine = not self._is_exclusive
            self._is_exclusive = True
        try:
            yield
        finally:
            if is_mine:
                with self._gate:
                    self._is_exclusive = False
                    self._gate.notify_all()

    def _begin(self, names: tuple[bytes, ...], *, write: bool) -> lmdb.Transaction[bytes]:
        for _ in range(_ATTEMPTS):
            self._make_ready(names)
            self._enter()
            try:
                if all(name in self._databases for name in names):
                    with self._errors():
                        return self._environment.begin(write=write)
            except lmdb.MapResizedError:
                self._leave()
                with self.exclusive() as environment:
                    environment.set_mapsize(0)  # Adopt the size that another process gave the map.
            except lmdb.ReadersFullError:
                self._leave()
                self.reader_check()
            except BaseException:
                self._leave()
                raise
            else:
                self._leave()  # The file was replaced between the first line and the second.
        raise StateError(f"{self.directory}: the file changed {_ATTEMPTS} times while a transaction was begun; try again")

    def _make_ready(self, names: tuple[bytes, ...]) -> None:
        # Only readers outlive a wipe: the owner of a task is who wipes it.
        if self.read_only and self.is_replaced():
            with self.exclusive() as environment:
                if self.is_replaced():
                    self._reopen(environment)
        for name in names:
            if name not in self._databases:
                with self.exclusive() as environment:
                    try:
                        self._databases[name] = _open_database(environment, name, create=False)
                    except (lmdb.NotFoundError, lmdb.ReadonlyError):
                        raise KeyError(name) from None

    def _enter(self) -> None:
        self._require_own_process()
        with self._gate:
            self._wait_for_the_map()
            self._open_transactions += 1

    def _wait_for_the_map(self) -> None:
        """Within the gate."""
        if not self._gate.wait_for(lambda: not self._is_exclusive, _GATE_LIMIT_S):
            raise StateError(
                f"{self.directory}: another thread has been moving the file's map for {_GATE_LIMIT_S:.0f} s; try again"
            )

    def _leave(self) -> None:
        with self._gate:
            self._open_transactions -= 1
            self._gate.notify_all()

    def _reopen(self, environment: lmdb.Environment) -> None:
        """Within ``exclusive``: open what is there now. If that fails, the next transaction tries again."""
        environment.close()
        self._is_usable = False
        self._open()

    def _open(self) -> None:
        header = require_complete(self.directory / DATA_FILE)
        if header is None and self.read_only:
            raise NoStateYetError(f"{self.directory} holds no state yet: it appears when the task first runs here")
        if not self.read_only:
            with needing_the_disk(self.directory):  # before LMDB opens the file: closing it gives up the process's locks of it
                with_its_blocks(self.directory / LMDB_LOCK_FILE, _LOCK_BYTES)
        with self._errors():
            self._environment = lmdb.open(
                str(self.directory),
                map_size=max(self._map_size, header.map_size if header else 0),
                readonly=self.read_only,
                create=not self.read_only,
                sync=False,
                metasync=False,
                # A map that is written to would save 10 ms on 10,000 random keys of a million, but a full disk then means SIGBUS.
                writemap=False,
                max_dbs=_MAX_DATABASES,
                max_readers=_MAX_READERS,
                mode=0o644,
            )
            self._environment.reader_check()
        self._databases.clear()
        self._file = _identity(self.directory)
        self._is_usable = True

    def _require_own_process(self) -> None:
        if self.is_inherited:
            raise StateError(f"{self.directory} was opened by process {self._pid}, before a fork: it can't be used in this one")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (lmdb.MapFullError, lmdb.MapResizedError, lmdb.ReadersFullError):
            raise  # The caller's to answer.
        except ContentsError as wrong:
            raise CorruptStateError(
                str(self.directory / DATA_FILE), found=str(wrong), expected="what an owner has written"
            ) from wrong
        except _CORRUPT as error:
            raise CorruptStateError(
                str(self.directory / DATA_FILE), found=str(error), expected="pages that LMDB can follow"
            ) from error
        except lmdb.Error as error:
            if error.code in TAKES_NOTHING:  # also where only a part of a page could be written: EIO
                raise disk_problem(self.directory, error.code) from error
            said = str(error).removeprefix(f"{self.directory}: ")  # LMDB names it where a file can't be opened
            raise StateError(f"{self.directory}: {said}") from error


def open_environment(directory: Path, *, read_only: bool, map_size: int) -> SharedEnvironment:
    """The process's environment of `directory`, opened or shared; pair it with ``close_environment``. The map is never less than
    `map_size` and what the file says.

    A writer's wish turns an environment that only readers had into a writable one.
    """
    directory = directory.resolve()
    if directory in _open_at_fork:
        raise StateError(
            f"{directory} was open in the process that this one was forked from, and LMDB can't open it again here: "
            "fork before the state is opened, or spawn"
        )
    with _registry.lock:
        shared = _registry.environments.get(directory)
        if shared is not None and not shared.read_only and shared.is_replaced():
            if shared.users:
                raise StateError(f"{directory} was removed while this process has it open for writing: close that first")
            shared = None  # its last user could not close it, and this is another file
        if shared is None:
            shared = SharedEnvironment(directory, read_only=read_only, map_size=map_size)
            _registry.environments[directory] = shared
        elif not read_only:
            shared.reopen_writable(map_size)
        shared.users += 1
        return shared


def close_environment(shared: SharedEnvironment) -> None:
    """Give up one use; the last one closes the file. Raises StateError if reads of it don't end; then the file stays open, for
    who opens it next: LMDB must not open it a second time."""
    with _registry.lock:
        shared.users -= 1
        if shared.users == 0:
            shared.close()
            if _registry.environments.get(shared.directory) is shared:
                del _registry.environments[shared.directory]


def is_open_for_writing(directory: Path) -> bool:
    """True if someone in this process has the environment of `directory` open for writing."""
    with _registry.lock:
        shared = _registry.environments.get(directory.resolve())
        return shared is not None and shared.users > 0 and not shared.read_only


class _Registry:
    """The environments of one process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.environments: dict[Path, SharedEnvironment] = {}


_registry = _Registry()
#: What a forked child must neither use nor close, because both would touch the parent's locks: kept alive, untouched.
_open_at_fork: dict[Path, SharedEnvironment] = {}


def _forget_after_fork() -> None:
    global _registry
    _open_at_fork.update(_registry.environments)
    for environment in _registry.environments.values():
        environment.is_inherited = True
    _registry = _Registry()


os.register_at_fork(after_in_child=_forget_after_fork)


def _open_database(environment: lmdb.Environment, name: bytes, *, create: bool) -> lmdb._Database:
    """Within ``exclusive``, because it may have to adopt the size that another process gave the map meanwhile."""
    while True:
        try:
            return environment.open_db(name, create=create)
        except lmdb.MapResizedError:
            environment.set_mapsize(0)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(directory / DATA_FILE)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino

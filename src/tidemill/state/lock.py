"""Lock of a state directory: held by one instance, that is its driver and the workers to which it gave the lock.

The lock is flock's on `.lock`, so the kernel frees it when the last process that holds the descriptor has died, however it
died. The driver sends ``fileno()`` to its workers over a Unix socket (or they inherit it): they then hold the *same* lock.
`.lock` also says which process took it, so that a second instance is refused with a name, while a restart, whose
predecessor's driver is dead but whose workers are still dying, waits for them.

A file that was removed locks nothing for those who come later. So the driver looks whether the file is still there (``hold_on``),
and takes the new one: if another instance has that, it says so. Workers that are at work by then hold the old one on.

Decides only this; the worker itself makes sure that it writes nothing after its driver's end.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from tidemill.deadline import Deadline
from tidemill.errors import EnvironmentProblem, StateDirectoryInUseError
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.state")

LOCK_FILE = ".lock"
_POLL_S = 0.05
_START_TOLERANCE_S = 2.0  # Start times are computed from the clock, which may be set between two looks.


@dataclass(frozen=True, slots=True)
class _Holder:
    """Holder of a lock, as written in its file."""

    pid: int
    started_s: float

    @classmethod
    def of_this_process(cls) -> _Holder:
        return cls(os.getpid(), psutil.Process().create_time())

    @classmethod
    def read(cls, descriptor: int) -> _Holder | None:
        """The holder by the file; None if it was given back, or is being written."""
        try:
            fields = json.loads(os.pread(descriptor, 1000, 0))
            return cls(int(fields["pid"]), float(fields["started_s"]))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def write(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": self.pid, "started_s": self.started_s}).encode(), 0)

    def is_alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return bool(
                process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - self.started_s) <= _START_TOLERANCE_S
            )
        except (psutil.NoSuchProcess, ValueError):  # ValueError: a number that no process has
            return False
        except psutil.AccessDenied:
            return True


def state_dir_problem(what: str, error: OSError) -> EnvironmentProblem:
    """The error of a disk without room, of another user's file, or of something else in a file's or a folder's place."""
    do = "state.dir must be a folder with room that this user may write"
    if error.errno in (errno.EISDIR, errno.EEXIST, errno.ENOTDIR):
        do = "Remove what is there, or set state.dir to another folder"
    return EnvironmentProblem(f"{what}: {error.strerror}. {do}")


def _is(path: Path, descriptor: int) -> bool:
    """True if the file of this descriptor is still there."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


class StateDirectoryLock:
    """The lock of a state directory, held until ``release`` here and in every process that was given ``fileno()``."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self._descriptor = descriptor
        self._holding_on = threading.RLock()

    @classmethod
    def acquire(cls, directory: Path, *, timeout_s: float) -> StateDirectoryLock:
        """Take the lock of `directory`, waiting up to `timeout_s` for the workers of a dead or closed instance.

        Raises StateDirectoryInUseError, at once if a live instance has it, else when the time is over.
        """
        directory = directory.resolve()
        return cls(directory, cls._taken(directory, timeout_s))

    @property
    def is_held(self) -> bool:
        """True while this object holds the lock."""
        return self._descriptor >= 0

    def fileno(self) -> int:
        """The descriptor, to be sent to the processes that shall hold the lock too."""
        return self._descriptor

    def hold_on(self) -> None:
        """Makes sure that the file is still the one that is locked; if it was removed, locks the one in its place. Any thread.

        Raises StateDirectoryInUseError if another instance has done that before.
        """
        with self._holding_on:
            if not self.is_held or _is(self.directory / LOCK_FILE, self._descriptor):
                return
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
                descriptor = self._taken(self.directory, 0)
            except OSError as error:
                raise state_dir_problem(f"can't make {self.directory} again, which was removed", error) from error
            except StateDirectoryInUseError as error:
                detail = f"which has taken it since {LOCK_FILE} was removed from under this one"
                raise StateDirectoryInUseError(str(self.directory), holder_pid=error.holder_pid, detail=detail) from error
            os.dup2(descriptor, self._descriptor, inheritable=False)  # workers are sent it under this number
            os.close(descriptor)
        log.warning(LogEvent("lock-taken-again", directory=self.directory, reason="its file was removed or replaced"))

    def release(self) -> None:
        """Give the lock up in this process. Workers that were given it hold it on, and a next instance waits for them."""
        with self._holding_on:
            if self.is_held:
                # Without a name the next one waits, although this process may live on. No LOCK_UN: it would unlock workers too.
                os.ftruncate(self._descriptor, 0)
                os.close(self._descriptor)
                self._descriptor = -1

    def leave_to_parent(self) -> None:
        """In a forked process, which would hold the lock as a worker does: closes its descriptor, and changes nothing."""
        if self.is_held:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> StateDirectoryLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()

    @classmethod
    def _taken(cls, directory: Path, timeout_s: float) -> int:
        """The locked file."""
        path = directory / LOCK_FILE
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise state_dir_problem(f"can't open {path}", error) from error
        try:
            cls._wait(directory, descriptor, Deadline.after(timeout_s))
            if not _is(path, descriptor):
                raise StateDirectoryInUseError(str(directory), holder_pid=None, detail=f"which has just removed {LOCK_FILE}")
            _Holder.of_this_process().write(descriptor)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise state_dir_problem(f"can't write {path}", error) from error
            raise
        return descriptor

    @staticmethod
    def _wait(directory: Path, descriptor: int, deadline: Deadline) -> None:
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _Holder.read(descriptor)
            if holder is not None and holder.is_alive():
                where = "this process itself" if holder.pid == os.getpid() else "which is running"
                raise StateDirectoryInUseError(str(directory), holder_pid=holder.pid, detail=where)
            if deadline.is_over:
                raise StateDirectoryInUseError(
                    str(directory),
                    holder_pid=None if holder is None else holder.pid,
                    detail="its workers still hold the lock" if holder else "closed, but its workers still hold the lock",
                )
            time.sleep(_POLL_S)

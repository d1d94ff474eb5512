"""The driver's handle of a Python worker: a process of this machine, or one behind a connection.

Decides how a worker is ended and what proves its death (correctness.md, rule 12): for a process here its pid, for one
elsewhere that its end of the leash is closed, which the kernel does when the process has died.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Protocol

import psutil

from tidemill.control.messages import AskedRead, ReadAnswer, StoreRead
from tidemill.control.sockets import ended_after
from tidemill.deadline import Deadline
from tidemill.errors import StateError
from tidemill.ids import TaskId
from tidemill.task.message_pack import pack, unpack

_READ_LIMIT_S = 10.0
_JOIN_LIMIT_S = 2.0
"""Within it a worker that has said hello opens its connection for reads."""


class WorkerProcess(Protocol):
    @property
    def pid(self) -> int:
        """The process id, on the worker's machine."""

    @property
    def host(self) -> str: ...

    def kill(self) -> None:
        """Returns at once."""

    def wait_dead(self, timeout_s: float) -> bool:
        """True as soon as it is known to be dead; False after ``timeout_s``."""


class LocalWorker:
    """A process of this machine. psutil.NoSuchProcess: it has died already."""

    host = "localhost"

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.pid = pid

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil never signals another process under a reused pid
            self._process.kill()

    def wait_dead(self, timeout_s: float) -> bool:
        # Once it is dead its number may become that of a thread, for which psutil's wait raises an OSError.
        with contextlib.suppress(OSError):
            return not self._process.is_running() or not psutil.wait_procs([self._process], timeout=timeout_s)[1]
        return not self._process.is_running()


class RemoteWorker:
    """A process elsewhere, of which there are connections. Made by the control channel only."""

    def __init__(self, pid: int, host: str) -> None:
        self.pid, self.host = pid, host
        self.name = secrets.token_hex(8)
        self._connections: list[Connection] = []
        self._reads: Connection | None = None
        self._answers_reads = threading.Event()
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._is_ended = False
        self._asked = 0
        self._is_dead = threading.Event()

    def attach(self, connection: Connection) -> None:
        """Another connection of it; closing any of them ends the worker."""
        with self._lock:
            self._connections.append(connection)
            if self._is_ended:
                hang_up(connection)

    def attach_reads(self, connection: Connection) -> None:
        """The connection on which it answers reads of its stores."""
        self.attach(connection)
        self._reads = connection
        self._answers_reads.set()

    def died(self, connection: Connection) -> None:
        """Its end of a connection is closed; this one is about to be, and its number may be that of another file then."""
        with self._lock:
            self._connections = [each for each in self._connections if each is not connection]
        self._is_dead.set()

    def kill(self) -> None:
        with self._lock:
            self._is_ended = True
            for connection in self._connections:
                hang_up(connection)

    def wait_dead(self, timeout_s: float | None) -> bool:
        return self._is_dead.wait(timeout_s)

    def ask(self, task: TaskId, folder: str, read: StoreRead) -> bytes:
        """Its answer to a read, packed. StateError: it can't read so; OSError or EOFError: it is gone, or silent for too long."""
        with self._reading:
            if not self._answers_reads.wait(_JOIN_LIMIT_S) or self._reads is None:
                raise EOFError("the worker answers no reads yet")
            self._asked += 1
            self._reads.send_bytes(pack(AskedRead(number=self._asked, task=task, folder=folder, read=read)))
            deadline = Deadline.after(_READ_LIMIT_S)
            while self._reads.poll(deadline.left_s):
                with ended_after(self._reads, _READ_LIMIT_S, "answered a read"):  # it may be stopped in the middle
                    answer = unpack(self._reads.recv_bytes(), ReadAnswer)
                if answer.number != self._asked:  # the late answer to a question that was given up
                    continue
                if answer.failed:
                    raise StateError(f"{self.host}: {answer.failed}")
                return answer.value
            raise TimeoutError(f"no answer within {_READ_LIMIT_S:.0f} s")


def hang_up(connection: Connection) -> None:
    """The other side reads an end; this side still learns of the other's."""
    with contextlib.suppress(OSError), socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as opened:
        opened.shutdown(socket.SHUT_WR)


def end(workers: Sequence[WorkerProcess], timeout_s: float) -> None:
    """Kills them, and returns when they are dead or the time is over."""
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.wait_dead(timeout_s)

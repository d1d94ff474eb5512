"""A Python worker as its driver knows it: a process of this machine, or one behind a connection.

Decides how a worker is ended and what is proof of its death (correctness.md, rule 12): of a process here its pid, of one
elsewhere that its end of the leash is closed, which the kernel does when the process has died.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, Protocol

import psutil

from tidemill.deadline import Deadline

_READ_LIMIT_S = 10.0
_JOIN_LIMIT_S = 2.0
"""Within it a worker that has said hello opens its connection for reads."""


class WorkerProcess(Protocol):
    @property
    def pid(self) -> int:
        """On its own machine."""

    @property
    def host(self) -> str: ...

    def kill(self) -> None:
        """Returns at once."""

    def wait_dead(self, timeout_s: float) -> bool:
        """Whether it is known to be dead, at the latest after ``timeout_s``."""


class HereWorker:
    """A process of this machine. psutil.NoSuchProcess: it has died already."""

    host = "localhost"

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.pid = pid

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # psutil never signals another process under a reused pid
            self._process.kill()

    def wait_dead(self, timeout_s: float) -> bool:
        return not psutil.wait_procs([self._process], timeout=timeout_s)[1]


class FarWorker:
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

    def died(self) -> None:
        """Its end of a connection is closed."""
        self._is_dead.set()

    def kill(self) -> None:
        with self._lock:
            self._is_ended = True
            for connection in self._connections:
                hang_up(connection)

    def wait_dead(self, timeout_s: float | None) -> bool:
        return self._is_dead.wait(timeout_s)

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer to a read. OSError or EOFError: it is gone, or silent for too long."""
        with self._reading:
            if not self._answers_reads.wait(_JOIN_LIMIT_S) or self._reads is None:
                raise EOFError("the worker answers no reads yet")
            self._asked += 1
            self._reads.send_bytes(json.dumps({**question, "number": self._asked}).encode())
            deadline = Deadline.after(_READ_LIMIT_S)
            while self._reads.poll(deadline.left_s):
                answer: dict[str, Any] = json.loads(self._reads.recv_bytes())
                if answer["number"] == self._asked:  # else it is the late one to a question that was given up
                    return answer
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

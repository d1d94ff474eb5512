"""The control channel between a driver and its Python workers: a Unix socket, one JSON object each way.

Decides who may ask what; the answers are the stream thread's (``ControlDesk``). A worker asks, the driver answers: at the
start of a batch what to do, before a commit who it is. The same socket carries the state directory's lock to the workers, so
that a restart waits for the last of them, and it is their leash: a worker whose driver is gone ends at once and commits
nothing any more (correctness.md, rule 9). No pickle passes here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Protocol

from tidemill.errors import BatchLostError, EnvironmentProblem
from tidemill.ids import TopicPartition
from tidemill.task.batch import (
    BatchRequest,
    Membership,
    Positions,
    positions_from_json,
    positions_to_json,
    request_from_json,
    request_to_json,
)
from tidemill.task.batch_id import BatchId

log = logging.getLogger("tidemill.control")

_BACKLOG = 64


class ControlDesk(Protocol):
    """A stream thread's side: what its workers may ask. Called on the channel's threads."""

    def current_request(self) -> BatchRequest: ...

    def membership(self) -> Membership: ...

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions: ...

    def worker_joined(self, step: str, pid: int) -> None: ...

    def hand_over(self, node: str, path: str, batch_id: BatchId) -> str:
        """Calls the function of a ``foreach_batch`` node with the records in a file; what it raised, or nothing."""


class ControlServer:
    """The driver's end, for all its stream threads."""

    def __init__(self, lock_fileno: int | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix="tidemill-")
        self.address = os.path.join(self._folder, "control")
        self.key = secrets.token_bytes(32)
        self._lock_fileno = lock_fileno
        self._desks: dict[str, ControlDesk] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(self.address)
        except OSError as problem:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise EnvironmentProblem(
                f"can't open the control channel {self.address} ({problem}): a socket's path has about 100 characters at most; "
                "set TMPDIR to a folder with a shorter name that can be written"
            ) from problem
        self._listener.listen(_BACKLOG)
        self._lock = threading.Lock()
        self._is_open = True
        self._connections: set[Connection] = set()
        threading.Thread(target=self._accept, name="tidemill-control", daemon=True).start()

    def register(self, thread: str, desk: ControlDesk) -> None:
        self._desks[thread] = desk

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            # Closing alone would leave the threads that wait in accept and recv waiting, on a number that the next file gets.
            for connection in self._connections:
                _shut(connection.fileno())
        _shut(self._listener.fileno())
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._listener.accept()
            except OSError:
                return
            connection = Connection(opened.detach())
            threading.Thread(target=self._serve, args=(connection,), name="tidemill-control-worker", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        desk: ControlDesk | None = None
        with self._lock:
            if not self._is_open:
                connection.close()
                return
            self._connections.add(connection)
        try:
            deliver_challenge(connection, self.key)
            answer_challenge(connection, self.key)
            while True:
                question = json.loads(connection.recv_bytes())
                if question["op"] == "hello":
                    desk = self._desks[question["thread"]]
                    desk.worker_joined(question["step"], question["pid"])
                    connection.send_bytes(json.dumps({"lock": self._lock_fileno is not None}).encode())
                    if self._lock_fileno is not None:
                        send_handle(connection, self._lock_fileno, question["pid"])
                    continue
                if desk is None:
                    return
                connection.send_bytes(_answer(desk, question))
        except AuthenticationError as problem:  # a stranger without the key
            log.warning("event=control-refused problem=%r", problem)
        except (ValueError, KeyError, TypeError, RecursionError) as problem:  # no worker of ours asks so
            log.warning("event=control-garbage problem=%r", str(problem)[:200])
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
                connection.close()


def _shut(fileno: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fileno)) as opened:
        opened.shutdown(socket.SHUT_RDWR)


def _answer(desk: ControlDesk, question: Mapping[str, Any]) -> bytes:
    try:
        return _QUESTIONS[question["op"]](desk, question).encode()
    except Exception as problem:  # told to the worker, which gives up the batch
        return json.dumps({"error": f"{type(problem).__name__}: {problem}"}).encode()


def _membership_answer(desk: ControlDesk, _question: Mapping[str, Any]) -> str:
    membership = desk.membership()
    return json.dumps({name: getattr(membership, name) for name in Membership.__slots__})


def _committed_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    partitions = [TopicPartition(topic, partition) for topic, partition in question["partitions"]]
    return json.dumps({"positions": positions_to_json(desk.committed(partitions))})


def _hand_over_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    batch_id = BatchId.from_rows(question["batch_id"])
    return json.dumps({"failed": desk.hand_over(question["node"], question["path"], batch_id)})


_QUESTIONS: Mapping[str, Callable[[ControlDesk, Mapping[str, Any]], str]] = {
    "request": lambda desk, _: request_to_json(desk.current_request()),
    "membership": _membership_answer,
    "committed": _committed_answer,
    "hand_over": _hand_over_answer,
}


class ControlClient:
    """A worker's end."""

    def __init__(self, address: str, key: bytes, thread: str, step: str) -> None:
        self._connection = Client(address, "AF_UNIX", authkey=key)
        self._send({"op": "hello", "thread": thread, "step": step, "pid": os.getpid()})
        self._lock: int | None = None
        if json.loads(self._connection.recv_bytes())["lock"]:
            # The descriptor is never used, only kept: as long as it is open here, the state directory is held.
            self._lock = recv_handle(self._connection)
        leash = Client(address, "AF_UNIX", authkey=key)
        threading.Thread(target=_hold, args=(leash,), name="tidemill-leash", daemon=True).start()

    def request(self) -> BatchRequest:
        return request_from_json(json.dumps(self._ask({"op": "request"})))

    def membership(self) -> Membership:
        return Membership(**self._ask({"op": "membership"}))

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        answer = self._ask({"op": "committed", "partitions": [list(tp) for tp in partitions]})
        return positions_from_json(answer["positions"])

    def hand_over(self, node: str, path: str, batch_id: BatchId) -> str:
        answer = self._ask({"op": "hand_over", "node": node, "path": path, "batch_id": batch_id.to_rows()})
        return str(answer["failed"])

    def _send(self, question: Mapping[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(question).encode())

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._send(question)
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # the driver is gone, and with it the right to commit
        if "error" in answer:
            raise BatchLostError(f"the driver could not answer {question['op']}: {answer['error']}")
        return answer


def _hold(leash: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        leash.recv_bytes()
    os._exit(1)

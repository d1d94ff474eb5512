"""The control channel between a driver and its Python workers: one JSON object each way, over a socket of ``sockets``.

Decides who may ask what; the answers are the stream thread's (``ControlDesk``). A worker asks, the driver answers: the source
step what to do next, for which it waits, the last one before a commit who it is; and that one reports. On one machine the same
socket carries the state directory's lock to the workers, so that a restart waits for the last of them. Everywhere it is their
leash: a worker whose driver is gone ends at once and commits nothing any more (correctness.md, rule 9). On executors it also
carries reads of stores, driver to worker. No pickle passes here.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, Protocol

import psutil

from tidemill.control.sockets import HereListener, Listener, greet, opened
from tidemill.control.worker_process import FarWorker, HereWorker, WorkerProcess
from tidemill.errors import BatchLostError
from tidemill.ids import TopicPartition
from tidemill.log_format import LogEvent
from tidemill.task.batch import (
    BatchReport,
    BatchRequest,
    Membership,
    Positions,
    Taken,
    positions_from_json,
    positions_to_json,
    report_from_json,
    report_to_json,
    request_to_json,
    taken_from_json,
    taken_to_json,
)
from tidemill.task.batch_id import BatchId

log = logging.getLogger("tidemill.control")

SOURCE = "source"
"""The step that reads."""
_HURRY = b"hurry"


class ControlDesk(Protocol):
    """A stream thread's side: what its workers may ask. Called on the channel's threads."""

    def next_request(self, run: int) -> BatchRequest | None:
        """What the source step of a run is to serve next; waits for it. None: the run ends."""

    def reported(self, run: int, report: BatchReport) -> None:
        """What the last step of a run says of a batch."""

    def wait_served(self, run: int, batch_id: int) -> None:
        """Returns when it has said so, or will not."""

    def membership(self) -> Membership: ...

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions: ...

    def worker_joined(self, step: str, worker: WorkerProcess) -> None: ...

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        """It has died, or let go of the channel."""

    def hand_over(self, node: str, path: str, batch_id: BatchId) -> str:
        """Calls the function of a ``foreach_batch`` node with the records in a file; what it raised, or nothing."""

    def taking(self, batch_id: int, taken: Taken) -> None:
        """The source step is about to hand this over."""

    def has_run(self, batch_id: int) -> None:
        """The last step's functions are done with the batch."""


class ControlServer:
    """The driver's end, for all its stream threads. ``listener``: where workers find it; a socket of this machine if None.

    ``lock_fileno``: the state directory's lock, which workers on this machine hold too.
    """

    def __init__(self, lock_fileno: int | None = None, listener: Listener | None = None) -> None:
        self._listener = listener or HereListener()
        self.address = self._listener.address
        self.key = secrets.token_bytes(32)
        self._lock_fileno = lock_fileno if self._listener.is_local else None
        self._desks: dict[str, ControlDesk] = {}
        self._leashes: dict[tuple[str, str], Connection] = {}
        """By stream thread and step."""
        self._far: dict[str, FarWorker] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._connections: set[Connection] = set()
        threading.Thread(target=self._accept, name="tidemill-control", daemon=True).start()

    def register(self, thread: str, desk: ControlDesk) -> None:
        self._desks[thread] = desk

    def hurry(self, thread: str) -> None:
        """Any thread: the stream thread is needed; a source step that waits for records is to wait no longer."""
        with self._lock, contextlib.suppress(KeyError, OSError):
            self._leashes[thread, SOURCE].send_bytes(_HURRY)

    def close(self) -> None:
        with self._lock:
            self._is_open = False
            # Closing alone would leave the threads that wait in accept and recv waiting, on a number that the next file gets.
            for connection in self._connections:
                _shut(connection.fileno())
        _shut(self._listener.socket.fileno())
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(accepted,), name="tidemill-control-worker", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with self._lock:
            if not self._is_open:
                accepted.close()
                return
            connection = Connection(accepted.detach())
            self._connections.add(connection)
        far: FarWorker | None = None
        left: Callable[[], None] | None = None
        leash: tuple[str, str] | None = None
        try:
            greet(connection, self.key)
            question = json.loads(connection.recv_bytes())
            if question["op"] == "hello":
                desk = self._desks[question["thread"]]
                worker = self._welcome(connection, desk, question)
                if worker is not None:
                    far = worker if isinstance(worker, FarWorker) else None
                    left = partial(desk.worker_left, question["step"], worker)
                while True:
                    question = json.loads(connection.recv_bytes())
                    answer = _answer(desk, question)
                    if question["op"] not in _UNANSWERED:
                        connection.send_bytes(answer)
            far = self._far.get(question.get("worker", ""))
            if question["op"] == "reads" and far is not None:
                far.attach_reads(connection)
                far.wait_dead(None)  # who asks for reads also receives the answers
            elif question["op"] == "leash":
                if far is not None:
                    far.attach(connection)
                with self._lock:
                    leash = (question["thread"], question["step"])
                    self._leashes[leash] = connection
                connection.recv_bytes()  # its other end never says anything
            else:
                raise ValueError(f"a worker's first words are hello, reads or leash, not {question['op']!r:.40}")
        except AuthenticationError as problem:  # a stranger without the key
            log.warning(LogEvent("control-refused", problem=problem))
        except (ValueError, KeyError, TypeError, RecursionError) as problem:  # no worker of ours asks so
            log.warning(LogEvent("control-garbage", problem=str(problem)[:200]))
        except (EOFError, OSError):
            pass
        finally:
            if left is not None:
                left()
            if far is not None:
                far.died()
                with contextlib.suppress(KeyError):
                    del self._far[far.name]
            with self._lock:
                if leash is not None and self._leashes.get(leash) is connection:
                    del self._leashes[leash]
                self._connections.discard(connection)
                connection.close()

    def _welcome(self, connection: Connection, desk: ControlDesk, question: Mapping[str, Any]) -> WorkerProcess | None:
        """Answers a worker's first words; a worker elsewhere gets a name, by which its other connections are known. None: it has
        died since."""
        if not self._listener.is_local:
            far = FarWorker(question["pid"], question["host"])
            self._far[far.name] = far
            far.attach(connection)
            desk.worker_joined(question["step"], far)
            connection.send_bytes(json.dumps({"lock": False, "worker": far.name}).encode())
            return far
        here: HereWorker | None = None
        with contextlib.suppress(psutil.NoSuchProcess):
            here = HereWorker(question["pid"])
            desk.worker_joined(question["step"], here)
        connection.send_bytes(json.dumps({"lock": self._lock_fileno is not None, "worker": ""}).encode())
        if self._lock_fileno is not None:
            send_handle(connection, self._lock_fileno, question["pid"])
        return here


def _shut(fileno: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fileno)) as held:
        held.shutdown(socket.SHUT_RDWR)


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


def _taking_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    desk.taking(question["batch"], taken_from_json(question))
    return "{}"


def _next_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    request = desk.next_request(question["run"])
    return json.dumps({"request": None if request is None else request_to_json(request)})


def _report_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    desk.reported(question["run"], report_from_json(question["report"]))
    return "{}"


def _served_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    desk.wait_served(question["run"], question["batch"])
    return "{}"


def _has_run_answer(desk: ControlDesk, question: Mapping[str, Any]) -> str:
    desk.has_run(question["batch"])
    return "{}"


_QUESTIONS: Mapping[str, Callable[[ControlDesk, Mapping[str, Any]], str]] = {
    "next": _next_answer,
    "report": _report_answer,
    "served": _served_answer,
    "membership": _membership_answer,
    "committed": _committed_answer,
    "hand_over": _hand_over_answer,
    "taking": _taking_answer,
    "has_run": _has_run_answer,
}

_UNANSWERED = {"taking"}
"""Nothing hangs on its answer, and the source step says it before each chunk."""

Answer = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class ControlClient:
    """A worker's end. Raises BatchLostError if the driver is not there to be asked."""

    def __init__(self, address: str, key: bytes, thread: str, step: str) -> None:
        self._address, self._key = address, key
        self.hurried = threading.Event()
        """Set when the stream thread is needed; whoever waits for records clears it."""
        self._connection = opened(address, key)
        self._send({"op": "hello", "thread": thread, "step": step, "pid": os.getpid(), "host": socket.gethostname()})
        self._lock: int | None = None
        welcome = json.loads(self._connection.recv_bytes())
        self._name: str = welcome["worker"]
        if welcome["lock"]:
            # The descriptor is never used, only kept: as long as it is open here, the state directory is held.
            self._lock = recv_handle(self._connection)
        leash = self._beside("leash", thread=thread, step=step)
        threading.Thread(target=_hold, args=(leash, self.hurried), name="tidemill-leash", daemon=True).start()

    def answer_reads(self, answer: Answer) -> None:
        """From now on, on a thread of its own."""
        connection = self._beside("reads")
        threading.Thread(target=_answer_reads, args=(connection, answer), name="tidemill-reads", daemon=True).start()

    def _beside(self, op: str, **more: str) -> Connection:
        connection = opened(self._address, self._key)
        connection.send_bytes(json.dumps({"op": op, "worker": self._name, **more}).encode())
        return connection

    def next_request(self, run: int) -> str | None:
        """As JSON, which travels on as it is; None: the run ends."""
        request: str | None = self._ask({"op": "next", "run": run})["request"]
        return request

    def report(self, run: int, report: BatchReport) -> None:
        self._ask({"op": "report", "run": run, "report": report_to_json(report)})

    def wait_served(self, run: int, batch_id: int) -> None:
        self._ask({"op": "served", "run": run, "batch": batch_id})

    def membership(self) -> Membership:
        return Membership(**self._ask({"op": "membership"}))

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        answer = self._ask({"op": "committed", "partitions": [list(tp) for tp in partitions]})
        return positions_from_json(answer["positions"])

    def hand_over(self, node: str, path: str, batch_id: BatchId) -> str:
        answer = self._ask({"op": "hand_over", "node": node, "path": path, "batch_id": batch_id.to_rows()})
        return str(answer["failed"])

    def taking(self, batch_id: int, taken: Taken) -> None:
        self._tell({"op": "taking", "batch": batch_id, **taken_to_json(taken)})

    def has_run(self, batch_id: int) -> None:
        self._ask({"op": "has_run", "batch": batch_id})

    def _send(self, question: Mapping[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(question).encode())

    def _tell(self, said: Mapping[str, Any]) -> None:
        try:
            self._send(said)
        except OSError:
            os._exit(1)

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._send(question)
            answer: dict[str, Any] = json.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)  # the driver is gone, and with it the right to commit
        if "error" in answer:
            raise BatchLostError(f"the driver could not answer {question['op']}: {answer['error']}")
        return answer


def _hold(leash: Connection, hurried: threading.Event) -> None:
    with contextlib.suppress(EOFError, OSError):
        while leash.recv_bytes() == _HURRY:
            hurried.set()
    os._exit(1)


def _answer_reads(connection: Connection, answer: Answer) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            question = json.loads(connection.recv_bytes())
            try:
                found = answer(question)
            except Exception as problem:  # told to who reads
                found = {"error": f"{type(problem).__name__}: {problem}"}
            connection.send_bytes(json.dumps({**found, "number": question["number"]}).encode())

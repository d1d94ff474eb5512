"""The control channel between a driver and its Python workers: one message each way (``messages``), over a socket of ``sockets``.

Decides who may send which request; the answers are the stream thread's (``ControlHandler``). Workers ask, the driver answers: the
source step asks for the next batch request, the last step asks for the membership before a commit, and sends its report. On one
machine the socket also passes the state directory's lock to the workers, so that a restart waits for the last of them. Everywhere
it is their leash: a worker whose driver is gone ends at once and commits nothing any more (correctness.md, rule 9). On executors
it also carries reads of stores, driver to worker. No pickle passes here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import NoReturn, Protocol

import psutil

from tidemill.control.failures import as_pyspark_sends, blaming_no_record, kind_of
from tidemill.control.messages import (
    AskCommitted,
    Asked,
    AskedRead,
    AskMembership,
    CallForeachBatch,
    DriverAnswer,
    HasRun,
    Hello,
    NextRequest,
    Purpose,
    Question,
    ReadAnswer,
    Report,
    SourceAdvanced,
    StepFailed,
    StoreRead,
    WaitServed,
    Welcome,
)
from tidemill.control.sockets import Listener, LocalListener, greet, opened
from tidemill.control.worker_process import LocalWorker, RemoteWorker, WorkerProcess
from tidemill.errors import BatchLostError, ColumnsResultError, MisfitError, assert_never, record_of
from tidemill.forked import leaves_to_parent
from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.printable import said_by
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Positions, SourceProgress
from tidemill.task.batch_id import BatchId
from tidemill.task.message_pack import as_utf8, pack, unpack

log = logging.getLogger("tidemill.control")

SOURCE = "source"
"""The step that reads."""
_HURRY = b"hurry"
_NO_DESCRIPTOR_PAUSE_S = 0.5
"""Pause where the process has no descriptor for another connection: a worker waits for its greeting for longer."""


class ControlHandler(Protocol):
    """Answers the questions of one stream thread's workers. Called on the channel's threads."""

    def next_request(self, run: int) -> BatchRequest | None:
        """The request that the source step of a run is to serve next; waits for it. None: the run ends."""

    def reported(self, run: int, report: BatchReport) -> None:
        """The last step's report of a batch in a run."""

    def wait_served(self, run: int, batch_id: int) -> None:
        """Returns when the last step has reported the batch, or the run ends."""

    def step_failed(self, failed: StepFailed) -> None:
        """A step of a run is about to raise."""

    def membership(self) -> CommittingMember: ...

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions: ...

    def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> None:
        """A worker, made by a task of this run, says hello."""

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        """The worker has died or closed its connection."""

    def call_foreach_batch(self, batch_id: int, node: str, path: str, offsets: BatchId) -> str:
        """Calls the function of a ``foreach_batch`` node with the batch's records in a file. Returns its error, empty if it
        succeeded."""

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None:
        """The source step is about to pass on the records up to here."""

    def has_run(self, batch_id: int) -> None:
        """The last step's functions are done with the batch."""


class ControlServer:
    """The driver's end, for all its stream threads. ``listener``: where workers find it; a socket of this machine if None.

    ``lock_fileno``: the state directory's lock, which workers on this machine hold too.
    """

    def __init__(self, lock_fileno: int | None = None, listener: Listener | None = None) -> None:
        self._listener = listener or LocalListener()
        self.address = self._listener.address
        self.key = secrets.token_bytes(32)
        self._lock_fileno = lock_fileno if self._listener.is_local else None
        self._handlers: dict[str, ControlHandler] = {}
        self._leashes: dict[tuple[str, str], Connection] = {}
        """Open leashes, by stream thread and step."""
        self._remote: dict[str, RemoteWorker] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._connections: set[Connection] = set()
        threading.Thread(target=self._accept, name="tidemill-control", daemon=True).start()

    def register(self, thread: str, handler: ControlHandler) -> None:
        self._handlers[thread] = handler

    def hurry(self, thread: str) -> None:
        """Ends the wait of the thread's source step for records, since the stream thread has something to do. Any thread."""
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

    def leave_to_parent(self) -> None:
        """In a forked process: closes its copies of the connections. A worker notices the end of its driver by the end of its
        connection, which a copy would keep open."""
        self._listener.socket.close()
        for connection in self._connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.socket.accept()
            except OSError as problem:
                if not self._is_open or self._listener.socket.fileno() < 0:
                    return
                log.warning(LogEvent("control-refused", problem=problem))
                time.sleep(_NO_DESCRIPTOR_PAUSE_S)
                continue
            threading.Thread(target=self._serve, args=(accepted,), name="tidemill-control-worker", daemon=True).start()

    def _serve(self, accepted: socket.socket) -> None:
        with self._lock:
            if not self._is_open:
                accepted.close()
                return
            connection = Connection(accepted.detach())
            self._connections.add(connection)
        try:
            greet(connection, self.key)
            hello = unpack(connection.recv_bytes(), Hello)
            match hello.purpose:
                case Purpose.QUESTIONS:
                    self._answer_questions(connection, hello)
                case Purpose.LEASH:
                    self._hold_leash(connection, hello)
                case Purpose.READS:
                    self._ask_reads(connection, hello)
                case _:
                    assert_never(hello.purpose)
        except AuthenticationError as problem:  # a stranger without the key
            log.warning(LogEvent("control-refused", problem=problem))
        except MisfitError as problem:  # no worker of ours asks so
            log.warning(LogEvent("control-garbage", problem=problem))
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self._connections.discard(connection)
                connection.close()

    def _answer_questions(self, connection: Connection, hello: Hello) -> NoReturn:
        """Ends when the worker is gone (EOFError, OSError) or sends something that no worker sends (MisfitError)."""
        handler = self._handler_of(hello)
        worker = self._process_of(connection, hello)
        if worker is not None:
            handler.worker_joined(hello.run, hello.step, worker)
        try:
            self._welcome(connection, worker, hello)
            while True:
                _answer(connection, handler)
        finally:
            if isinstance(worker, RemoteWorker):
                self._died(worker, connection)
            if worker is not None:
                handler.worker_left(hello.step, worker)

    def _hold_leash(self, connection: Connection, hello: Hello) -> None:
        """Until the worker is gone."""
        remote, leash = self._remote.get(hello.worker), (hello.thread, hello.step)
        try:
            if remote is not None:
                remote.attach(connection)
            with self._lock:
                self._leashes[leash] = connection
            connection.recv_bytes()  # its other end never says anything
        finally:
            if remote is not None:
                self._died(remote, connection)
            with self._lock:
                if self._leashes.get(leash) is connection:
                    del self._leashes[leash]

    def _ask_reads(self, connection: Connection, hello: Hello) -> None:
        """Until the worker is gone."""
        remote = self._remote.get(hello.worker)
        if remote is None:
            raise MisfitError(f"reads are of workers elsewhere, but none has the name {hello.worker!r:.60}")
        try:
            remote.attach_reads(connection)
            remote.wait_dead(None)  # who asks for reads also receives the answers
        finally:
            self._died(remote, connection)

    def _died(self, remote: RemoteWorker, connection: Connection) -> None:
        remote.died(connection)
        self._remote.pop(remote.name, None)

    def _handler_of(self, hello: Hello) -> ControlHandler:
        if hello.thread not in self._handlers:
            known = ", ".join(sorted(self._handlers))
            raise MisfitError(f"a worker is of stream thread {hello.thread!r:.60}, expected one of: {known or 'none yet'}")
        return self._handlers[hello.thread]

    def _process_of(self, connection: Connection, hello: Hello) -> WorkerProcess | None:
        """The process that says hello; None if it has died meanwhile."""
        if self._listener.is_local:
            with contextlib.suppress(psutil.NoSuchProcess):
                return LocalWorker(hello.pid)
            return None
        remote = RemoteWorker(hello.pid, hello.host)
        self._remote[remote.name] = remote
        remote.attach(connection)
        return remote

    def _welcome(self, connection: Connection, worker: WorkerProcess | None, hello: Hello) -> None:
        """Answers a worker's Hello. One on another machine gets a name, by which its other connections are recognised."""
        if isinstance(worker, RemoteWorker):
            connection.send_bytes(pack(Welcome(lock=False, worker=worker.name)))
            return
        connection.send_bytes(pack(Welcome(lock=self._lock_fileno is not None)))
        if self._lock_fileno is not None:
            send_handle(connection, self._lock_fileno, hello.pid)


def _shut(fileno: int) -> None:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fileno)) as held:
        held.shutdown(socket.SHUT_RDWR)


def _answer(connection: Connection, handler: ControlHandler) -> None:
    question = unpack(connection.recv_bytes(), Asked).question
    try:
        answer = DriverAnswer(value=_answered(handler, question))
    except Exception as problem:  # the worker gives up the batch
        answer = DriverAnswer(failed=as_utf8(f"{type(problem).__name__}: {said_by(problem)}"))
        if isinstance(question, SourceAdvanced):
            log.warning(LogEvent("control-taking-failed", batch=question.batch_id, problem=answer.failed), exc_info=True)
    if not isinstance(question, SourceAdvanced):
        connection.send_bytes(pack(answer))


def _answered(handler: ControlHandler, question: Question) -> bytes:
    match question:
        case NextRequest(run=run):
            request = handler.next_request(run)
            return b"" if request is None else pack(request)
        case Report(run=run, report=report):
            handler.reported(run, report)
        case WaitServed(run=run, batch_id=batch_id):
            handler.wait_served(run, batch_id)
        case StepFailed():
            handler.step_failed(question)
        case AskMembership():
            return pack(handler.membership())
        case AskCommitted(partitions=partitions):
            return pack(handler.committed(partitions))
        case CallForeachBatch(batch_id=batch_id, node=node, path=path, offsets=offsets):
            return pack(as_utf8(handler.call_foreach_batch(batch_id, node, path, offsets)))
        case SourceAdvanced(batch_id=batch_id, progress=progress):
            handler.source_advanced(batch_id, progress)
        case HasRun(batch_id=batch_id):
            handler.has_run(batch_id)
        case _:
            assert_never(question)
    return b""


AnswerRead = Callable[[TaskId, str, StoreRead], bytes]
"""The answer to a read of a task's stores, packed."""


class ControlClient:
    """A worker's end. BatchLostError if the driver can't be reached or can't answer; when the driver ends, this process ends."""

    def __init__(self, address: str, key: bytes, thread: str, step: str, run: int) -> None:
        self._address, self._key = address, key
        self.hurried = threading.Event()
        """Set when the stream thread is needed; a wait for records clears it."""
        self._thread, self._step, self._run = thread, step, run
        self._name = ""
        self._connections: list[Connection] = []
        self._connection = self._open(Purpose.QUESTIONS)
        welcome = unpack(self._connection.recv_bytes(), Welcome)
        self._name = welcome.worker
        self._lock: int | None = None
        leaves_to_parent(self)
        if welcome.lock:
            # The descriptor is never used, only kept: as long as it is open here, the state directory is held.
            self._lock = recv_handle(self._connection)
        leash = self._open(Purpose.LEASH)
        threading.Thread(target=_hold, args=(leash, self.hurried), name="tidemill-leash", daemon=True).start()

    def answer_reads(self, answer: AnswerRead) -> None:
        """Answers reads from now on, on a thread of its own."""
        connection = self._open(Purpose.READS)
        threading.Thread(target=_answer_reads, args=(connection, answer), name="tidemill-reads", daemon=True).start()

    def leave_to_parent(self) -> None:
        """In a process that a function has forked from the worker: closes its copies of the connections, by whose end the driver
        notices that the worker has died."""
        for connection in self._connections:
            connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _open(self, purpose: Purpose) -> Connection:
        connection = opened(self._address, self._key)
        self._connections.append(connection)
        connection.send_bytes(
            pack(
                Hello(
                    purpose=purpose,
                    thread=self._thread,
                    step=self._step,
                    pid=os.getpid(),
                    host=socket.gethostname(),
                    run=self._run,
                    worker=self._name,
                )
            )
        )
        return connection

    @contextlib.contextmanager
    def leaving_on_failure(self, run: int) -> Iterator[None]:
        """Reports a step's error to the driver, with what it must do (``FailureKind``), and closes the connection. Then the
        driver ends the source step.

        PySpark's daemon reads and drops all further rows of a failed step. The one thread of the JVM would go on to the source
        step, wait there for the next batch, and never read the error of the failed step.
        """
        try:
            with blaming_no_record(self._step):
                yield
        except BaseException as problem:  # sys.exit() in a function, too
            try:
                if (kind := kind_of(problem)) is not None:
                    # Answered before the error leaves the step: the driver knows it before the run's job has ended.
                    message, node = as_utf8(str(problem)), problem.node if isinstance(problem, ColumnsResultError) else ""
                    self._ask(StepFailed(run=run, kind=kind, message=message, record=record_of(problem), node=node))
            finally:
                self._connection.close()
            sent = as_pyspark_sends(problem)
            if sent is not problem:
                raise sent from None
            raise

    def next_request(self, run: int) -> bytes | None:
        """The next BatchRequest, packed, since it is sent on unread; None: the run ends."""
        return self._ask(NextRequest(run=run)) or None

    def report(self, run: int, report: BatchReport) -> None:
        # A message may quote a record, with characters that UTF-8 can't hold.
        self._ask(Report(run=run, report=replace(report, message=as_utf8(report.message))))

    def wait_served(self, run: int, batch_id: int) -> None:
        self._ask(WaitServed(run=run, batch_id=batch_id))

    def membership(self) -> CommittingMember:
        return unpack(self._ask(AskMembership()), CommittingMember)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return unpack(self._ask(AskCommitted(partitions=tuple(partitions))), dict[TopicPartition, int])

    def call_foreach_batch(self, batch_id: int, node: str, path: str, offsets: BatchId) -> str:
        return unpack(self._ask(CallForeachBatch(batch_id=batch_id, node=node, path=path, offsets=offsets)), str)

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None:
        self._send(SourceAdvanced(batch_id=batch_id, progress=progress))

    def has_run(self, batch_id: int) -> None:
        self._ask(HasRun(batch_id=batch_id))

    def _send(self, question: Question) -> None:
        message = pack(Asked(question=question))
        try:
            self._connection.send_bytes(message)
        except OSError:
            os._exit(1)  # the driver is gone, and with it the right to commit

    def _ask(self, question: Question) -> bytes:
        self._send(question)
        try:
            answer = unpack(self._connection.recv_bytes(), DriverAnswer)
        except (EOFError, OSError):
            os._exit(1)
        if answer.failed:
            raise BatchLostError(f"the driver could not answer {type(question).__name__}: {answer.failed}")
        return answer.value


def _hold(leash: Connection, hurried: threading.Event) -> None:
    with contextlib.suppress(EOFError, OSError):
        while leash.recv_bytes() == _HURRY:
            hurried.set()
    os._exit(1)


def _answer_reads(connection: Connection, answer: AnswerRead) -> None:
    """Until the driver is gone. A request that no driver would send is ignored, and gets no answer within the limit."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            try:
                asked = unpack(connection.recv_bytes(), AskedRead)
            except MisfitError as problem:
                log.warning(LogEvent("control-garbage", problem=problem))
                continue
            try:
                found = ReadAnswer(number=asked.number, value=answer(asked.task, asked.folder, asked.read))
            except Exception as problem:  # the caller of the read gets it
                found = ReadAnswer(number=asked.number, failed=as_utf8(f"{type(problem).__name__}: {said_by(problem)}"))
            connection.send_bytes(pack(found))

"""Workers on their driver's leash (correctness.md, rule 9): what they may ask, what they hold, and when they end.

Workers are processes here, always: one that loses its driver ends its process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.freezing import freeze
from tidemill.control.channel import ControlServer
from tidemill.control.messages import CountEntries, FailureKind, StepFailed
from tidemill.control.sockets import TcpListener, opened
from tidemill.control.worker_process import RemoteWorker, WorkerProcess
from tidemill.errors import EnvironmentProblem, FailedRecord, StateDirectoryInUseError, StateError
from tidemill.ids import TaskId, TopicPartition
from tidemill.state.lock import StateDirectoryLock
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Outcome, Positions, SourceProgress

IN = TopicPartition("in", 0)
TASK = TaskId(1, 0)
REQUEST = BatchRequest(batch_id=7, inputs={IN: 3})
WORKER = """
    import sys, time
    from tidemill.control.channel import ControlClient
    client = ControlClient(sys.argv[1], bytes.fromhex(sys.argv[2]), "thread", "step-1", 1)
    print("joined", flush=True)
    time.sleep(600)
"""
ASKING_WORKER = """
    import sys
    from tidemill.errors import BatchLostError
    from tidemill.ids import TopicPartition
    from tidemill.control.channel import ControlClient
    from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
    from tidemill.task.message_pack import unpack
    client = ControlClient(sys.argv[1], bytes.fromhex(sys.argv[2]), "thread", "step-1", 1)
    print(unpack(client.next_request(3), BatchRequest), flush=True)
    client.report(3, BatchReport(batch_id=7, outcome=Outcome.COMMITTED, records_in=5, message="half a pair: \\ud83d"))
    client.wait_served(3, 7)
    print(client.membership(), flush=True)
    try:
        client.committed([TopicPartition("in", 0)])
    except BatchLostError as error:
        print(error, flush=True)
    client.source_advanced(8, SourceProgress(records=1, first=(TopicPartition("in", 0), 5)))
    print(client.membership(), flush=True)
"""
FAILING_WORKER = """
    import sys, time
    from tidemill.control.channel import ControlClient
    from tidemill.errors import BatchLostError, MissingRightError, RecordError, RecordTooLargeError
    from tidemill.steps.rows.records import TransitError
    client = ControlClient(sys.argv[1], bytes.fromhex(sys.argv[2]), "thread", "step-1", 1)
    try:
        with client.leaving_on_failure(3):
            raise KIND
    except BaseException:
        print("failed", flush=True)
    time.sleep(600)
"""
DRIVER = """
    import sys, time
    from pathlib import Path
    from tidemill.control.channel import ControlServer
    from tidemill.state.lock import StateDirectoryLock
    class Handler:
        def worker_joined(self, run, step, worker): pass
        def worker_left(self, step, worker): pass
    lock = StateDirectoryLock.acquire(Path(sys.argv[1]), timeout_s=5)
    server = ControlServer(lock.fileno())
    server.register("thread", Handler())
    print(server.address, server.key.hex(), flush=True)
    time.sleep(600)
"""

FORKING_DRIVER = DRIVER.replace(
    "time.sleep(600)",
    """
    import os
    from tidemill.forked import leaves_to_parent
    leaves_to_parent(lock)
    leaves_to_parent(server)
    while not Path(sys.argv[1], "worker-has-joined").exists():
        time.sleep(0.05)
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(600)
    """,
)

READING_WORKER = """
    import sys, time
    from pathlib import Path
    from tidemill.control.channel import ControlClient
    client = ControlClient(sys.argv[1], bytes.fromhex(sys.argv[2]), "thread", "step-1", 1)
    def answer(task, folder, read):
        if read.store == "none":
            raise ValueError("no such store")
        while read.store == "late" and not Path(folder, "answer").exists():
            time.sleep(0.01)
        return f"{task} {folder} {read.store}".encode()
    client.answer_reads(answer)
    print("joined", flush=True)
    time.sleep(600)
"""


class Handler:
    def __init__(self) -> None:
        self.joined: list[tuple[str, int]] = []
        self.workers: list[WorkerProcess] = []

        self.heard: list[object] = []
        self.left: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    def next_request(self, run: int) -> BatchRequest | None:
        self.heard.append(run)
        return REQUEST

    def reported(self, run: int, report: BatchReport) -> None:
        self.heard.append((run, report))

    def wait_served(self, run: int, batch_id: int) -> None:
        self.heard.append((run, batch_id))

    def step_failed(self, failed: StepFailed) -> None:
        self.heard.append((failed.run, failed.kind, failed.message, *([failed.record] if failed.record else [])))

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=2, member_id="m", instance_id=None, incarnation=5, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        raise RuntimeError("the brokers are away")

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None:
        raise RuntimeError(f"batch {batch_id} is not under way")

    def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> None:
        self.joined.append((step, worker.pid))
        self.workers.append(worker)

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        self.left.put((step, worker.pid))


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest) -> Iterator[ControlServer]:
    """Workers on this machine, and as on executors."""
    made = ControlServer(listener=TcpListener(("127.0.0.1", 0), "127.0.0.1") if request.param == "tcp" else None)
    yield made
    made.close()


@pytest.mark.parametrize("listen", [("127.0.0.1", 99_999), ("no such host", 0)])
def test_an_address_that_can_not_be_had_is_named(listen: tuple[str, int]) -> None:
    with pytest.raises(EnvironmentProblem, match=f"channel on {listen[0]}:{listen[1]} .*control.listen takes"):
        TcpListener(listen, "127.0.0.1")


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_driver_that_has_an_address_of_ipv6_is_reached_there(host: str) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = ControlServer(listener=TcpListener((host, 0), host))
    try:
        opened(server.address, server.key).close()
    finally:
        server.close()


def started(source: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(source), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_worker_gets_requests_the_membership_and_refusals_over_the_channel_and_reports(
    server: ControlServer, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler()
    server.register("thread", handler)
    worker = started(ASKING_WORKER, server.address, server.key.hex())
    try:
        assert said(worker) == str(REQUEST)
        assert said(worker) == str(handler.membership())
        assert "the driver could not answer AskCommitted: RuntimeError: the brokers are away" in said(worker)
        assert said(worker) == str(handler.membership()), "a word that is not answered, and that fails, harms nothing"
        assert "event=control-taking-failed batch=8 problem='RuntimeError: batch 8 is not under way'" in caplog.text
        report = BatchReport(batch_id=7, outcome=Outcome.COMMITTED, records_in=5, message="half a pair: \\ud83d")
        assert handler.heard == [3, (3, report), (3, 7)]
        assert handler.joined == [("step-1", worker.pid)]
        assert handler.left.get(timeout=60) == ("step-1", worker.pid), "it has ended"
    finally:
        worker.kill()


@pytest.mark.parametrize(
    ("error", "heard"),
    [
        ("ValueError('no')", [(3, FailureKind.MISFIT, "step-1 failed: ValueError: no (<string>:9)")]),
        (r"MissingRightError('half a pair: \ud83d')", [(3, FailureKind.STOP, r"half a pair: \ud83d")]),
        ("RecordTooLargeError('two\\nlines', at=1)", [(3, FailureKind.STOP, "two\nlines")]),
        ("TransitError('no', ends_thread=False)", [(3, FailureKind.STOP, "no")]),
        (
            "RecordError('no', task='0_1', topic='in', partition=1, offset=7)",
            [
                (3, FailureKind.STOP, "task 0_1, in-1 at offset 7: no",
                 FailedRecord(task="0_1", topic="in", partition=1, offset=7))
            ],
        ),
        ("BatchLostError('the consumer failed')", [(3, FailureKind.LOST, "the consumer failed")]),
        ("MemoryError", [(3, FailureKind.LOST, "")]),
        ("SystemExit", []),
        ("KeyboardInterrupt", []),
    ],
    ids=lambda value: value.partition("(")[0] if isinstance(value, str) else "",
)
def test_a_worker_whose_step_raises_has_left_though_its_process_lives(
    server: ControlServer, error: str, heard: list[object]
) -> None:
    handler = Handler()
    server.register("thread", handler)
    worker = started(FAILING_WORKER.replace("KIND", error), server.address, server.key.hex())
    try:
        assert said(worker) == "failed"
        assert handler.heard == heard, "before the error leaves the step"
        assert handler.left.get(timeout=60) == ("step-1", worker.pid)
        assert worker.poll() is None
    finally:
        worker.kill()
        worker.communicate()


def test_a_worker_that_the_thread_ends_at_its_hello_has_left(server: ControlServer) -> None:
    """As one that is late. Elsewhere it notices that its connection ends, and the name that it would have had is forgotten."""

    class Refusing(Handler):
        def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> None:
            super().worker_joined(run, step, worker)
            worker.kill()

    handler = Refusing()
    server.register("thread", handler)
    worker = started(WORKER, server.address, server.key.hex())
    try:
        assert said(worker) == ""
        assert worker.wait(60) != 0
        assert handler.left.get(timeout=60) == ("step-1", worker.pid)
        assert not server._remote
    finally:
        worker.kill()


def test_a_stranger_without_the_key_is_refused_and_the_channel_goes_on(server: ControlServer) -> None:
    server.register("thread", Handler())
    stranger = started(WORKER, server.address, b"wrong".hex())
    worker = started(WORKER, server.address, server.key.hex())
    try:
        assert said(stranger) == ""
        assert stranger.wait(60) == 1
        assert said(worker) == "joined"
    finally:
        stranger.kill()
        worker.kill()


HURRIED_WORKER = """
    import sys
    from tidemill.control.channel import ControlClient
    client = ControlClient(sys.argv[1], bytes.fromhex(sys.argv[2]), "thread", "source", 1)
    print("joined", flush=True)
    print(client.hurried.wait(60), flush=True)
"""


def test_a_source_step_hears_that_its_stream_thread_is_needed(server: ControlServer) -> None:
    server.register("thread", Handler())
    server.hurry("thread")  # nobody is there yet
    worker = started(HURRIED_WORKER, server.address, server.key.hex())
    stop = threading.Event()
    try:
        assert said(worker) == "joined"

        def hurry() -> None:
            while not stop.wait(0.05):  # its leash may be on its way still
                server.hurry("thread")

        hurrying = threading.Thread(target=hurry)
        hurrying.start()
        assert said(worker) == "True"
    finally:
        stop.set()
        worker.kill()
    hurrying.join()
    server.hurry("thread")  # nor is anybody now


def test_a_worker_whose_channel_is_closed_ends_at_once(server: ControlServer) -> None:
    server.register("thread", Handler())
    worker = started(WORKER, server.address, server.key.hex())
    try:
        assert said(worker) == "joined"
        server.close()
        assert worker.wait(60) == 1
    finally:
        worker.kill()


def test_a_worker_elsewhere_is_dead_when_its_end_of_the_channel_is(server: ControlServer) -> None:
    handler = Handler()
    server.register("thread", handler)
    worker = started(WORKER, server.address, server.key.hex())
    try:
        assert said(worker) == "joined"
        [known] = handler.workers
        assert not known.wait_dead(0.1)
        freeze(worker.pid)
        known.kill()
        is_remote = isinstance(known, RemoteWorker)
        assert known.wait_dead(0.3 if is_remote else 60) is not is_remote  # nothing but its death is taken for it
        worker.send_signal(signal.SIGCONT)
        assert known.wait_dead(60)
        worker.wait(60)
    finally:
        worker.kill()


def test_a_worker_on_an_executor_answers_reads_says_what_fails_and_late_answers_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, handler = ControlServer(listener=TcpListener(("127.0.0.1", 0), "127.0.0.1")), Handler()
    server.register("thread", handler)
    worker = started(READING_WORKER, server.address, server.key.hex())
    try:
        assert said(worker) == "joined"
        [known] = handler.workers
        assert isinstance(known, RemoteWorker)
        assert known.ask(TASK, "", CountEntries(store="counts")) == b"1_0  counts"
        with pytest.raises(StateError, match="ValueError: no such store"):
            known.ask(TASK, "", CountEntries(store="none"))
        with monkeypatch.context() as hurry:
            hurry.setattr("tidemill.control.worker_process._READ_LIMIT_S", 0.2)
            with pytest.raises(TimeoutError):
                known.ask(TASK, str(tmp_path), CountEntries(store="late"))
        (tmp_path / "answer").touch()
        assert known.ask(TASK, "v2", CountEntries(store="counts")) == b"1_0 v2 counts"
        worker.kill()
        assert known.wait_dead(60)
        with pytest.raises((EOFError, OSError)):
            known.ask(TASK, "", CountEntries(store="counts"))
    finally:
        worker.kill()
        server.close()


def test_a_caller_who_says_nothing_does_not_keep_the_channel_busy(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.sockets._CONNECT_LIMIT_S", 1)
    kind = socket.AF_UNIX if server.address.startswith("/") else socket.AF_INET
    host, _, port = server.address.removeprefix("tcp:").rpartition(":")
    with socket.socket(kind, socket.SOCK_STREAM) as silent:
        silent.connect(server.address if kind is socket.AF_UNIX else (host, int(port)))
        silent.settimeout(30)
        while silent.recv(1000):  # the challenge, then the end
            pass


def test_a_caller_whose_answer_trickles_has_the_same_limit(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.sockets._CONNECT_LIMIT_S", 1)
    kind = socket.AF_UNIX if server.address.startswith("/") else socket.AF_INET
    host, _, port = server.address.removeprefix("tcp:").rpartition(":")
    with socket.socket(kind, socket.SOCK_STREAM) as slow:
        slow.connect(server.address if kind is socket.AF_UNIX else (host, int(port)))
        slow.sendall(struct.pack("!i", 200))
        slow.settimeout(0.2)
        for _ in range(150):
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"x")
            try:
                if not slow.recv(1000):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("the connection is still open")


def test_a_worker_is_answered_as_soon_as_the_driver_has_a_descriptor_for_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that has used up its own for a moment loses no stream thread."""
    monkeypatch.setattr("tidemill.control.channel._NO_DESCRIPTOR_PAUSE_S", 0.01)
    listener = TcpListener(("127.0.0.1", 0), "127.0.0.1")
    refusals = [OSError(errno.EMFILE, "Too many open files")]

    class Short:
        """The listener's socket, in a process that has no descriptor at first."""

        def accept(self) -> object:
            if refusals:
                raise refusals.pop()
            return listener.socket.accept()

        def fileno(self) -> int:
            return listener.socket.fileno()

    short: Any = SimpleNamespace(socket=Short(), address=listener.address, is_local=False, close=listener.close)
    server = ControlServer(listener=short)
    try:
        opened(server.address, server.key).close()
    finally:
        server.close()
    assert "Too many open files" in caplog.text


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_worker_does_not_wait_for_ever_for_a_driver_that_greets_nobody(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.sockets._GREETING_LIMIT_S", 0.2)
    path = str(tmp_path / "control")
    with socket.socket(socket.AF_UNIX) if kind == "unix" else socket.create_server(("127.0.0.1", 0)) as frozen:
        if kind == "unix":
            frozen.bind(path)
            frozen.listen()
        address = path if kind == "unix" else f"tcp:127.0.0.1:{frozen.getsockname()[1]}"
        with pytest.raises(TimeoutError, match=r"control channel has not greeted within 0\.2 s"):
            opened(address, b"key")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits how long what was sent may be on its way")
def test_a_lost_machine_is_noticed_after_15_s_whether_something_is_on_its_way_to_it_or_not() -> None:
    server = ControlServer(listener=TcpListener(("127.0.0.1", 0), "127.0.0.1"))
    connection = opened(server.address, server.key)
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as link:
            idle_s, between_s, count = (
                link.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert link.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle_s + between_s * count == 15
            assert link.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
    finally:
        connection.close()
        server.close()


def test_a_worker_ends_with_its_driver_and_until_then_a_restart_waits_for_its_lock(tmp_path: Path) -> None:
    driver = started(DRIVER, str(tmp_path))
    address, key = said(driver).split()
    worker = started(WORKER, address, key)
    try:
        assert said(worker) == "joined"
        freeze(worker.pid)  # slow to die
        driver.kill()
        driver.wait(60)
        with pytest.raises(StateDirectoryInUseError, match="its workers still hold the lock"):
            StateDirectoryLock.acquire(tmp_path, timeout_s=0.5)
        worker.send_signal(signal.SIGCONT)
        with StateDirectoryLock.acquire(tmp_path, timeout_s=60):
            pass
        assert worker.wait(60) == 1
    finally:
        driver.kill()
        worker.kill()


def test_a_process_that_the_driver_has_forked_keeps_neither_its_workers_nor_its_lock(tmp_path: Path) -> None:
    driver = started(FORKING_DRIVER, str(tmp_path))
    address, key = said(driver).split()
    worker = started(WORKER, address, key)
    child = None
    try:
        assert said(worker) == "joined"
        (tmp_path / "worker-has-joined").touch()
        child = int(said(driver))
        driver.kill()
        driver.wait(60)
        assert worker.wait(60) == 1
        with StateDirectoryLock.acquire(tmp_path, timeout_s=60):
            os.kill(child, 0)  # it lives
    finally:
        driver.kill()
        worker.kill()
        if child is not None:
            os.kill(child, signal.SIGKILL)


def test_while_the_driver_lives_a_second_instance_is_refused_at_once(tmp_path: Path) -> None:
    driver = started(DRIVER, str(tmp_path))
    try:
        said(driver)
        began = time.monotonic()
        with pytest.raises(StateDirectoryInUseError, match=str(driver.pid)):
            StateDirectoryLock.acquire(tmp_path, timeout_s=120)
        assert time.monotonic() - began < 60
    finally:
        driver.kill()


def test_a_temporary_folder_with_a_name_too_long_for_a_socket_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(EnvironmentProblem, match="set TMPDIR to a folder with a shorter name"):
        ControlServer()
    assert list(folder.iterdir()) == []

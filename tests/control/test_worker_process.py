"""A worker's process, of which only numbers are left when it has died: its own, or those of its connections."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
from multiprocessing.connection import Connection

import psutil
import pytest

from tidemill.control import worker_process
from tidemill.control.messages import ReadPositions
from tidemill.control.worker_process import LocalWorker, RemoteWorker
from tidemill.ids import TaskId


def test_a_process_is_dead_when_it_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    worker = LocalWorker(process.pid)
    assert not worker.wait_dead(0.01)
    worker.kill()
    process.wait(60)
    assert worker.wait_dead(60)


@pytest.mark.parametrize("is_seen_alive", [False, True], ids=["before it is looked at", "just then"])
def test_a_process_is_dead_if_a_thread_has_its_number(monkeypatch: pytest.MonkeyPatch, is_seen_alive: bool) -> None:
    """Numbers come again after some ten thousand processes and threads."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    worker = LocalWorker(process.pid)
    process.wait(60)
    is_over = threading.Event()
    other = threading.Thread(target=is_over.wait, args=(60,))
    other.start()
    number = other.native_id
    assert number is not None
    monkeypatch.setattr(worker._process, "_pid", number)
    monkeypatch.setattr(worker._process._proc, "pid", number)
    running = iter([True] if is_seen_alive else [])
    monkeypatch.setattr(psutil.Process, "is_running", lambda _: next(running, False))
    assert worker.wait_dead(1)
    is_over.set()
    other.join(60)


def test_who_ends_a_worker_elsewhere_ends_no_other_connection_that_has_its_number_by_then() -> None:
    """The thread that serves a connection closes it when the worker is gone, while the stream thread ends the worker."""
    worker, others = RemoteWorker(1, "elsewhere"), list[socket.socket]()
    closing: list[threading.Thread] = []

    class ClosedMeanwhile(Connection):
        def fileno(self) -> int:
            number = super().fileno()
            if not closing:
                closing.append(threading.Thread(target=close))
                closing[0].start()
                closing[0].join(0.2)  # it waits until the worker is ended; else it is done by now
            return number

    def close() -> None:
        worker.died(connection)
        connection.close()
        others.extend(socket.socketpair())

    ours, theirs = socket.socketpair()
    connection = ClosedMeanwhile(ours.detach())
    worker.attach(connection)
    worker.kill()
    closing[0].join(30)
    assert theirs.recv(1) == b""
    for one, other in (others, reversed(others)):
        one.sendall(b"x")
        assert other.recv(1) == b"x"
    for each in (theirs, *others):
        each.close()


def test_a_worker_elsewhere_that_is_stopped_in_the_middle_of_an_answer_holds_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_READ_LIMIT_S", 0.3)
    worker, (ours, theirs) = RemoteWorker(1, "elsewhere"), socket.socketpair()
    worker.attach_reads(Connection(ours.detach()))
    theirs.sendall(struct.pack("!i", 100) + b"begin")
    with pytest.raises(TimeoutError, match=r"has not answered a read within 0\.3 s"):
        worker.ask(TaskId(0, 0), "stores", ReadPositions())
    with pytest.raises(OSError):  # noqa: PT011  # what follows of that answer would be taken for the next one
        worker.ask(TaskId(0, 0), "stores", ReadPositions())
    theirs.close()

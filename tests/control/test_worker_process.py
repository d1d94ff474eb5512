"""A worker's process on this machine, of which only the number is left when it has died."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

from tidemill.control.worker_process import LocalWorker


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

"""Who has a state directory, with real processes that die."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tidemill.errors import EnvironmentProblem, StateDirectoryInUseError
from tidemill.state.lock import LOCK_FILE, StateDirectoryLock

#: Takes the lock, gives it to a worker over a Unix socket, says both pids and waits.
_DRIVER = """
import os, socket, subprocess, sys
from pathlib import Path
from tidemill.state.lock import StateDirectoryLock

lock = StateDirectoryLock.acquire(Path(sys.argv[1]), timeout_s=1)
ours, workers = socket.socketpair()
worker = subprocess.Popen([sys.executable, "-c", sys.argv[2], str(workers.fileno())], pass_fds=[workers.fileno()])
socket.send_fds(ours, [b"x"], [lock.fileno()])
ours.recv(1)
print(os.getpid(), worker.pid, flush=True)
command = sys.stdin.readline()
if command == "release\\n":
    lock.release()
    print("released", flush=True)
sys.stdin.read()
"""

_WORKER = """
import socket, sys, time
peer = socket.socket(fileno=int(sys.argv[1]))
_, (descriptor, *_), _, _ = socket.recv_fds(peer, 1, 1)
peer.send(b"y")
time.sleep(60)
"""


@contextmanager
def _instance(directory: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A driver that holds the lock, and the pid of its worker, which holds it too; both dead at the end."""
    command = [sys.executable, "-c", _DRIVER, str(directory), _WORKER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        driver_pid, worker = map(int, driver.stdout.readline().split())
        assert driver_pid == driver.pid
        try:
            yield driver, worker
        finally:
            driver.kill()
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def test_a_free_directory_is_taken_and_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with StateDirectoryLock.acquire(tmp_path, timeout_s=0) as lock:
            assert lock.is_held
        assert not lock.is_held
        lock.release()


def test_a_directory_of_a_live_instance_is_refused_at_once_with_its_pid(tmp_path: Path) -> None:
    with _instance(tmp_path) as (driver, _):
        before = time.monotonic()
        with pytest.raises(StateDirectoryInUseError, match=f"in use by process {driver.pid} .*state.dir of its own") as refusal:
            StateDirectoryLock.acquire(tmp_path, timeout_s=30)
        assert refusal.value.holder_pid == driver.pid
        assert time.monotonic() - before < 25


def test_a_second_instance_in_one_process_is_refused(tmp_path: Path) -> None:
    with (
        StateDirectoryLock.acquire(tmp_path, timeout_s=0),
        pytest.raises(StateDirectoryInUseError, match="this process itself"),
    ):
        StateDirectoryLock.acquire(tmp_path, timeout_s=30)


@pytest.mark.parametrize(
    "content",
    [
        "", "garbage", "[1]", "null", "[" * 1_000, '{"pid": 1e999, "started_s": 1}', '{"pid": -5, "started_s": 1}',
        '{"pid": 99999999999999999999, "started_s": 1}', '{"pid": 1, "started_s": 1e999}', '{"pid": 1, "started_s": "x"}',
    ],
)  # fmt: skip
def test_a_lock_whose_file_names_no_holder_is_refused_all_the_same(tmp_path: Path, content: str) -> None:
    with StateDirectoryLock.acquire(tmp_path, timeout_s=0):
        (tmp_path / LOCK_FILE).write_text(content)
        with pytest.raises(StateDirectoryInUseError, match="its workers still hold the lock"):
            StateDirectoryLock.acquire(tmp_path, timeout_s=0)


@pytest.mark.fault
def test_a_dead_drivers_worker_holds_the_lock_until_it_dies_too(tmp_path: Path) -> None:
    with _instance(tmp_path) as (driver, worker):
        driver.kill()
        driver.wait()
        with pytest.raises(StateDirectoryInUseError, match=f"process {driver.pid} .its workers still hold"):
            StateDirectoryLock.acquire(tmp_path, timeout_s=0.2)
        os.kill(worker, signal.SIGKILL)
        StateDirectoryLock.acquire(tmp_path, timeout_s=60).release()


@pytest.mark.fault
def test_a_restart_waits_for_the_last_worker(tmp_path: Path) -> None:
    with _instance(tmp_path) as (driver, worker):
        driver.kill()
        driver.wait()
        death = threading.Timer(0.3, os.kill, (worker, signal.SIGKILL))
        before = time.monotonic()
        death.start()
        with StateDirectoryLock.acquire(tmp_path, timeout_s=60):
            assert time.monotonic() - before > 0.25


def test_after_a_release_the_workers_hold_on_and_the_next_instance_waits(tmp_path: Path) -> None:
    with _instance(tmp_path) as (driver, worker):
        assert driver.stdin is not None
        assert driver.stdout is not None
        print("release", file=driver.stdin, flush=True)
        assert driver.stdout.readline() == "released\n"
        with pytest.raises(StateDirectoryInUseError, match="closed, but its workers still hold") as refusal:
            StateDirectoryLock.acquire(tmp_path, timeout_s=0.2)
        assert refusal.value.holder_pid is None
        os.kill(worker, signal.SIGKILL)
        StateDirectoryLock.acquire(tmp_path, timeout_s=60).release()


def removed(directory: Path) -> None:
    (directory / LOCK_FILE).unlink()


def removed_with_all(directory: Path) -> None:
    shutil.rmtree(directory)


def replaced(directory: Path) -> None:
    (directory / "other").write_text("another file")
    (directory / "other").rename(directory / LOCK_FILE)


@pytest.mark.parametrize("loses_it", [removed, removed_with_all, replaced])
def test_a_lock_whose_file_is_gone_is_taken_again_and_sent_to_workers(tmp_path: Path, loses_it: Callable[[Path], None]) -> None:
    directory = tmp_path / "app"
    directory.mkdir()
    with StateDirectoryLock.acquire(directory, timeout_s=0) as lock:
        number = lock.fileno()
        loses_it(directory)
        lock.hold_on()
        with pytest.raises(StateDirectoryInUseError, match="this process itself"):
            StateDirectoryLock.acquire(directory, timeout_s=0)
        assert lock.fileno() == number
        assert os.path.samestat(os.fstat(number), os.stat(directory / LOCK_FILE))
        assert not os.get_inheritable(number)
        lock.hold_on()
    StateDirectoryLock.acquire(directory, timeout_s=0).release()


def test_a_directory_that_became_a_file_under_an_instance_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "app"
    directory.mkdir()
    with StateDirectoryLock.acquire(directory, timeout_s=0) as lock:
        removed_with_all(directory)
        directory.touch()
        with pytest.raises(EnvironmentProblem, match=r"app.*Remove what is there, or set state.dir to another folder"):
            lock.hold_on()


def test_a_lock_whose_file_was_removed_and_taken_by_another_instance_is_lost(tmp_path: Path) -> None:
    with StateDirectoryLock.acquire(tmp_path, timeout_s=0) as lock:
        removed(tmp_path)
        with _instance(tmp_path) as (driver, _):
            for _ in range(2):
                with pytest.raises(StateDirectoryInUseError, match=f"process {driver.pid} .which has taken it since .lock was"):
                    lock.hold_on()
    lock.hold_on()
    assert not lock.is_held


def test_a_process_that_has_a_dead_holders_pid_is_not_taken_for_it(tmp_path: Path) -> None:
    with _instance(tmp_path) as (driver, _):
        driver.kill()
        driver.wait()
        # As if the pid had been given to another process, here this one, which was started at another time.
        (tmp_path / LOCK_FILE).write_text(f'{{"pid": {os.getpid()}, "started_s": 12.5}}')
        with pytest.raises(StateDirectoryInUseError, match="its workers still hold"):
            StateDirectoryLock.acquire(tmp_path, timeout_s=0.2)


def test_a_directory_that_can_not_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"nowhere.*No such file"):
        StateDirectoryLock.acquire(tmp_path / "nowhere", timeout_s=0)


def test_a_folder_in_the_place_of_the_locks_file_is_to_be_removed(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(EnvironmentProblem, match=r"\.lock: Is a directory\. Remove what is there"):
        StateDirectoryLock.acquire(tmp_path, timeout_s=0)


def test_a_disk_without_room_for_the_locks_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(EnvironmentProblem, match=r"can't write .*\.lock: No space left on device"):
        StateDirectoryLock.acquire(tmp_path, timeout_s=0)


def _descriptors_of(path: Path) -> int:
    """Descriptors of this process for one file: others come and go with other threads."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed since it was listed
            found += descriptor.readlink() == path
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are listed in /proc")
def test_a_refused_attempt_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with StateDirectoryLock.acquire(tmp_path, timeout_s=0):
        assert _descriptors_of(tmp_path / LOCK_FILE) == 1
        for _ in range(5):
            with pytest.raises(StateDirectoryInUseError):
                StateDirectoryLock.acquire(tmp_path, timeout_s=0)
        assert _descriptors_of(tmp_path / LOCK_FILE) == 1


def test_who_has_the_lock_is_said_whatever_was_in_its_file_before(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).write_text("x" * 300)
    with (
        StateDirectoryLock.acquire(tmp_path, timeout_s=0),
        pytest.raises(StateDirectoryInUseError, match=f"process {os.getpid()} .this process itself"),
    ):
        StateDirectoryLock.acquire(tmp_path, timeout_s=0)


@pytest.mark.skipif(sys.platform != "linux", reason="what is known of a process that nobody has waited for differs")
def test_a_driver_that_has_ended_but_was_not_waited_for_is_none_that_runs(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as driver, (tmp_path / LOCK_FILE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as its workers do
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
        held.write(json.dumps({"pid": driver.pid, "started_s": psutil.Process(driver.pid).create_time()}))
        held.flush()
        with pytest.raises(StateDirectoryInUseError, match="its workers still hold the lock"):
            StateDirectoryLock.acquire(tmp_path, timeout_s=0)


def test_a_forked_process_that_leaves_the_lock_to_its_parent_does_not_hold_it(tmp_path: Path) -> None:
    lock = StateDirectoryLock.acquire(tmp_path, timeout_s=0)
    said, says = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            lock.leave_to_parent()
            os.write(says, b"held" if lock.is_held else b"left")
            signal.pause()
        finally:
            os._exit(1)
    os.close(says)
    try:
        assert os.read(said, 4) == b"left"
        lock.release()
        StateDirectoryLock.acquire(tmp_path, timeout_s=0).release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(said)


def test_a_lock_file_that_its_holder_removes_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the clean-up of another worker does: who comes next would lock a new file, and both would have the directory."""
    path = tmp_path / LOCK_FILE
    holder = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)

    def removed_and_let_go(pause_s: float) -> None:
        path.unlink()
        os.close(holder)

    monkeypatch.setattr("tidemill.state.lock.time.sleep", removed_and_let_go)
    with pytest.raises(StateDirectoryInUseError, match=r"which has just removed \.lock"):
        StateDirectoryLock.acquire(tmp_path, timeout_s=30)
    with StateDirectoryLock.acquire(tmp_path, timeout_s=0) as lock:
        assert lock.is_held

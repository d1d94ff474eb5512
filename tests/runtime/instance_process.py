"""An application's instances as processes, for tests that kill them: starting, asking, killing, freezing, waiting.

Every wait has a generous limit, since the machine may be busy; what fails says what the instance's log ends with.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from tests.runtime import wordcount_instance
from tests.waiting import until

LIMIT_S = 240.0
COMMIT_INTERVAL_MS = 500
"""For tests of a group, whose instances run under load while others start: with Kafka's 100 ms one instance and its broker take
0.8 cores instead of 0.4. Tests that kill at random moments keep Kafka's."""


def name_of(process: psutil.Process) -> str:
    """Empty if it has ended since it was listed."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def has_ended(process: psutil.Process) -> bool:
    """A zombie has: it only waits for its parent to notice."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def instance_settings(
    bootstrap_servers: str, application_id: str, state_dir: Path, settings: Mapping[str, object]
) -> dict[str, object]:
    return {
        "application.id": application_id,
        "bootstrap.servers": bootstrap_servers,
        "state.dir": str(state_dir),
        "session.timeout.ms": 3_000,
        "heartbeat.interval.ms": 500,
        "repartition.purge.interval.ms": 1_000,
        "tidemill.test.short.intervals": True,
        "probing.rebalance.interval.ms": 3_000,
        **settings,
    }


def waited_for(
    look: Callable[[], dict[str, Any]], log_end: Callable[[], str], claim: Callable[[dict[str, Any]], bool], what: str,
    limit_s: float,
) -> dict[str, Any]:
    """How an instance stands when ``claim`` is true of it."""
    seen: dict[str, Any] = {}

    def is_so() -> bool:
        seen.update(look())
        return claim(seen)

    assert until(is_so, limit_s), f"not {what} after {limit_s:.0f} s: {seen}; log: {log_end()}"
    return seen


def events_in(log: str, name: str) -> list[dict[str, str]]:
    """The fields of each line of this event."""
    lines = [line for line in log.splitlines() if f"event={name} " in line + " "]
    return [dict(re.findall(r"([\w.]+)=('[^']*'|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|\S*)", line)) for line in lines]


def signal_workers(found: Mapping[str, Any], number: signal.Signals) -> None:
    """To those of an instance's only thread."""
    [workers] = found["workers"]
    for pid in workers.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class InstanceProcess:
    """One process id's state directory, and the process that runs on it now; ``start`` again after a kill."""

    def __init__(
        self,
        folder: Path,
        bootstrap_servers: str,
        application_id: str,
        *,
        program: str = "wordcount",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self.orders = folder / "orders"
        self.orders.mkdir(parents=True)
        self.log_file = folder / "log"
        self._process: subprocess.Popen[str] | None = None
        self._asked = {
            "program": program,
            "input": f"{application_id}-input",
            "output": f"{application_id}-output",
            "orders": str(self.orders),
            "settings": instance_settings(bootstrap_servers, application_id, self.state_dir, settings or {}),
        }

    # --- running ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        command = [sys.executable, "-m", wordcount_instance.__name__, json.dumps(self._asked)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with self.log_file.open("a") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                env=environment,
            )  # fmt: skip

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    def ask(self, question: str) -> dict[str, Any]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(question + "\n")
        stdin.flush()
        ready, _, _ = select.select([stdout], [], [], LIMIT_S)
        assert ready, f"no answer for {LIMIT_S:.0f} s: {self.log_end()}"
        answer = stdout.readline()
        assert answer, f"the instance has ended with {self.process.poll()}: {self.log_end()}"
        found: dict[str, Any] = json.loads(answer)
        return found

    def look(self) -> dict[str, Any]:
        return self.ask("look")

    def wait(self, claim: Callable[[dict[str, Any]], bool], what: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """How it stands when ``claim`` is true of it."""
        return waited_for(self.look, self.log_end, claim, what, limit_s)

    def wait_running(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        return self.wait(lambda at: at["state"] == "RUNNING", "running", limit_s)

    def close(self) -> int:
        """An orderly end; the exit code."""
        assert self.ask("close")["closed"], self.log_end()
        return self.process.wait(LIMIT_S)

    def wait_ended(self, limit_s: float = LIMIT_S) -> int:
        return self.process.wait(limit_s)

    # --- breaking --------------------------------------------------------------------------------------------------

    def tree(self) -> list[psutil.Process]:
        """The driver and everything below it, parents first."""
        driver = psutil.Process(self.process.pid)
        return [driver, *driver.children(recursive=True)]

    def jvm(self) -> psutil.Process | None:
        found = [process for process in psutil.Process(self.process.pid).children() if name_of(process) == "java"]
        return found[0] if found else None

    def order(self, step: str, at: str, number: signal.Signals, *targets: int | str) -> Path:
        """The worker of ``step`` sends this signal to these pids (or ``self``) when it next reaches ``at``; the file is gone
        when it is about to."""
        path = self.orders / f"{step}.{at}"
        draft = self.orders / "draft"
        draft.write_text(" ".join(map(str, (int(number), *targets))))
        draft.rename(path)
        return path

    def kill_driver(self) -> None:
        self.process.kill()
        self._reap()

    def kill_jvm(self) -> None:
        """The driver says that it can't go on and ends by itself."""
        jvm = self.jvm()
        if jvm is None:
            self.kill_driver()
            return
        jvm.kill()
        self._reap()
        assert self.process.returncode in (1, 2), f"{self.process.returncode}: {self.log_end()}"

    def kill_tree(self) -> None:
        _signal(self.tree(), signal.SIGKILL)
        self._reap()

    def signal_workers(self, number: signal.Signals) -> None:
        signal_workers(self.look(), number)

    def freeze(self) -> list[psutil.Process]:
        frozen = self.tree()
        _signal(frozen, signal.SIGSTOP)
        return frozen

    def end(self) -> None:
        """However it stands, nothing of it is left."""
        if self._process is None:
            return
        if self._process.poll() is None:
            _signal(self.tree(), signal.SIGKILL)
        self._reap()

    def _reap(self) -> None:
        self.process.wait(LIMIT_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    # --- its log ---------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """Its whole lines: the last one may be under way."""
        text = self.log_file.read_text(errors="replace")
        return text[: text.rfind("\n") + 1]

    def log_end(self) -> str:
        return self.log_file.read_text(errors="replace")[-3000:]

    def events(self, name: str) -> list[dict[str, str]]:
        """The fields of each log line of this event."""
        return events_in(self.log, name)


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)

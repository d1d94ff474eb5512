"""The demo's instances: child processes ``tidemill run``, started, watched and ended.

Invariant: no instance outlives the demo. Each holds the read end of a pipe whose other end is the demo's, so that it ends
in order even where the demo was killed; a session of its own keeps the terminal's Ctrl-C away from it.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType

import psutil

from tidemill.cli.instance_view import InstanceView, from_line
from tidemill.deadline import Deadline
from tidemill.errors import StopError

_STOP_LIMIT_S = 60.0
_GONE_LIMIT_S = 5.0
_ADDRESS = re.compile(r"http://(\S+?)/")
_GIVE_UP_LIMIT_S = 15.0
"""Limit when the demo is interrupted: its data are not read again, and nothing must be left running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Start of the instances: the application, its settings, and the folder in which each gets one of its own.
    ``serve``: each answers over HTTP, at a free port of this machine."""

    app: Path
    settings: Sequence[str]
    folder: Path
    log_level: str
    serve: bool = False


class DemoInstance:
    """One child process; ``view`` is what it said last, ``address`` where it can be asked, once it has said so."""

    def __init__(self, number: int, command: Command) -> None:
        self.number = number
        self.view = InstanceView(state="starting")
        self.address = ""
        folder = command.folder / f"instance-{number}"
        folder.mkdir(parents=True)
        self._log = folder / "log"
        words = [sys.executable, "-m", "tidemill", "run", str(command.app), "--end-with-stdin"]
        words += ["--state-dir", str(folder / "state"), "--log-level", command.log_level]
        words += ["--serve", "127.0.0.1:0"] if command.serve else []
        words += [word for setting in command.settings for word in ("--set", setting)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                start_new_session=True,
            )
        threading.Thread(target=self._listen, name=f"instance-{number}", daemon=True).start()

    def check(self) -> None:
        """StopError if the process has ended."""
        code = self._process.poll()
        if code is not None:
            raise StopError(f"instance {self.number} ended with code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def signal_stop(self) -> None:
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, limit_s: float) -> int | None:
        """The exit code; None if it did not end in time, and was killed."""
        try:
            return self._process.wait(max(0.1, limit_s))
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def kill_all_of_it(self) -> None:
        """SIGKILL to it and to all that it has started, as if its machine was gone."""
        processes = [psutil.Process(self._process.pid)]
        with contextlib.suppress(psutil.NoSuchProcess):
            processes += processes[0].children(recursive=True)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        psutil.wait_procs(processes[1:], timeout=_GONE_LIMIT_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.view = from_line(line) or self.view
            found = _ADDRESS.search(line)
            if found is not None:
                self.address = found[1]


class Instances:
    """Up to ``wanted`` instances of one application. A context manager; on leaving it none is left."""

    def __init__(self, wanted: int, command: Command) -> None:
        self._wanted, self._command = wanted, command
        self._numbers = count(1)
        self.started: list[DemoInstance] = []

    @property
    def are_all_at_work(self) -> bool:
        return len(self.started) == self._wanted and self.are_started_at_work

    @property
    def are_started_at_work(self) -> bool:
        """None shows a task that another one shows too: a view may be older than a hand-over."""
        tasks = [task for view in self.views for task in view.tasks]
        return all(view.is_at_work for view in self.views) and len(tasks) == len(set(tasks))

    @property
    def views(self) -> list[InstanceView]:
        return [instance.view for instance in self.started]

    def last_words(self) -> str:
        return "; ".join(f"instance {i.number} is {i.view.state}: {i.last_words()}" for i in self.started)

    @property
    def is_one_missing(self) -> bool:
        return len(self.started) < self._wanted

    def start_one(self) -> DemoInstance:
        instance = DemoInstance(next(self._numbers), self._command)
        self.started.append(instance)
        return instance

    def kill(self, instance: DemoInstance) -> None:
        """Takes it away as a machine that fails does; it is not started again."""
        self.started.remove(instance)
        self._wanted -= 1
        instance.kill_all_of_it()

    def check(self) -> None:
        for instance in self.started:
            instance.check()

    def stop(self) -> None:
        """Ends all in good order; StopError if one didn't."""
        codes = self._end(_STOP_LIMIT_S)
        for instance, code in zip(self.started, codes, strict=True):
            if code is None:
                raise StopError(f"instance {instance.number} did not end within {_STOP_LIMIT_S:.0f} s and was killed")
            if code:
                raise StopError(f"instance {instance.number} ended with code {code}: {instance.last_words()}")

    def __enter__(self) -> Instances:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(_GIVE_UP_LIMIT_S)

    def _end(self, limit_s: float) -> list[int | None]:
        deadline = Deadline.after(limit_s)
        try:
            for instance in self.started:
                instance.signal_stop()
            return [instance.wait(deadline.left_s) for instance in self.started]
        except BaseException:  # a second Ctrl-C, most likely
            for instance in self.started:
                instance.kill()
            raise

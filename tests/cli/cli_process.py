"""The command `tidemill` as a process that tests watch, signal and wait for, with all the processes that come of it; and in the
test's own process, for commands that end at once.

Every process that descends from it is known by a word in its environment, whatever became of its parents. Limits are
generous, since the machine may be busy; what fails says what the command printed.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psutil

from tests.waiting import until
from tidemill.cli.main import main

LIMIT_S = 240.0
_MARK = "TIDEMILL_TEST_FAMILY"


class CliProcess:
    """Starts at once, in a session of its own; ``scratch`` is its folder for temporary files. ``terminal``: it writes there, and
    ``lines`` stays empty."""

    def __init__(self, scratch: Path, *arguments: object, terminal: int | None = None) -> None:
        self._family = str(uuid4())
        self._scratch = scratch
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [str(Path(sys.executable).with_name("tidemill")), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if terminal is None else terminal,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, _MARK: self._family, "TMPDIR": str(scratch), "TERM": "xterm-256color"},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self.process.stdout is None:
            return
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for_line(self, part: str) -> str:
        """The first line that holds ``part``."""
        found: list[str] = []

        def is_there() -> bool:
            is_over = self.process.poll() is not None
            if is_over:
                self._reader.join(60)  # the last lines
            found.extend(line for line in list(self.lines) if part in line)
            return bool(found) or is_over

        until(is_there)
        assert found, f"no line with {part!r} in: {self.text}"
        return found[0]

    def interrupt_group(self) -> None:
        """What a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, signal.SIGINT)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.process.kill()

    def end(self, limit_s: float = LIMIT_S) -> int:
        """Waits for the command to end; its exit code."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s:.0f} s: {self.text}") from None
        self._reader.join(60)  # all that it has printed, though a process that came of it may have the pipe for a while longer
        return code

    def family(self) -> list[psutil.Process]:
        """The command and all that came of it, as far as they live."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(_MARK) == self._family and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def leaves_nothing(self, *, within_s: float = 120) -> None:
        """Fails if a process or a temporary file outlives the command."""
        assert until(lambda: not self.family(), within_s), [process.cmdline() for process in self.family()]
        assert until(lambda: not self.files(), within_s), self.files()

    def files(self) -> list[str]:
        return sorted(path.name for path in self._scratch.iterdir() if path.name.startswith("tidemill-"))

    def kill_family(self) -> None:
        for process in self.family():
            with contextlib.suppress(psutil.Error):
                process.kill()


@contextlib.contextmanager
def cli(*arguments: object, terminal: int | None = None) -> Iterator[CliProcess]:
    """A command that is killed with all its family when the block is left."""
    # Not pytest's folder for temporary files: Unix sockets are made here, and their paths have to be short.
    with tempfile.TemporaryDirectory(prefix="cli-", ignore_cleanup_errors=True) as scratch:
        process = CliProcess(Path(scratch), *arguments, terminal=terminal)
        try:
            yield process
        finally:
            process.kill_family()


def ran_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """A command that ends at once, without the second that a process takes to start: its exit code and what it said."""
    given = [str(argument) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(given)
        except SystemExit as ended:
            return subprocess.CompletedProcess(given, int(ended.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError(f"the command came back without an exit code: {given}")

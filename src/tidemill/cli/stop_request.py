"""The wish that a command ends: Ctrl-C, SIGTERM, SIGHUP (the terminal is closed), or the end of standard input.

Decides what a signal does at which time: until `wait_for_it` was called it interrupts what the main thread does, so that
a start is given up at once; from then on it is only noted, so that nothing that closes in order is interrupted. A second
Ctrl-C ends the process on the spot: everything it has started ends with it, and its temporary folders are removed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

from tidemill.kept_folder import remove_kept_folders

INTERRUPTED = 130
_SAME_CTRL_C_S = 0.5
"""Programs that run commands pass on a Ctrl-C that the terminal has delivered already."""


class StopWanted(BaseException):
    """Raised in the main thread while interrupting is allowed."""


class StopRequest:
    """Made on the main thread, which then asks ``is_wanted`` now and then."""

    def __init__(self) -> None:
        self._number: int | None = None
        self._noted_at = 0.0
        self._interrupts = True
        self._install()

    @property
    def is_wanted(self) -> bool:
        return self._number is not None

    @property
    def exit_code(self) -> int:
        """Ctrl-C leaves the usual 130; the other signals ask for an orderly end and get one."""
        return INTERRUPTED if self._number == signal.SIGINT else 0

    def interrupted(self) -> None:
        """Notes a Ctrl-C that a library's own handler turned into KeyboardInterrupt."""
        self._number = self._number or signal.SIGINT

    def wait_for_it(self) -> None:
        """From now on a signal is noted only. Installs the handlers again: PySpark puts one of its own in their place."""
        self._interrupts = False
        self._install()

    def end_with_stdin(self) -> None:
        """The end of standard input counts as SIGTERM: who holds the other end is gone."""

        def watch() -> None:
            with contextlib.suppress(OSError):
                while os.read(0, 1024):  # not sys.stdin, whose lock would keep the interpreter from ending
                    pass
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="tidemill-stdin", daemon=True).start()

    def _install(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup: it is to outlive the terminal
                signal.signal(number, self._noted)

    def _noted(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._number is not None:
            if number == signal.SIGINT and now - self._noted_at > _SAME_CTRL_C_S:
                remove_kept_folders()
                os._exit(INTERRUPTED)
            return
        self._number, self._noted_at = number, now
        if self._interrupts:
            raise StopWanted


def end_after(limit_s: float, sentence: str) -> threading.Timer:
    """Ends the process with code 1 and the sentence if the timer is not cancelled in time."""

    def end() -> NoReturn:
        sys.stderr.write(f"tidemill: {sentence}\n")
        sys.stderr.flush()
        remove_kept_folders()
        os._exit(1)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    return timer

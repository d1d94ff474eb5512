"""The script `tidemill`: what holds before the command has begun.

A Ctrl-C while its modules are imported ends it in silence; what Ctrl-C means to a command is decided by the command. Standard
streams that were closed by who started this are the null device: else the files and sockets that are opened next get the numbers
0 to 2, and what a library writes to standard error gets into them.

Imports nothing but what Python has loaded anyway.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Runs the command in ``sys.argv``; ends the process."""
    _open_closed_streams()
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it was ignored by who started this
    if is_heeded:
        signal.signal(signal.SIGINT, _end)
    from tidemill.cli.main import main as command

    if is_heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _open_closed_streams() -> None:
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)

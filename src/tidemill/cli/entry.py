"""The script `tidemill`: ends in silence at a Ctrl-C that comes before the command has begun, while its modules are imported.

Imports nothing but what Python has loaded anyway. What Ctrl-C means to a command is decided by the command.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Runs the command in ``sys.argv``; ends the process."""
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it was ignored by who started this
    if is_heeded:
        signal.signal(signal.SIGINT, _end)
    from tidemill.cli.main import main as command

    if is_heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    command()


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)

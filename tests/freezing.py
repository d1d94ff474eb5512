"""Processes that stop for a while."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.waiting import until


def freeze(pid: int) -> None:
    """Stops all threads of a process. The signal only asks: a thread that runs just now may go on for a while, and answer a
    request or two."""
    os.kill(pid, signal.SIGSTOP)
    assert until(lambda: _has_stopped(pid), pause_s=0.001), f"process {pid} does not stop"


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _has_stopped(pid: int) -> bool:
    try:
        threads = [(thread / "stat").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:  # one has ended meanwhile
        return False
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in threads)

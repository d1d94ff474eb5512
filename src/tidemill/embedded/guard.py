"""Runs a command that must not outlive the process that ordered it.

A script of its own, started (``start``) as ``python -I -S guard.py OWNER_PID FOLDER COMMAND...``, so that it is small and
quick. It starts the command, writes its pid as one line on standard output and ends when it ends; when the owner is gone, by
whatever signal, it kills the command and removes FOLDER (``-``: none). If the guard itself is killed, Linux kills the
command; elsewhere the command then lives until its owner stops it.

The caller gives the guard a session of its own, so that a Ctrl-C in the terminal reaches the owner alone.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time

_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1


def main(owner: int, folder: str, command: list[str]) -> int:
    guard = os.getpid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A signal to the whole group is for the command. A handler, not SIG_IGN, which the command would inherit.
        signal.signal(number, lambda *_: None)

    def die_with_guard() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)

    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=die_with_guard,  # noqa: PLW1509  (there is one thread only)
    )
    print(child.pid, flush=True)
    while child.poll() is None:
        if os.getppid() != owner:
            child.kill()
            child.wait()
            if folder != "-":
                shutil.rmtree(folder, ignore_errors=True)
            break
        time.sleep(_POLL_S)
    return child.returncode


def start(command: list[str], *, console: os.PathLike[str], folder: str = "-") -> tuple[subprocess.Popen[str], int | None]:
    """Runs a command under a guard of this process. The guard, and the command's pid, None if it can't be run."""
    with open(console, "w") as errors:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), folder, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert guard.stdout is not None
    with guard.stdout as first_line:
        pid = first_line.readline().strip()
    return guard, int(pid) if pid else None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]) & 0xFF)

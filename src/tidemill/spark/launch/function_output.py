"""What functions print in Python workers, and their log lines and warnings, on the driver's own standard output and error.

Decides how it gets there: Spark hands workers' streams to its JVM, which writes them to a log file that is removed with the
session. So each worker of a JVM that Tidemill has started writes to two named pipes in that JVM's folder, which the driver reads.
Executors of a cluster have logs of their own, and so have sessions that were handed in.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO

OUTPUT_KEY = "TIDEMILL_FUNCTION_OUTPUT"
"""In the environment of workers: the folder of the pipes."""
_STREAMS = ("stdout", "stderr")
_PART = 1 << 16
_MOST_PARTS = 16
"""Parts that are read before others get the lock."""
_END_LIMIT_S = 2.0
"""Time that ``close`` waits for a standard output that takes nothing, such as that of a stopped terminal."""


class FunctionOutput:
    """The driver's end. Text is written to ``sys.stdout`` and ``sys.stderr`` as they are then, a notebook's or a test's too."""

    def __init__(self, folder: Path) -> None:
        self._pipes = {name: _new_pipe(folder / name) for name in _STREAMS}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _STREAMS}
        self._lock = threading.Lock()
        self._end, self._ask_to_end = os.pipe()
        self._thread = threading.Thread(target=self._follow, name="function-output", daemon=True)
        self._thread.start()

    def pass_on(self) -> None:
        """Shows what has been printed up to now: what a function printed before its batch's report is there with the report."""
        with self._lock:
            for name, pipe in self._pipes.items():
                for _ in range(_MOST_PARTS):
                    data = _read_now(pipe)
                    if not data:
                        break
                    _write(getattr(sys, name), self._decoders[name].decode(data))

    def close(self) -> None:
        """Once the workers have ended."""
        os.close(self._ask_to_end)
        self._thread.join(_END_LIMIT_S)
        if self._thread.is_alive():
            return  # it writes, and ends with the process
        self.pass_on()
        for number in (self._end, *self._pipes.values()):
            os.close(number)

    def _follow(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number in (self._end, *self._pipes.values()):
                selector.register(number, selectors.EVENT_READ)
            while self._end not in [key.fd for key, _ in selector.select()]:
                self.pass_on()


def _new_pipe(path: Path) -> int:
    """It has a writer from the beginning, which is the reader itself: else it would end whenever no worker is there."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _read_now(pipe: int) -> bytes:
    try:
        return os.read(pipe, _PART)
    except BlockingIOError:
        return b""


def _write(stream: TextIO | None, text: str) -> None:
    """A stream that is closed, or whose reader has gone, takes nothing: that is its owner's matter, not the batch's."""
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        try:
            stream.write(text)
        except UnicodeEncodeError:
            stream.write(text.encode("ascii", "backslashreplace").decode())
        stream.flush()


# --- in a worker ------------------------------------------------------------------------------------------------------


def shows_output(environ: Mapping[str, str]) -> None:
    """Has the workers that are forked from this process, a daemon, write to the driver's pipes, if there are any."""
    if OUTPUT_KEY in environ:
        os.register_at_fork(after_in_child=partial(_become_shown, environ[OUTPUT_KEY]))


def _become_shown(folder: str) -> None:
    from pyspark import worker

    worker.main = partial(_shown, worker.main, folder)


_opened: list[TextIO] = []
"""Kept open: a handler of ``logging`` that a function's module has made writes there for good."""


def _shown(main: Callable[[BinaryIO, BinaryIO], None], folder: str, infile: BinaryIO, outfile: BinaryIO) -> None:
    """A task of the worker. What PySpark itself says behind it (of a pipe that broke, when the task was ended) is the JVM's."""
    before = sys.stdout, sys.stderr
    with contextlib.suppress(OSError):  # no driver reads
        if not _opened:
            _opened.extend([_open(os.path.join(folder, name)) for name in _STREAMS])
        sys.stdout, sys.stderr = _opened
    try:
        main(infile, outfile)
    finally:
        sys.stdout, sys.stderr = before


def _open(path: str) -> TextIO:
    """Written line by line. Opening waits for no reader, writing does."""
    number = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(number, True)
    return open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace")

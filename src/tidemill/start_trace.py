"""Trace of a start: spans and moments, logged where the work is done, and a file of them in Chrome's trace format.

Decides how both are logged (as log events of ``tidemill.start`` at level DEBUG, which cost nothing without a handler) and how
the file looks: Chrome's trace format, which chrome://tracing, Perfetto and speedscope open. It ends with the first output that
was committed. Which spans there are is decided where the work is done.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from tidemill.errors import EnvironmentProblem
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.start")

SPAN, MOMENT = "span", "moment"
FIRST_OUTPUT = "first output committed"
_COMPARISONS = 5


@contextlib.contextmanager
def span(what: str, **details: object) -> Iterator[dict[str, object]]:
    """A span of this thread: all that is done within it. The value takes more details. ``cpu_ms`` is the thread's CPU time,
    without waits."""
    if not is_traced():
        yield details
        return
    began_s, cpu_s = time.time(), time.thread_time()
    try:
        yield details
    finally:
        cpu_ms = round((time.thread_time() - cpu_s) * 1e3)
        tell_span(what, began_s, time.time(), process=None, cpu_ms=cpu_ms, **details)


def tell_span(what: str, began_s: float, ended_s: float, *, process: tuple[int, str] | None = None, **details: object) -> None:
    """A span from ``began_s`` to ``ended_s`` (since the epoch). ``process``: another one, its pid and what it is."""
    if is_traced():
        log.debug(LogEvent(SPAN, what=what, began_s=began_s, ended_s=ended_s, process=process, details=details))


def tell_moment(what: str, **details: object) -> None:
    """Something happens now."""
    if is_traced():
        log.debug(LogEvent(MOMENT, what=what, at_s=time.time(), details=details))


def is_traced() -> bool:
    """True if a handler takes the events: for details that cost something."""
    return log.isEnabledFor(logging.DEBUG)


def tell_process(what: str, pid: int, name: str, ended_s: float) -> None:
    """The span of a process of this machine from its creation to ``ended_s``; nothing if it has ended, or is on another one."""
    if is_traced():
        with contextlib.suppress(psutil.NoSuchProcess):
            tell_span(what, _began_s(pid), ended_s, process=(pid, name))


def _began_s(pid: int) -> float:
    """Creation time of a process. The system counts it from its boot, whose time it knows to a second only."""
    since_boot_s = float(psutil.Process(pid).create_time() - psutil.boot_time())
    return since_boot_s + _booted_s()


def _booted_s() -> float:
    """When the system was booted. Two clocks are compared, and this thread may stand still between one and the other: what holds
    is the comparison that took the least time."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return float(psutil.boot_time())
    return min(_compared_clocks() for _ in range(_COMPARISONS))[1]


def _compared_clocks() -> tuple[float, float]:
    """How long it took, and when the system was booted."""
    began_s = time.time()
    up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    took_s = time.time() - began_s
    return took_s, began_s + took_s / 2 - up_s


class TraceFile(logging.Handler):
    """Listens to spans and moments, and writes the file at the first output that was committed, or when it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.DEBUG)
        self._path = path
        self._events: list[dict[str, Any]] = []
        self._threads: dict[str, int] = {}
        self._named: set[int] = set()
        self._is_over = False
        self._entitle(os.getpid(), "driver")
        try:
            path.write_text("[]\n")
        except OSError as problem:
            raise EnvironmentProblem(
                f"--trace-start: {path} can't be written ({problem.strerror}): name a file in a folder that exists"
            ) from None

    def listen(self) -> None:
        """Starts recording spans, at any level of the log."""
        log.setLevel(logging.DEBUG)
        log.propagate = False  # spans are for the file: a line of each in the log would say little
        log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        event = record.msg
        if self._is_over or not isinstance(event, LogEvent) or event.name not in (SPAN, MOMENT):
            return
        fields = event.fields
        common = {"name": str(fields["what"]), "args": {name: _plain(value) for name, value in _details(fields).items()}}
        process = fields.get("process")
        if event.name == MOMENT:
            self._events.append({**common, "ph": "i", "s": "p", "ts": _us(fields["at_s"]), **self._lane(None)})
            if fields["what"] == FIRST_OUTPUT:
                self._end()
        else:
            began, ended = _us(fields["began_s"]), _us(fields["ended_s"])
            self._events.append({**common, "ph": "X", "ts": began, "dur": max(0, ended - began), **self._lane(process)})

    def close(self) -> None:
        """Ends the file with what has been logged until now."""
        with self.lock or contextlib.nullcontext():
            if not self._is_over:
                self._end()
        log.removeHandler(self)
        super().close()

    def _end(self) -> None:
        self._is_over = True
        log.setLevel(logging.WARNING)
        events = sorted(self._events, key=lambda event: (event["ph"] != "M", event.get("ts", 0)))
        lines = ",\n".join(json.dumps(event) for event in events)
        with contextlib.suppress(OSError):  # the disk is full: no reason to end what runs
            self._path.write_text(f"[\n{lines}\n]\n")

    def _lane(self, process: Any) -> dict[str, int]:
        """Process and thread of an event in the viewer: the current thread, or another process."""
        if process is not None:
            pid, name = process
            self._entitle(pid, name)
            return {"pid": pid, "tid": pid}
        thread = threading.current_thread().name
        if thread not in self._threads:
            self._threads[thread] = len(self._threads) + 1
            self._meta("thread_name", os.getpid(), self._threads[thread], thread)
        return {"pid": os.getpid(), "tid": self._threads[thread]}

    def _entitle(self, pid: int, name: str) -> None:
        if pid not in self._named:
            self._named.add(pid)
            self._meta("process_name", pid, pid, name)

    def _meta(self, what: str, pid: int, tid: int, name: str) -> None:
        self._events.append({"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}})


def _details(fields: dict[str, Any]) -> dict[str, Any]:
    return fields["details"] or {}


def _plain(value: object) -> Any:
    return value if isinstance(value, (int, float, str)) else str(value)


def _us(seconds: Any) -> int:
    return int(seconds * 1e6)

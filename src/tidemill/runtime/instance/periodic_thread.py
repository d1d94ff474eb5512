"""A thread that calls a function at an interval until the instance is closed.

An error of the function is only logged, since the next call repeats the work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.errors import TidemillError
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.application")


class PeriodicThread:
    """``failed``: name of the log event of a failed call."""

    def __init__(self, name: str, interval_s: float, call: Callable[[], object], *, failed: str) -> None:
        self._interval_s, self._call, self._failed = min(interval_s, threading.TIMEOUT_MAX), call, failed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        """Ends the thread; waits for a call under way, at most ``timeout_s``."""
        self._ended.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            log.warning(LogEvent("thread-not-ended", thread=self._thread.name, after_s=timeout_s))

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                self._call()
            except (TidemillError, OSError) as problem:
                log.warning(LogEvent(self._failed, problem=problem))
            except Exception:  # a fault of this library, which must not end the cleaning or purging for good
                log.exception(LogEvent(self._failed))

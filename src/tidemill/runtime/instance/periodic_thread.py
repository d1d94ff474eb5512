"""A call that is made again and again, on a thread of its own, until the instance is closed: no other part waits for it.

Decides when. A call that fails is only logged, since the next one makes up for it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.errors import TidemillError
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.application")


class PeriodicThread:
    """``failed``: the log event of a call that has failed."""

    def __init__(self, name: str, interval_s: float, call: Callable[[], object], *, failed: str) -> None:
        self._interval_s, self._call, self._failed = interval_s, call, failed
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        """Waits for a call under way, with a limit."""
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

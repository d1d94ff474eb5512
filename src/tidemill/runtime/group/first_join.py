"""First join of an instance: all its threads join the group together.

Decides when. If no other member has the tasks, there is no time to lose: the threads join while their plans are still being
built. Else they join when every one of them has run its plan once: the others release tasks as soon as a member joins, and it
must be able to run them by then. Threads that join at the same time cost the group one rebalance, and its leader sees all of
them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from tidemill.deadline import Deadline
from tidemill.errors import TidemillError
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.thread")

_LOOK_LIMIT_S = 5.0
_OTHERS_LIMIT_S = 30.0
_PAUSE_S = 0.05


class FirstJoin:
    """One for the threads of an instance; used by each of them."""

    def __init__(self, application_id: str, threads: int, hosts: Callable[[float], Mapping[str, str]]) -> None:
        """``hosts(limit_s)``: hosts of the group's members."""
        self._application_id, self._threads, self._hosts = application_id, threads, hosts
        self._lock = threading.Lock()
        self._is_at_once: bool | None = None
        self._ready: set[str] = set()

    def is_at_once(self) -> bool:
        """True if threads join before their plans are built; the same answer for all threads."""
        with self._lock:
            if self._is_at_once is None:
                self._is_at_once = not self._is_group_at_work()
            return self._is_at_once

    def ready(self, thread: str) -> None:
        """The thread can run tasks, or has ended; it counts once."""
        with self._lock:
            self._ready.add(thread)

    def wait_for_others(self, is_stopped: Callable[[], bool]) -> None:
        """Waits until all threads are ready, with a limit, so that one with a problem does not stop the others."""
        deadline = Deadline.after(_OTHERS_LIMIT_S)
        while len(self._ready) < self._threads and not is_stopped() and not deadline.is_over:
            time.sleep(_PAUSE_S)

    def _is_group_at_work(self) -> bool:
        try:
            return bool(self._hosts(_LOOK_LIMIT_S))
        except TidemillError as problem:
            log.warning(LogEvent("group-not-described", application=self._application_id, problem=problem))
            return False

"""Refresh of the static sides of ``join_dataframe`` at their intervals, on a thread of its own.

A refresh that fails is logged in one line and changes nothing; the next one comes after the interval. Once the session has
stopped there are no more: the stream threads end for the same reason, and say so. New plans are built while the old ones continue
to run: a batch sees one complete version of a side.
"""

from __future__ import annotations

import logging
import threading
import time

from tidemill.config.secrets import without_credentials
from tidemill.deadline import Deadline
from tidemill.errors import StopError
from tidemill.log_format import LogEvent
from tidemill.spark.batch_failures import one_line
from tidemill.spark.plan.lookups import Lookups

log = logging.getLogger("tidemill.join-dataframe")


class LookupRefresher:
    """``close`` waits for a refresh under way, with a limit."""

    def __init__(self, lookups: Lookups) -> None:
        self._lookups = lookups
        self._every_s = {name: join.refresh_ms / 1e3 for name, join in lookups.joins.items() if join.refresh_ms is not None}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidemill-join-dataframe", daemon=True)

    def start(self) -> None:
        if self._every_s:
            self._thread.start()

    def close(self, timeout_s: float = 30.0) -> None:
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():  # a function that reads a side closes it
            self._thread.join(timeout_s)

    def _run(self) -> None:
        due = {name: Deadline.after(every_s) for name, every_s in self._every_s.items()}
        while not self._closing.wait(min(at.left_s for at in due.values())):
            names = tuple(name for name, at in due.items() if at.is_over)
            if not names:
                continue
            began_s = time.monotonic()
            try:
                self._lookups.refresh(names)
                log.info(LogEvent("refreshed", nodes=list(names), took_ms=round((time.monotonic() - began_s) * 1e3)))
            except StopError as problem:
                log.warning(LogEvent("refresh-ended", nodes=list(self._every_s), problem=problem))
                return
            except (Exception, SystemExit) as problem:  # sys.exit() would end only this thread
                log.warning(LogEvent("refresh-failed", nodes=list(names), problem=without_credentials(one_line(problem))))
            due.update({name: Deadline.after(self._every_s[name]) for name in names})

"""Progress of a stream thread's stores towards their changelogs' ends: measured, logged, reported to listeners.

Decides what is measured (offsets per second over the last seconds) and how often a line is logged; what has happened is
``task.progress``'s, who is called is ``restore_listeners``'.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping

from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.task.lifecycle import ActiveTask
from tidemill.task.progress import CopyProgress, Progress, Restored, advanced, copies
from tidemill.task.standby import StandbyTask
from tidemill.task.tasks import BatchReported, Event, Tasks, ThreadEnded

log = logging.getLogger("tidemill.restore")

LINE_INTERVAL_S = 10.0
_RATE_WINDOW_S = 10.0


class RestoreWatch:
    """Called for each change on the stream thread; ``copies`` may be read by any thread."""

    def __init__(
        self,
        thread: str,
        listeners: RestoreListeners,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._thread, self._listeners, self._now_s = thread, listeners, now_s
        self._progress = Progress()
        self._positions: dict[TaskId, deque[tuple[float, int]]] = {}
        self._rates: dict[TaskId, float] = {}
        self._logged_at: dict[TaskId, float] = {}
        self.copies: tuple[CopyProgress, ...] = ()
        """The tasks that are restored, and the standbys."""

    def changed(self, before: Tasks, after: Tasks, event: Event) -> None:
        """StopError if a listener raises."""
        if isinstance(event, ThreadEnded):
            self.end()
        elif isinstance(event, BatchReported):
            self.update(after.active, after.standby, event.report.restored)
        elif (before.active, before.standby) != (after.active, after.standby):
            self.update(after.active, after.standby)

    def update(
        self,
        active: Mapping[TaskId, ActiveTask],
        standbys: Mapping[TaskId, StandbyTask],
        restored: Restored | None = None,
    ) -> None:
        """StopError if a listener raises."""
        self._progress, events = advanced(self._progress, active, standbys, restored)
        self._measure()
        for event in events:
            self._listeners.notify(event)

    def rest(self) -> None:
        """Nothing is restored while the instance is paused: that time counts for no rate, and is no stall."""
        for held in (self._positions, self._rates, self._logged_at):
            held.clear()

    def end(self) -> None:
        """Nothing is held any more. Never raises: the thread ends anyway."""
        try:
            self.update({}, {})
        except StopError as problem:
            log.error(LogEvent("listener-failed", thread=self._thread, problem=problem))

    def _measure(self) -> None:
        now_s = self._now_s()
        sums: dict[TaskId, int] = {}
        for stores in (self._progress.following, self._progress.restoring):
            for (task, _), under in stores.items():
                sums[task] = sums.get(task, 0) + under.at
        for gone in self._positions.keys() - sums.keys():
            del self._positions[gone]
            self._rates.pop(gone, None)
            self._logged_at.pop(gone, None)
        for task, at in sums.items():
            seen = self._positions.setdefault(task, deque([(now_s, at)]))
            if at < seen[-1][1]:  # emptied, and read again
                seen.clear()
            seen.append((now_s, at))
            while len(seen) > 2 and seen[1][0] < now_s - _RATE_WINDOW_S:
                seen.popleft()
            then, moved_s = seen[0][1], now_s - seen[0][0]
            if (at > then and moved_s > 0) or moved_s >= _RATE_WINDOW_S:
                self._rates[task] = (at - then) / moved_s
        self.copies = copies(self._progress, self._rates)
        self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        """Nothing of what is there before a line is due."""
        for copy in self.copies:
            since_s = self._logged_at.setdefault(copy.task, now_s)
            if now_s - since_s < LINE_INTERVAL_S:
                continue
            self._logged_at[copy.task] = now_s
            if copy.is_active and copy.offsets_per_s == 0:
                self._warn_of_stall(copy.task)
            elif copy.is_active or (copy.seconds_left or 0) > 1:
                left = "unknown" if copy.seconds_left is None else f"{copy.seconds_left:.0f}"
                log.info(
                    LogEvent(
                        "restore-progress",
                        task=copy.task,
                        thread=self._thread,
                        role="active" if copy.is_active else "standby",
                        lag=copy.lag,
                        offsets_per_s=round(copy.offsets_per_s or 0.0),
                        seconds_left=left,
                    )
                )

    def _warn_of_stall(self, task: TaskId) -> None:
        """A restore reads what is committed, up to an end that counts what is not."""
        for (of, store), under in self._progress.restoring.items():
            if of == task and under.at < under.end:
                log.warning(
                    LogEvent(
                        "restore-stalled",
                        task=task,
                        thread=self._thread,
                        store=store,
                        changelog=under.partition,
                        at=under.at,
                        end=under.end,
                        seconds=round(_RATE_WINDOW_S),
                        problem="nothing committed has come: a transaction there is still open "
                        "(kafka-transactions.sh find-hanging), or the brokers do not answer",
                    )
                )

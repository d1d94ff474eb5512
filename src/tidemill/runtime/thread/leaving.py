"""Leaving the group so that others notice at once: a stream thread has the group gather once more while it still works.

Decides when a thread that shall end may begin to give its tasks up. Members ask for news often after an assignment, and as
rarely as ``heartbeat.interval.ms`` says otherwise (``kafka.group.state``): one that left without a word would keep its tasks
waiting for that long. So it joins once more, goes on with its batches until the others have joined too, and only then gives up
what it has. What it gives up, and how, is ``membership``'s and ``task_changes``'.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemill.kafka.group.member import GroupMember
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.thread")

_GATHERING_LIMIT_S = 1.0
"""Beyond a heartbeat interval, in which every member must have noticed; some may be in a long batch."""


class Leaving:
    """Asked by the stream thread before each batch once it shall end."""

    def __init__(
        self, thread: str, member: GroupMember, heartbeat_interval_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._thread, self._member, self._now_s = thread, member, now_s
        self._limit_s = heartbeat_interval_ms / 1e3 + _GATHERING_LIMIT_S
        self._asked_in: tuple[int, int] | None = None
        self._deadline_s = 0.0
        self.has_gathered = False
        """Others are about to take over."""

    def hurry(self, within_s: float) -> None:
        """Any thread: the thread is waited for so long; half of it is left to close stores and leave."""
        self._limit_s = min(self._limit_s, within_s / 2)

    def may_begin(self, leave: bool | None, *, has_tasks: bool) -> bool:
        """True once the group has gathered since this was first asked, or there is nothing to hand over or no member to take it.

        ``leave``: as at ``GroupMember.close``.
        """
        now = self._member.membership
        at = now.incarnation, now.generation
        if self._asked_in is None:
            if not has_tasks or not now.is_member or not self._member.hands_over(leave):
                return True
            self._asked_in, self._deadline_s = at, self._now_s() + self._limit_s
            log.info(LogEvent("leaving", thread=self._thread, generation=now.generation))
            self._member.request_rejoin("it is about to leave")
            return False
        self.has_gathered = at != self._asked_in and now.is_stable
        return self.has_gathered or self._now_s() > self._deadline_s

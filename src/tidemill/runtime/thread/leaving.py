"""Leaving the group without a pause for the tasks: a stream thread requests a rebalance first, and processes until it begins.

Decides when a closing thread may begin to give its tasks up. Members notice a rebalance with their next heartbeat: quickly after
an assignment, else after up to ``heartbeat.interval.ms`` (``kafka.group.state``), for which the tasks of a member that just left
would wait. So the thread rejoins, continues with its batches until the others have joined too, and only then gives its tasks up.
How it does that is ``membership``'s and ``task_changes``'.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tidemill.kafka.group.member import GroupMember
from tidemill.log_format import LogEvent

log = logging.getLogger("tidemill.thread")

_GATHERING_LIMIT_S = 1.0
"""Wait in addition to a heartbeat interval, after which every member has noticed; some may be in a long batch."""


class Leaving:
    """Used by the stream thread before each batch once it is to end."""

    def __init__(
        self, thread: str, member: GroupMember, heartbeat_interval_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._thread, self._member, self._now_s = thread, member, now_s
        self._limit_s = heartbeat_interval_ms / 1e3 + _GATHERING_LIMIT_S
        self._asked_in: tuple[int, int] | None = None
        self._deadline_s = 0.0
        self.has_gathered = False
        """The rebalance has begun: others are about to take over."""

    def hurry(self, within_s: float) -> None:
        """Limits the wait, on any thread: ``within_s`` is the caller's timeout; half of it is left to close stores and leave."""
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

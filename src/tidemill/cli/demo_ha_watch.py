"""The group as demo-ha sees it: asked of whichever instance answers, printed line by line without a terminal.

Decides what is news: rebalances that were not printed yet, and instances that do not answer any more or change their state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidemill.cli.group_screen import group_screen
from tidemill.cli.group_view import is_news, rebalance_words
from tidemill.errors import EnvironmentProblem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemill.ids import TaskId
    from tidemill.query.group_documents import ActiveTaskDocument, CopyDocument, GroupDocument, ThreadDocument

_ASK_LIMIT_S = 2.5


class Watch:
    """``say`` gets a line for each thing that happens. ``looked_at``: when the last look began that was answered."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._group: GroupDocument | None = None
        self._shown: set[tuple[int, str]] = set()
        self._states: dict[str | None, str] = {}
        self._tried_at = 0.0
        self.looked_at = 0.0

    def look(self, addresses: Sequence[str], *, every_s: float) -> None:
        """Asks again if it is time to."""
        from tidemill.cli.top import GroupQuestion
        from tidemill.membership.wire import host_of

        now = time.monotonic()
        if not addresses or now - self._tried_at < every_s:
            return
        self._tried_at = now
        hosts = [host for host in map(host_of, addresses) if host is not None]
        try:
            self._group = GroupQuestion(hosts).ask(timeout_s=_ASK_LIMIT_S)
        except EnvironmentProblem:
            return
        self.looked_at = now
        self._tell(self._group)

    def screen(self, progress: str) -> RenderableType | None:
        """The group for a terminal; None while nothing is known."""
        from rich.console import Group
        from rich.text import Text

        return None if self._group is None else Group(group_screen(self._group), Text(f"\n{progress}"))

    # --- what the acts of the demo wait for ---------------------------------------------------------------------------

    @property
    def active(self) -> int:
        """Active tasks that run."""
        return len(self.running_at(None))

    @property
    def stateful_owners(self) -> int:
        """Instances that run tasks with state."""
        return len({host for host, task in self._active() if task.stateful and task.phase == "running"})

    @property
    def caught_up_copies(self) -> int:
        """Different tasks of which there is a copy that is at its changelog's end, or nearly."""
        return len({copy.task for copy in self._copies() if copy.lag is not None and copy.lag <= _NEARLY})

    @property
    def warming_up(self) -> bool:
        """True if a task is on its way to another instance."""
        return any(copy.role == "warm-up" for copy in self._copies())

    def running_at(self, addresses: Iterable[str] | None) -> frozenset[TaskId]:
        """Running tasks of these instances; None: of all."""
        known = None if addresses is None else set(addresses)
        return frozenset(
            task.task for host, task in self._active() if task.phase == "running" and (known is None or host in known)
        )

    def active_at(self, address: str) -> frozenset[TaskId]:
        """Active tasks of one instance."""
        return frozenset(task.task for host, task in self._active() if host == address)

    def stateful_at(self, address: str) -> frozenset[TaskId]:
        """Active tasks with state of one instance."""
        return frozenset(task.task for host, task in self._active() if host == address and task.stateful)

    def promoted(self, tasks: Iterable[TaskId]) -> tuple[int, int]:
        """Of these tasks with state: how many went to an instance with a copy of them when they last moved, how many did not."""
        stateful = {task.task for _, task in self._active() if task.stateful}.intersection(tasks)
        had: dict[TaskId, bool] = {}
        for led in self._group.rebalances if self._group is not None else ():
            for move in led.moves:
                if move.role == "active" and move.task in stateful:
                    had[move.task] = move.had_copy
        return sum(had.values()), len(had) - sum(had.values())

    def _active(self) -> Iterator[tuple[str | None, ActiveTaskDocument]]:
        """Each active task with the address of its instance."""
        return ((host, task) for host, thread in self._threads() for task in thread.active)

    def _copies(self) -> Iterator[CopyDocument]:
        return (copy for _, thread in self._threads() for copy in thread.standby)

    def _threads(self) -> Iterator[tuple[str | None, ThreadDocument]]:
        for member in self._group.instances if self._group is not None else ():
            if member.reported is not None:
                yield from ((member.host, thread) for thread in member.reported.threads)

    def _tell(self, group: GroupDocument) -> None:
        for member in group.instances:
            state = "does not answer" if member.reported is None else member.reported.state
            if self._states.get(member.host) != state:
                self._states[member.host] = state
                self._say(f"{member.host}: {state}")
        for led in group.rebalances:
            which = (led.at_ms, led.led_by)
            if which not in self._shown:
                self._shown.add(which)
                if is_news(led):
                    self._say(f"rebalance, led by {led.led_by}: {rebalance_words(led)}")


_NEARLY = 1_000
"""Offsets: records go on coming while one looks."""

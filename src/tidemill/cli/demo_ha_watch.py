"""The group as demo-ha sees it: asked of whichever instance answers, printed line by line without a terminal.

Decides what is news: rebalances that were not printed yet, and instances that do not answer any more or change their state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from tidemill.cli.group_screen import group_screen
from tidemill.cli.group_view import is_news, rebalance_words
from tidemill.documents import Document
from tidemill.errors import EnvironmentProblem

if TYPE_CHECKING:
    from rich.console import RenderableType

_ASK_LIMIT_S = 2.5


class Watch:
    """``say`` gets a line for each thing that happens. ``looked_at``: when the last look began that was answered."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._group: Document | None = None
        self._shown: set[tuple[int, str]] = set()
        self._states: dict[str, str] = {}
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
        """For a terminal; None while nothing is known."""
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
        return len({one["host"] for one, task in self._active() if task["stateful"] and task["phase"] == "running"})

    @property
    def caught_up_copies(self) -> int:
        """Different tasks of which there is a copy that is at its changelog's end, or nearly."""
        return len({copy["task"] for copy in self._copies() if copy["lag"] is not None and copy["lag"] <= _NEARLY})

    @property
    def warming_up(self) -> bool:
        return any(copy["role"] == "warm-up" for copy in self._copies())

    def running_at(self, addresses: Iterable[str] | None) -> frozenset[str]:
        """Running tasks of these instances; None: of all."""
        known = None if addresses is None else set(addresses)
        return frozenset(
            task["task"] for one, task in self._active() if task["phase"] == "running" and (known is None or one["host"] in known)
        )

    def active_at(self, address: str) -> frozenset[str]:
        return frozenset(task["task"] for one, task in self._active() if one["host"] == address)

    def stateful_at(self, address: str) -> frozenset[str]:
        return frozenset(task["task"] for one, task in self._active() if one["host"] == address and task["stateful"])

    def promoted(self, tasks: Iterable[str]) -> tuple[int, int]:
        """Of these tasks with state: how many went to an instance with a copy of them when they last moved, how many did not."""
        stateful = {task["task"] for _, task in self._active() if task["stateful"]}.intersection(tasks)
        had: dict[str, bool] = {}
        for led in (self._group or {"rebalances": ()})["rebalances"]:
            for move in led["moves"]:
                if move["role"] == "active" and move["task"] in stateful:
                    had[move["task"]] = move["had_copy"]
        return sum(had.values()), len(had) - sum(had.values())

    def _active(self) -> Iterator[tuple[Document, Document]]:
        for one in (self._group or {"instances": ()})["instances"]:
            for thread in one.get("threads", ()):
                yield from ((one, task) for task in thread["active"])

    def _copies(self) -> Iterator[Document]:
        for one in (self._group or {"instances": ()})["instances"]:
            for thread in one.get("threads", ()):
                yield from thread["standby"]

    def _tell(self, group: Document) -> None:
        for one in group["instances"]:
            state = "does not answer" if one["away"] is not None else one["state"]
            if self._states.get(one["host"]) != state:
                self._states[one["host"]] = state
                self._say(f"{one['host']}: {state}")
        for led in group["rebalances"]:
            which = (led["at_ms"], led["led_by"])
            if which not in self._shown:
                self._shown.add(which)
                if is_news(led):
                    self._say(f"rebalance, led by {led['led_by']}: {rebalance_words(led)}")


_NEARLY = 1_000
"""Offsets: records go on coming while one looks."""

"""Screen of the demo while it works: a table on a terminal, else lines with the time since the start.

Decides how often a line is worth it; what is shown is handed in.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tidemill.cli.instance_view import InstanceView, to_text
from tidemill.cli.live_text import LiveText

_LINE_INTERVAL_S = 2.0


class Screen:
    """``say`` for events; ``show`` for the state of things, called as often as one likes."""

    def __init__(self, live: LiveText, lines: int, words: int) -> None:
        self._live, self._lines, self._words = live, lines, words
        self._began = time.monotonic()
        self._shown: dict[int, InstanceView] = {}
        self._counted, self._counted_at = 0, 0.0

    def say(self, text: str) -> None:
        self._live.line(f"{time.monotonic() - self._began:6.1f} s  {text}")

    def show(self, sent: int, counted: int, commonest: Sequence[tuple[str, int]], views: Sequence[InstanceView]) -> None:
        for number, view in enumerate(views, start=1):
            before = self._shown.setdefault(number, view)
            if (before.state, before.tasks, before.is_at_work) != (view.state, view.tasks, view.is_at_work):
                self.say(f"instance {number}: {to_text(view)}")
                self._shown[number] = view
        progress = f"{sent:,} of {self._lines:,} lines fed, {counted:,} of {self._words:,} words counted"
        if self._live.console is not None:
            self._draw(progress, commonest, views)
        elif counted != self._counted and time.monotonic() - self._counted_at > _LINE_INTERVAL_S:
            self._counted, self._counted_at = counted, time.monotonic()
            self.say(f"{progress}: {in_words(commonest)}")

    def _draw(self, progress: str, commonest: Sequence[tuple[str, int]], views: Sequence[InstanceView]) -> None:
        from rich.box import SIMPLE
        from rich.console import Group
        from rich.table import Table

        table = Table("the ten commonest words", "count", box=SIMPLE)
        table.columns[1].justify = "right"
        for word, count in commonest:
            table.add_row(word, f"{count:,}")
        instances = [f"instance {number}: {to_text(view)}" for number, view in enumerate(views, start=1)]
        self._live.status(Group(table, progress, *instances))


def in_words(commonest: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in commonest)

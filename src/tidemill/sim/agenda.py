"""Virtual time: a queue of calls by their time.

Decides the order: by time, then ``LAST`` after the others of its time, then as entered. Nothing ever happens in the past.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from enum import IntEnum


class Turn(IntEnum):
    """Order of calls at the same time."""

    FIRST = 0
    LAST = 1


class Agenda:
    def __init__(self) -> None:
        self.now_ms = 0
        self._entries: list[tuple[int, Turn, int, Callable[[], None], bool]] = []
        self._entered = 0

    def at(
        self, time_ms: int, action: Callable[[], None], turn: Turn = Turn.FIRST, *, changes_copies: bool = True
    ) -> None:
        """``changes_copies``: whether the action may open, close, start or stop anything, at once."""
        self._entered += 1
        heapq.heappush(self._entries, (max(time_ms, self.now_ms), turn, self._entered, action, changes_copies))

    def after(self, delay_ms: int, action: Callable[[], None], *, changes_copies: bool = True) -> None:
        self.at(self.now_ms + delay_ms, action, changes_copies=changes_copies)

    def due(self, until_ms: int) -> Iterator[tuple[Callable[[], None], bool]]:
        """Each action in turn with its ``changes_copies``, the clock having been set to its time."""
        while self._entries and self._entries[0][0] <= until_ms:
            self.now_ms, _, _, action, changes_copies = heapq.heappop(self._entries)
            yield action, changes_copies

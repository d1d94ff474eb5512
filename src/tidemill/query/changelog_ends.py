"""Stable end offsets of changelogs, with the time of each request: the lag of a copy, in offsets and in time.

A copy that has reached an end offset has everything that was committed when that offset was requested. So the age of a copy is
the time since the latest request whose end it has reached: never too low, and too high by at most the pause between requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping

from tidemill.ids import TopicPartition

_HOLD_S = 0.5
"""Longest age of an end offset that is used for another read, in s."""
_MOST_ANSWERS = 64
"""End offsets kept for each changelog; older ones are thinned out."""


class ChangelogEnds:
    """Thread-safe. ``ask`` returns the stable end offsets of changelogs, or raises RetriableError."""

    def __init__(
        self, ask: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]], now_s: Callable[[], float]
    ) -> None:
        self._ask, self._now_s = ask, now_s
        self._lock = threading.Lock()
        self._answers: dict[TopicPartition, list[tuple[float, int]]] = {}

    def lag(self, tp: TopicPartition, position: int, *, hold_s: float = _HOLD_S) -> int:
        """Offsets that a copy at ``position`` is behind an end that is at most ``hold_s`` old."""
        now = self._now_s()
        with self._lock:
            asked_s, end = self._answers.get(tp, [(float("-inf"), 0)])[-1]
        if now - asked_s > min(hold_s, _HOLD_S):
            end = self._ask([tp])[tp]
            self._keep(tp, (now, end))
        return max(0, end - position)

    def age_ms(self, tp: TopicPartition, position: int) -> float | None:
        """Time in ms since a copy at ``position`` had all committed records; None if unknown. To be called after ``lag``."""
        with self._lock:
            reached = [asked_s for asked_s, end in self._answers.get(tp, ()) if end <= position]
        return (self._now_s() - max(reached)) * 1e3 if reached else None

    def _keep(self, tp: TopicPartition, answer: tuple[float, int]) -> None:
        with self._lock:
            kept = self._answers.setdefault(tp, [])
            if len(kept) >= _MOST_ANSWERS:
                del kept[1::2]
            kept.append(answer)

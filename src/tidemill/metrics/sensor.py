"""Rates, averages and extremes over a sliding window, and running totals, as Kafka's own sensors keep them.

A window is a few samples (``metrics.num.samples``) of ``metrics.sample.window.ms`` each; what is older than all of them is
forgotten. A rate is over the time that the samples really span, at least all samples but one, so that a burst right
after a start is no huge rate. Time is handed in, in seconds of any steady clock.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

NOT_RECORDED = math.nan
"""Average or extreme while nothing was recorded, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Window:
    """``sample_s``: how long a sample is added to; ``samples``: how many are kept."""

    sample_s: float = 30.0
    samples: int = 2


@dataclass(slots=True)
class _Sample:
    began_s: float
    count: float = 0
    sum: float = 0.0
    low: float = math.inf
    high: float = -math.inf


class Sensor:
    """Written by one thread; read by any, which may miss what is recorded meanwhile."""

    __slots__ = ("_samples", "_window", "count", "total")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: deque[_Sample] = deque()
        self.total = 0.0
        """The sum of all that was ever recorded."""
        self.count = 0.0
        """Number of the values."""

    def record(self, value: float, now_s: float) -> None:
        self.record_all(value, value, value, now_s, times=1)

    def record_all(self, total: float, low: float, high: float, now_s: float, *, times: float) -> None:
        """Many values at once: their sum, their extremes, their number."""
        self.total += total
        self.count += times
        if not self._samples or now_s - self._samples[-1].began_s >= self._window.sample_s:
            self._samples.append(_Sample(now_s))
            while len(self._samples) > self._window.samples:
                self._samples.popleft()
        sample = self._samples[-1]
        sample.count += times
        sample.sum += total
        sample.low, sample.high = min(sample.low, low), max(sample.high, high)

    def rate(self, now_s: float) -> float:
        """The sum of the values per second."""
        return self._per_second(sum(sample.sum for sample in self._recent(now_s)), now_s)

    def occurrences(self, now_s: float) -> float:
        """Values per second."""
        return self._per_second(sum(sample.count for sample in self._recent(now_s)), now_s)

    def average(self, now_s: float) -> float:
        recent = self._recent(now_s)
        count = sum(sample.count for sample in recent)
        return sum(sample.sum for sample in recent) / count if count else NOT_RECORDED

    def largest(self, now_s: float) -> float:
        return max((sample.high for sample in self._recent(now_s) if sample.count), default=NOT_RECORDED)

    def least(self, now_s: float) -> float:
        return min((sample.low for sample in self._recent(now_s) if sample.count), default=NOT_RECORDED)

    def _recent(self, now_s: float) -> list[_Sample]:
        """A sample counts until the whole window has passed since its beginning."""
        oldest_s = now_s - self._window.sample_s * self._window.samples
        return [sample for sample in tuple(self._samples) if sample.began_s > oldest_s]

    def _per_second(self, amount: float, now_s: float) -> float:
        recent = self._recent(now_s)
        if not recent:
            return 0.0
        least_s = self._window.sample_s * (self._window.samples - 1)
        return amount / max(now_s - recent[0].began_s, least_s, 1e-3)

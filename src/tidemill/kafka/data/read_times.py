"""When a micro-batch's reading asks which consumer, how long it waits, and when it ends for want of records.

Decides by times alone. What is read, how much of it and in which order is ``reader``'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidemill.task.batch import BatchRequest

READ_LIMIT_S = 1.0
"""A batch closes when reading has taken this long even while more is arriving; the time that Spark works on it does not count."""
_WAIT_SLICE_S = 0.005
_IDLE_SLICE_S = 0.025
"""The slice where there is one consumer, or after ``_IDLE_AFTER_S``: a record of one consumer may be seen that much later while
another is asked."""
_IDLE_AFTER_S = 0.1
_STANDBY_DELAY_S = 0.1
"""Longest time that a standby's records wait for more, in seconds."""
FIRST_FETCH_LIMIT_S = 0.15
"""Time that a batch waits for the first answer about a partition that was not read before: the fetch under way, which is without
it, and the one after that may each take ``fetch.wait.max.ms``."""
ASIDE_BEFORE_S = (0.02, 0.012, 0.004)
"""Before the rest of source topics ends: when what was fetched of them is set aside. A fetch takes 1 to 3 ms, or ten when busy;
of the last one, at least what the one before has brought is there in time."""


class ReadKind(Enum):
    """What a stream thread reads, in the order in which it does; each has a consumer of its own."""

    GLOBAL = "global"
    CHANGELOG = "changelog"
    STANDBY = "standby"
    INTERNAL = "internal"
    SOURCE = "source"


@dataclass(slots=True)
class ReadTimes:
    """The times of one batch, in s of ``time.monotonic``. They are no Deadlines, since they move each other, and a round compares
    all of them with one reading of the clock, ``now``."""

    began: float
    closes_at: float
    """The batch closes then, also while more is arriving."""
    idle_until: float
    """The end of the wait for a first record."""
    hears_until: float
    """The end of the wait for a first answer about partitions that were not read before."""
    rests_until: dict[ReadKind, float]
    """Kinds that are left alone at first."""
    aside_at: tuple[float, ...] = ()
    """When what was fetched of source topics that still rest is set aside, in order."""
    has_found: bool = False
    """A record has come of anything but a standby's changelog."""

    @classmethod
    def of(cls, request: BatchRequest, now: float) -> ReadTimes:
        """The times of a batch that begins now."""
        idle_until = now + request.wait_ms / 1e3
        rests = {ReadKind.SOURCE: now + request.sources_rest_ms / 1e3, ReadKind.INTERNAL: now + request.internal_rest_ms / 1e3}
        return cls(now, max(now + READ_LIMIT_S, idle_until), idle_until, now + FIRST_FETCH_LIMIT_S, rests)

    def set_aside_before_rest_ends(self) -> None:
        """From now on ``takes_aside`` tells when."""
        times = (self.rests_until[ReadKind.SOURCE] - before_s for before_s in ASIDE_BEFORE_S)
        self.aside_at = tuple(at for at in times if at > self.began)

    def takes_aside(self, now: float) -> bool:
        """True when source topics are to be set aside; once for each time."""
        is_due = bool(self.aside_at) and now >= self.aside_at[0]
        if is_due:
            self.aside_at = tuple(at for at in self.aside_at if at > now)
        return is_due

    def rests(self, kind: ReadKind, now: float) -> bool:
        """True while a kind is left alone."""
        return now < self.rests_until.get(kind, now)

    def hurry(self) -> None:
        """Ends all rests."""
        self.rests_until.clear()

    def came(self, kind: ReadKind, fetched_at: float, now: float) -> None:
        """Records have come, and Spark has worked on them from ``fetched_at`` to now. Those of standbys don't end the wait for
        inputs, but shorten it."""
        self.closes_at += now - fetched_at
        if kind is ReadKind.STANDBY:
            self.idle_until = min(self.idle_until, now + _STANDBY_DELAY_S)
        else:
            self.has_found = True

    def is_idle(self, now: float) -> bool:
        """True if nothing more is waited for but new partitions."""
        return self.has_found or now >= self.idle_until

    def slice_s(self, now: float, consumers: int) -> float:
        """How long each of this many consumers is waited for: a record of one is not seen while another is asked."""
        times = (self.idle_until, self.hears_until, *self.aside_at, *self.rests_until.values())
        until = min((at for at in times if at > now), default=self.closes_at)
        is_brief = consumers > 1 and now - self.began < _IDLE_AFTER_S
        return min(_WAIT_SLICE_S if is_brief else _IDLE_SLICE_S, until - now)

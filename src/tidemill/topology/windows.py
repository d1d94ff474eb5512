"""Windows: the windows of a record, and the time for which a window is open. All times in ms, windows never start below 0.

Values with Kafka Streams' rules (TimeWindows, SlidingWindows, SessionWindows, JoinWindows); the operators
aggregate in a window, and its store has the retention of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidemill.errors import TopologyError
from tidemill.spellings import Spelled, spelled
from tidemill.topology.durations import Duration, milliseconds, signed_milliseconds
from tidemill.topology.values import Key

MAX_TIME = 2**63 - 1
"""The end of time, as Java has it."""


@spelled
class Windowed(NamedTuple):
    """A key in a window, in ms since the epoch: ``[start, end)``; sessions and sliding windows are ``[start, end]``.

    As ``org.apache.kafka.streams.kstream.Windowed``; in PySpark functions a struct of key, start and end.
    """

    key: Key
    start: int
    end: int

    def __str__(self) -> str:
        """As Java prints it, since programs make keys and messages of it: ``[key@start/end]``."""
        return f"[{self.key}@{self.start}/{self.end}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows(Spelled):
    """Tumbling (``advance`` = ``size``) and hopping windows, in ms (org.apache.kafka.streams.kstream.TimeWindows).

    Aligned to the epoch: a window starts at each multiple of ``advance``, never below 0. ``size`` None: one window from ``start``
    on (``UnlimitedWindows``).
    """

    size: int | None
    advance: int
    grace: int = 0
    start: int = 0

    @classmethod
    def of_size(cls, size: Duration, *, advance: Duration | None = None, grace: Duration = 0) -> TimeWindows:
        """Tumbling windows, or hopping ones where ``advance`` is shorter. Durations are ms or timedelta.

        Late records count until ``grace`` after the end, which is 0 unless given (``ofSizeWithNoGrace``, KIP-633).

        Raises:
            TopologyError: a size below 1 ms, an ``advance`` that is not from 1 ms to the size, a negative grace.
        """
        size_ms = milliseconds(size, "TimeWindows: size")
        advance_ms = size_ms if advance is None else milliseconds(advance, "TimeWindows: advance")
        if size_ms == 0:
            raise TopologyError("TimeWindows: the size is 0; give a size of at least 1 ms")
        if not 0 < advance_ms <= size_ms:
            raise TopologyError(
                f"TimeWindows: advance is {advance_ms} ms, expected 1 .. {size_ms} ms (the size), so that no record is left out"
            )
        return cls(size=size_ms, advance=advance_ms, grace=milliseconds(grace, "TimeWindows: grace"))

    @property
    def retention(self) -> int:
        """Retention of a store of windows, in ms: until the last of their records may have come."""
        return MAX_TIME if self.size is None else self.size + self.grace


class UnlimitedWindows(Spelled):
    """One window without an end, as ``UnlimitedWindows`` of Kafka Streams."""

    @staticmethod
    def of(*, start: Duration = 0) -> TimeWindows:
        """The window from ``start`` (ms since the epoch) on; earlier records are left out.

        Raises:
            TopologyError: a negative start.
        """
        return TimeWindows(size=None, advance=MAX_TIME, start=milliseconds(start, "UnlimitedWindows: start"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows(Spelled):
    """Windows of records that are at most ``difference`` ms apart, both ends included
    (org.apache.kafka.streams.kstream.SlidingWindows, KIP-450).
    """

    difference: int
    grace: int = 0

    @classmethod
    def of_time_difference(cls, difference: Duration, *, grace: Duration = 0) -> SlidingWindows:
        """A window for each set of records at most ``difference`` apart. Durations are ms or timedelta.

        Raises:
            TopologyError: a negative duration.
        """
        return cls(
            difference=milliseconds(difference, "SlidingWindows: difference"),
            grace=milliseconds(grace, "SlidingWindows: grace"),
        )

    @property
    def retention(self) -> int:
        """Retention of a store of windows, in ms: a record looks back twice the difference."""
        return 2 * self.difference + self.grace


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(Spelled):
    """Sessions that end after ``gap`` ms without a record (org.apache.kafka.streams.kstream.SessionWindows, KIP-94)."""

    gap: int
    grace: int = 0

    @classmethod
    def of_inactivity_gap(cls, gap: Duration, *, grace: Duration = 0) -> SessionWindows:
        """Records of a key that are at most ``gap`` apart make one session. Durations are ms or timedelta.

        Raises:
            TopologyError: a negative duration.
        """
        return cls(gap=milliseconds(gap, "SessionWindows: gap"), grace=milliseconds(grace, "SessionWindows: grace"))

    @property
    def retention(self) -> int:
        """Retention of a store of sessions, in ms."""
        return self.gap + self.grace


Windows = TimeWindows | SlidingWindows | SessionWindows
"""Those of aggregations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows(Spelled):
    """A record of the left side joins those of the right from ``before`` ms earlier to ``after`` ms later, both ends included
    (org.apache.kafka.streams.kstream.JoinWindows).
    """

    before: int
    after: int
    grace: int = 0

    @classmethod
    def of_time_difference(
        cls,
        difference: Duration,
        *,
        before: Duration | None = None,
        after: Duration | None = None,
        grace: Duration = 0,
    ) -> JoinWindows:
        """Records at most ``difference`` apart; ``before`` and ``after`` replace it on one side and may be negative. ms or
        timedelta.

        ``grace``: how late a record may come and still be joined; left and outer joins wait so long before they send what found
        nothing.

        Raises:
            TopologyError: a negative difference or grace, or ``before`` + ``after`` below 0.
        """
        difference_ms = milliseconds(difference, "JoinWindows: difference")
        before_ms = difference_ms if before is None else signed_milliseconds(before, "JoinWindows: before")
        after_ms = difference_ms if after is None else signed_milliseconds(after, "JoinWindows: after")
        if before_ms + after_ms < 0:
            raise TopologyError(
                f"JoinWindows: before ({before_ms} ms) and after ({after_ms} ms) make no window; their sum must be 0 or more"
            )
        return cls(before=before_ms, after=after_ms, grace=milliseconds(grace, "JoinWindows: grace"))

    @property
    def size(self) -> int:
        """The span from the earliest to the latest record that one can be joined with, in ms."""
        return self.before + self.after

    @property
    def retention(self) -> int:
        """Retention of the store of one side's records, in ms."""
        return self.before + self.after + self.grace

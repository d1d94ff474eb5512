"""Windows: the windows of a record, and the time for which a window is open. All times in ms, windows never start below 0.

Values with Kafka Streams' rules (TimeWindows, SlidingWindows, SessionWindows, JoinWindows); the operators
aggregate in a window, and its store has the retention of the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from tidemill.errors import TopologyError
from tidemill.spellings import Spelled, set_numbers, spelled
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


class Windows(Spelled):
    """Windows of your own, such as days of a time zone: derive from it and give ``windows_for``
    (org.apache.kafka.streams.kstream.Windows). ``TimeWindows`` and ``UnlimitedWindows`` are those of the library.

    Stores keep the start of a window only. Its end is that of the window which ``windows_for(start)`` gives with this start, or
    ``size`` later if there is none. In Kafka Streams it is always ``size`` later.
    """

    size: int | None
    grace: int

    _is_hot = True

    def __init__(self, *, size: Duration, grace: Duration = 0) -> None:
        """``size``: the length of the longest window. Late records count until ``grace`` after a window's end. ms or timedelta.

        Raises:
            TopologyError: a size below 1 ms, a negative grace, a class without ``windows_for``.
        """
        made = type(self)
        if made.windows_for is Windows.windows_for:
            raise TopologyError(f"{made.__name__}: windows_for is missing; derive from Windows and give windows_for(timestamp)")
        self.size = milliseconds(size, f"{made.__name__}: size")
        if self.size == 0:
            raise TopologyError(f"{made.__name__}: the size is 0; give the length of the longest window, at least 1 ms")
        self.grace = milliseconds(grace, f"{made.__name__}: grace")

    @property
    def retention(self) -> int:
        """Retention of a store of windows, in ms: until the last of their records may have come."""
        return MAX_TIME if self.size is None else self.size + self.grace

    @property
    def reach(self) -> int:
        """Retention, in ms, with which a record that is just in time finds all windows that it goes on from."""
        return self.retention

    def windows_for(self, timestamp: int) -> Iterable[tuple[int, int]] | Mapping[int, int]:
        """Start and end of each window that a record of this time is in, ``[start, end)`` in ms since the epoch, in their
        order. The same time must always give the same windows: a record may be processed again.
        """
        raise NotImplementedError

    def windows_at(self, timestamp: int) -> Iterable[tuple[int, int]]:
        """What ``windows_for`` gives, checked, each start once.

        Raises:
            ValueError: what is no window, one that is longer than ``size``: its rows would be deleted while it is open, or
                two that begin together: a store's key has the start only.
        """
        given, name = self.windows_for(timestamp), type(self).__name__
        try:
            pairs = [(index(start), index(end)) for start, end in (given.items() if isinstance(given, Mapping) else given)]
        except (TypeError, ValueError):
            raise ValueError(
                f"{name}: windows_for({timestamp}) gave {given!r}, expected pairs of start and end, in ms as int"
            ) from None
        assert self.size is not None
        found = dict(pairs)
        for start, end in pairs:
            if found[start] != end:
                raise ValueError(
                    f"{name}: windows_for({timestamp}) gave windows from {start} to {end} and to {found[start]}, expected one for"
                    " each start: a store has one row for it"
                )
            if not 0 <= start < end <= MAX_TIME or end - start > self.size:
                raise ValueError(
                    f"{name}: windows_for({timestamp}) gave a window from {start} to {end}, expected a start from 0 on and an"
                    f" end at most {self.size} ms later, which is the size"
                )
        return found.items()

    def end_of(self, start: int) -> int:
        """The end of the window that begins at ``start``."""
        assert self.size is not None
        return dict(self.windows_at(start)).get(start, min(start + self.size, MAX_TIME))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows(Windows):
    """Tumbling (``advance`` = ``size``) and hopping windows, in ms (org.apache.kafka.streams.kstream.TimeWindows).

    Aligned to the epoch: a window starts at each multiple of ``advance``, never below 0. ``size`` None: one window from ``start``
    on (``UnlimitedWindows``).
    """

    size: int | None
    advance: int
    grace: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        set_numbers(self, "of_size")

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

    def __init_subclass__(cls) -> None:
        raise TypeError(f"{cls.__name__}: TimeWindows is final; derive from Windows and give windows_for(timestamp)")

    def windows_for(self, timestamp: int) -> Iterable[tuple[int, int]]:
        """Start and end of each window that ``timestamp`` lies in, in their order."""
        size, advance = self.size, self.advance
        if size is None:
            return ((self.start, MAX_TIME),) if timestamp >= self.start else ()
        starts = range(max(0, timestamp - size + advance) // advance * advance, timestamp + 1, advance)
        return [(start, min(start + size, MAX_TIME)) for start in starts]

    windows_at = windows_for


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

    def __post_init__(self) -> None:
        set_numbers(self, "of_time_difference")

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

    @property
    def reach(self) -> int:
        """Retention, in ms, with which a record that is just in time finds all windows that it goes on from."""
        return self.retention + 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(Spelled):
    """Sessions that end after ``gap`` ms without a record (org.apache.kafka.streams.kstream.SessionWindows, KIP-94)."""

    gap: int
    grace: int = 0

    def __post_init__(self) -> None:
        set_numbers(self, "of_inactivity_gap")

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

    @property
    def reach(self) -> int:
        """Retention, in ms, with which a record that is just in time finds all sessions that it joins."""
        return self.retention + self.gap + 1


AnyWindows = Windows | SlidingWindows | SessionWindows
"""The windows of aggregations."""


def own_windows(windows: AnyWindows) -> Windows | None:
    """``windows`` if they are the program's own, else None."""
    return windows if isinstance(windows, Windows) and not isinstance(windows, TimeWindows) else None


def checked_windows(given: object) -> AnyWindows:
    """``given`` if an aggregation can be windowed by it, else TopologyError."""
    if not isinstance(given, (Windows, SlidingWindows, SessionWindows)):
        raise TopologyError(
            "windowed_by: expected TimeWindows, UnlimitedWindows, SlidingWindows, SessionWindows, or an object of a class"
            f" that derives from Windows, got {given!r}"
        )
    if isinstance(given, Windows) and (missing := [name for name in ("size", "grace") if not hasattr(given, name)]):
        made = type(given).__name__
        raise TopologyError(f"windowed_by: {made} has no {missing[0]}; its __init__ calls super().__init__(size=...)")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows(Spelled):
    """A record of the left side joins those of the right from ``before`` ms earlier to ``after`` ms later, both ends included
    (org.apache.kafka.streams.kstream.JoinWindows).
    """

    before: int
    after: int
    grace: int = 0

    def __post_init__(self) -> None:
        set_numbers(self, "of_time_difference")

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

        ``grace``: how late a record may come and still be joined; left and outer joins wait that long before they
        forward a record without a match.

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

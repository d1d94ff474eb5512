"""Durations of programs: whole milliseconds or ``timedelta``, most of them from zero on; and points in time."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from tidemill.errors import TopologyError

Duration = int | timedelta
Instant = int | datetime
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def milliseconds(duration: Duration, what: str) -> int:
    """``duration`` in ms, cut to whole ones; TopologyError if it is no duration or negative. ``what`` says what it is for."""
    found = signed_milliseconds(duration, what)
    if found < 0:
        raise TopologyError(f"{what}: {found} ms is negative; give a duration from 0 on")
    return found


def epoch_milliseconds(instant: Instant, what: str) -> int:
    """A time in ms since the epoch, cut to whole ones; TopologyError before the epoch, or for a datetime without time zone."""
    if isinstance(instant, datetime):
        if instant.utcoffset() is None:
            raise TopologyError(f"{what}: {instant} has no time zone; give one, such as tzinfo=timezone.utc")
        instant = (instant - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(instant, int) or isinstance(instant, bool) or instant < 0:
        raise TopologyError(f"{what}: {instant!r} is no time from 1970 on; give a datetime or ms since the epoch")
    return instant


def signed_milliseconds(duration: Duration, what: str) -> int:
    """Like ``milliseconds``, for durations that may be negative."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if not isinstance(duration, int) or isinstance(duration, bool):
        raise TopologyError(f"{what}: {duration!r} is no duration; give a timedelta or whole milliseconds")
    if abs(duration) >= 1 << 63:
        raise TopologyError(f"{what}: {duration} ms do not fit in 8 bytes, as times do; give less than 2^63")
    return duration

"""Durations of programs: whole milliseconds or ``timedelta``, most of them from zero on."""

from __future__ import annotations

from datetime import timedelta

from tidemill.errors import TopologyError

Duration = int | timedelta


def milliseconds(duration: Duration, what: str) -> int:
    """``duration`` in ms, cut to whole ones; TopologyError if it is no duration or negative. ``what`` says what it is for."""
    found = signed_milliseconds(duration, what)
    if found < 0:
        raise TopologyError(f"{what}: {found} ms is negative; give a duration from 0 on")
    return found


def signed_milliseconds(duration: Duration, what: str) -> int:
    """As ``milliseconds``, where a duration may be negative."""
    if isinstance(duration, timedelta):
        return duration // timedelta(milliseconds=1)
    if not isinstance(duration, int) or isinstance(duration, bool):
        raise TopologyError(f"{what}: {duration!r} is no duration; give a timedelta or whole milliseconds")
    return duration

"""Windows: which window a record falls in and how long a window stays open. All times in ms, windows never start below 0.

Values with Kafka Streams' rules (TimeWindows, SlidingWindows, SessionWindows, JoinWindows); what is done in a window is
the operators' matter, and how long its rows are kept is said by its store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Windowed:
    """A key in a window, ``[start, end)``; sessions and sliding windows are ``[start, end]``."""

    key: Any
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows:
    """Tumbling (``advance`` = ``size``) and hopping windows; ``size`` None: one window from 0 on (UnlimitedWindows)."""

    size: int | None
    advance: int
    grace: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows:
    """Windows of records that are at most ``difference`` apart, both ends included."""

    difference: int
    grace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows:
    """Sessions that end after ``gap`` without a record."""

    gap: int
    grace: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows:
    """A record of the left side joins those of the right from ``before`` earlier to ``after`` later."""

    before: int
    after: int
    grace: int = 0

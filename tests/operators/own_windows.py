"""Days of a time zone: windows of a program's own, one of 25 hours when summer time ends."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from tidemill import Windows

BERLIN = ZoneInfo("Europe/Berlin")


class Days(Windows):
    def __init__(self, zone: ZoneInfo = BERLIN, *, grace: timedelta = timedelta(0)) -> None:
        super().__init__(size=timedelta(hours=25), grace=grace)
        self.zone = zone

    def windows_for(self, timestamp: int) -> list[tuple[int, int]]:
        day = datetime.fromtimestamp(timestamp / 1000, self.zone).date()
        start, end = (datetime.combine(day + timedelta(days=days), time(), self.zone) for days in (0, 1))
        return [(round(start.timestamp() * 1000), round(end.timestamp() * 1000))]


def october(day: int, hour: int, minute: int = 0) -> int:
    """A time in October 2026 in Berlin, in ms since the epoch. Summer time ends on the 25th."""
    return round(datetime(2026, 10, day, hour, minute, tzinfo=BERLIN).timestamp() * 1000)

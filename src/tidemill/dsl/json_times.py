"""Dates and times of a schema as JSON text, ISO 8601 both ways.

Decides which text is one: a ``timestamp`` says its offset from UTC, a ``timestamp_ntz`` says none, so that what is read depends
on no time zone of a machine or session. Spark's own reader takes all of them to the same values, to the microsecond, in the
years that Python has (1 to 9999); of a time with an offset and no seconds it reads null, so that it is given the seconds
(``tidemill.spark.plan.json_columns``).
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone

from tidemill.dsl.json_schema import Misfit, ScalarType
from tidemill.topology.values import Value

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
_TIME = re.compile(_DATE.pattern + r"[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_FARTHEST = timedelta(hours=18)
"""The JVM's offsets end here."""
_TYPES = {name: ScalarType(name) for name in ("date", "timestamp", "timestamp_ntz")}
_EXPECTED = {
    "date": "a date such as 2026-01-31",
    "timestamp": "a time with its offset from UTC, such as 2026-01-31T12:00:00.5Z or 2026-01-31T12:00:00+02:00",
    "timestamp_ntz": "a time without an offset from UTC, such as 2026-01-31T12:00:00.5",
}


def read_date(value: Value) -> date:
    """The date that ``YYYY-MM-DD`` says; Misfit of anything else."""
    found = _DATE.fullmatch(_text(value, "date"))
    if found is None:
        raise _misfit(value, "date")
    try:
        return date(*map(int, found.groups()))
    except ValueError:
        raise _misfit(value, "date") from None


def read_instant(value: Value) -> datetime:
    """The time, in UTC, that an ISO 8601 time with an offset says; what is less than a microsecond is cut off."""
    local, offset = _read_time(value, "timestamp")
    if offset is None:
        raise _misfit(value, "timestamp")
    try:
        return (local - offset).replace(tzinfo=timezone.utc)
    except OverflowError:
        raise _misfit(value, "timestamp") from None


def read_local_time(value: Value) -> datetime:
    """The time of no zone that an ISO 8601 time without an offset says."""
    local, offset = _read_time(value, "timestamp_ntz")
    if offset is not None:
        raise _misfit(value, "timestamp_ntz")
    return local


def _read_time(value: Value, kind: str) -> tuple[datetime, timedelta | None]:
    found = _TIME.fullmatch(_text(value, kind))
    if found is None:
        raise _misfit(value, kind)
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        microsecond = int((fraction or "0")[:6].ljust(6, "0"))
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), microsecond)
    except ValueError:
        raise _misfit(value, kind) from None
    offset = None if zone is None else _offset(zone)
    if offset is not None and abs(offset) > _FARTHEST:
        raise _misfit(value, kind)
    return local, offset


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if digits[2:] > "59":
        return 2 * _FARTHEST
    size = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -size if zone[0] == "-" else size


def date_text(value: Value) -> str:
    """JSON text of a ``datetime.date``."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Misfit.of_unwritable(value, _TYPES["date"])
    return f'"{value.isoformat()}"'


def instant_text(value: Value) -> str:
    """JSON text of a ``datetime`` that knows its offset: the time in UTC."""
    if not isinstance(value, datetime):
        raise Misfit.of_unwritable(value, _TYPES["timestamp"])
    if value.utcoffset() is None:
        raise Misfit(
            f"is {value}, a time of no zone, expected one that knows its offset as its type timestamp needs: give it a tzinfo"
            " (timezone.utc), or the schema the type timestamp_ntz"
        )
    try:
        utc = value.astimezone(timezone.utc)
    except OverflowError:
        raise Misfit(f"is {value}, which is beyond the years 1 to 9999 in UTC") from None
    return f'"{utc.replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'


def local_time_text(value: Value) -> str:
    """JSON text of a ``datetime`` without an offset."""
    if not isinstance(value, datetime):
        raise Misfit.of_unwritable(value, _TYPES["timestamp_ntz"])
    if value.utcoffset() is not None:
        raise Misfit(f"is {value}, which has an offset, expected a time of no zone as its type timestamp_ntz is")
    return f'"{value.isoformat(timespec="microseconds")}"'


def _text(value: Value, kind: str) -> str:
    if value.__class__ is not str:
        raise Misfit(f"is of type {type(value).__name__}, expected {_EXPECTED[kind]}, as text, for its type {kind}")
    text: str = value
    return text


def _misfit(value: str, kind: str) -> Misfit:
    return Misfit(f"is {value[:60]!r}, expected {_EXPECTED[kind]}, for its type {kind}")

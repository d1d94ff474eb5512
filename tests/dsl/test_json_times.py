"""Dates, times and decimals in JSON: what is read, refused and written; Spark's side is ``test_serdes_on_every_path``."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Serdes
from tidemill.errors import SerdeError

TIMES = Serdes.json("d date, t timestamp, l timestamp_ntz")
UTC = timezone.utc


@pytest.mark.parametrize(("text", "value"), [
    ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("2026-01-31 12:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ("2026-01-31T12:00:00.5+02:00", datetime(2026, 1, 31, 10, 0, 0, 500_000, tzinfo=UTC)),
    ("2026-01-31T12:00:00.123456789-0930", datetime(2026, 1, 31, 21, 30, 0, 123_456, tzinfo=UTC)),
    ("2026-01-31T00:00:00+18", datetime(2026, 1, 30, 6, tzinfo=UTC)),
])  # fmt: skip
def test_a_time_with_its_offset_is_read_in_utc(text: str, value: datetime) -> None:
    found = TIMES.deserialize(b'{"t":"%s"}' % text.encode())
    assert found is not None
    assert (found["t"], found["t"].utcoffset()) == (value, timedelta())


@pytest.mark.parametrize(("field", "token", "problem"), [
    ("d", '"2026-02-30"', "value.d is '2026-02-30', expected a date such as 2026-01-31, for its type date"),
    ("d", '"2026-1-31"', "expected a date such as"),
    ("d", '"2026-01-31T00:00:00Z"', "expected a date such as"),
    ("d", "20260131", "value.d is of type int, expected a date such as 2026-01-31, as text"),
    ("t", '"2026-01-31T12:00:00"', "expected a time with its offset from UTC, such as"),
    ("t", '"2026-01-31"', "expected a time with its offset"),
    ("t", '"2026-01-31T12:00:00+18:01"', "expected a time with its offset"),
    ("t", '"2026-01-31T12:00:00+02:60"', "expected a time with its offset"),
    ("t", '"2026-01-31T24:00:00Z"', "expected a time with its offset"),
    ("t", '"0001-01-01T00:00:00+01:00"', "expected a time with its offset"),
    ("t", "1769860800", "value.t is of type int, expected a time with its offset"),
    ("l", '"2026-01-31T12:00:00Z"', "expected a time without an offset from UTC"),
])  # fmt: skip
def test_what_is_no_date_or_time_is_refused_with_what_was_expected(field: str, token: str, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        TIMES.deserialize(f'{{"{field}":{token}}}'.encode())


@pytest.mark.parametrize(("value", "problem"), [
    ({"d": datetime(2026, 1, 31)}, "type datetime.datetime, expected date as in the schema; write value.date\\(\\)$"),
    ({"d": "2026-01-31"}, r"value.d is of type str, expected date as in the schema; write date\.fromisoformat\(value\)$"),
    ({"t": "2026-01-31"}, r"expected timestamp as in the schema; write datetime\.fromisoformat\(value\)$"),
    ({"t": date(2026, 1, 31)}, r"expected timestamp .*; write datetime\.combine\(value, time\(\), timezone\.utc\)$"),
    ({"t": datetime(2026, 1, 31)}, "value.t is 2026-01-31 00:00:00, a time of no zone, expected one that knows its offset"),
    ({"t": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, "which is beyond the years 1 to 9999 in UTC"),
    ({"l": datetime(2026, 1, 31, tzinfo=UTC)}, "which has an offset, expected a time of no zone"),
])  # fmt: skip
def test_values_of_another_kind_are_not_written(value: Any, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        TIMES.serialize(value)


@given(
    st.dates(), st.datetimes(timezones=st.integers(-1079, 1079).map(lambda at: timezone(timedelta(minutes=at)))), st.datetimes()
)
def test_what_is_written_is_read_as_the_same(day: date, instant: datetime, local: datetime) -> None:
    try:
        written = TIMES.serialize({"d": day, "t": instant, "l": local})
    except SerdeError:
        assert instant.year in (1, 9999)
        return
    assert TIMES.deserialize(written) == {"d": day, "t": instant, "l": local}
    assert TIMES.serialize(TIMES.deserialize(written)) == written


@pytest.mark.parametrize(("token", "value"), [
    ("12.5", "12.50"), ('"12.5"', "12.50"), ("-0.00", "0.00"), ("1e2", "100.00"), ("12.5000", "12.50"),
    ("9999999.99", "9999999.99"), ("7", "7.00"), ('"-007.5"', "-7.50"),
])  # fmt: skip
def test_a_decimal_is_read_from_a_number_or_its_text_with_the_schemas_digits(token: str, value: str) -> None:
    found = Serdes.json("a decimal(9,2)").deserialize(f'{{"a":{token}}}'.encode())
    assert found is not None
    assert str(found["a"]) == value


@pytest.mark.parametrize(("token", "problem"), [
    ("12.345", "value.a is 12.345, expected at most 2 digits behind the point"),
    ("10000000", r"value.a is too large for its type decimal\(9,2\)"),
    ("1e999999999999999999999", "value.a is"), ("1e-999", "expected at most 2 digits"), ("0e999", "too large"),
    ('"12,5"', r"value.a is of type str, expected decimal\(9,2\)"), ('" 1"', "of type str"), ('"NaN"', "of type str"),
    ("true", "of type bool"),
])  # fmt: skip
def test_a_decimal_is_never_rounded(token: str, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json("a decimal(9,2)").deserialize(f'{{"a":{token}}}'.encode())


@pytest.mark.parametrize(("value", "problem"), [
    (1.5, "value.a is of type float, expected decimal"), (True, "of type bool"), (Decimal("NaN"), "is not finite"),
    (Decimal("0.001"), "expected at most 2 digits"), (10**9, "too large"),
])  # fmt: skip
def test_a_number_that_does_not_fit_is_not_written_as_a_decimal(value: Any, problem: str) -> None:
    with pytest.raises(SerdeError, match=problem):
        Serdes.json("a decimal(9,2)").serialize({"a": value})


@given(st.integers(0, 38).flatmap(lambda scale: st.tuples(st.just(scale), st.integers(-(10**38) + 1, 10**38 - 1))))
def test_every_decimal_comes_back_digit_by_digit(drawn: tuple[int, int]) -> None:
    scale, digits = drawn
    serde, value = Serdes.json(f"a decimal(38,{scale})"), Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -scale))
    found = serde.deserialize(serde.serialize({"a": value}))
    assert found is not None
    assert found["a"].as_tuple() == value.as_tuple()


def test_numbers_beside_a_decimal_are_read_as_without_one() -> None:
    serde = Serdes.json("a decimal(4,1), d double, f float, i int")
    assert serde.deserialize(b'{"d":0.1,"f":0.1,"i":3,"x":1e400}') == {"a": None, "d": 0.1, "f": 0.10000000149011612, "i": 3}
    for bad in (b'{"d":1e400}', b'{"i":1.0}', b'{"f":3.5e38}'):
        with pytest.raises(SerdeError):
            serde.deserialize(bad)
    with pytest.raises(SerdeError, match=r"value.i is of type float, expected int"):
        serde.deserialize(b'{"i":1.5}')

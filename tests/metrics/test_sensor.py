"""Sensors: what a window holds, what it forgets, and rates of things that have just begun."""

from __future__ import annotations

import math

import pytest

from tidemill.metrics.sensor import Sensor, Window


def sensor() -> Sensor:
    return Sensor(Window(sample_s=30, samples=2))


def test_totals_and_counts_never_forget() -> None:
    found = sensor()
    for second in range(0, 1000, 10):
        found.record(2.0, second)
    assert (found.total, found.count) == (200.0, 100)


def test_a_rate_is_over_the_time_that_the_samples_span() -> None:
    found = sensor()
    for second in range(60):
        found.record(10.0, second)
    assert found.rate(60.0 - 1e-9) == pytest.approx(10.0)
    assert found.occurrences(60.0 - 1e-9) == pytest.approx(1.0)


def test_a_burst_right_after_the_start_is_no_huge_rate() -> None:
    found = sensor()
    found.record(3000.0, 0.0)
    assert found.rate(0.01) == pytest.approx(100.0)


def test_what_is_older_than_the_window_is_forgotten() -> None:
    found = sensor()
    found.record(100.0, 0.0)
    found.record(7.0, 65.0)
    assert found.largest(70.0) == found.average(70.0) == 7.0
    assert found.rate(200.0) == 0.0


def test_nothing_recorded_is_not_a_zero_average() -> None:
    found = sensor()
    assert math.isnan(found.average(1.0))
    assert math.isnan(found.largest(1.0))
    assert math.isnan(found.least(1.0))
    assert found.rate(1.0) == 0.0


def test_many_values_at_once_count_as_many() -> None:
    found = sensor()
    found.record_all(30.0, 1.0, 20.0, 0.0, times=3)
    found.record(10.0, 1.0)
    assert (found.average(1.0), found.least(1.0), found.largest(1.0)) == (10.0, 1.0, 20.0)

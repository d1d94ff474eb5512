"""When a batch's reading asks which consumer, waits and ends: decided by times alone."""

from __future__ import annotations

import pytest

from tidemill.kafka.data.read_times import ASIDE_BEFORE_S, FIRST_FETCH_LIMIT_S, READ_LIMIT_S, ReadKind, ReadTimes
from tidemill.task.batch import BatchRequest

NOW, WAIT_S, REST_S = 1_000.0, 30.0, 5.0


def times(**given: int) -> ReadTimes:
    return ReadTimes.of(BatchRequest(batch_id=1, inputs={}, **{"wait_ms": int(WAIT_S * 1e3), **given}), NOW)


def test_a_batch_waits_for_a_first_record_however_long_a_batch_may_read() -> None:
    assert times().closes_at == NOW + WAIT_S
    assert times(wait_ms=0).closes_at == NOW + READ_LIMIT_S


def test_the_time_that_spark_works_on_records_does_not_count() -> None:
    moved = times(wait_ms=0)
    moved.came(ReadKind.SOURCE, NOW + 0.2, NOW + 3.2)
    assert moved.closes_at == pytest.approx(NOW + READ_LIMIT_S + 3)


@pytest.mark.parametrize("kind", [kind for kind in ReadKind if kind is not ReadKind.STANDBY])
def test_a_record_ends_the_wait(kind: ReadKind) -> None:
    moved = times()
    assert not moved.is_idle(NOW + 1)
    moved.came(kind, NOW + 1, NOW + 1)
    assert moved.is_idle(NOW + 1)


def test_a_standbys_record_shortens_the_wait_once() -> None:
    moved = times()
    moved.came(ReadKind.STANDBY, NOW + 1, NOW + 1)
    assert (moved.is_idle(NOW + 1), moved.is_idle(NOW + 2)) == (False, True)
    ends = moved.idle_until
    moved.came(ReadKind.STANDBY, NOW + 1.05, NOW + 1.05)
    assert moved.idle_until == ends


def test_kinds_rest_until_their_time_or_a_hurry() -> None:
    moved = times(sources_rest_ms=int(REST_S * 1e3))
    assert [kind for kind in ReadKind if moved.rests(kind, NOW)] == [ReadKind.SOURCE]
    assert not moved.rests(ReadKind.SOURCE, NOW + REST_S)
    moved.hurry()
    assert not moved.rests(ReadKind.SOURCE, NOW)


def test_what_was_fetched_is_set_aside_once_for_each_time_before_the_rest_ends() -> None:
    moved = times(sources_rest_ms=int(REST_S * 1e3))
    assert not moved.takes_aside(NOW + REST_S)
    moved.set_aside_before_rest_ends()
    ends = NOW + REST_S
    assert not moved.takes_aside(ends - 2 * ASIDE_BEFORE_S[0])
    found = [moved.takes_aside(ends - before_s) for before_s in ASIDE_BEFORE_S for _again in range(2)]
    assert found == [True, False] * len(ASIDE_BEFORE_S)


def test_a_rest_that_is_too_short_for_it_has_no_such_time() -> None:
    moved = times(sources_rest_ms=int(ASIDE_BEFORE_S[-1] * 500))
    moved.set_aside_before_rest_ends()
    assert not moved.aside_at


def test_no_wait_passes_the_next_time_at_which_something_changes() -> None:
    moved = times(sources_rest_ms=int(REST_S * 1e3))
    for changes in (NOW + FIRST_FETCH_LIMIT_S, NOW + REST_S, NOW + WAIT_S):
        assert moved.slice_s(changes - 0.001, 1) == pytest.approx(0.001)
        assert moved.slice_s(changes - 0.001, 3) == pytest.approx(0.001)


def test_several_consumers_are_waited_for_more_briefly_at_first() -> None:
    assert times().slice_s(NOW, 2) < times().slice_s(NOW, 1) == times().slice_s(NOW + WAIT_S / 2, 2)

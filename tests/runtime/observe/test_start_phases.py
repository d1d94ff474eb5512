"""Phases of a start: when each began and how long it took."""

from __future__ import annotations

from tidemill.runtime.observe.start_phases import PhaseTimes, StartPhase, StartPhases, began, earliest


def test_a_phase_ends_when_the_next_begins() -> None:
    times = began(began(PhaseTimes(), StartPhase.TOPICS, 5.0), StartPhase.SPARK, 7.5)
    assert times == PhaseTimes(over=((StartPhase.TOPICS, 2.5),), now=StartPhase.SPARK, since_s=7.5)
    assert began(times, StartPhase.SPARK, 9.0) is times, "it goes on"
    assert began(times, None, 9.0) == PhaseTimes(over=((StartPhase.TOPICS, 2.5), (StartPhase.SPARK, 1.5)), since_s=9.0)


def test_a_rebalance_after_the_start_is_timed_from_its_own_beginning() -> None:
    runs = began(began(PhaseTimes(), StartPhase.PLAN, 1.0), None, 2.0)
    assert began(runs, StartPhase.RESTORE, 90.0) == PhaseTimes(now=StartPhase.RESTORE, since_s=90.0)


def test_an_instance_is_where_the_last_of_its_threads_is() -> None:
    assert earliest([None, StartPhase.RESTORE, StartPhase.JOIN]) is StartPhase.JOIN
    assert earliest([None, None]) is None
    assert earliest([]) is None


def test_phases_are_timed_by_the_clock_that_is_given() -> None:
    clock = iter([1.0, 4.0])
    phases = StartPhases(lambda: next(clock))
    phases.begin(StartPhase.TOPICS)
    phases.begin(None)
    assert phases.times.over == ((StartPhase.TOPICS, 3.0),)

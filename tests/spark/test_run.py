"""A run: requests to its source step, reports of its last step, and nobody who waits for one that is over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tidemill.spark.run import Run
from tidemill.task.batch import BatchReport, BatchRequest, Outcome

LONG_S = 60.0


def request(batch_id: int) -> BatchRequest:
    return BatchRequest(batch_id=batch_id, inputs={})


def report(batch_id: int) -> BatchReport:
    return BatchReport(batch_id=batch_id, outcome=Outcome.COMMITTED)


class Beside:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.given: list[Any] = []
        self._thread = threading.Thread(target=lambda: self.given.append(call()), daemon=True)
        self._thread.start()

    def result(self) -> Any:
        self._thread.join(LONG_S)
        [given] = self.given
        return given


def test_a_request_reaches_the_source_that_waits_for_it_and_its_report_the_thread() -> None:
    run = Run(is_standing=True)
    source = Beside(run.next)
    run.ask(request(1))
    assert source.result() == request(1)
    thread = Beside(lambda: run.wait(LONG_S))
    assert run.reported(report(1))
    assert thread.result() == report(1)
    run.ask(request(2))
    assert run.next() == request(2)


def test_a_report_counts_once_and_only_for_the_request_under_way() -> None:
    run = Run(is_standing=True)
    assert not run.reported(report(1)), "nothing was asked"
    run.ask(request(2))
    assert not run.reported(report(1)), "of another request"
    assert run.reported(report(2))
    assert not run.reported(report(2)), "twice"
    assert run.wait(LONG_S) == report(2)
    assert not run.reported(report(2)), "after it was taken"


def test_a_run_that_is_ended_serves_the_request_that_was_asked_before_and_then_ends() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    run.end()
    assert run.next() == request(1)
    assert run.next() is None


@pytest.mark.parametrize("waits", [Run.next, lambda run: run.wait(LONG_S), lambda run: run.wait_served(1)])
def test_whoever_waits_hears_of_a_run_that_is_over(waits: Callable[[Run], Any]) -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    run.next()
    waiting = Beside(lambda: waits(run))
    run.over()
    assert waiting.result() is None
    assert run.is_ending
    assert run.wait_over(0)


def test_a_report_that_came_before_the_run_was_over_is_not_lost_with_it() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    run.reported(report(1))
    run.over()
    assert run.wait(LONG_S) == report(1)


def test_no_report_in_time_is_a_time_out() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    with pytest.raises(TimeoutError):
        run.wait(0.01)
    assert not run.wait_over(0.01)


def test_a_step_between_two_others_waits_for_the_report_of_its_batch_and_no_longer() -> None:
    run = Run(is_standing=True)
    run.wait_served(1)  # not asked
    run.ask(request(1))
    step = Beside(lambda: run.wait_served(1))
    assert step.given == []
    run.reported(report(1))
    assert step.result() is None
    run.wait(LONG_S)
    run.ask(request(2))
    run.wait_served(1)  # of before


def test_a_run_that_ends_lets_go_of_the_steps_between_two_others_before_it_is_over() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    step = Beside(lambda: run.wait_served(1))
    run.end()
    assert step.result() is None
    assert run.wait_over(0) is False


def test_runs_have_numbers_of_their_own() -> None:
    assert Run(is_standing=True).number != Run(is_standing=True).number


def test_a_request_that_no_source_has_taken_is_withdrawn_and_another_one_asked() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    assert not run.has_begun
    assert run.withdraw()
    assert not run.reported(report(1)), "nobody has it"
    run.ask(request(2))
    assert run.next() == request(2)
    assert run.has_begun
    assert not run.withdraw(), "its source step has it"
    assert run.reported(report(2))


def test_a_look_ends_one_wait_for_the_report_early_also_the_next_one() -> None:
    run = Run(is_standing=True)
    run.ask(request(1))
    run.look()
    with pytest.raises(TimeoutError):
        run.wait(LONG_S)
    run.look()
    assert run.reported(report(1))
    assert run.wait(LONG_S) == report(1), "it is there"

"""What becomes of an instance when a thread fails, and which threads it has after changes: decided while none of them runs."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any, cast

import pytest

from tests.test_printable import UnshownError
from tests.waiting import until
from tidemill.errors import (
    ConfigError,
    EnvironmentProblem,
    InstanceIdInUseError,
    RecordError,
    RetriableError,
    ShutdownRequestedError,
    StopError,
    TidemillError,
)
from tidemill.runtime.instance import thread_set
from tidemill.runtime.instance.thread_set import ThreadSet, free_number
from tidemill.runtime.thread.uncaught_exception import StreamThreadExceptionResponse as Response
from tidemill.runtime.thread.uncaught_exception import response_to

FAILED = StopError("a record")


def test_without_a_handler_the_instance_ends() -> None:
    assert response_to(FAILED, None, engine_lives=True) is Response.SHUTDOWN_CLIENT


@pytest.mark.parametrize("wanted", list(Response))
def test_the_handler_decides(wanted: Response) -> None:
    assert response_to(FAILED, lambda error: wanted, engine_lives=True) is wanted


def test_a_handler_that_raises_or_gives_something_else_ends_the_instance() -> None:
    def broken(error: TidemillError) -> Response:
        raise ValueError("oops")

    def leaving(error: TidemillError) -> Response:
        sys.exit(3)

    def interrupted(error: TidemillError) -> Response:
        raise KeyboardInterrupt

    assert response_to(FAILED, broken, engine_lives=True) is Response.SHUTDOWN_CLIENT
    assert response_to(FAILED, leaving, engine_lives=True) is Response.SHUTDOWN_CLIENT, "it ends no process on this thread"
    assert response_to(FAILED, interrupted, engine_lives=True) is Response.SHUTDOWN_CLIENT
    assert response_to(FAILED, lambda error: UnshownError(), engine_lives=True) is Response.SHUTDOWN_CLIENT  # type: ignore[arg-type, return-value]
    assert response_to(FAILED, lambda error: "REPLACE_THREAD", engine_lives=True) is Response.SHUTDOWN_CLIENT  # type: ignore[arg-type, return-value]


def test_no_thread_is_replaced_that_would_fail_again_at_once() -> None:
    def replace(error: TidemillError) -> Response:
        return Response.REPLACE_THREAD

    assert response_to(FAILED, replace, engine_lives=False) is Response.SHUTDOWN_CLIENT
    assert response_to(ConfigError("no topic"), replace, engine_lives=True) is Response.SHUTDOWN_CLIENT
    assert response_to(EnvironmentProblem("another has it"), replace, engine_lives=True) is Response.SHUTDOWN_CLIENT
    assert response_to(InstanceIdInUseError("another member"), replace, engine_lives=True) is Response.SHUTDOWN_CLIENT
    record = RecordError("kaboom", task="0_0", topic="rates", partition=0, offset=3)
    assert response_to(record, replace, engine_lives=True, global_topics=("rates",)) is Response.SHUTDOWN_CLIENT
    assert response_to(record, replace, engine_lives=True, global_topics=("others",)) is Response.REPLACE_THREAD
    all_of_them = Response.SHUTDOWN_APPLICATION
    assert response_to(ConfigError("no topic"), lambda error: all_of_them, engine_lives=False) is all_of_them


def test_nobody_is_asked_when_another_instance_has_asked_for_the_end() -> None:
    asked: list[TidemillError] = []

    def handler(error: TidemillError) -> Response:
        asked.append(error)
        return Response.REPLACE_THREAD

    assert response_to(ShutdownRequestedError("all"), handler, engine_lives=True) is Response.SHUTDOWN_CLIENT
    assert asked == []


def test_a_number_is_used_again() -> None:
    assert [free_number(taken) for taken in ((), (1, 2), (2, 3), (1, 3))] == [1, 3, 1, 2]


LIMIT_S = 30.0


class StandIn(threading.Thread):
    """A stream thread that ends when it is told to, unless it is stuck."""

    def __init__(self, number: int, joins_with: int = 1) -> None:
        super().__init__(name=f"t-{number}", daemon=True)
        self.joins_with = joins_with
        self.number, self.error, self.told, self.is_stuck = number, None, None, False
        self.were_workers_ended = self.expects_rebalance = self.asks_for_shutdown = False
        self.waited_for: threading.Thread | None = None
        self.continues_from: object = None
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        self._stop_wanted.wait(4 * LIMIT_S)

    def stop(self, leave_group: bool | None = None, within_s: float | None = None) -> None:
        self.told = leave_group
        if not self.is_stuck:
            self._stop_wanted.set()

    def waits_for(self, caller: threading.Thread) -> bool:
        return caller in (self, self.waited_for)

    def expect_rebalance(self) -> None:
        self.expects_rebalance = True

    def shut_down_application(self) -> None:
        self.asks_for_shutdown = True

    def continue_from(self, failed: object) -> None:
        self.continues_from = failed

    def removed(self) -> None:
        self.were_workers_ended = True


class Source:
    slots = 4

    def first_join(self, threads: int) -> Any:
        return threads

    def start_workers(self, number: int) -> None:
        pass

    def make(self, number: int, first_join: Any) -> Any:
        return StandIn(number, first_join)


@pytest.fixture
def running() -> Any:
    threads = ThreadSet(lambda: True)
    threads.begin(Source(), 2)
    threads.start()
    yield threads
    assert threads.end(LIMIT_S)


def numbers(threads: ThreadSet) -> list[int]:
    return [thread.number for thread in threads.threads]


def test_threads_are_added_while_there_is_a_slot_to_spare(running: ThreadSet) -> None:
    assert running.add() is running.threads[2]
    with pytest.raises(ConfigError, match=r"4 task slots for this instance, but 4 stream threads .*=local\[5\]"):
        running.add()
    assert numbers(running) == [1, 2, 3]


def test_the_first_threads_join_together_and_an_added_one_by_itself(running: ThreadSet) -> None:
    running.add()
    assert [thread.joins_with for thread in cast("list[StandIn]", running.threads)] == [2, 2, 1]


def test_the_last_thread_is_removed_first_and_leaves_the_group(running: ThreadSet) -> None:
    removed: Any = running.remove(LIMIT_S)
    assert (removed.number, removed.told, removed.is_alive()) == (2, True, False)
    staying: Any = running.threads[0]
    assert staying.expects_rebalance, "what is given up must not wait for its next heartbeat"
    assert running.remove(LIMIT_S) is not None
    assert running.remove(LIMIT_S) is None
    added = running.add()
    assert added is not None
    assert added.number == 1


def test_a_thread_that_does_not_end_in_time_is_said_to_end_later_and_removed_when_it_has(running: ThreadSet) -> None:
    stuck: Any = running.threads[1]
    stuck.is_stuck = True
    with pytest.raises(RetriableError, match=r"t-2 has not ended within 0\.01 s"):
        running.remove(0.01)
    other = running.remove(LIMIT_S)
    assert other is not None
    assert other.number == 1, "the one that is leaving is not asked again"
    assert running.remove(LIMIT_S) is None
    assert running.threads == [stuck]
    removing = next(thread for thread in threading.enumerate() if thread.name == "t-2-remove")
    stuck.is_stuck = False
    stuck.stop()
    removing.join(LIMIT_S)
    assert running.threads == []
    assert stuck.were_workers_ended


def test_who_would_wait_for_ever_can_say_so(running: ThreadSet) -> None:
    assert running.remove(math.inf) is not None
    assert running.end(math.inf)


def test_who_is_waited_for_is_told_so_while_another_thread_is_dropped(running: ThreadSet) -> None:
    """Who is not told so would wait for its own end."""
    first, second = running.threads
    second.waited_for = threading.current_thread()  # type: ignore[attr-defined]

    def is_dropped_meanwhile(caller: threading.Thread) -> bool:
        running.threads.remove(first)
        return False

    first.waits_for = is_dropped_meanwhile  # type: ignore[method-assign]
    assert running.waits_for(threading.current_thread())
    running.threads.insert(0, first)


def test_who_can_not_wait_removes_a_thread_all_the_same(running: ThreadSet) -> None:
    stuck: Any = running.threads[1]
    stuck.is_stuck = True
    assert running.remove(None, threading.current_thread()) is stuck
    assert running.threads[1] is stuck
    removing = next(thread for thread in threading.enumerate() if thread.name == "t-2-remove")
    stuck.is_stuck = False
    stuck.stop()
    removing.join(LIMIT_S)
    assert numbers(running) == [1]


@pytest.mark.parametrize("is_late", [False, True])
def test_what_has_ended_is_told_of_when_the_thread_is_no_longer_there(is_late: bool) -> None:
    seen: list[list[int]] = []
    threads = ThreadSet(lambda: True, lambda: seen.append(numbers(threads)))
    threads.begin(Source(), 2)
    threads.start()
    stuck: Any = threads.threads[1]
    stuck.is_stuck = is_late
    threads.remove(LIMIT_S, threading.current_thread() if is_late else None)
    removing = [thread for thread in threading.enumerate() if thread.name == "t-2-remove"]
    stuck.is_stuck = False
    stuck.stop()
    for thread in removing:
        thread.join(LIMIT_S)
    assert seen == [[1]]
    assert threads.end(LIMIT_S)


def test_threads_are_found_by_their_numbers_when_lower_ones_were_removed(running: ThreadSet) -> None:
    first, second = running.threads
    second.waited_for = threading.current_thread()  # type: ignore[attr-defined]  # as if its own function removed the other
    first.is_stuck = True  # type: ignore[attr-defined]
    assert running.remove(LIMIT_S) is first
    removing = next(thread for thread in threading.enumerate() if thread.name == "t-1-remove")
    first.is_stuck = False  # type: ignore[attr-defined]
    first.stop()
    removing.join(LIMIT_S)
    running.replace(second, [].append)
    replacing = next(thread for thread in threading.enumerate() if thread.name == "t-2-replace")
    second.stop()
    replacing.join(LIMIT_S)
    assert numbers(running) == [2]
    assert running.threads[0] is not second
    running.add()
    assert numbers(running) == [1, 2]


def test_no_thread_is_added_or_removed_before_the_first_ones_are_started() -> None:
    threads = ThreadSet(lambda: True)
    threads.begin(Source(), 1)
    assert threads.add() is None
    assert threads.remove(LIMIT_S) is None
    threads.start()
    assert threads.add() is not None
    assert threads.end(LIMIT_S)


def test_a_failed_thread_is_replaced_in_its_place_when_it_has_ended(running: ThreadSet) -> None:
    failed = running.threads[0]
    problems: list[TidemillError] = []
    running.replace(failed, problems.append)
    assert running.threads[0] is failed
    replacing = next(thread for thread in threading.enumerate() if thread.name == "t-1-replace")
    failed.stop()
    replacing.join(LIMIT_S)
    assert (numbers(running), running.threads[0] is failed, problems) == ([1, 2], False, [])
    assert running.threads[0].continues_from is failed  # type: ignore[attr-defined]


def test_a_failed_thread_that_does_not_end_is_not_replaced_before_it_has(
    running: ThreadSet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(thread_set, "_STILL_ENDING_S", 0.01)
    failed = running.threads[0]
    running.replace(failed, lambda problem: None)
    replacing = next(thread for thread in threading.enumerate() if thread.name == "t-1-replace")
    assert until(lambda: caplog.text.count("event=thread-still-ending") > 2)
    assert running.threads[0] is failed
    failed.stop()
    replacing.join(LIMIT_S)
    assert running.threads[0] is not failed
    assert running.threads[0].is_alive()


def test_a_replacement_that_cannot_be_made_is_the_instances_problem(running: ThreadSet) -> None:
    problems: list[TidemillError] = []
    failed = running.threads[1]
    running._source = None  # what is asked of nothing fails
    running.replace(failed, problems.append)
    replacing = next(thread for thread in threading.enumerate() if thread.name == "t-2-replace")
    failed.stop()
    replacing.join(LIMIT_S)
    assert "no thread could be started" in str(problems[0])


def test_an_instance_that_ends_gets_no_more_threads() -> None:
    threads = ThreadSet(lambda: False)
    threads.begin(Source(), 1)
    assert threads.add() is None
    assert threads.remove(1) is None
    assert numbers(threads) == [1]


@pytest.mark.parametrize("is_own", [True, False])
def test_an_instance_that_requests_a_shutdown_ends_with_its_own_error_whichever_thread_ends_first(is_own: bool) -> None:
    """The thread that has failed stays a member until the leader has answered; the others have heard of it by then."""
    threads = ThreadSet(lambda: True)
    threads.begin(Source(), 2)
    requested = ShutdownRequestedError("all")
    if is_own:
        threads.shut_down_application(FAILED)
        threads.shut_down_application(StopError("a later one"))
    first, second = threads.threads
    first.error, second.error = requested, FAILED
    assert threads.cause_of(first) is (FAILED if is_own else requested)
    assert threads.cause_of(second) is FAILED
    assert [thread.asks_for_shutdown for thread in cast("list[StandIn]", threads.threads)] == [is_own, is_own]

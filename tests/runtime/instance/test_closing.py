"""Instances that are closed by several threads, while they start, or by their own threads: parts and threads are stand-ins."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.state.test_lmdb import in_a_fork
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import StopError
from tidemill.runtime.instance import application as module
from tidemill.runtime.instance import ending
from tidemill.runtime.instance.application import KafkaStreams, State, StreamThreadExceptionResponse
from tidemill.runtime.instance.draining import Draining
from tidemill.runtime.instance.starting import OpenParts, StartContext, Started

LIMIT_S = 240


class StandInThread(threading.Thread):
    """A stream thread that runs until it is told to stop, and may then finish its batch; ``does`` is called on it first."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene, self._stop_wanted = scene, threading.Event()

    def run(self) -> None:
        self._scene.does()
        self._stop_wanted.wait(LIMIT_S)
        self._scene.may_end.wait(LIMIT_S)
        self._scene.happened.append("thread ended")
        self._scene.ends()

    def waits_for(self, caller: threading.Thread) -> bool:
        return caller in (self, self._scene.called)

    def stop(self, leave_group: bool | None = None, within_s: float | None = None) -> None:
        self._scene.happened.append("thread told to stop")
        self._stop_wanted.set()


@dataclass
class Scene:
    """``while_starting`` is called when the parts are there, and the threads are not."""

    streams: KafkaStreams
    happened: list[str] = field(default_factory=list)
    may_end: threading.Event = field(default_factory=threading.Event)
    does: Callable[[], object] = lambda: None
    ends: Callable[[], object] = lambda: None
    while_starting: Callable[[], object] = lambda: None
    started_as: Any = None
    called: threading.Thread | None = None
    """A thread for which the stream thread waits, as for one that calls a function of ``foreach_batch``."""

    def started(self, instance: StartContext, parts: OpenParts) -> Started:
        left = partial(self.happened.append, "parts left to the parent")
        parts.opened("parts", lambda: self.happened.append("parts closed"), left)
        instance.threads.threads.append(cast("Any", StandInThread(self)))
        self.while_starting()
        return self.started_as


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    made = Scene(KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "none:1"}))
    monkeypatch.setattr(module, "started", made.started)
    return made


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    return thread, answers


def when_released_in(state: State, scene: Scene, then: Callable[[], object]) -> None:
    """Calls ``then`` on this thread, once: when it has let go of the state's lock with the instance in ``state``, and before it
    goes on."""
    own, now, left = threading.current_thread(), scene.streams._state, [then]

    class Released(threading.Condition):
        held = 0

        def __enter__(self) -> bool:
            entered = super().__enter__()
            self.held += threading.current_thread() is own
            return entered

        def __exit__(self, *raised: Any) -> None:
            self.held -= threading.current_thread() is own
            super().__exit__(*raised)
            if threading.current_thread() is own and now.now is state and not self.held and left:
                left.pop()()

    now.changed = Released(threading.RLock())


def test_a_timeout_is_seconds_or_a_timedelta(scene: Scene) -> None:
    scene.may_end.set()
    assert scene.streams.start().wait(State.RUNNING, timeout=timedelta(0)) is State.REBALANCING
    with pytest.raises(TypeError, match="timeout is '5' of type str, expected seconds or a timedelta"):
        scene.streams.close("5")  # type: ignore[arg-type]
    assert scene.streams.state is State.REBALANCING
    assert scene.streams.close(timedelta(seconds=LIMIT_S))
    assert scene.streams.state is State.NOT_RUNNING


def test_a_second_close_waits_until_the_first_has_ended_everything(scene: Scene) -> None:
    scene.streams.start()
    first, first_answers = in_background(scene.streams.close)
    assert scene.streams.wait(State.PENDING_SHUTDOWN, timeout=LIMIT_S) is State.PENDING_SHUTDOWN
    assert scene.streams.close(timeout=0.01) is False, "nothing has ended yet"
    second, second_answers = in_background(scene.streams.close)
    scene.may_end.set()
    first.join(LIMIT_S)
    second.join(LIMIT_S)
    assert first_answers == second_answers == [True]
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_second_close_between_the_end_of_all_and_the_state_that_says_so_ends_nothing_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread asks in the moment in which threads and parts have ended, and the state is PENDING_SHUTDOWN still."""
    others: list[object] = []
    state, move = scene.streams._state, scene.streams._state.move

    def moved(to: State, cause: str) -> None:
        if to is State.NOT_RUNNING:
            thread, answers = in_background(lambda: scene.streams.close(timeout=0.01))
            thread.join(LIMIT_S)
            others.extend(answers)
        move(to, cause)

    scene.streams.start()
    monkeypatch.setattr(state, "move", moved)
    scene.may_end.set()
    assert scene.streams.close(LIMIT_S)
    assert others == [False], "asked once, and it has waited"
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_an_instance_that_another_thread_closes_as_soon_as_its_threads_run_was_started(scene: Scene) -> None:
    """Not "closed while it was being started", which would close the parts below the threads that run."""
    closers: list[tuple[threading.Thread, list[object]]] = []

    def close() -> None:
        closers.append(in_background(scene.streams.close))
        assert scene.streams.wait(State.PENDING_SHUTDOWN, timeout=LIMIT_S) is State.PENDING_SHUTDOWN

    when_released_in(State.REBALANCING, scene, close)
    scene.streams.start()
    assert "parts closed" not in scene.happened, "its thread runs still"
    scene.may_end.set()
    closers[0][0].join(LIMIT_S)
    assert closers[0][1] == [True]
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_close_that_comes_as_soon_as_the_instance_has_failed_waits_until_it_is_in_error(scene: Scene) -> None:
    """The thread that ends it is there as soon as the state says that it fails."""
    states: list[State] = []

    def close() -> None:
        thread, _ = in_background(scene.streams.close)
        thread.join(LIMIT_S)
        states.append(scene.streams.state)

    scene.may_end.set()
    scene.streams.start()
    when_released_in(State.PENDING_ERROR, scene, close)
    scene.streams._end_in_error(StopError("no thread could be started"))
    assert states == [State.ERROR]


def test_an_instance_that_another_thread_closes_while_it_starts_runs_no_thread(scene: Scene) -> None:
    closers: list[tuple[threading.Thread, list[object]]] = []

    def closed_by_another() -> None:
        closers.append(in_background(scene.streams.close))
        assert scene.streams.wait(State.PENDING_SHUTDOWN, timeout=LIMIT_S) is State.PENDING_SHUTDOWN

    scene.while_starting = closed_by_another
    with pytest.raises(StopError, match="closed while it was being started"):
        scene.streams.start()
    closers[0][0].join(LIMIT_S)
    assert closers[0][1] == [True]
    assert scene.streams.state is State.NOT_RUNNING
    assert scene.happened == ["parts closed"]


def test_a_signals_handler_closes_an_instance_that_starts(scene: Scene) -> None:
    """A handler runs on the main thread, in the middle of ``start``."""
    answers: list[bool] = []
    scene.while_starting = lambda: answers.append(scene.streams.close())
    with pytest.raises(StopError, match="closed while it was being started"):
        scene.streams.start()
    assert answers == [False], "it ends when the handler has returned"
    assert scene.streams.state is State.NOT_RUNNING
    assert scene.happened == ["parts closed"]
    assert scene.streams.close()


def test_a_second_start_while_it_starts_is_refused_and_harms_nothing(scene: Scene) -> None:
    def again() -> None:
        with pytest.raises(StopError, match="being started already"):
            scene.streams.start()

    scene.while_starting = again
    scene.may_end.set()
    scene.streams.start()
    assert scene.streams.state is State.REBALANCING
    assert scene.happened == []
    assert scene.streams.close()


def test_a_stream_thread_that_closes_its_instance_finishes_before_anything_is_closed_under_it(scene: Scene) -> None:
    answers: list[bool] = []
    scene.does = lambda: answers.append(scene.streams.close())
    scene.streams.start()
    assert scene.streams.wait(State.PENDING_SHUTDOWN, timeout=LIMIT_S) in (State.PENDING_SHUTDOWN, State.NOT_RUNNING)
    scene.may_end.set()
    assert scene.streams.close(LIMIT_S)
    assert answers == [False], "it can't wait for itself"
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_function_of_foreach_batch_that_closes_its_instance_does_not_wait_for_itself(scene: Scene) -> None:
    scene.called = threading.current_thread()
    scene.streams.start()
    assert scene.streams.close() is False, "its batch is not finished before it has returned"
    scene.called = None
    scene.may_end.set()
    assert scene.streams.close(LIMIT_S)
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_drain_that_the_instances_own_function_asks_for_is_not_waited_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch could not finish, and nothing be handed over, before the drain is called off."""
    begun: list[float] = []
    monkeypatch.setattr(Draining, "begin", lambda self, timeout_s: begun.append(timeout_s))
    monkeypatch.setattr(Draining, "wait", lambda self: True)
    scene.streams.start()
    scene.called = threading.current_thread()
    assert not scene.streams.drain(5)
    scene.called = None
    assert scene.streams.drain(6)
    assert begun == [5, 6]
    scene.may_end.set()
    assert scene.streams.close(LIMIT_S)


def test_a_listener_that_closes_its_instance_does_not_wait_whichever_thread_tells_it(scene: Scene) -> None:
    """A thread that ends waits until the state may change, which is when the listener has returned."""
    answers: list[bool] = []
    streams = scene.streams
    streams.set_state_listener(lambda new, old: answers.append(streams.close()) if new is State.RUNNING else None)
    streams.start()
    scene.ends = streams._thread_changed
    scene.may_end.set()
    with streams._state.changed:  # as a thread that was added or removed makes it do
        streams._state.move(State.RUNNING, "every task that is assigned here runs")
        assert answers == [False]
        assert "parts closed" not in scene.happened, "no thread has ended"
    assert streams.close(LIMIT_S)
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_listener_that_hears_of_a_failure_and_closes_does_not_wait_either(scene: Scene) -> None:
    answers: list[bool] = []
    streams = scene.streams
    streams.set_state_listener(lambda new, old: answers.append(streams.close()) if new is State.PENDING_ERROR else None)
    streams.start()
    scene.ends = streams._thread_changed
    scene.may_end.set()
    streams._end_in_error(StopError("no thread could be started"))
    assert answers == [False]
    assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_there_is_one_listener_and_it_is_set_before_the_start(scene: Scene) -> None:
    """As in Kafka Streams: one that is set later would have missed transitions without a word."""
    first: list[State] = []
    second: list[State] = []
    scene.streams.set_state_listener(lambda new, old: first.append(new))
    scene.streams.set_state_listener(lambda new, old: second.append(new))
    scene.may_end.set()
    scene.streams.start()
    with pytest.raises(StopError, match=r"this instance is REBALANCING: the state listener is set before start\(\)"):
        scene.streams.set_state_listener(lambda new, old: None)
    assert scene.streams.close()
    assert (first, second) == ([], [State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING])


@pytest.mark.parametrize("raised", [BrokenPipeError("the screen is gone"), SystemExit("the screen is gone")])
def test_a_listener_that_raises_keeps_no_instance_from_ending(
    scene: Scene, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    seen: list[State] = []

    def broken(new: State, old: State) -> None:
        seen.append(new)
        raise raised

    scene.streams.set_state_listener(broken)
    scene.may_end.set()
    scene.streams.start()
    assert scene.streams.close()
    assert seen == [State.REBALANCING, State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]
    assert "the screen is gone" in caplog.text


def test_a_close_that_was_interrupted_is_asked_for_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.streams.start()
    end, interrupts = module.ThreadSet.end, [KeyboardInterrupt()]

    def interrupted(*arguments: Any) -> bool:
        if interrupts:
            raise interrupts.pop()
        return end(*arguments)

    monkeypatch.setattr(module.ThreadSet, "end", interrupted)
    scene.may_end.set()
    with pytest.raises(KeyboardInterrupt):
        scene.streams.close()
    assert scene.streams.close()
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_a_start_that_was_interrupted_in_a_listener_leaves_nothing_open(scene: Scene) -> None:
    def interrupted(new: State, old: State) -> None:
        raise KeyboardInterrupt

    scene.streams.set_state_listener(interrupted)
    with pytest.raises(KeyboardInterrupt):
        scene.streams.start()
    assert scene.happened == ["parts closed"]
    assert scene.streams.close()


def test_a_start_that_fails_when_some_threads_run_ends_those_first(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may have no thread left."""
    start = StandInThread.start

    def started(thread: StandInThread) -> None:
        if thread is scene.streams.threads[1]:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(StandInThread, "start", started)
    scene.while_starting = lambda: scene.streams._set.threads.append(cast("Any", StandInThread(scene)))
    scene.may_end.set()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        scene.streams.start()
    assert scene.happened == ["thread told to stop", "thread told to stop", "thread ended", "parts closed"]
    assert scene.streams.state is State.NOT_RUNNING


def test_a_close_that_was_interrupted_in_a_listener_is_asked_for_again(scene: Scene) -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupted(new: State, old: State) -> None:
        if new is State.PENDING_SHUTDOWN:
            raise interrupts.pop()

    scene.streams.set_state_listener(interrupted)
    scene.may_end.set()
    scene.streams.start()
    with pytest.raises(KeyboardInterrupt):
        scene.streams.close()
    assert scene.streams.close()
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_an_instance_in_error_has_ended_its_parts_whichever_thread_closes_them(scene: Scene) -> None:
    """Who finds it in ERROR may start another one on the same state directory."""
    streams, waits = scene.streams, threading.Event()
    state_at_the_end: list[State] = []

    class Contended:
        """A lock that says that a thread waits for it."""

        def __init__(self) -> None:
            self._lock = threading.RLock()

        def __enter__(self) -> None:
            if not self._lock.acquire(blocking=False):
                waits.set()
                self._lock.acquire()

        def __exit__(self, *raised: object) -> None:
            self._lock.release()

    def close_slowly() -> None:
        until(lambda: waits.is_set() or streams.state is State.ERROR)
        state_at_the_end.append(streams.state)

    streams._parts._closing = cast("Any", Contended())
    scene.while_starting = lambda: streams._parts.opened("a slow part", close_slowly)
    closer: list[tuple[threading.Thread, list[object]]] = []
    streams.set_state_listener(
        lambda new, old: closer.append(in_background(streams._parts.close)) if new is State.PENDING_ERROR else None
    )
    streams.start()
    scene.may_end.set()
    streams._end_in_error(StopError("no thread could be started"))
    assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    closer[0][0].join(LIMIT_S)
    assert state_at_the_end == [State.PENDING_ERROR]


def test_parts_that_a_close_has_left_when_it_was_interrupted_are_closed_by_the_next(scene: Scene) -> None:
    def interrupted() -> None:
        scene.happened.append("interrupted")
        raise KeyboardInterrupt

    scene.while_starting = lambda: scene.streams._parts.opened("another part", interrupted)
    scene.streams.start()
    scene.may_end.set()
    with pytest.raises(KeyboardInterrupt):
        scene.streams.close()
    assert scene.streams.close()
    assert scene.happened == ["thread told to stop", "thread ended", "interrupted", "thread told to stop", "parts closed"]


def test_a_program_that_ends_without_a_close_closes_its_instance(scene: Scene) -> None:
    def child() -> None:
        atexit._clear()  # what is the test run's
        scene.may_end.set()
        scene.streams.start()
        atexit._run_exitfuncs()
        assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]
        assert scene.streams.state is State.NOT_RUNNING

    assert in_a_fork(child) == 0


def test_the_end_of_a_program_closes_no_instance_that_is_closed_did_not_start_or_is_a_parents(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def ends() -> None:
        atexit._run_exitfuncs()
        assert "closed-at-exit" not in caplog.text

    def child() -> None:
        atexit._clear()
        scene.may_end.set()
        scene.streams.start()
        assert in_a_fork(ends) == 0
        scene.streams.close()
        other = KafkaStreams(scene.streams.topology, scene.streams.config)
        scene.while_starting = other.close
        with pytest.raises(StopError, match="closed while"):
            other.start()
        ends()

    assert in_a_fork(child) == 0


def test_a_forked_process_ends_nothing_of_its_parents_instance(scene: Scene) -> None:
    scene.streams.start()

    def child() -> None:
        assert scene.streams.state is State.NOT_RUNNING
        assert scene.streams.close()
        with pytest.raises(StopError, match="NOT_RUNNING"):
            scene.streams.start()
        assert scene.streams.add_stream_thread() is None
        assert scene.happened == ["parts left to the parent"]

    assert in_a_fork(child) == 0
    assert scene.streams.state is State.REBALANCING
    scene.may_end.set()
    assert scene.streams.close()
    assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]


def test_an_instance_that_was_not_started_yet_is_started_in_a_forked_process(scene: Scene) -> None:
    def child() -> None:
        scene.may_end.set()
        with scene.streams:
            assert scene.streams.state is State.REBALANCING
        assert scene.happened == ["thread told to stop", "thread ended", "parts closed"]

    assert in_a_fork(child) == 0
    assert scene.streams.state is State.CREATED


@pytest.mark.parametrize("engine_lives", [True, False])
def test_a_close_whose_time_was_over_is_no_failure_that_the_handler_hears_of(scene: Scene, engine_lives: bool) -> None:
    """The program may have ended Spark under threads that are still at work."""
    heard: list[Exception] = []

    def handler(error: Exception) -> StreamThreadExceptionResponse:
        heard.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    scene.streams.set_uncaught_exception_handler(handler)
    scene.started_as = cast("Any", SimpleNamespace(engine_lives=lambda: engine_lives))
    problem = StopError("the Spark session was stopped")
    scene.does = lambda: scene.may_end.wait(LIMIT_S) and scene.streams._thread_failed(problem)
    scene.streams.start()
    assert scene.streams.close(timeout=0) is False
    scene.may_end.set()
    assert scene.streams.close(timeout=LIMIT_S) is True
    assert heard == ([problem] if engine_lives else [])
    assert scene.streams._is_cut_short() is not engine_lives, "the log has no error then"


def test_after_a_close_whose_time_was_over_all_is_closed_once_its_threads_have_ended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "CLOSE_LIMIT_S", 0.01)
    scene.streams.start()
    assert scene.streams.close(timeout=0) is False
    assert scene.streams.close(timeout=0.01) is False, "its thread lives still"
    assert until(lambda: f"close-waits threads={scene.streams.threads[0].name}" in caplog.text, LIMIT_S)
    assert scene.streams.state is State.PENDING_SHUTDOWN
    assert "parts closed" not in scene.happened, "its state directory, say, is in use"
    scene.may_end.set()
    assert scene.streams.wait(State.NOT_RUNNING, timeout=LIMIT_S) is State.NOT_RUNNING
    assert scene.streams.close(timeout=0) is True
    assert scene.happened[-2:] == ["thread ended", "parts closed"]


def test_a_program_that_ends_after_a_close_whose_time_was_over_waits_no_longer(scene: Scene) -> None:
    def child() -> None:
        atexit._clear()  # what is the test run's
        scene.streams.start()
        assert scene.streams.close(timeout=0) is False
        atexit._run_exitfuncs()  # a wait would end with the test
        assert scene.happened[-1] == "parts closed"
        assert "thread ended" not in scene.happened

    assert in_a_fork(child) == 0

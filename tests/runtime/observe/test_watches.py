"""What a stream thread measures of itself: how fast stores come nearer to their ends, what rebalances cost its tasks."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, cast

import pytest

from tidemill import KafkaStreams, Serdes, StateRestoreListener, StreamsBuilder
from tidemill.errors import StopError, StreamsNotStartedError, TopologyError
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.instance.instance_state import InstanceState, State
from tidemill.runtime.observe.rebalance_watch import RebalanceCost, RebalanceWatch
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.runtime.observe.restore_watch import RestoreWatch
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.progress import RestoreStarted, RestoreSuspended, SuspendReason
from tidemill.task.standby import StandbyBounds, StandbyTask

ONE, TWO = TaskId(1, 0), TaskId(1, 1)
LOG = TopicPartition("log", 0)


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def copy(at: int, end: int = 1_000) -> dict[TaskId, StandbyTask]:
    bounds = StandbyBounds(begins={}, ends={LOG: end})
    return {
        ONE: StandbyTask(task=ONE, directory="d", epoch="e", changelogs={"s": LOG}, stores={"s": at}, bounds=bounds)
    }


def restoring(at: int, end: int = 1_000) -> dict[TaskId, ActiveTask]:
    held = ActiveTask(
        task=ONE, directory="d", epoch="e", inputs=(), changelogs={"s": LOG}, phase=Phase.RESTORING,
        bounds=Bounds(inputs={}, changelog_ends={LOG: end}), stores={"s": at},
    )  # fmt: skip
    return {ONE: held}


def test_the_time_that_is_left_follows_from_what_was_read_in_the_last_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = RestoreWatch("thread", RestoreListeners(), clock)
    caplog.set_level(logging.INFO, "tidemill.restore")
    watch.update({}, copy(0))
    assert watch.copies[0].seconds_left is None
    for second in range(1, 13):
        clock.now_s += 1
        watch.update({}, copy(second * 10))
    assert watch.copies[0].offsets_per_s == pytest.approx(10)
    assert watch.copies[0].seconds_left == pytest.approx(88)
    [line] = [record.getMessage() for record in caplog.records]
    assert line == (
        "event=restore-progress task=1_0 thread=thread role=standby lag=900 offsets_per_s=10 seconds_left=90"
    )
    watch.update({}, copy(0))
    assert watch.copies[0].lag == 1_000, "it was emptied"
    watch.update({}, {})
    assert watch.copies == ()


def test_a_restore_that_stands_still_says_where_and_what_it_may_wait_for(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = RestoreWatch("thread", RestoreListeners(), clock)
    caplog.set_level(logging.INFO, "tidemill.restore")
    watch.update(restoring(0), {})
    for second in range(1, 21):
        clock.now_s += 1
        watch.update(restoring(min(second, 5)), {})
    assert watch.copies[0].offsets_per_s == 0
    assert watch.copies[0].seconds_left is None
    slow, stands = caplog.records
    assert slow.getMessage().startswith("event=restore-progress task=1_0 thread=thread role=active lag=995 ")
    assert stands.levelno == logging.WARNING
    assert stands.getMessage().startswith(
        "event=restore-stalled task=1_0 thread=thread store=s changelog=log-0 at=5 end=1000 seconds=10 problem="
    )
    assert "a transaction there is still open" in stands.getMessage()


def test_a_restore_that_was_paused_has_not_stalled(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = RestoreWatch("thread", RestoreListeners(), clock)
    caplog.set_level(logging.INFO, "tidemill.restore")
    for at in (0, 5):
        clock.now_s += 1
        watch.update(restoring(at), {})
    watch.rest()
    clock.now_s += 60
    watch.update(restoring(5), {})
    assert not caplog.records
    clock.now_s += 1
    watch.update(restoring(15), {})
    assert watch.copies[0].offsets_per_s == pytest.approx(10)


class Fails:
    def __getattr__(self, name: str) -> Any:
        raise ValueError("no such luck")


class Notes:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def test_listeners_hear_kafka_streams_arguments() -> None:
    notes = Notes()
    watch = RestoreWatch("thread", RestoreListeners(standby=notes))
    watch.update({}, copy(3))
    watch.update({}, copy(9), {ONE: {"s": 5}})
    watch.end()
    assert notes.calls == [
        ("on_update_start", LOG, "s", 3),
        ("on_batch_loaded", LOG, "s", ONE, 8, 5, 1_000),
        ("on_update_suspended", LOG, "s", 8, 1_000, SuspendReason.MIGRATED),
    ]


def test_a_listener_that_raises_stops_its_thread_but_not_the_end_of_one() -> None:
    watch = RestoreWatch("thread", RestoreListeners(standby=Fails()))
    with pytest.raises(StopError, match=r"UpdateStarted of s \(log-0\): ValueError: no such luck"):
        watch.update({}, copy(3))
    watch.end()


class Restores:
    """The methods that Java's listener has to have."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def on_restore_start(self, *arguments: object) -> None:
        self.calls.append(arguments)

    on_batch_restored = on_restore_end = on_restore_start


class Standbys:
    def on_update_start(self, *arguments: object) -> None: ...

    on_batch_loaded = on_update_start


def test_a_listener_without_on_restore_suspended_hears_the_rest() -> None:
    listener, listeners = Restores(), RestoreListeners()
    listeners.set_restore(cast("StateRestoreListener", listener))
    listeners.notify(RestoreStarted(partition=LOG, store="s", task=ONE, start=3, end=9))
    listeners.notify(RestoreSuspended(partition=LOG, store="s", task=ONE, total=2))
    assert listener.calls == [(LOG, "s", 3, 9)]


@pytest.mark.parametrize(("call", "given", "said"), [
    ("set_state_restore_listener", print, "has no on_restore_start, on_batch_restored, on_restore_end: give an object with the"),
    ("set_state_restore_listener", Restores, r"got the class Restores, expected an object: give Restores\(\)"),
    ("set_standby_update_listener", Standbys(), "has no on_update_suspended: .* of StandbyUpdateListener, on_update_start, on_"),
    ("set_state_listener", Restores(), r"set_state_listener: expected a function of \(new, old\), got <.*Restores"),
    ("set_state_listener", lambda new: None, r"can't be called with \(new, old\)"),
    ("set_uncaught_exception_handler", Restores(), r"set_uncaught_exception_handler: expected a function of \(error\), got"),
    ("set_uncaught_exception_handler", lambda: None, r"can't be called with \(error\)"),
])  # fmt: skip
def test_what_can_not_be_called_later_is_refused_when_it_is_set(call: str, given: object, said: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=Serdes.string(), value=Serdes.string()).to("out")
    streams = KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "none:1"})
    with pytest.raises(TopologyError, match=said):
        getattr(streams, call)(given)


def test_a_rebalance_costs_a_task_its_longest_time_without_a_batch() -> None:
    clock = Clock()
    watch = RebalanceWatch("thread", clock)
    watch.assigned(1, [ONE])
    clock.now_s += 2
    assert watch.ran([ONE]) == RebalanceCost(generations=(1,), joined_ms=0, paused_ms={ONE: 2_000})
    clock.now_s += 5
    assert watch.ran([ONE]) is None, "no rebalance, no cost"
    watch.joins()
    clock.now_s += 0.3
    assert watch.ran([ONE]) is None, "not assigned yet"
    clock.now_s += 0.1
    watch.assigned(2, [ONE, TWO])
    assert watch.ran([ONE]) is None, "another task waits"
    clock.now_s += 0.7
    watch.joins()
    assert watch.ran([ONE, TWO]) is None, "the next one follows at once"
    watch.assigned(3, [ONE, TWO])
    assert watch.ran([ONE, TWO]) == RebalanceCost(generations=(2, 3), joined_ms=1_100, paused_ms={ONE: 700, TWO: 700})


def test_what_is_given_up_is_not_waited_for() -> None:
    watch = RebalanceWatch("thread", Clock())
    watch.assigned(1, [ONE, TWO])
    watch.gone([ONE])
    assert watch.ran([ONE]) is not None


def test_listeners_are_set_before_the_start() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    streams = KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "none:1"})
    streams.set_state_restore_listener(Notes())
    streams.set_standby_update_listener(Notes())
    streams.close()
    with pytest.raises(StopError, match="NOT_RUNNING: listeners of restoring are set before start"):
        streams.set_state_restore_listener(Notes())
    with pytest.raises(StopError, match="listeners of standbys are set before start"):
        streams.set_standby_update_listener(Notes())


def test_who_an_instance_is_can_be_asked_from_its_start_on() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    streams = KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "none:1"})
    with pytest.raises(StreamsNotStartedError, match="CREATED: start it first"):
        _ = streams.process_id
    streams.close()
    with pytest.raises(StreamsNotStartedError, match="NOT_RUNNING: it has never run; make a new KafkaStreams"):
        _ = streams.process_id


def test_a_state_changes_only_as_kafka_streams_does_and_says_why_and_after_how_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "tidemill.application")
    state, seen = InstanceState("app"), list[tuple[State, State]]()
    state.listeners.append(lambda new, old: seen.append((new, old)))
    state.move(State.RUNNING, "not from CREATED")
    state.move(State.REBALANCING, "it was started")
    state.move(State.REBALANCING, "again")
    assert seen == [(State.REBALANCING, State.CREATED)]
    [line] = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(
        r"stream-client \[app\] State transition from CREATED to REBALANCING "
        r"event=state application=app from=CREATED to=REBALANCING after_ms=\d+ cause='it was started'", line
    )
    assert state.wait(State.RUNNING, timeout_s=0.01) is State.REBALANCING


class Exiting:
    """A listener that gives up."""

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        sys.exit("no more")

    def on_batch_restored(self, partition: TopicPartition, store: str, batch_end: int, records: int) -> None: ...
    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None: ...


def test_a_restore_listener_that_exits_ends_the_thread_with_its_name() -> None:
    listeners = RestoreListeners()
    listeners.set_restore(Exiting())
    watch = RestoreWatch("thread", listeners, Clock())
    with pytest.raises(StopError, match=r"^a listener failed on RestoreStarted of s \(log-0\): SystemExit: no more; correct it"):
        watch.update(restoring(0), {})

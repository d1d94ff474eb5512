"""Standbys of stores in memory, of source topics that serve as changelogs, and of instances with several threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place
from tests.runtime.restore_notes import ListenerNotes
from tests.waiting import until
from tidemill import KafkaStreams, Materialized, Serdes, StreamsBuilder
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.ids import TaskId
from tidemill.runtime.instance.application import State
from tidemill.runtime.observe.restore_listeners import StandbyUpdateListener, StateRestoreListener
from tidemill.task.lifecycle import Phase
from tidemill.task.progress import SuspendReason

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

PARTITIONS = 4
KEYS = 500
"""Of each partition."""


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    made = Place(broker.bootstrap_servers, spark, tmp_path, unique_name("standby-kinds"))
    made.create("in", "out", partitions=PARTITIONS)
    return made


def counts(place: Place, *, persistent: bool) -> StreamsBuilder:
    builder = StreamsBuilder()
    records = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.long())
    stored = Materialized(name="kept", persistent=persistent)
    records.group_by_key().count(store=stored).to_stream().to(place.topic("out"))
    return builder


def table(place: Place) -> StreamsBuilder:
    builder = StreamsBuilder()
    rows = builder.table(place.topic("in"), key=Serdes.string(), value=Serdes.long(), store="kept")
    rows.to_stream().to(place.topic("out"))
    return builder


def send(place: Place, value: int) -> None:
    for partition in range(PARTITIONS):
        rows = [(f"{partition}-{number}".encode(), value.to_bytes(8, "big")) for number in range(KEYS)]
        place.send("in", rows, partition=partition)


@contextmanager
def pair(
    place: Place,
    build: Callable[[], StreamsBuilder],
    threads: int,
    standbys: ListenerNotes,
    restored: ListenerNotes,
    **settings: object,
) -> Iterator[list[KafkaStreams]]:
    """The first with so many threads, the second with one and with the listeners."""
    with ExitStack() as ends:
        made = []
        for name, count in (("one", threads), ("two", 1)):
            own = {"state.dir": str(place.folder / name), "num.stream.threads": count, "num.standby.replicas": 1, **settings}
            made.append(place.application(build(), **own))
        made[1].set_standby_update_listener(standbys)
        made[1].set_state_restore_listener(restored)
        for streams in made:  # one after the other: the second one has nothing when the first one has processed all
            ends.enter_context(streams)
            assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING, streams.error
        yield made


def running(streams: KafkaStreams) -> set[TaskId]:
    """By phase: the instance's state follows its tasks a moment later."""
    return {name for thread in streams.threads for name, task in thread.tasks.items() if task.phase is Phase.RUNNING}


def is_mirrored(one: KafkaStreams, two: KafkaStreams) -> bool:
    """Each runs what the other follows, and nothing is behind."""
    active = [running(streams) for streams in (one, two)]
    copies = [{name: c.lag for thread in s.threads for name, c in thread.standbys.items()} for s in (one, two)]
    return (
        all(active)
        and len(active[0] | active[1]) == PARTITIONS
        and active == [set(copies[1]), set(copies[0])]
        and not any(lag != 0 for each in copies for lag in each.values())
    )


def rows(streams: KafkaStreams, *, allow_stale: bool = False) -> dict[str, int]:
    return dict(streams.store("kept", allow_stale=allow_stale).all())


def has_all(streams: KafkaStreams, wanted: dict[str, int]) -> bool:
    """As active or as standby."""
    return rows(streams, allow_stale=True) == wanted


def what_is_seen(streams: KafkaStreams) -> str:
    """Of a failure, which nobody can go back to."""
    held = [f"{name} {task.phase.value}" for thread in streams.threads for name, task in thread.tasks.items()]
    copies = [f"{name} {copy}" for thread in streams.threads for name, copy in thread.standbys.items()]
    return f"{streams.state}: {held} {copies} {Counter(rows(streams, allow_stale=True).values())}"


KINDS = {
    "in-memory": (lambda place: counts(place, persistent=False), 1, {}, 2),
    "two threads": (lambda place: counts(place, persistent=True), 2, {}, 2),
    "source topic": (table, 1, {"topology.optimization": "all"}, 9),
}


def _standbys_are_held_still_while_paused(
    place: Place, one: KafkaStreams, two: KafkaStreams, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, knows = two.threads[0]._batches, threading.Event()
    is_paused = batches._is_paused

    def told() -> bool:
        if is_paused():
            knows.set()
        return is_paused()

    monkeypatch.setattr(batches, "_is_paused", told)
    two.pause()
    assert knows.wait(LIMIT_S), "the thread asks before each batch, so the one under way has ended"
    send(place, last)
    assert until(lambda: set(rows(one).values()) == {last})
    time.sleep(1)

    active = rows(one)
    copied = [value for key, value in rows(two, allow_stale=True).items() if key in active]
    assert len(copied) == len(active)
    assert last not in copied
    two.resume()


@pytest.mark.parametrize("kind", KINDS)
def test_standbys_follow_and_take_over_with_what_they_have(place: Place, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, threads, settings, last = KINDS[kind]
    send(place, 7)
    first, everything = (
        {f"{partition}-{number}": value for partition in range(PARTITIONS) for number in range(KEYS)}
        for value in (7 if kind == "source topic" else 1, last)
    )
    standbys, restored = ListenerNotes(StandbyUpdateListener), ListenerNotes(StateRestoreListener)
    with pair(place, lambda: build(place), threads, standbys, restored, **settings) as (one, two):
        # No lag alone says little of a source topic, which is followed up to what the group has committed: to 0 at first.
        mirrored = until(lambda: is_mirrored(one, two) and has_all(one, first) and has_all(two, first))
        assert mirrored, [what_is_seen(each) for each in (one, two)]
        _standbys_are_held_still_while_paused(place, one, two, last, monkeypatch)
        # What each has as active or as standby: a lag is measured once a second, so rows are asked, not lags.
        assert until(lambda: has_all(one, everything) and has_all(two, everything))
        moving = {name.partition for name in two.threads[0].standbys}
        assert moving
        loaded = Counter[int]()
        for call in standbys.told["on_batch_loaded"]:
            loaded[call["topic_partition"].partition] += call["batch_size"]
        assert all(loaded[partition] >= KEYS for partition in moving)
        restored.told["on_restore_end"].clear()
        one.close()
        assert until(lambda: len(running(two)) == PARTITIONS and two.state is State.RUNNING), two.error
        assert rows(two) == everything
        totals = restored.by_partition("on_restore_end", "total_restored")
        assert not any(totals.get(partition) for partition in moving)
    reasons = standbys.by_partition("on_update_suspended", "reason")
    assert {partition: reasons[partition] for partition in moving} == dict.fromkeys(moving, SuspendReason.PROMOTED)

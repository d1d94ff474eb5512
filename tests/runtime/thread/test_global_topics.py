"""What a stream thread reads for its global stores, and what it does while the brokers do not answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.thread_alone import KEPT, Engine, ThreadAlone
from tidemill.config.slices import ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import ConfigError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.task.batch import BatchReport, BatchRequest, Outcome

IN, RATES = TopicPartition("in", 0), TopicPartition("rates", 0)


class Brokers:
    """One partition with ten records."""

    def __init__(self) -> None:
        self.are_away = False
        self.asked = 0
        self.topics = {"rates": 1}
        self.topic_id = "first"

    def partitions(self, topics: Any) -> dict[str, int | None]:
        self.asked += 1
        if self.are_away:
            raise RetriableError("no broker answers")
        return {topic: self.topics.get(topic) for topic in topics}

    def topic_ids(self, topics: Any, **options: Any) -> dict[str, str]:
        if self.are_away:
            raise RetriableError("no broker answers")
        return {topic: self.topic_id for topic in topics if topic in self.topics and self.topic_id}

    def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def stable_end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made(*, several_copies: bool = False) -> tuple[GlobalTopics, Brokers, Clock]:
    brokers, clock = Brokers(), Clock()
    return GlobalTopics(("rates",), brokers, clock, several_copies=several_copies), brokers, clock  # type: ignore[arg-type]


REQUEST = BatchRequest(batch_id=1, inputs={IN: 5})


def report(**positions: int) -> BatchReport:
    found = {TopicPartition(topic, 0): at for topic, at in positions.items()}
    return BatchReport(batch_id=1, outcome=Outcome.COMMITTED, globals=found)


@pytest.mark.parametrize("has_task", [True, False])
def test_a_thread_with_a_task_waits_for_global_stores_and_one_without_does_not(has_task: bool, tmp_path: Path) -> None:
    """It runs no batch, so that it would wait forever, and its instance with it, wherever there are more threads than tasks."""
    topics, _, _ = made()
    alone = ThreadAlone(Engine(Outcome.COMMITTED), tmp_path, global_topics=topics)
    alone.changes.is_assigned = True
    alone.assign(*([KEPT] if has_task else []))
    alone.run_all()
    unused: Any = None
    thread = StreamThread(
        name="thread", number=1, config=StreamsConfig.read_slice(ThreadConfig, {}), parts=alone.parts, make_engine=unused,
        first_join=unused, instance=unused,
    )  # fmt: skip
    assert thread.why_waiting == ("the global stores not read yet" if has_task else "")
    topics.extend(REQUEST)
    topics.reported(report(rates=10))
    assert thread.is_running


def test_inputs_wait_until_the_stores_have_what_was_there_at_the_start() -> None:
    topics, brokers, _ = made()
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={}, globals={RATES: 0}, reset_globals=True)
    topics.reported(report(rates=7))
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={}, globals={RATES: 7})
    topics.reported(report(rates=10))
    assert topics.extend(REQUEST) == replace(REQUEST, globals={RATES: 10})
    assert brokers.asked == 1, "what comes later is waited for by no task"
    topics.reported(report())
    assert topics.extend(REQUEST).reset_globals, "a new worker knows nothing"
    assert brokers.asked == 2, "what it reads begins and ends where the topic does now"


def test_a_thread_without_global_stores_reads_none_and_waits_for_none() -> None:
    topics = GlobalTopics((), Brokers())  # type: ignore[arg-type]
    assert (topics.are_any, topics.are_read, topics.extend(REQUEST)) == (False, True, REQUEST)
    assert made()[0].are_any


@pytest.mark.parametrize("several", [True, False])
def test_after_a_batch_without_an_answer_several_copies_are_read_again(several: bool) -> None:
    topics, _, _ = made(several_copies=several)
    topics.extend(REQUEST)
    topics.reported(report(rates=10))
    topics.lost()
    again = replace(REQUEST, inputs={}, globals={RATES: 0}, reset_globals=True)
    assert topics.extend(REQUEST) == (again if several else replace(REQUEST, globals={RATES: 10}))
    assert topics.are_read is not several


def test_brokers_that_do_not_answer_are_asked_again_and_keep_inputs_waiting() -> None:
    topics, brokers, clock = made()
    brokers.are_away = True
    for _ in range(3):
        assert topics.extend(REQUEST) == replace(REQUEST, inputs={})
        topics.reported(report())
        assert not topics.are_read
    assert brokers.asked == 1, "once a second"
    clock.now_s += 1.5
    brokers.are_away = False
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={}, globals={RATES: 0}, reset_globals=True)


def test_a_topic_that_a_broker_has_not_heard_of_yet_is_waited_for() -> None:
    topics, brokers, clock = made()
    there, brokers.topics = brokers.topics, {}
    for _ in range(4):
        assert topics.extend(REQUEST) == replace(REQUEST, inputs={})
        clock.now_s += 1.2
    brokers.topics = there
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={}, globals={RATES: 0}, reset_globals=True)


def test_a_topic_that_does_not_exist_is_named() -> None:
    topics, brokers, clock = made()
    brokers.topics = {}
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={})
    clock.now_s += 5.5
    with pytest.raises(ConfigError, match="the topic rates of a global store does not exist: create it"):
        topics.extend(REQUEST)


def test_a_topic_that_was_deleted_and_created_again_is_read_from_its_beginning() -> None:
    """The new one has as many records, so that no position in the earlier one is gone."""
    topics, brokers, clock = made()
    topics.extend(REQUEST)
    topics.reported(report(rates=10))
    brokers.topic_id = "second"
    assert topics.extend(REQUEST) == replace(REQUEST, globals={RATES: 10}), "looked at every ten seconds"
    topics.reported(report(rates=10))
    clock.now_s += 10.5
    assert topics.extend(REQUEST) == replace(REQUEST, inputs={}, globals={RATES: 0}, reset_globals=True)
    topics.reported(report(rates=10))
    clock.now_s += 10.5
    assert topics.extend(REQUEST) == replace(REQUEST, globals={RATES: 10}), "once"
    assert topics.created_again == 1


@pytest.mark.parametrize("what", ["away", "deleted", "brokers without ids"])
def test_global_stores_stay_while_it_is_not_known_that_their_topic_is_another(what: str) -> None:
    topics, brokers, clock = made()
    topics.extend(REQUEST)
    topics.reported(report(rates=10))
    clock.now_s += 10.5
    if what == "away":
        brokers.are_away = True
    elif what == "deleted":
        brokers.topics = {}
    else:
        brokers.topic_id = ""
    assert topics.extend(REQUEST) == replace(REQUEST, globals={RATES: 10})

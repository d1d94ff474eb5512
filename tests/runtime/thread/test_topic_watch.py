"""Topics that are deleted and created again while a stream thread reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.errors import RetriableError
from tidemill.ids import TopicPartition
from tidemill.runtime.thread.topic_watch import TopicWatch
from tidemill.task.batch import BatchRequest

IN, LOG, COPIED = (TopicPartition(topic, 0) for topic in ("in", "log", "copied"))
ALL = BatchRequest(batch_id=1, inputs={IN: 0}, changelogs={LOG: 0}, standbys={COPIED: 0})


class Brokers:
    """Topics by their ids."""

    def __init__(self) -> None:
        self.ids = {tp.topic: f"first {tp.topic}" for tp in (IN, LOG, COPIED)}
        self.asked = list[set[str]]()
        self.are_away = False

    def topic_ids(self, topics: Any, **options: Any) -> dict[str, str]:
        self.asked.append({*topics})
        if self.are_away:
            raise RetriableError("no broker answers")
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def made() -> tuple[TopicWatch, Brokers, Clock]:
    brokers, clock = Brokers(), Clock()
    return TopicWatch("thread", brokers, clock), brokers, clock  # type: ignore[arg-type]


@pytest.mark.parametrize("topic", ["in", "log", "copied"])
def test_a_topic_of_any_kind_that_is_another_one_by_now_is_said_and_counted(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    watch, brokers, clock = made()
    assert watch.created_again(ALL) == 0
    brokers.ids[topic] = "second"
    clock.now_s += 9
    assert watch.created_again(ALL) == 0
    clock.now_s += 2
    assert watch.created_again(ALL) == 1
    assert f"event=topics-created-again thread=thread topics=[{topic}]" in caplog.text
    clock.now_s += 11
    assert watch.created_again(ALL) == 1
    assert len(brokers.asked) == 3


def test_a_topic_is_remembered_while_it_is_deleted_or_not_read() -> None:
    watch, brokers, clock = made()
    watch.created_again(ALL)
    first = brokers.ids.pop("in")
    for request in (ALL, BatchRequest(batch_id=2, inputs={}, changelogs={LOG: 0})):
        clock.now_s += 11
        assert watch.created_again(request) == 0
    brokers.ids["in"] = f"not {first}"
    clock.now_s += 11
    assert watch.created_again(ALL) == 1


def test_brokers_that_are_away_or_have_no_ids_say_nothing() -> None:
    watch, brokers, clock = made()
    watch.created_again(ALL)
    brokers.are_away = True
    clock.now_s += 11
    assert watch.created_again(ALL) == 0
    brokers.are_away, brokers.ids = False, {}
    clock.now_s += 11
    assert watch.created_again(ALL) == 0


def test_nothing_is_asked_where_nothing_is_read() -> None:
    watch, brokers, _ = made()
    assert watch.created_again(BatchRequest(batch_id=1, inputs={})) == 0
    assert brokers.asked == []

"""Offsets that are committed apart from the results, at least once: how far, and with which partition times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill import deadline
from tidemill.errors import RejoinError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.group.metadata import OffsetAndMetadata
from tidemill.runtime.thread.offset_commits import OffsetCommitter
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.partition_time import PartitionTime, metadata_of

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Group:
    """Keeps what is committed; refuses during a rebalance."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_rebalancing = False

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        assert offsets, "a request for nothing"
        if self.is_rebalancing:
            raise RejoinError("later")
        self.committed.update(offsets)


def commits_of(group: Any, interval_ms: int = 3_600_000) -> OffsetCommitter:
    return OffsetCommitter("thread", group, interval_ms)


def test_a_commit_says_how_far_each_partitions_time_has_come() -> None:
    group = Group()
    commits = commits_of(group)
    commits.processed({A: 3, B: 0}, {A: PartitionTime(10)})
    assert group.committed == {}, "not yet"
    commits.processed({A: 5}, {A: PartitionTime(20)})
    commits.commit()
    assert group.committed == {
        A: OffsetAndMetadata(5, metadata_of(PartitionTime(20))),
        B: OffsetAndMetadata(0, metadata_of(PartitionTime())),
    }


def test_offsets_are_committed_once_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now_s=0.0)
    monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    group = Group()
    commits = commits_of(group, interval_ms=30_000)
    found = []
    for number, clock.now_s in enumerate([29.0, 30.0, 31.0, 59.0, 60.0]):
        commits.processed({A: number}, {})
        found.append(group.committed[A].offset if group.committed else None)
    assert found == [None, 1, 1, 1, 4]
    commits.commit()
    assert commits.waiting == {}


def test_a_refused_commit_waits_and_a_forgotten_one_is_never_made() -> None:
    group = Group()
    commits = commits_of(group, interval_ms=0)
    group.is_rebalancing = True
    commits.processed({A: 3}, {A: PartitionTime(10)})
    assert commits.waiting == {A: 3}
    group.is_rebalancing = False
    commits.processed({A: 4}, {A: PartitionTime(10)})
    assert commits.waiting == {}
    assert group.committed[A].offset == 4
    group.is_rebalancing = True
    commits.processed({A: 9}, {A: PartitionTime(99)})
    commits.forget()
    group.is_rebalancing = False
    commits.commit()
    assert group.committed[A].offset == 4


def test_what_was_never_committed_is_never_known_as_committed() -> None:
    """A purge deletes what is before it: also while a lost task is being closed, and before a batch's ends are waiting."""
    group = Group()
    commits = commits_of(group)
    assert commits.committed == {}
    commits.processed({A: 3, B: 7}, {})
    commits.commit()
    assert commits.committed == {A: 3, B: 7}
    commits.processed({A: 9}, {})
    assert commits.committed == {A: 3, B: 7}
    commits.forget()
    assert commits.committed == {A: 3, B: 7}
    group.is_rebalancing = True
    commits.processed({A: 11}, {})
    commits.commit()
    assert commits.committed == {A: 3, B: 7}


def test_a_refused_commit_of_a_task_that_was_given_up_is_not_made_later() -> None:
    """Its next owner has gone on from there, and its commits would be set back."""
    group = Group()
    commits = commits_of(group)
    group.is_rebalancing = True
    commits.processed({A: 9, B: 4}, {})
    commits.commit()
    commits.give_up([A])
    group.is_rebalancing = False
    group.committed[A] = OffsetAndMetadata(50, "")
    commits.commit()
    assert (group.committed[A].offset, group.committed[B].offset) == (50, 4)


def test_a_purge_stops_at_what_is_committed_while_a_lost_task_is_being_closed() -> None:
    commits = commits_of(Group())
    what: Any = {"task": TaskId(0, 0), "directory": "", "epoch": "e", "changelogs": {}}
    task = ActiveTask(inputs=(A, B), phase=Phase.RUNNING, positions={A: 9, B: 4}, **what)
    assert commits.committed_of([task]) == {}, "its positions have moved on, and nothing waits yet"
    commits.processed({A: 3}, {})
    commits.commit()
    commits.processed({A: 9, B: 4}, {})
    assert commits.committed_of([task]) == {A: 3}
    commits.forget()
    assert commits.committed_of([task]) == {A: 3}, "it is lost, and held until its stores are closed"
    assert commits.committed_of([replace(task, phase=Phase.CREATED)]) == {}

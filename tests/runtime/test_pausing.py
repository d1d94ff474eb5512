"""What a paused instance's batches read (KIP-834): nothing but global stores; stores are opened, so that they can be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.runtime.thread_alone import TOPOLOGY
from tidemill.config.slices import ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import MemberConfig, new_member
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase
from tidemill.task.standby import StandbyBounds, StandbyTask
from tidemill.task.tasks import TaskLayout, Tasks

IN, LOG, OTHER_LOG, COPIED_LOG = (TopicPartition(name, 0) for name in ("in", "log", "other-log", "copied-log"))
RUNS, RESTORES, COPIED = TaskId(0, 0), TaskId(1, 0), TaskId(2, 0)


class Held:
    """The tasks of a thread, as its registry has them, and which of them it may open."""

    def __init__(self, active: Any, standby: Any = (), may_open: Any = ()) -> None:
        member = new_member(MemberConfig(process_id=ProcessId(1, 2)))
        self.now = Tasks(layout=TaskLayout(), member=member, active=active, standby=dict(standby))
        self.may_open = lambda: may_open


def held(*, are_open: bool = True, elsewhere: TaskId | None = None) -> Any:
    """A task that runs, one that is restored, a standby that follows; ``elsewhere``: the one that another thread has open."""
    known: dict[str, Any] = {"stores": {"store": 3} if are_open else None, "directory": "d", "epoch": "e"}
    bounds = Bounds(inputs={IN: 5}, changelog_ends={LOG: 3, OTHER_LOG: 9})
    tasks = [
        ActiveTask(
            task=RUNS, phase=Phase.RUNNING, inputs=(IN,), positions={IN: 5}, changelogs={"store": LOG}, bounds=bounds, **known
        ),
        ActiveTask(task=RESTORES, phase=Phase.RESTORING, inputs=(), changelogs={"store": OTHER_LOG}, bounds=bounds, **known),
    ]
    ends = StandbyBounds(begins={}, ends={COPIED_LOG: 9})
    copy = StandbyTask(task=COPIED, changelogs={"store": COPIED_LOG}, bounds=ends, **known)
    may_open = frozenset({RUNS, RESTORES, COPIED}) - {elsewhere}
    return Held(active={task.task: task for task in tasks}, standby={COPIED: copy}, may_open=may_open)


class Brokers:
    def partitions(self, topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return dict.fromkeys(topics, "an id")

    def beginning_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def stable_end_offsets(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)


def batches(tasks: Any, *, is_paused: bool, global_topics: tuple[str, ...] = ()) -> MicroBatches:
    brokers = Brokers()
    return MicroBatches(
        "thread",
        StreamsConfig.read_slice(ThreadConfig, {}),
        TOPOLOGY,
        registry=tasks,
        local=tasks,
        global_topics=GlobalTopics(global_topics, brokers),  # type: ignore[arg-type]
        created_again=lambda _request: 0,
        fence=lambda: None,
        is_paused=lambda: is_paused,
    )


def test_running_it_reads_inputs_and_changelogs_of_actives_and_standbys() -> None:
    going = batches(held(), is_paused=False)
    request = going.next().request
    assert (request.inputs, request.changelogs, request.standbys) == ({IN: 5}, {OTHER_LOG: 3}, {COPIED_LOG: 3})
    assert going.are_needed


@pytest.mark.parametrize("task", [RUNS, RESTORES, COPIED])
def test_what_another_thread_has_open_is_left_to_it(task: TaskId) -> None:
    request = batches(held(elsewhere=task), is_paused=False).next().request
    assert {run.task for run in request.tasks} == {RUNS, RESTORES, COPIED} - {task}
    found = {RUNS: request.inputs, RESTORES: request.changelogs, COPIED: request.standbys}
    assert {name for name, positions in found.items() if not positions} == {task}


def test_paused_it_reads_none_of_them_and_needs_no_batch() -> None:
    paused = batches(held(), is_paused=True)
    request = paused.next().request
    assert (request.inputs, request.changelogs, request.standbys) == ({}, {}, {})
    assert {run.task for run in request.tasks} == {RUNS, RESTORES, COPIED}, "their stores stay open"
    assert not paused.are_needed


def test_paused_it_opens_stores_without_waiting_for_records() -> None:
    paused = batches(held(are_open=False), is_paused=True)
    assert paused.are_needed
    assert paused.next().request.wait_ms == 0


def test_a_paused_task_without_stores_needs_no_batch() -> None:
    tasks = Held({RUNS: ActiveTask(task=RUNS, directory="", epoch="e", inputs=(IN,), changelogs={})})
    assert not batches(tasks, is_paused=True).are_needed


def test_the_worker_is_told_of_topics_of_any_kind_that_were_created_again() -> None:
    going = batches(held(), is_paused=False, global_topics=("names",))
    assert going.next().request.created_again == 0
    going._created_again = lambda _request: 2
    assert going.next().request.created_again == 2
    going._globals.created_again = 1
    assert going.next().request.created_again == 3


@pytest.mark.parametrize("is_paused", [True, False])
def test_global_stores_are_kept_up_in_any_case(is_paused: bool) -> None:
    going = batches(held(), is_paused=is_paused, global_topics=("names",))
    request = going.next().request
    assert request.globals == {TopicPartition("names", 0): 0}
    assert going.are_needed
    assert request.wait_ms > 0

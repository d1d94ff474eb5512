"""When the next micro-batch is due: batches are ``commit.interval.ms`` apart, but no task waits for its first one."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tidemill.config.streams_config import StreamsConfig
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.runtime.thread.start_offsets import TaskFacts
from tidemill.task.batch import BatchReport, Outcome
from tidemill.task.lifecycle import ActiveTask, Phase

NONE: frozenset[Any] = frozenset()
FACTS = TaskFacts(changelogs={}, has_stores=NONE, internal_topics=NONE, source_changelogs=NONE, topics=("in",), offset_resets={})
INTERVAL_S = 5.0


def running(partition: int) -> ActiveTask:
    tp = TopicPartition("in", partition)
    return ActiveTask(
        task=TaskId(0, partition), directory="", epoch=f"e{partition}", inputs=(tp,), changelogs={}, phase=Phase.RUNNING,
        positions={tp: 0},
    )  # fmt: skip


def held(*tasks: ActiveTask) -> dict[TaskId, ActiveTask]:
    return {task.task: task for task in tasks}


def batches(tasks: Any) -> MicroBatches:
    anything: Any = None
    return MicroBatches(
        "thread",
        StreamsConfig.of(
            {"application.id": "app", "bootstrap.servers": "none:1", "commit.interval.ms": int(INTERVAL_S * 1000),
             "processing.guarantee": "exactly_once_v2"}
        ),
        FACTS,
        held=tasks,
        group=anything,
        global_topics=GlobalTopics((), anything),
        metrics=anything,
        fence=lambda: None,
        on_change=lambda: None,
        is_paused=lambda: False,
    )  # fmt: skip


def read_once(of: MicroBatches) -> None:
    of.next()
    of._began_at = time.monotonic()
    of.adapt(BatchReport(batch_id=1, outcome=Outcome.COMMITTED))


def tasks_of(*tasks: ActiveTask) -> Any:
    found = SimpleNamespace(active=held(*tasks), standby={})
    found.to_open = lambda: frozenset(found.active)
    return found


def test_tasks_that_have_been_read_wait_for_the_interval() -> None:
    of = batches(tasks_of(running(0)))
    assert of.due_in_s == 0.0, "it has never been read"
    read_once(of)
    assert INTERVAL_S / 2 < of.due_in_s <= INTERVAL_S


def test_a_task_that_has_come_to_run_since_does_not() -> None:
    tasks = tasks_of(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.active = held(running(0), running(1))
    assert of.due_in_s == 0.0
    read_once(of)
    assert of.due_in_s > INTERVAL_S / 2


def test_a_task_that_is_taken_up_anew_does_not_either() -> None:
    tasks = tasks_of(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.active = held(replace(running(0), epoch="another"))
    assert of.due_in_s == 0.0


def test_nor_one_that_is_not_running_yet() -> None:
    tasks = tasks_of(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.active = held(running(0), replace(running(1), phase=Phase.RESTORING))
    assert of.due_in_s == 0.0

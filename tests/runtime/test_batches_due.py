"""How long source topics rest: for what is left of ``commit.interval.ms``, but no task waits for its first batch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tests.runtime.thread_alone import TOPOLOGY
from tidemill.config.slices import ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.member_state import MemberConfig, new_member
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.task.batch import BatchReport, BatchRequest, Outcome
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.tasks import TaskLayout, Tasks

INTERVAL_S = 600.0
"""So long that half of it does not pass while a test runs."""


def running(partition: int) -> ActiveTask:
    tp = TopicPartition("in", partition)
    return ActiveTask(
        task=TaskId(0, partition), directory="", epoch=f"e{partition}", inputs=(tp,), changelogs={}, phase=Phase.RUNNING,
        positions={tp: 0},
    )  # fmt: skip


def batches(tasks: Any, guarantee: str = "exactly_once_v2") -> MicroBatches:
    anything: Any = None
    return MicroBatches(
        "thread",
        StreamsConfig.read_slice(
            ThreadConfig,
            {
                "commit.interval.ms": int(INTERVAL_S * 1000),
                "transaction.timeout.ms": int(INTERVAL_S * 1000),
                "processing.guarantee": guarantee,
            },
        ),
        TOPOLOGY,
        registry=tasks,
        local=tasks,
        global_topics=GlobalTopics((), anything),
        created_again=lambda _request: 0,
        fence=lambda: None,
        is_paused=lambda: False,
    )  # fmt: skip


def read_once(of: MicroBatches) -> None:
    of.next()
    of.adapt(BatchReport(batch_id=1, outcome=Outcome.COMMITTED), time.monotonic())


def rest_ms(of: MicroBatches) -> int:
    """What the next batch gets, without asking for it."""
    return of._with_rest(BatchRequest(batch_id=1, inputs={}, wait_ms=int(INTERVAL_S * 2_000))).sources_rest_ms


class Held:
    """The tasks of a thread, as its registry has them; it may open them all."""

    def __init__(self, *tasks: ActiveTask) -> None:
        self.take_up(*tasks)

    def take_up(self, *tasks: ActiveTask) -> None:
        member = new_member(MemberConfig(process_id=ProcessId(1, 2)))
        self.now = Tasks(layout=TaskLayout(), member=member, active={task.task: task for task in tasks})

    def may_open(self) -> frozenset[TaskId]:
        return self.now.ids


def test_tasks_that_have_been_read_wait_for_the_interval() -> None:
    of = batches(Held(running(0)))
    assert rest_ms(of) == 0, "it has never been read"
    read_once(of)
    assert INTERVAL_S * 500 < rest_ms(of) <= INTERVAL_S * 1_000


def test_at_least_once_they_wait_too_but_not_for_the_interval() -> None:
    of = batches(Held(running(0)), "at_least_once")
    asked_s = time.monotonic()
    of.adapt(BatchReport(batch_id=1, outcome=Outcome.COMMITTED, has_read_sources=True), asked_s)
    assert round(of._due.sources_s - asked_s, 3) == 0.05


def test_a_task_that_has_come_to_run_since_does_not() -> None:
    tasks = Held(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.take_up(running(0), running(1))
    assert rest_ms(of) == 0
    read_once(of)
    assert rest_ms(of) > INTERVAL_S * 500


def test_a_task_that_is_taken_up_again_does_not_either() -> None:
    tasks = Held(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.take_up(replace(running(0), epoch="another"))
    assert rest_ms(of) == 0


def test_nor_one_that_is_not_running_yet() -> None:
    tasks = Held(running(0))
    of = batches(tasks)
    read_once(of)
    tasks.take_up(running(0), replace(running(1), phase=Phase.RESTORING))
    assert rest_ms(of) == 0


def test_however_many_batches_a_task_restores_in_the_others_rest_for_one_interval_at_most_when_it_runs() -> None:
    """These batches don't rest, so each of them reads source topics."""
    tasks = Held(running(0), replace(running(1), phase=Phase.RESTORING))
    of = batches(tasks)
    for _ in range(100):
        read_once(of)
    tasks.take_up(running(0), running(1))
    read_once(of)
    assert rest_ms(of) <= INTERVAL_S * 1_000


def test_a_batch_asks_for_no_longer_rest_than_it_waits_for_records() -> None:
    of = batches(Held(running(0)))
    read_once(of)
    request = of.next().request
    assert request.sources_rest_ms == request.wait_ms < INTERVAL_S * 1_000

"""The lines about a stream thread's tasks: what came, changed, was restored or went, and how long it took."""

from __future__ import annotations

import logging
from collections.abc import Collection

import pytest

from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.membership.member_state import Assigned, MemberConfig, MembershipLost
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.runtime.observe.task_log import TaskLog
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.task.batch import BatchReport, Outcome, StorePositions
from tidemill.task.lifecycle import Bounds
from tidemill.task.standby import StandbyBounds
from tidemill.task.tasks import (
    BatchLost,
    BatchReported,
    BoundsFetched,
    CloseTasks,
    Event,
    PositionsRead,
    StandbyBoundsFetched,
    TaskLayout,
    TasksClosed,
    ThreadEnded,
    no_tasks,
)

A, B = TaskId(1, 0), TaskId(1, 1)
LAYOUT = TaskLayout(changelogs={1: {"counts": "log"}}, has_stores=frozenset({1}), directory="/state")


def changelog(task: TaskId) -> TopicPartition:
    return TopicPartition("log", task.partition)


class Thread:
    """Its tasks, closed as soon as that is asked for; ``lines`` are what was logged since they were last asked for."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "tidemill.thread")
        self._caplog, self.now_s = caplog, 100.0
        self.registry = TaskRegistry(no_tasks(MemberConfig(process_id=ProcessId(1, 2)), LAYOUT, session="s"))
        self.registry.observe(TaskLog("thread", lambda: self.now_s))
        self._generation = 0

    def feed(self, *events: Event) -> None:
        for event in events:
            for instruction in self.registry.handle(event):
                if isinstance(instruction, CloseTasks):
                    self.feed(TasksClosed(tasks=instruction.tasks, kept=instruction.kept))

    def assign(self, active: Collection[TaskId] = (), standby: Collection[TaskId] = (), incarnation: int = 0) -> None:
        self._generation += 1
        info = AssignmentInfo(active_tasks=tuple(sorted(active)), standby_tasks=dict.fromkeys(standby, ()))
        self.feed(
            Assigned(
                generation=self._generation,
                member_id="m",
                incarnation=incarnation,
                partitions=tuple(TopicPartition("in", task.partition) for task in sorted(active)),
                user_data=encode_assignment(info),
            )
        )

    def run(self, *tasks: TaskId, end: int = 0, begin: int = 0) -> None:
        self.feed(
            BoundsFetched(
                bounds={
                    task: Bounds(inputs={}, changelog_begins={changelog(task): begin}, changelog_ends={changelog(task): end})
                    for task in tasks
                }
            )
        )

    def report(self, position: int, *tasks: TaskId) -> None:
        stores = tuple(StorePositions(task=task, changelog={"counts": position}) for task in tasks)
        self.feed(BatchReported(report=BatchReport(batch_id=1, outcome=Outcome.COMMITTED, stores=stores)))

    def lines(self, *fields: str) -> list[tuple[object, ...]]:
        """Name and task of each, and these of its fields."""
        said = [record.msg for record in self._caplog.records if isinstance(record.msg, LogEvent)]
        events = [event for event in said if "task" in event.fields]
        self._caplog.clear()
        return [(event.name, event.fields["task"], *(event.fields.get(field) for field in fields)) for event in events]


@pytest.fixture
def thread(caplog: pytest.LogCaptureFixture) -> Thread:
    return Thread(caplog)


def test_a_task_that_comes_and_goes_has_two_lines_the_last_with_why_and_after_how_long(thread: Thread) -> None:
    thread.assign([A], [B])
    assert thread.lines() == [("task-assigned", A), ("standby-assigned", B)]
    thread.now_s += 2
    thread.assign()
    assert thread.lines("after_ms", "cause") == [
        ("task-closed", A, 2_000, "revoked"),
        ("standby-closed", B, 2_000, "not assigned any more"),
    ]


def test_roles_that_change_are_reported_with_where_the_stores_are(thread: Thread) -> None:
    thread.assign([A], [B])
    thread.feed(PositionsRead(stores={A: {"counts": 3}, B: {"counts": 5}}))
    ends = StandbyBounds(begins={changelog(B): 0}, ends={changelog(B): 9})
    thread.feed(StandbyBoundsFetched(bounds={B: ends}))
    thread.lines()
    thread.assign([B], [A])
    assert thread.lines("stores", "lag") == [("task-demoted", A, {"counts": 3}, None), ("standby-promoted", B, {"counts": 5}, 4)]


def test_a_restore_is_told_from_where_the_stores_were_to_where_they_are(thread: Thread) -> None:
    thread.assign([A])
    thread.feed(PositionsRead(stores={A: {"counts": 3}}))
    thread.run(A, end=9)
    thread.now_s += 1
    thread.report(9, A)
    assert thread.lines("after_ms", "from", "to")[1:] == [
        ("task-restoring", A, 0, None, None),
        ("task-running", A, 1_000, None, None),
        ("restored", A, None, 3, 9),
    ]


def test_a_lost_batch_is_why_a_task_begins_again(thread: Thread) -> None:
    thread.assign([A])
    thread.run(A)
    thread.report(0, A)
    thread.lines()
    thread.feed(BatchLost(reason="the worker died"))
    assert thread.lines("cause") == [("task-created", A, "the worker died")]


def test_records_that_a_changelog_no_longer_has_are_missed_aloud(thread: Thread) -> None:
    thread.assign([A])
    thread.report(0, A)
    thread.run(A, begin=4, end=9)
    assert ("changelog-cut", A, 0, 4) in thread.lines("position", "begin")


def test_a_standby_that_has_caught_up_is_reported_once(thread: Thread) -> None:
    thread.assign([], [B])
    thread.report(2, B)
    thread.feed(StandbyBoundsFetched(bounds={B: StandbyBounds(begins={changelog(B): 0}, ends={changelog(B): 9})}))
    thread.lines()
    thread.now_s += 1
    for position in (5, 9, 9):
        thread.report(position, B)
    assert thread.lines("offsets", "after_ms") == [("standby-caught-up", B, 7, 1_000)]


def test_a_task_that_is_closed_and_taken_up_again_by_one_event_has_both_lines(thread: Thread) -> None:
    thread.assign([A])
    thread.lines()
    thread.assign([A], incarnation=1)
    assert thread.lines("cause") == [("task-closed", A, "the membership was replaced"), ("task-assigned", A, None)]


def test_what_a_thread_has_when_it_ends_or_loses_its_membership_is_reported_with_that_cause(thread: Thread) -> None:
    thread.assign([A])
    thread.feed(MembershipLost(reason="expired", incarnation=1))
    thread.assign([], [B], incarnation=1)
    thread.feed(ThreadEnded(reason="the thread ends"))
    assert [line for line in thread.lines("cause") if line[0].endswith("closed")] == [  # type: ignore[attr-defined]
        ("task-closed", A, "expired"),
        ("standby-closed", B, "the thread ends"),
    ]


def test_kafka_streams_sentences_are_there_for_who_searches_for_them(
    thread: Thread, caplog: pytest.LogCaptureFixture
) -> None:
    thread.assign([A, B])
    thread.feed(PositionsRead(stores={A: {"counts": 3}, B: {"counts": 9}}))
    thread.run(A, B, end=9)
    thread.now_s += 2
    thread.report(9, A, B)
    thread.report(9, A, B)
    sentences = [record.msg.says for record in caplog.records if isinstance(record.msg, LogEvent) and record.msg.says]
    assert sentences == [
        "stream-thread [thread] task [1_0] Initialized",
        "stream-thread [thread] task [1_1] Restored and ready to run",
        "stream-thread [thread] Finished restoring changelog log-1 to store counts",
        "stream-thread [thread] task [1_0] Restored and ready to run",
        "stream-thread [thread] Finished restoring changelog log-0 to store counts",
        "stream-thread [thread] Restoration took 2000 ms for all active tasks [1_0, 1_1]",
    ]

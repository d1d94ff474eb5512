"""A stream thread's parts by themselves: its batches end as a stand-in for the engine says; no broker, no Spark, no member."""

from __future__ import annotations

import queue
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidemill.config.slices import ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import BatchLostError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group.metadata import Membership
from tidemill.membership.member_state import Assigned, MemberConfig
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.observe.thread_observers import ThreadObservers
from tidemill.runtime.thread.driver_service import DriverService
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.local_state import LocalState
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.runtime.thread.thread_parts import BatchControl, GroupPlace, thread_parts
from tidemill.state.directory import StateDirectory
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
from tidemill.task.lifecycle import Bounds
from tidemill.task.lost_batches import LostInARow
from tidemill.task.tasks import BoundsFetched

KEPT, GIVEN = TaskId(0, 0), TaskId(0, 1)
NONE: frozenset[Any] = frozenset()
TOPOLOGY = TaskTopology(
    changelogs={}, has_stores=NONE, internal_topics=NONE, source_changelogs=NONE, topics=("in",), offset_resets={}
)
IDENTITY = MemberConfig(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000001"))


class Engine:
    """Its batches end as told, first as in ``script``: with a report, or by raising, after the source has taken something;
    ``asked`` is what they were."""

    def __init__(self, outcome: Outcome | None, script: Sequence[tuple[SourceProgress, BatchReport | Exception]] = ()) -> None:
        self._outcome, self._script = outcome, list(script)
        self.patience: list[int] = []
        self.worker_pids = {"step-1": 1}
        self.was_killed = self.expects_backlog = False
        self.asked: list[BatchRequest] = []
        self.driver: DriverService | None = None

    def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
        assert self.driver is not None
        self.asked.append(request)
        self.patience.append(patience)
        if self._script:
            taken, end = self._script.pop(0)
            self.driver.source_advanced(request.batch_id, taken)
            if isinstance(end, Exception):
                raise end
            return end
        if self._outcome is None:
            raise BatchLostError("the Spark task failed")
        return BatchReport(batch_id=1, outcome=self._outcome)

    def expect_backlog(self) -> None:
        self.expects_backlog = True

    def look(self) -> None:
        pass

    def kill_workers(self) -> None:
        self.was_killed = True


def source(task: TaskId) -> TopicPartition:
    return TopicPartition(("in", "other")[task.subtopology], task.partition)


class ThreadAlone:
    """A stream thread's parts; ``has_stores``: its sub-topologies with stores."""

    number, error = 1, None

    def __init__(
        self, engine: Engine, folder: Path, has_stores: Collection[int] = (0, 1), global_topics: GlobalTopics | None = None
    ) -> None:
        unused: Any = None
        lock: Any = SimpleNamespace(hold_on=lambda: None)
        member: Any = SimpleNamespace(
            membership=Membership(), events=queue.SimpleQueue(), request_rejoin=lambda reason: None, revoked_all=lambda: None
        )
        directory = StateDirectory(folder, "app")
        self.metrics = ThreadMetrics()
        self.told: list[frozenset[TaskId]] = []
        """The active tasks, each time that the instance hears of a change."""

        def on_change() -> None:
            self.told.append(frozenset(self.registry.now.active))

        self.parts = thread_parts(
            "thread",
            StreamsConfig.read_slice(ThreadConfig, {}),
            replace(TOPOLOGY, has_stores=frozenset(has_stores)),
            admin=SimpleNamespace(topic_ids=lambda topics, timeout_s: {}),  # type: ignore[arg-type]
            local_state=LocalState(directory, lock, logged=(), reporter="thread"),
            global_topics=GlobalTopics((), unused) if global_topics is None else global_topics,
            place=GroupPlace(identity=IDENTITY, leader=unused, make_member=lambda group: member),
            control=BatchControl(fence=lambda: None, hurry=lambda: None, is_paused=lambda: False),
            observers=ThreadObservers.of("thread", self.metrics, RestoreListeners(), on_change),
        )
        self.registry, self.batches = self.parts.registry, self.parts.batches
        self.runner, self.changes = self.parts.runner, self.parts.changes
        self.events: queue.SimpleQueue[object] = member.events
        self.runner.begin(engine)  # type: ignore[arg-type]
        engine.driver = DriverService(self.runner, self.parts.group, foreach_batch=unused)
        self._generation = 0

    @property
    def lost_in_a_row(self) -> LostInARow:
        return self.runner.lost_in_a_row

    def assign(self, *active: TaskId, standby: Collection[TaskId] = ()) -> None:
        """The group's assignment is carried out."""
        self._generation += 1
        info = AssignmentInfo(
            active_tasks=tuple(sorted(active)), standby_tasks={task: (source(task),) for task in standby}
        )
        self.changes.step(
            Assigned(
                generation=self._generation,
                member_id="m",
                incarnation=0,
                partitions=tuple(sorted(map(source, active))),
                user_data=encode_assignment(info),
            )
        )

    def run_all(self) -> None:
        """The active tasks learn where they start, and have nothing to restore."""
        bounds = {name: Bounds(inputs=dict.fromkeys(task.inputs, 0)) for name, task in self.registry.now.active.items()}
        self.registry.handle(BoundsFetched(bounds=bounds))


def thread_with(engine: Engine, folder: Path, has_stores: Collection[int] = (0, 1)) -> ThreadAlone:
    """It runs two tasks."""
    thread = ThreadAlone(engine, folder, has_stores)
    thread.assign(KEPT, GIVEN)
    thread.run_all()
    return thread

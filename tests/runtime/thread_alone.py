"""A stream thread's parts by themselves: its batches end as a stand-in for the engine says; no broker, no Spark, no member."""

from __future__ import annotations

import queue
from collections.abc import Collection, Sequence
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
from tidemill.runtime.group.thread_membership import ThreadMembership
from tidemill.runtime.instance.local_state import LocalState
from tidemill.runtime.observe.rebalance_watch import RebalanceWatch
from tidemill.runtime.observe.task_log import TaskLog
from tidemill.runtime.observe.thread_metrics import ThreadMetrics
from tidemill.runtime.thread.batch_runner import BatchRunner
from tidemill.runtime.thread.driver_service import DriverService
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.local_tasks import LocalTasks
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.runtime.thread.offset_commits import OffsetCommitter
from tidemill.runtime.thread.offset_fetcher import OffsetFetcher
from tidemill.runtime.thread.task_changes import TaskChanges
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.state.directory import StateDirectory
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, SourceProgress
from tidemill.task.lifecycle import Bounds
from tidemill.task.lost_batches import LostInARow
from tidemill.task.tasks import BoundsFetched, TaskLayout, no_tasks

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
        self.was_killed = False
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

    def kill_workers(self) -> None:
        self.was_killed = True


def source(task: TaskId) -> TopicPartition:
    return TopicPartition(("in", "other")[task.subtopology], task.partition)


class ThreadAlone:
    """A stream thread's parts, put together as it does; ``has_stores``: its sub-topologies with stores."""

    number, error = 1, None

    def __init__(self, engine: Engine, folder: Path, has_stores: Collection[int] = (0, 1)) -> None:
        unused: Any = None
        lock: Any = SimpleNamespace(hold_on=lambda: None)
        config = StreamsConfig.read_slice(ThreadConfig, {})
        member: Any = SimpleNamespace(
            membership=Membership(), events=queue.SimpleQueue(), request_rejoin=lambda reason: None, revoked_all=lambda: None
        )
        directory = StateDirectory(folder, "app")
        self.metrics, rebalance = ThreadMetrics(), RebalanceWatch("thread")
        layout = TaskLayout(has_stores=frozenset(has_stores), directory=str(directory.path))
        self.registry = TaskRegistry(no_tasks(IDENTITY, layout, session="e"))
        self.registry.observe(TaskLog("thread"), rebalance, self.metrics)
        self.events: queue.SimpleQueue[object] = member.events
        local = LocalTasks("thread", self.registry, LocalState(directory, lock, logged=(), reporter="thread"))
        group = ThreadMembership("thread", TOPOLOGY.topics, self.registry, unused, local.offset_sums)
        group.bind(member)
        topics = GlobalTopics((), unused)
        self.batches = MicroBatches(
            "thread", config, TOPOLOGY, registry=self.registry, local=local, global_topics=topics, fence=lambda: None,
            is_paused=lambda: False,
        )  # fmt: skip
        commits = OffsetCommitter("thread", member, config.commit_interval_ms)
        self.runner = BatchRunner(
            "thread", config, batches=self.batches, registry=self.registry, group=group, writes=(), commits=commits,
            offsets=OffsetFetcher("thread", self.registry, unused), global_topics=topics, rebalance=rebalance,
            metrics=self.metrics, on_change=lambda: None,
        )  # fmt: skip
        self.runner.begin(engine)  # type: ignore[arg-type]
        engine.driver = DriverService(self.runner, group, foreach_batch=unused)
        self.changes = TaskChanges(
            "thread", group=group, registry=self.registry, local=local, runner=self.runner,
            commits=commits, rebalance=rebalance, metrics=self.metrics,
            on_change=lambda: self.told.append(frozenset(self.registry.now.active)),
        )  # fmt: skip
        self._generation = 0
        self.told: list[frozenset[TaskId]] = []
        """The active tasks, each time that the instance is told of a change."""

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

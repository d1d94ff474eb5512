"""The parts of a stream thread, put together: each gets the others that it uses.

Decides nothing. What comes from the instance (settings, its member's leader and place in the group) is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

from tidemill.config.slices import ThreadConfig
from tidemill.ids import TaskId
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.group.member import GroupMember
from tidemill.membership.member_state import MemberConfig
from tidemill.runtime.group.leading import Leader
from tidemill.runtime.observe.thread_observers import ThreadObservers
from tidemill.runtime.thread.batch_runner import BatchRunner
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.held_inputs import HeldInputs
from tidemill.runtime.thread.leaving import Leaving
from tidemill.runtime.thread.load_watch import LoadWatch
from tidemill.runtime.thread.local_state import LocalState
from tidemill.runtime.thread.local_tasks import LocalTasks
from tidemill.runtime.thread.micro_batches import MicroBatches
from tidemill.runtime.thread.offset_commits import OffsetCommitter
from tidemill.runtime.thread.offset_fetcher import OffsetFetcher
from tidemill.runtime.thread.start_offsets import StartOffsets
from tidemill.runtime.thread.task_changes import TaskChanges
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.runtime.thread.topic_watch import TopicWatch
from tidemill.task.tasks import TaskLayout, no_tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """A thread's place in the group: who it is, its assignor if it leads, and its member."""

    identity: MemberConfig
    leader: Leader
    make_member: Callable[[ThreadMembership], GroupMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchControl:
    """What the instance gives a thread for its batches."""

    fence: Callable[[], None]
    """Aborts a transaction that another producer with the thread's transactional id has left open."""
    hurry: Callable[[], None]
    """Ends the wait of the current batch for records. May be called by any thread."""
    is_paused: Callable[[], bool]
    """True while the instance is paused (KIP-834)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadParts:
    registry: TaskRegistry
    local: LocalTasks
    loads: LoadWatch
    group: ThreadMembership
    global_topics: GlobalTopics
    batches: MicroBatches
    commits: OffsetCommitter
    offsets: OffsetFetcher
    held: HeldInputs
    runner: BatchRunner
    changes: TaskChanges
    leaving: Leaving
    observers: ThreadObservers
    hurry: Callable[[], None]


def thread_parts(
    name: str,
    config: ThreadConfig,
    topology: TaskTopology,
    *,
    admin: Admin,
    local_state: LocalState,
    global_topics: GlobalTopics,
    place: GroupPlace,
    control: BatchControl,
    observers: ThreadObservers,
) -> ThreadParts:
    """The parts of the thread of this name. Its member has not joined, and has no tasks."""
    layout = TaskLayout(
        changelogs=topology.changelogs, has_stores=topology.has_stores, directory=str(local_state.directory.path)
    )
    registry = TaskRegistry(no_tasks(place.identity, layout, session=str(uuid4())))
    registry.observe(*observers.of_tasks)
    local = LocalTasks(name, registry, local_state)
    loads = LoadWatch(config, registry, observers.metrics, local_state.directory)

    def offset_sums() -> tuple[Mapping[TaskId, int], frozenset[TaskId]]:
        observers.rebalance.joins()  # a join begins with this question
        return local.offset_sums()

    group = ThreadMembership(name, topology.topics, registry, place.leader, offset_sums, loads.joins)
    member = place.make_member(group)
    group.bind(member)
    member.on_heartbeat, member.on_event = observers.metrics.heartbeat, control.hurry
    batches = MicroBatches(
        name, config, topology, registry=registry, local=local, global_topics=global_topics, fence=control.fence,
        created_again=TopicWatch(name, admin).created_again, is_paused=control.is_paused,
    )  # fmt: skip
    commits = OffsetCommitter(name, member, config.commit_interval_ms)
    start_offsets = StartOffsets(topology, config.auto_offset_reset, member, admin, batches.fence)
    offsets = OffsetFetcher(name, registry, start_offsets)
    runner = BatchRunner(
        name, config, batches=batches, registry=registry, group=group, commits=commits, offsets=offsets, observers=observers,
        writes=topology.has_output,
    )  # fmt: skip
    changes = TaskChanges(
        name, group=group, registry=registry, local=local, runner=runner, commits=commits, observers=observers
    )
    return ThreadParts(
        registry=registry,
        local=local,
        loads=loads,
        group=group,
        global_topics=global_topics,
        batches=batches,
        commits=commits,
        offsets=offsets,
        held=HeldInputs(name, observers.metrics, admin),
        runner=runner,
        changes=changes,
        leaving=Leaving(name, member, config.heartbeat_interval_ms),
        observers=observers,
        hurry=control.hurry,
    )

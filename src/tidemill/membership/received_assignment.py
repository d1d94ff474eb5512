"""Assignment that a member received: its tasks with their partitions, or the reason why it can't be carried out.

Decides which answers are acceptable and which version the next subscription has: an answer that contradicts itself, or names
tasks and partitions that this instance's topology doesn't have, is refused as a whole, before anything is opened or given up for
it. What the member does with its tasks is decided by ``tidemill.membership.member``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tidemill.errors import WireFormatError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.joined_group import EARLIEST_PROBEABLE_VERSION
from tidemill.membership.member_state import Assigned, TasksWithPartitions
from tidemill.membership.topology_metadata import TopicsInfo
from tidemill.membership.wire import LATEST_SUPPORTED_VERSION, AssignmentInfo, decode_assignment
from tidemill.membership.wire.assignment import AssignorError
from tidemill.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAssignment:
    """An assignment, its lists put together."""

    info: AssignmentInfo
    active: TasksWithPartitions
    standby: TasksWithPartitions


def received_assignment(event: Assigned, *, used_version: int) -> ReceivedAssignment:
    """WireFormatError if the leader sent what this member can't follow. No bytes at all mean: nothing is assigned."""
    return _received(tuple(event.partitions), event.user_data, used_version)


@lru_cache(maxsize=256)
def _received(partitions: tuple[TopicPartition, ...], user_data: bytes, used_version: int) -> ReceivedAssignment:
    """Leaders say the same again and again: most rebalances leave most members' tasks as they are."""
    if not user_data and not partitions:
        return ReceivedAssignment(info=AssignmentInfo(version=used_version), active={}, standby={})
    info = decode_assignment(user_data)
    if info.error_code not in (AssignorError.NONE, AssignorError.DRAINING):
        return ReceivedAssignment(info=info, active={}, standby={})
    if info.version > used_version:
        raise WireFormatError(
            f"The leader answered a subscription of version {used_version} with an assignment of version "
            f"{info.version}; expected {used_version} or lower."
        )
    if info.version >= EARLIEST_PROBEABLE_VERSION and not (
        info.version <= info.commonly_supported_version <= LATEST_SUPPORTED_VERSION
    ):
        raise WireFormatError(
            f"The leader says in version {info.version} that all members support version {info.commonly_supported_version}; "
            f"expected {info.version} to {LATEST_SUPPORTED_VERSION}, the latest that this one supports."
        )
    if len(info.active_tasks) != len(partitions):
        raise WireFormatError(
            f"The leader assigned {len(partitions)} partitions but names tasks for {len(info.active_tasks)} of "
            "them; expected one task for each."
        )
    if len(set(partitions)) != len(partitions):
        raise WireFormatError("The leader assigned a partition more than once; expected each partition to be read by one task.")
    active: dict[TaskId, list[TopicPartition]] = {}
    for task, partition in zip(info.active_tasks, sorted(partitions), strict=True):
        active.setdefault(_plain(task), []).append(partition)
    twice = sorted(active.keys() & info.standby_tasks.keys())
    if twice:
        raise WireFormatError(f"The leader assigned task {twice[0]} both as active and as standby; expected one of them.")
    return ReceivedAssignment(
        info=info,
        active={task: tuple(partitions) for task, partitions in active.items()},
        standby={_plain(task): partitions for task, partitions in info.standby_tasks.items()},
    )


def check_fits(received: ReceivedAssignment, topology: Mapping[int, TopicsInfo]) -> None:
    """WireFormatError if a task is none of ``topology`` (sub-topologies by number), or reads what that sub-topology doesn't."""
    for task, partitions in (*received.active.items(), *received.standby.items()):
        part = topology.get(task.subtopology)
        if part is None:
            raise WireFormatError(
                f"The leader assigned task {task}, but this instance's topology has the sub-topologies "
                f"{', '.join(map(str, sorted(topology)))} only. Do all instances of the application run the same topology?"
            )
        wrong = next((p for p in partitions if p.partition != task.partition or p.topic not in part.source_topics), None)
        if wrong is not None or not partitions:
            found = "no partition" if wrong is None else f"the partition {printable(wrong)}"
            raise WireFormatError(
                f"The leader assigned {found} to task {task}; expected partition {task.partition} of "
                f"{', '.join(sorted(part.source_topics))}. Do all instances of the application run the same topology?"
            )


def _plain(task: object) -> TaskId:
    if isinstance(task, TaskId):
        return task
    raise WireFormatError(f"The leader assigned task {printable(task)} of a named topology; this instance has none.")


def next_version(info: AssignmentInfo, *, used_version: int) -> int | None:
    """The version of the next subscription if this answer changes it: up once all can, down while someone can't."""
    if info.version < EARLIEST_PROBEABLE_VERSION:
        return None
    if info.commonly_supported_version > used_version or info.version < used_version:
        return info.commonly_supported_version
    return None

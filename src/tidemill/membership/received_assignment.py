"""What the leader's bytes say to a member: its tasks with their partitions, or why they can't be followed.

Decides which answers are acceptable and which version the next subscription has. What the member does with its tasks is
decided by ``tidemill.membership.member``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tidemill.errors import WireFormatError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.assignor_error import AssignorError
from tidemill.membership.member_state import Assigned, TasksWithPartitions
from tidemill.membership.wire import LATEST_SUPPORTED_VERSION, AssignmentInfo, decode_assignment

EARLIEST_PROBEABLE_VERSION = 3


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
    if info.error_code != AssignorError.NONE:
        return ReceivedAssignment(info=info, active={}, standby={})
    if info.version > used_version:
        raise WireFormatError(
            f"The leader answered a subscription of version {used_version} with an assignment of version "
            f"{info.version}; expected {used_version} or lower."
        )
    if info.commonly_supported_version > LATEST_SUPPORTED_VERSION:
        raise WireFormatError(
            f"The leader says that all members support version {info.commonly_supported_version}; this one supports "
            f"{LATEST_SUPPORTED_VERSION} at most."
        )
    if len(info.active_tasks) != len(partitions):
        raise WireFormatError(
            f"The leader assigned {len(partitions)} partitions but names tasks for {len(info.active_tasks)} of "
            "them; expected one task for each."
        )
    active: dict[TaskId, list[TopicPartition]] = {}
    for task, partition in zip(info.active_tasks, sorted(partitions), strict=True):
        active.setdefault(_plain(task), []).append(partition)
    return ReceivedAssignment(
        info=info,
        active={task: tuple(partitions) for task, partitions in active.items()},
        standby={_plain(task): partitions for task, partitions in info.standby_tasks.items()},
    )


def _plain(task: object) -> TaskId:
    if isinstance(task, TaskId):
        return task
    raise WireFormatError(f"The leader assigned task {task} of a named topology; this instance has none.")


def next_version(info: AssignmentInfo, *, used_version: int) -> int | None:
    """The version of the next subscription if this answer changes it: up once all can, down while someone can't."""
    if info.version < EARLIEST_PROBEABLE_VERSION:
        return None
    if info.commonly_supported_version > used_version or info.version < used_version:
        return info.commonly_supported_version
    return None

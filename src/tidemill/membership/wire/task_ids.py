"""Task ids as the wire knows them: with the name of a topology, which only version 10 and later can carry.

Decides how a named task is written and hashed. Tidemill runs unnamed topologies only; named ones are read and written
so that every payload of a group can be understood, and are refused by the leader.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from tidemill.ids import TaskId
from tidemill.java_collections.hash_table import int32, string_hash, task_hash

_NAMED_TASK = re.compile(r"(.+)__(\d+)_(\d+)\Z", re.ASCII | re.DOTALL)


class NamedTaskId(NamedTuple):
    """A task of a named topology, written ``topology__1_0``; ordered by name first, as ``TaskId.compareTo`` does."""

    topology: str
    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.topology}__{self.subtopology}_{self.partition}"


WireTaskId: TypeAlias = TaskId | NamedTaskId


def parse_wire_task(text: str) -> WireTaskId:
    """``1_0`` or ``topology__1_0``; ValueError for anything else."""
    match = _NAMED_TASK.match(text)
    return NamedTaskId(match[1], int(match[2]), int(match[3])) if match else TaskId.parse(text)


def wire_task_hash(task: WireTaskId) -> int:
    """``TaskId.hashCode`` of Kafka 3.0 and later, the name included."""
    if isinstance(task, TaskId):
        return task_hash(task)
    return int32(task_hash(TaskId(task.subtopology, task.partition)) + string_hash(task.topology))

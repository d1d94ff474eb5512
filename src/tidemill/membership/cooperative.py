"""The cooperative rule: a task is not made active while another member still owns one of its partitions.

Decides which of a member's new actives are withheld, all or nothing for each task, which of the withheld ones the member
keeps as standby meanwhile, and the parallel lists of partitions and tasks that the wire wants. Invariant: no partition
is handed to a member while the group counts it as owned by another. Source: KIP-429 and
StreamsPartitionAssignor.addClientAssignments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass

from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.wire import WireTaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTasks:
    """``partitions`` sorted, ``active`` parallel to it; ``withheld`` actives wait for their revocation elsewhere."""

    partitions: tuple[TopicPartition, ...]
    active: tuple[TaskId, ...]
    standby: Mapping[WireTaskId, tuple[TopicPartition, ...]]
    withheld: tuple[TaskId, ...]
    withheld_as_standby: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """Owners of partitions when the rebalance begins; ``owner_of`` holds the owners within the member's own client.

    A ``disputed`` partition has two claimants that both must let go first.
    """

    owner_of: Mapping[TopicPartition, str]
    owned_in_group: Set[TopicPartition]
    disputed: Set[TopicPartition] = frozenset()

    def is_any_held_by_other(self, partitions: Iterable[TopicPartition], member: str) -> bool:
        for partition in partitions:
            if partition in self.disputed:
                return True
            if self.owner_of.get(partition) != member and partition in self.owned_in_group:
                return True
        return False


def member_tasks(
    member: str,
    active: Iterable[TaskId],
    standby: Collection[TaskId],
    *,
    ownership: Ownership,
    partitions_of: Mapping[TaskId, tuple[TopicPartition, ...]],
    kept_standbys: Set[TaskId],
) -> MemberTasks:
    """Assignment that the member may have now. ``kept_standbys``: stateful tasks of which its client had a standby before."""
    given: list[tuple[TopicPartition, TaskId]] = []
    withheld: list[TaskId] = []
    for task in active:
        partitions = partitions_of[task]
        if ownership.is_any_held_by_other(partitions, member):
            withheld.append(task)
        else:
            given += [(partition, task) for partition in partitions]
    given.sort()
    withheld.sort()
    as_standby = tuple(task for task in withheld if task in kept_standbys)
    return MemberTasks(
        partitions=tuple(partition for partition, _ in given),
        active=tuple(task for _, task in given),
        standby={task: partitions_of[task] for task in sorted({*standby, *as_standby})},
        withheld=tuple(withheld),
        withheld_as_standby=as_standby,
    )

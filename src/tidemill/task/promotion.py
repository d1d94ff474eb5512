"""Warm-ups that have caught up: their member asks for the rebalance that promotes them, instead of waiting for a probing one.

Decides which copies are warm-ups, as far as a member can know that (KIP-441's assignments don't say it): copies of a task beyond
``num.standby.replicas``, by the hosts that the leader has listed; without any standbys every copy is one. Each copy is asked for
once: if the leader thinks otherwise the probing rebalance comes in its time. The rebalance itself is KIP-441's.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tidemill.ids import TaskId
from tidemill.membership.member_state import MemberState

Epochs = Mapping[TaskId, str]
"""Epochs of copies by task; a copy that was closed and opened again has another epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotions:
    """``asked``: the copies that a rebalance was asked for."""

    asked: frozenset[tuple[TaskId, str]] = frozenset()

    def ask(
        self, member: MemberState, copies: Epochs, caught_up: Set[TaskId], standby_replicas: int
    ) -> tuple[Promotions, frozenset[TaskId]]:
        """The next value, and the warm-ups to ask a rebalance for; none while a join is under way. ``copies``: the member's
        standby tasks; ``caught_up``: those that have reached the ends of their changelogs."""
        if member.is_joining:
            return self, frozenset()
        held = {(task, epoch) for task, epoch in copies.items() if task in member.standby}
        waiting = ((task, epoch) for task, epoch in held - self.asked if task in caught_up)
        new = {(task, epoch) for task, epoch in waiting if is_warm_up(member, task, standby_replicas)}
        return Promotions(asked=(self.asked & held) | new), frozenset(task for task, _ in new)


def is_warm_up(member: MemberState, task: TaskId, standby_replicas: int) -> bool:
    """False where that can't be known: a member without an address does not learn who else has copies."""
    if standby_replicas == 0:
        return True
    partitions = set(member.standby.get(task, ()))
    hosts = member.standby_partitions_by_host.values()
    return sum(bool(partitions.intersection(of_host)) for of_host in hosts) > standby_replicas

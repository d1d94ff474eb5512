"""The progress of an instance's drain, by its members' states, and the reasons against one.

Decides both from what the members say; the instance acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from tidemill.ids import ProcessId
from tidemill.membership.member_state import Drain, MemberState, Role
from tidemill.membership.wire import SubscriptionInfo
from tidemill.membership.wire.assignment import AssignorError


class DrainPhase(Enum):
    """DRAINING: tasks are still to be handed over. DRAINED: nothing is left. UNKNOWN_TO_LEADER: the leader knows of no drains, so
    it takes no task away."""

    DRAINING = "draining"
    DRAINED = "drained"
    UNKNOWN_TO_LEADER = "unknown to the leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """``active`` and ``standby``: how many tasks the instance still holds."""

    phase: DrainPhase
    active: int
    standby: int


def drain_progress(members: Iterable[MemberState]) -> DrainProgress:
    """Progress of the members of one draining instance."""
    members = list(members)
    if any(member.drain is Drain.IGNORED for member in members):
        phase = DrainPhase.UNKNOWN_TO_LEADER
    elif all(member.is_drained for member in members):
        phase = DrainPhase.DRAINED
    else:
        phase = DrainPhase.DRAINING
    roles = [had.role for member in members for had in member.held.values()]
    return DrainProgress(phase=phase, active=roles.count(Role.ACTIVE), standby=roles.count(Role.STANDBY))


def why_no_drain(own: ProcessId, said: Mapping[str, SubscriptionInfo | None]) -> str:
    """The reason why this instance must not drain; empty if it may. ``said``: all subscriptions, None if unreadable."""
    others = [info for info in said.values() if info is None or info.process_id != own]
    if not others:
        return "there is no other instance in its group to take its tasks: start one, or stop this one as usual"
    draining = {info.process_id: info for info in others if info is not None and info.error_code == AssignorError.DRAINING}
    if draining:
        named = ", ".join(sorted(info.user_endpoint or str(process) for process, info in draining.items()))
        return f"{named} of the same group drains already: wait until that instance has gone, then drain this one"
    return ""

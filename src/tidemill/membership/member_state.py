"""The values of a member's state machine: its state, the events that it gets, the instructions that it gives.

Decides shapes only; ``tidemill.membership.member`` decides what follows from what. Everything is immutable, so a state
may be read from any thread while the next one is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidemill.assignment.model import LONG_MAX
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.topology_metadata import TopicsInfo
from tidemill.membership.wire import LATEST_SUPPORTED_VERSION, HostInfo, PartitionsByHost, host_of
from tidemill.membership.wire.assignment import AssignorError

Partitions: TypeAlias = tuple[TopicPartition, ...]
TasksWithPartitions: TypeAlias = Mapping[TaskId, Partitions]


class Role(Enum):
    ACTIVE = "active"
    STANDBY = "standby"


class Hold(Enum):
    """OPEN: worked on. RELEASING: being committed (if active) and closed. LOST: being closed without a commit."""

    OPEN = "open"
    RELEASING = "releasing"
    LOST = "lost"


class MemberPhase(Enum):
    """MEMBER: takes up assignments. CLOSING: gives everything up and then leaves. ENDED: has left."""

    MEMBER = "member"
    CLOSING = "closing"
    ENDED = "ended"


class Drain(Enum):
    """A member's wish to give its tasks up before it ends. NONE: it has none. ASKED: its joins say so from now on. SAID: one has,
    and the answer is to come. UNDER_WAY: the leader takes its tasks away as copies elsewhere catch up. IGNORED: the leader knows
    of no drains (Kafka's own class, or an earlier version of this)."""

    NONE = "none"
    ASKED = "asked"
    SAID = "said"
    UNDER_WAY = "under way"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTask:
    """A task whose stores, or whose records in a running batch, this member has; held until TasksReleased names it."""

    role: Role
    partitions: Partitions
    hold: Hold = Hold.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConfig:
    """``endpoint`` is application.server as written; ``first_version`` is lower than the latest during an upgrade.

    ``topology``: the sub-topologies that this instance runs, by number, against which assignments are checked; None: not checked.
    """

    process_id: ProcessId
    endpoint: str | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    first_version: int = LATEST_SUPPORTED_VERSION
    topology: Mapping[int, TopicsInfo] | None = None

    @property
    def host(self) -> HostInfo | None:
        """The endpoint as the leader lists it."""
        return None if self.endpoint is None else host_of(self.endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """``held`` has the tasks that this member owns, ``active`` and ``standby`` those of its assignment.

    ``claimed``: incarnation and generation of the last assignment that a join has claimed; older ones that are still unread are
    void. ``rejoin_reason``: why a rejoin is due, or None. ``owes_rejoin``: a rejoin is due for what was given away, as soon as no
    active is being revoked. ``immediate_followups``: how many assignments in a row asked for a rebalance at once.
    ``next_rebalance_ms``: LONG_MAX = none is scheduled.
    """

    config: MemberConfig
    phase: MemberPhase = MemberPhase.MEMBER
    generation: int = -1
    member_id: str = ""
    incarnation: int = 0
    used_version: int = LATEST_SUPPORTED_VERSION
    unique_field: int = 0
    error_code: AssignorError = AssignorError.NONE
    held: Mapping[TaskId, HeldTask] = field(default_factory=dict)
    active: TasksWithPartitions = field(default_factory=dict)
    standby: TasksWithPartitions = field(default_factory=dict)
    is_joining: bool = False
    claimed: tuple[int, int] = (-1, -1)
    rejoin_reason: str | None = None
    owes_rejoin: bool = False
    next_rebalance_ms: int = LONG_MAX
    immediate_followups: int = 0
    must_confirm_revocation: bool = False
    drain: Drain = Drain.NONE
    partitions_by_host: PartitionsByHost = field(default_factory=dict)
    standby_partitions_by_host: PartitionsByHost = field(default_factory=dict)

    @property
    def is_drained(self) -> bool:
        """A drain is under way and nothing is left to be given up."""
        return self.drain is Drain.UNDER_WAY and not (self.held or self.active or self.standby)


def new_member(config: MemberConfig) -> MemberState:
    """A member before its first join."""
    return MemberState(config=config, used_version=config.first_version)


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A rebalance has ended; ``user_data`` is an AssignmentInfo. ``incarnation`` rises with every loss of membership."""

    generation: int
    member_id: str
    incarnation: int
    partitions: Partitions = ()
    user_data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipLost:
    """The group has thrown the member out, or it left; it joins again by itself under the new ``incarnation``."""

    reason: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksReleased:
    """Tasks that are closed: no batch works on them any more, and their offsets are committed if that was asked and possible."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeAllRequested:
    """Eager groups: all tasks must be revoked before the join continues."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """Nothing but the clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationShutdownRequested:
    """This instance wants all instances of the application to shut down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """This member is to give its tasks up as others have caught up with them; ``is_wanted`` False: it stays after all."""

    is_wanted: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsAdded:
    """This member's plan reads more topics, which the others learn from its next join; ``topology``: sub-topologies by number."""

    topology: Mapping[int, TopicsInfo]


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseRequested:
    """This stream thread is to end in good order."""


Event: TypeAlias = (
    Assigned
    | MembershipLost
    | TasksReleased
    | RevokeAllRequested
    | TimePassed
    | ApplicationShutdownRequested
    | DrainRequested
    | TopicsAdded
    | CloseRequested
)


# --- instructions, to be carried out in the order given -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeTasks:
    """Finish the batch, commit, close these actives, then report TasksReleased.

    Of ``becomes_standby`` the stores may stay open: the task comes back as a standby once it is released.
    """

    tasks: frozenset[TaskId]
    becomes_standby: frozenset[TaskId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseStandbys:
    """Close these standbys, their positions kept, then report TasksReleased."""

    tasks: frozenset[TaskId]


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpTasks:
    """Close these tasks without a commit, whatever was under way with them, then report TasksReleased."""

    tasks: frozenset[TaskId]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignTasks:
    """Take up these tasks; those that are here already, in the other role, have their stores open."""

    active: TasksWithPartitions = field(default_factory=dict)
    standby: TasksWithPartitions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinNow:
    """Ask the group for a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRejoin:
    """Report TimePassed after ``at_ms``, unless another assignment comes before."""

    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRevoked:
    """Eager groups: all tasks are revoked, the join may continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutDownApplication:
    """Another instance asked for it: end all stream threads of this one."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFatal:
    """A fatal error: the member closes its tasks and leaves the group."""

    code: AssignorError
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """Nothing is held any more; the last instruction."""


Instruction: TypeAlias = (
    RevokeTasks
    | CloseStandbys
    | GiveUpTasks
    | AssignTasks
    | RejoinNow
    | ScheduleRejoin
    | ConfirmRevoked
    | ShutDownApplication
    | ReportFatal
    | LeaveGroup
)

"""Input and answer of an assignor: immutable values, keyed by task and process id.

Decides the shapes only; every rule is in the assignors. Lags keep Kafka's numbers on the wire (-2 = running active
here, -3 = unknown) but are never compared as such outside ``lag.py``'s claims.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.spellings import Spelled

LATEST_OFFSET = -2
"""Offset sum, and lag, of a task that runs as active here."""
UNKNOWN_OFFSET_SUM = -3
"""Offset sum, and lag, from a member too old to send it."""
LONG_MAX = (1 << 63) - 1


class RackStrategy(Enum):
    NONE = "none"
    MIN_TRAFFIC = "min_traffic"
    BALANCE_SUBTOPOLOGY = "balance_subtopology"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfig(Spelled):
    """The settings of the same names (dots for underscores); costs None = the assignor's own default."""

    acceptable_recovery_lag: int = 10_000
    max_warmup_replicas: int = 2
    num_standby_replicas: int = 0
    probing_rebalance_interval_ms: int = 600_000
    rack_aware_assignment_tags: tuple[str, ...] = ()
    rack_aware_assignment_strategy: RackStrategy = RackStrategy.NONE
    rack_aware_assignment_traffic_cost: int | None = None
    rack_aware_assignment_non_overlap_cost: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState(Spelled):
    """Contents of one member's subscription."""

    member: str
    owned_partitions: tuple[TopicPartition, ...] = ()
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientState(Spelled):
    """One process: its threads and what it held before. ``lags`` may be sparse: a task without entry has lag = end offset.

    ``is_draining``: it gives its tasks up before it ends. Assignors are asked without such clients, unless all are.
    """

    process_id: ProcessId
    capacity: int
    consumers: tuple[ConsumerState, ...] = ()
    previous_active: frozenset[TaskId] = frozenset()
    previous_standby: frozenset[TaskId] = frozenset()
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    is_draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo(Spelled):
    """Partitions of a task, for rack-aware assignment. ``weight``: its load as the group has measured it, 1.0 being the average
    task's (``task_load``); None: unknown."""

    source_partitions: tuple[TopicPartition, ...] = ()
    changelog_partitions: tuple[TopicPartition, ...] = ()
    weight: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState(Spelled):
    """Everything that an assignor may look at (KIP-924's ApplicationState).

    ``clients`` are in the order in which Java put them into its hash map (it decides ties of the sticky assignors).
    """

    clients: tuple[ClientState, ...]
    tasks: tuple[TaskId, ...]
    stateful_tasks: frozenset[TaskId]
    end_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    task_info: Mapping[TaskId, TaskInfo] = field(default_factory=dict)
    partition_racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    config: AssignmentConfig = field(default_factory=AssignmentConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignment(Spelled):
    """``standby`` includes warm-ups, as on the wire; ``warmup`` names which of them are (a subset).

    ``followup_deadline_ms`` asks this client for another rebalance at that time, in milliseconds since 1970 (KIP-924; 0 = at
    once, None = none).
    """

    active: frozenset[TaskId] = frozenset()
    standby: frozenset[TaskId] = frozenset()
    warmup: frozenset[TaskId] = frozenset()
    followup_deadline_ms: int | None = None


class CopyRole(Enum):
    """Role of a copy of a task on its client."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARM_UP = "warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Spelled):
    """Why one copy of one task is where it is, or why a copy that the target wants is not there yet.

    ``source`` names the KIP's or the class's rule; ``reason`` is in full sentences.
    """

    task: TaskId
    role: CopyRole
    rule: str
    candidates: tuple[tuple[ProcessId, int, int], ...]
    """(client, lag, rank) in rank order; none for a stateless task, which any client can run."""
    chosen: ProcessId | None
    """None = no client got this copy."""
    target: ProcessId | None
    """Client where the balanced target wants this copy."""
    rebalances_to_go: int | None
    """After how many further rebalances the task is expected to be active on ``target``; None = no movement."""
    reason: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Spelled):
    """The answer for all clients; ``followup_needed`` asks for a probing rebalance. ``explain()`` builds the decisions."""

    clients: Mapping[ProcessId, ClientAssignment]
    followup_needed: bool
    explain: Callable[[], Sequence[Decision]] = field(default=tuple, compare=False, repr=False)


class TaskAssignor(Protocol):
    """One method, as in KIP-924; pure: the same state gives the same assignment."""

    def assign(self, state: ApplicationState) -> Assignment:
        """An entry for every client of ``state``, even an empty one; each task active on exactly one of them."""

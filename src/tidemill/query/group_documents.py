"""Types of the documents of instances and groups: /instance, /group, /decisions and /tasks.

Names and meanings are the JSON's (docs/dashboard.md). What another instance answers is read into these types before anything is
done with it (``document_reader``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemill.ids import TaskId
from tidemill.query.document_reader import plain_document, read_document, to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    guarantee: str
    standbys: int
    warmups: int
    acceptable_lag: int
    probing_interval_ms: int
    assignor: str
    tags: Mapping[str, str]
    rack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveTaskDocument:
    task: TaskId
    phase: str
    stateful: bool
    records_per_s: float
    behind: int | None
    lag: int | None
    seconds_left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyDocument:
    task: TaskId
    lag: int | None
    offsets_per_s: float | None
    seconds_left: float | None
    role: str = "standby"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRebalanceDocument:
    """Cost of a rebalance for a thread."""

    at_ms: int
    generations: tuple[int, ...]
    joined_ms: float
    paused_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadDocument:
    name: str
    number: int
    running: bool
    waiting: str
    error: str | None
    active: tuple[ActiveTaskDocument, ...]
    standby: tuple[CopyDocument, ...]
    records_per_s: float
    produced_per_s: float
    restored_per_s: float
    batch_ms: float | None
    batch_max_ms: float | None
    latency_ms: float | None
    latency_max_ms: float | None
    records: int
    produced: int
    restored: int
    dropped: int
    skipped: int
    lost_batches: int
    assignments: int
    last_assignment_s: float | None
    memberships_lost: int
    rebalances: tuple[PastRebalanceDocument, ...]
    capacity_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDocument:
    """An instance as the leader saw it, with its assignment."""

    process: str
    host: str | None
    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]
    warmup: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveDocument:
    task: TaskId
    role: str
    from_: str | None
    to: str | None
    had_copy: bool
    rule: str | None
    reason: str | None
    rebalances_to_go: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceDocument:
    """One that an instance has led."""

    at_ms: int
    took_ms: int
    stable: bool
    hands_over: bool
    next_ms: int | None
    joined: tuple[str, ...]
    left: tuple[str, ...]
    clients: tuple[ClientDocument, ...]
    moves: tuple[MoveDocument, ...]
    more_moves: int
    remarks: tuple[str, ...]
    led_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryDocument:
    """The rebalances that one instance has led, oldest first, over its restarts.

    ``problem``: why earlier ones could not be read.
    """

    rebalances: tuple[RebalanceDocument, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoringDocument:
    """Active tasks that don't run yet. ``offsets_left``, ``seconds_left``: None while that is not known."""

    tasks: tuple[TaskId, ...]
    offsets_left: int | None
    offsets_per_s: float | None
    seconds_left: float | None


DRAINING, CLOSING, CALLED_OFF = "draining", "closing", "called off"
"""Phases of a drain. Closing: nothing is left, or the leader knows of no drains (see the message)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainDocument:
    """``active``, ``standby``: how many tasks are still held."""

    phase: str
    message: str
    since_ms: int
    until_ms: int
    active: int
    standby: int

    @property
    def is_under_way(self) -> bool:
        return self.phase == DRAINING

    @property
    def is_closing(self) -> bool:
        return self.phase == CLOSING

    @property
    def was_called_off(self) -> bool:
        return self.phase == CALLED_OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDocument:
    """Document of one instance. ``led``: only in /instance. ``spark_ui``: where Spark's own UI answers, None if it is off."""

    application: str
    process: str
    host: str | None
    version: str
    state: str
    ready: bool
    why: tuple[str, ...]
    error: str | None
    now_ms: int
    started_ms: int
    settings: Settings
    threads: tuple[ThreadDocument, ...]
    restoring: RestoringDocument | None = None
    drain: DrainDocument | None = None
    spark_ui: str | None = None
    led: tuple[RebalanceDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDocument:
    """An instance as /group has it: what it reported, or why it is ``away``. ``assigned``: the active tasks that it is to
    have."""

    host: str | None
    reported: InstanceDocument | None
    away: str | None
    assigned: tuple[TaskId, ...] = ()

    def to_json(self) -> dict[str, object]:
        document = {} if self.reported is None else plain_document(replace(self.reported, led=()))
        document.pop("led", None)
        return {**document, "host": self.host, "away": self.away, "assigned": to_plain(self.assigned)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDocument:
    """``silent``: clients of the newest assignment that have no address."""

    application: str
    asked: str | None
    now_ms: int
    leader: str | None
    instances: tuple[MemberDocument, ...]
    silent: tuple[ClientDocument, ...]
    rebalances: tuple[RebalanceDocument, ...]

    def to_json(self) -> dict[str, object]:
        return {**plain_document(replace(self, instances=())), "instances": [one.to_json() for one in self.instances]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    instance: str | None
    lag: int | None
    rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    task: TaskId
    role: str
    rule: str
    on: str | None
    target: str | None
    rebalances_to_go: int | None
    reason: str
    source: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedDecisions:
    """Why tasks are where they are. ``at_ms``: of the rebalance, None if none was led."""

    at_ms: int | None
    decisions: tuple[DecisionRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyUnderWay:
    task: TaskId
    role: str
    lag: int
    offsets_per_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesUnderWay:
    tasks: tuple[CopyUnderWay, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Fields of every instance in /group."""

    host: str | None
    away: str | None
    assigned: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _GroupHead:
    application: str
    asked: str | None
    now_ms: int
    leader: str | None
    silent: tuple[ClientDocument, ...]
    rebalances: tuple[RebalanceDocument, ...]
    instances: tuple[_Standing, ...]


def read_group(found: object) -> GroupDocument:
    """A /group. UnreadableDocumentError if it is none."""
    head = read_document(_GroupHead, found)
    raw = found["instances"] if isinstance(found, dict) else []
    instances = [
        MemberDocument(
            host=one.host,
            reported=None if one.away is not None else read_document(InstanceDocument, document),
            away=one.away,
            assigned=one.assigned,
        )
        for one, document in zip(head.instances, raw, strict=True)
    ]
    return GroupDocument(
        application=head.application, asked=head.asked, now_ms=head.now_ms, leader=head.leader, instances=tuple(instances),
        silent=head.silent, rebalances=head.rebalances,
    )  # fmt: skip

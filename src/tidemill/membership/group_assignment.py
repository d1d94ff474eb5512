"""The leader's answer as a value: each member's assignment, or why no member gets one.

Decides the shapes, and how an answer becomes bytes: the hosts, which are the same for all members, are encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.assignment.model import ApplicationState, Assignment
from tidemill.ids import TopicPartition
from tidemill.membership.leader_log import LogLevel, LogLine
from tidemill.membership.wire import AssignmentInfo, encode_assignment
from tidemill.membership.wire.assignment import AssignorError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMemberAssignment:
    """One member's part: ``user_data`` is ``info`` as bytes, ``partitions`` runs parallel to its active tasks."""

    partitions: tuple[TopicPartition, ...]
    info: AssignmentInfo
    user_data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the group gets nothing. ``is_thrown_by_kafka``: Kafka's leader throws here and dies, one after the other;
    this one answers all members with ``code`` instead, so that each stops with a reason."""

    code: AssignorError
    reason: str
    is_thrown_by_kafka: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupAssignment:
    """``is_stable``: no follow-up or probing rebalance is wanted. ``hands_over``: tasks are withheld until their owners have let
    go. ``left_out``: members that could not be read; their claims don't count. ``state`` and ``assignment`` (with its decisions)
    are what the task assignor was asked and answered; None for a refusal."""

    members: Mapping[str, StreamsMemberAssignment]
    is_stable: bool
    hands_over: bool = False
    left_out: frozenset[str] = frozenset()
    log: tuple[LogLine, ...] = ()
    refusal: Refusal | None = None
    state: ApplicationState | None = field(default=None, repr=False)
    assignment: Assignment | None = field(default=None, repr=False)


def refused(members: Iterable[str], refusal: Refusal) -> StreamsGroupAssignment:
    """Every member gets the error code, in the latest version as Kafka does, and nothing else."""
    return StreamsGroupAssignment(
        members=dict.fromkeys(members, error_only(refusal.code)),
        is_stable=False,
        log=(LogLine(f"{refusal.code.name}: {refusal.reason}", LogLevel.ERROR),),
        refusal=refusal,
    )


def error_only(code: AssignorError) -> StreamsMemberAssignment:
    """The part of a member that gets an error code and nothing else."""
    info = AssignmentInfo(error_code=code)
    return StreamsMemberAssignment(partitions=(), info=info, user_data=encode_assignment(info))

"""Reset of an application: the work of kafka-streams-application-reset, with the topology known.

Decides what belongs to the application: inputs and internal topics are the topology's, none is guessed from names, so that
no other application's topics are taken for its own. Makes a plan first and carries out that plan; nothing is done while the
group has members. Where inputs shall begin is the operator's choice (``Target``), kept within what their partitions hold.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.config.slices import TopicsConfig
from tidemill.config.values import GroupClientSettings
from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, EnvironmentProblem, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.admin.groups import describe_group, set_committed_offsets
from tidemill.membership.topology_fit import looks_internal
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.runtime.thread.task_topology import task_topology
from tidemill.state.directory import StateDirectory
from tidemill.state.lock import StateDirectoryLock
from tidemill.topology.nodes import SinkNode, Topology
from tidemill.topology.patterns import with_topics_of_patterns

_LOCK_WAIT_S = 15.0
_GONE_LIMIT_S = 30.0
_GROUP_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """New positions of inputs: exactly one is set, or none for the beginning."""

    to_latest: bool = False
    to_offset: int | None = None
    to_timestamp_ms: int | None = None
    shift_by: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """``before`` None: nothing is committed. ``is_bounded``: what was asked for lies outside of what is there."""

    partition: TopicPartition
    before: int | None
    to: int
    is_bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    """``unknown``: topics that look like internal ones of this application, but are none of this topology; they stay."""

    application_id: str
    seeks: tuple[Seek, ...]
    topics: tuple[str, ...]
    unknown: tuple[str, ...]
    state: Path | None
    tasks: tuple[TaskId, ...]


def plan_reset(
    topology: Topology,
    config: TopicsConfig,
    admin: Admin,
    groups: GroupClientSettings,
    target: Target,
    *,
    inputs: Collection[str] = (),
    intermediate: Collection[str] = (),
    state_dir: Path | None,
    with_earlier: bool = False,
) -> ResetPlan:
    """The plan of a reset. ``inputs``: these of the topology's source topics only. ``intermediate``: source topics that begin at
    their end, since the program writes them itself. ``state_dir``: where local state is to be removed; None: nowhere.
    ``with_earlier``: topics that only look as if they were of an earlier version of the topology go, too.

    Raises StopError while the group has members, ConfigError for a topic that is no input, or one that the program also writes
    and that neither list has, EnvironmentProblem for one that isn't there.
    """
    application = config.application_id
    require_empty(groups, application)
    there = admin.topics()
    known = task_topology(with_topics_of_patterns(topology, application, there), application)
    sources = [topic for topic in known.topics if topic not in known.internal_topics]
    _require_inputs(sources, inputs, intermediate)
    wanted = [topic for topic in sources if topic not in intermediate and (not inputs or topic in inputs)]
    _require_decided(topology, () if inputs else wanted)
    _require_there([topic for topic in (*wanted, *intermediate) if topic not in there], config)
    internal = {*known.internal_topics, *(t for stores in known.changelogs.values() for t in stores.values())}
    read = {*sources, *global_topics(topology)}
    internal -= read
    unknown = {topic for topic in there - internal - read - _written(topology) if looks_internal(topic, application)}
    if with_earlier:
        internal, unknown = internal | unknown, set()
    directory = None if state_dir is None else StateDirectory(state_dir, application)
    return ResetPlan(
        application_id=application,
        seeks=(
            *_seeks(admin, application, wanted, target),
            *_seeks(admin, application, intermediate, Target(to_latest=True)),
        ),
        topics=tuple(sorted(internal & there)),
        unknown=tuple(sorted(unknown)),
        state=directory.path if directory is not None else None,
        tasks=tuple(directory.tasks()) if directory is not None else (),
    )


def _require_inputs(sources: Collection[str], inputs: Collection[str], intermediate: Collection[str]) -> None:
    """ConfigError for a topic of either list that the topology does not read, or that both have."""
    foreign = sorted({*inputs, *intermediate}.difference(sources))
    if foreign:
        raise ConfigError(f"{', '.join(foreign)}: no input of this topology; its inputs are {', '.join(sources)}")
    twice = sorted(set(inputs).intersection(intermediate))
    if twice:
        raise ConfigError(f"{', '.join(twice)}: named in --input-topics and in --intermediate-topics, which begin at their end")


def _require_decided(topology: Topology, topics: Collection[str]) -> None:
    """ConfigError if the program also writes one of ``topics``: read again, it has what it held twice, as the program writes that
    again; but it may have records of others, which only an operator knows."""
    both = sorted(_written(topology).intersection(topics))
    if both:
        named = ",".join(both)
        raise ConfigError(
            f"the program reads and writes {', '.join(both)}: add --intermediate-topics {named} to begin at the end, since what "
            "the program has written there is written again; or name all inputs that are to be read again in --input-topics"
        )


def _require_there(missing: Collection[str], config: TopicsConfig) -> None:
    """EnvironmentProblem if inputs are ``missing`` on the brokers."""
    if missing:
        raise EnvironmentProblem(
            f"the input topics {', '.join(missing)} don't exist on {config.bootstrap_servers}: create them, or name the brokers "
            "that have them (bootstrap.servers)"
        )


def _written(topology: Topology) -> set[str]:
    return {node.topic for node in topology.nodes.values() if isinstance(node, SinkNode)}


def carry_out(plan: ResetPlan, admin: Admin, groups: GroupClientSettings) -> None:
    """Offsets first, then topics, then local state; it can be done again if it fails half way. Raises as ``plan_reset``, and
    StateDirectoryInUseError."""
    require_empty(groups, plan.application_id)
    set_committed_offsets(
        groups, plan.application_id, {seek.partition: seek.to for seek in plan.seeks}, limit_s=_GROUP_LIMIT_S
    )
    if plan.topics:
        admin.delete_topics(plan.topics)
        _wait_gone(admin, plan.topics)
    if plan.state is not None and plan.tasks:
        directory = StateDirectory(plan.state.parent, plan.application_id)
        with StateDirectoryLock.acquire(directory.path, timeout_s=_LOCK_WAIT_S) as lock:
            directory.clean(lock)


def require_empty(groups: GroupClientSettings, application: str) -> None:
    group = describe_group(groups, application, limit_s=_GROUP_LIMIT_S)
    if group is None or not group.members:
        return
    names = ", ".join(sorted({member.client_id for member in group.members}))
    raise StopError(
        f"the group {application!r} has {len(group.members)} active members ({names}): stop all instances of the application, or "
        "wait until the session of one that was killed has ended (session.timeout.ms)"
    )


def _seeks(admin: Admin, application: str, topics: Collection[str], target: Target) -> tuple[Seek, ...]:
    counts = admin.partitions(topics)
    partitions = sorted(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count or 0))
    before = admin.committed_offsets(application, partitions)
    begins, ends = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    wanted = _wanted(admin, partitions, target, before, begins, ends)
    found = []
    for tp in partitions:
        to = min(max(wanted[tp], begins[tp]), ends[tp])
        found.append(Seek(partition=tp, before=before.get(tp), to=to, is_bounded=to != wanted[tp]))
    return tuple(found)


def _wanted(
    admin: Admin,
    partitions: Collection[TopicPartition],
    target: Target,
    before: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    if target.to_latest:
        return dict(ends)
    if target.to_offset is not None:
        return dict.fromkeys(partitions, target.to_offset)
    if target.to_timestamp_ms is not None:
        return {**ends, **admin.offsets_at(partitions, target.to_timestamp_ms)}
    if target.shift_by is not None:
        missing = [tp for tp in partitions if tp not in before]
        if missing:
            raise ConfigError(f"{missing[0]} has no committed offset to shift: give another target, such as --to-earliest")
        return {tp: before[tp] + target.shift_by for tp in partitions}
    return dict(begins)


def _wait_gone(admin: Admin, topics: Collection[str]) -> None:
    """Brokers delete topics after they have answered; an instance that starts before that finds half a topic."""
    deadline = Deadline.after(_GONE_LIMIT_S)
    while left := admin.topics() & set(topics):
        if deadline.is_over:
            raise StopError(
                f"{', '.join(sorted(left))}: still there {_GONE_LIMIT_S:.0f} s after they were deleted; see the brokers' logs"
            )
        time.sleep(0.2)

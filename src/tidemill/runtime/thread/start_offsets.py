"""Start offsets of tasks: committed offsets, policies for those that have none or whose offset is gone, ends of changelogs.

Decides by ``auto.offset.reset`` (or the source's own setting) and never for repartition topics, whose loss would be a loss of
records. Standbys may begin anywhere in their changelogs. Of a source topic that serves as changelog neither an active task nor a
standby takes more than the group has committed: what comes after is yet to be processed. Fetching is the member's (committed,
require-stable) and the admin client's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tidemill.config.values import OffsetReset, OffsetResetByDuration
from tidemill.errors import RetriableError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.metadata import OffsetAndMetadata
from tidemill.log_format import LogEvent
from tidemill.runtime.thread.task_topology import ResetPolicy, TaskTopology
from tidemill.task.lifecycle import ActiveTask, Bounds
from tidemill.task.partition_time import PartitionTime, from_metadata
from tidemill.task.standby import StandbyBounds, StandbyTask

log = logging.getLogger("tidemill.offsets")

_UNSTABLE_LIMIT_MS = 1_000


class StartOffsets:
    """``fence`` ends what an own producer has left open."""

    def __init__(
        self, topology: TaskTopology, default: ResetPolicy, member: GroupMember, admin: Admin, fence: Callable[[], None]
    ) -> None:
        self._topology, self._default = topology, default
        self._member, self._admin, self._fence = member, admin, fence

    def reads(self, topology: TaskTopology) -> None:
        """The tasks read more topics from now on."""
        self._topology = topology

    def bounds(self, tasks: Mapping[TaskId, ActiveTask]) -> dict[TaskId, Bounds]:
        """Rule 10's order: committed offsets until stable, then the changelogs' ends.

        Raises RetriableError if the brokers do not answer, StopError if no policy says where to begin or a changelog is gone.
        """
        inputs = [tp for task in tasks.values() for tp in task.inputs]
        changelogs = [tp for task in tasks.values() for tp in task.changelogs.values()]
        committed = self._stable(inputs)
        starts = {tp: at.offset for tp, at in committed.items()}
        starts.update(self._policy([tp for tp in inputs if tp not in committed]))
        times = {tp: _time_of(tp, at) for tp, at in committed.items()}
        ends = self._ends(changelogs)
        sources = [tp for tp in changelogs if tp.topic in self._topology.source_changelogs]
        limits = {tp: min(at, ends[tp]) for tp, at in _processed(sources, committed).items()}
        ends.update(limits)
        begins = self._admin.beginning_offsets(changelogs)
        topic_ids = self._admin.topic_ids({tp.topic for tp in changelogs})
        return {
            name: Bounds(
                inputs={tp: starts[tp] for tp in task.inputs},
                changelog_begins={tp: begins[tp] for tp in task.changelogs.values()},
                changelog_ends={tp: ends[tp] for tp in task.changelogs.values()},
                limits={tp: limits[tp] for tp in task.changelogs.values() if tp in limits},
                topic_ids=_of_stores(task.changelogs, topic_ids),
                times={tp: times[tp] for tp in task.inputs if tp in times},
            )
            for name, task in tasks.items()
        }

    def standby_bounds(self, standbys: Mapping[TaskId, StandbyTask]) -> dict[TaskId, StandbyBounds]:
        """The bounds of standbys' changelogs. RetriableError if the brokers do not answer."""
        changelogs = [tp for standby in standbys.values() for tp in standby.changelogs.values()]
        begins, ends = self._admin.beginning_offsets(changelogs), self._admin.end_offsets(changelogs)
        limits = {tp: min(at, ends[tp]) for tp, at in self.standby_limits(standbys).items()}
        topic_ids = self._admin.topic_ids({tp.topic for tp in changelogs})
        return {
            name: StandbyBounds(
                begins={tp: begins[tp] for tp in standby.changelogs.values()},
                ends={tp: ends[tp] for tp in standby.changelogs.values()},
                limits={tp: limits[tp] for tp in standby.changelogs.values() if tp in limits},
                topic_ids=_of_stores(standby.changelogs, topic_ids),
            )
            for name, standby in standbys.items()
        }

    def standby_limits(self, standbys: Mapping[TaskId, StandbyTask]) -> dict[TopicPartition, int]:
        """Offsets up to which source topics among the changelogs may be followed now. RetriableError as above."""
        changelogs = [tp for standby in standbys.values() for tp in standby.changelogs.values()]
        sources = [tp for tp in changelogs if tp.topic in self._topology.source_changelogs]
        found = self._member.committed(sources, require_stable=False) if sources else {}
        return _processed(sources, found)

    def reset(self, positions: Mapping[TopicPartition, int], truncated: Mapping[TopicPartition, int]) -> None:
        """Commits the offsets that the reset policy gives, so that every later start agrees, and says what is lost by that;
        nothing where the committed offset exists after all, since a consumer may speak of a position that it has left since.
        ``positions``: where each was to be read next. The partition's time stays, as in Kafka Streams. Where a leader has lost
        the end of its log (``truncated``), reading continues there, whatever is behind it by now, as with Java's consumer.

        Raises StopError where no policy may decide.
        """
        stored = self._stable(list(positions))
        committed = {**{tp: OffsetAndMetadata(at) for tp, at in positions.items()}, **stored}
        begins, ends = self._admin.beginning_offsets(positions), self._admin.end_offsets(positions)
        gone: list[TopicPartition] = []
        short: dict[TopicPartition, int] = {}
        for tp, stored_at in committed.items():
            cut = truncated.get(tp)
            if cut is not None and begins[tp] <= cut <= ends[tp]:
                if cut < stored_at.offset:
                    short[tp] = cut
            elif cut is not None or not begins[tp] <= stored_at.offset <= ends[tp]:
                gone.append(tp)
        for tp in [*gone, *short]:
            is_internal = tp.topic in self._topology.internal_topics
            if (is_internal and tp in gone) or self._policy_of(tp) is OffsetReset.NONE:
                there = f"{committed[tp].offset} is to be read next, and there are {begins[tp]} to {short.get(tp, ends[tp])}"
                raise StopError(f"{tp}: {_why_gone(there, is_internal=is_internal, is_committed=tp in stored)}")
        if short:
            self._member.commit({tp: replace(committed[tp], offset=at) for tp, at in short.items()})
            for tp, at in short.items():
                log.warning(LogEvent("log-truncated", partition=tp, from_=committed[tp].offset, to=at, note=_TRUNCATED))
        if not gone:
            return
        found = self._policy(gone)
        self._member.commit({tp: replace(committed[tp], offset=found[tp]) for tp in gone})
        for tp in gone:
            at = max(committed[tp].offset, positions[tp])  # the position is ahead with at_least_once
            # Beyond the end: the topic was created again, or has lost its end, and what was in it there is not known.
            lost = max(0, found[tp] - at) if at <= ends[tp] else "unknown"
            log.warning(
                LogEvent("offset-out-of-range", partition=tp, from_=at, to=found[tp], lost=lost, policy=self._policy_of(tp))
            )

    def settle(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commits where inputs without a committed offset are read next, if their policy would give another place by now: tasks
        that are opened again continue there. RetriableError or BatchLostError if that can't be done."""
        moving = [tp for tp in positions if self._policy_of(tp) not in (OffsetReset.EARLIEST, OffsetReset.NONE)]
        if not moving:
            return
        committed = self._stable(moving)
        if begun := {tp: OffsetAndMetadata(positions[tp]) for tp in moving if tp not in committed}:
            self._member.commit(begun)

    def _ends(self, changelogs: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            return dict(self._admin.end_offsets(changelogs))
        except RetriableError:
            # The client has retried: only the group's leader creates changelogs. It has seen this one before it was deleted, or
            # its program has no such store.
            own = sorted({tp.topic for tp in changelogs} - set(self._topology.source_changelogs))
            gone = [topic for topic, found in self._admin.describe_topics(own).items() if found is None]
            if not gone:
                raise
        raise StopError(
            f"the changelog {', '.join(gone)} is missing. Either the group's leader runs another version of the program, without "
            "this store: stop all instances of that version, and start this one again. Or it was deleted while the application "
            "ran: the next start creates it again, and its store begins empty; to compute the results again from the source "
            "topics, reset the application first: tidemill reset APP.py --execute --local-state"
        )

    def _stable(self, inputs: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """If an own transaction is still open, it is ended by fencing (rule 6)."""
        try:
            return self._member.committed(inputs, timeout_ms=_UNSTABLE_LIMIT_MS)
        except RetriableError:
            self._fence()
            return self._member.committed(inputs)

    def _policy(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        self._require_there(partitions)
        of = {tp: self._policy_of(tp) for tp in partitions}
        none = [tp for tp, policy in of.items() if policy is OffsetReset.NONE]
        if none:
            raise StopError(
                f"{none[0]} has no committed offset and auto.offset.reset is none: commit one, or set earliest or latest"
            )
        found = dict(self._admin.beginning_offsets([tp for tp, policy in of.items() if policy is OffsetReset.EARLIEST]))
        late = [tp for tp, policy in of.items() if policy is not OffsetReset.EARLIEST]
        found.update(self._admin.end_offsets(late))  # also where nothing is as new as a duration says
        for duration_ms in {policy.duration_ms for policy in of.values() if isinstance(policy, OffsetResetByDuration)}:
            same = [tp for tp, policy in of.items() if policy == OffsetResetByDuration(duration_ms)]
            found.update(self._admin.offsets_at(same, int(time.time() * 1000) - duration_ms))
        return found

    def _require_there(self, partitions: Sequence[TopicPartition]) -> None:
        """The client would ask for a partition that is gone until its time-out, while the thread takes up no assignment."""
        counts = self._admin.partitions({tp.topic for tp in partitions})
        for tp in partitions:
            if (count := counts[tp.topic]) is None or tp.partition >= count:
                found = "was deleted" if count is None else f"has {count} partitions now"
                raise RetriableError(
                    f"{tp} is not there: its topic {found}. The thread that leads the group notices that at its next look at the "
                    "topics; this one goes on with the assignment after it"
                )

    def _policy_of(self, tp: TopicPartition) -> ResetPolicy:
        if tp.topic in self._topology.internal_topics:
            return OffsetReset.EARLIEST
        return self._topology.offset_resets.get(tp.topic, self._default)


def _why_gone(there: str, *, is_internal: bool, is_committed: bool) -> str:
    """``there``: what was to be read, and what can be. The committed offsets of a topic go when it is deleted."""
    if is_committed:
        return (
            f"the committed offset is out of range: {there}. Records were deleted before they were processed, or the topic was "
            f"created again. Commit an offset that exists to go on without them, or {_OTHERWISE[is_internal]}"
        )
    return (
        f"the position is out of range: {there}, and the group has no committed offset. Records were deleted before they were "
        "processed, or the topic was deleted and created again, and its committed offsets went with it. Start again to go on "
        f"without them{' from where the topic begins' if is_internal else ', after an offset was committed'}, or "
        f"{_OTHERWISE[is_internal]}"
    )


_TRUNCATED = (
    "its leader has not got the records that were read from there on (an unclean leader election): reading continues there, with "
    "what was written since"
)

_OTHERWISE = {
    True: "reset the application to compute its results again: tidemill reset APP.py --execute --local-state",
    False: "set auto.offset.reset to another value than none",
}


def _processed(
    sources: Sequence[TopicPartition], committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, int]:
    """The offsets up to which the group has processed the topics. 0 without a committed offset, as in Kafka Streams: wherever the
    policy begins, nothing before it was processed."""
    return {tp: committed[tp].offset if tp in committed else 0 for tp in sources}


def _of_stores(changelogs: Mapping[str, TopicPartition], topic_ids: Mapping[str, str]) -> dict[str, str]:
    return {store: topic_ids[tp.topic] for store, tp in changelogs.items() if tp.topic in topic_ids}


def _time_of(tp: TopicPartition, committed: OffsetAndMetadata) -> PartitionTime:
    time, problem = from_metadata(committed.metadata)
    if problem:
        log.warning(LogEvent("partition-time-unreadable", partition=tp, metadata=committed.metadata[:200], problem=problem))
    return time

"""The group coordinator of a simulated run, with the leader that it asks.

Decides when a rebalance is complete: once every present member has joined. Members learn of one within ``notice_ms``,
each at a moment of its own that the seed draws; one that has gone silent is thrown out after the session timeout. What
is assigned to whom is decided by ``membership.leader``, the same functions that a running instance calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from tidemill.assignment.choice import ChosenAssignor
from tidemill.config.values import RebalanceProtocol
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, PreparedRebalance, ToThreads, complete, prepare
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested
from tidemill.membership.topic_plan import ClusterMetadata, TopicPlan
from tidemill.membership.topology_metadata import TopologyMetadata
from tidemill.sim.agenda import Agenda, Turn
from tidemill.sim.logs import SimulatedLog
from tidemill.sim.scenario import Scenario
from tidemill.sim.thread import Thread


class Draws(Protocol):
    """A seeded ``random.Random``, handed in so that a run can be repeated."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...


Record = Callable[[str, str, StreamsGroupAssignment], None]


class Group:
    def __init__(
        self,
        scenario: Scenario,
        agenda: Agenda,
        draws: Draws,
        logs: dict[TaskId, SimulatedLog],
        topology: TopologyMetadata,
        assignor: ChosenAssignor,
        to_threads: ToThreads,
        record: Record,
    ) -> None:
        self.present: dict[str, Thread] = {}
        """The members in the order of joining; the first is the leader."""
        self.is_rebalancing = False
        self.offsets_unavailable_until_ms = -1
        self._scenario, self._agenda, self._draws, self._logs, self._topology = scenario, agenda, draws, logs, topology
        self._assignor, self._to_threads, self._record = assignor, to_threads, record
        self._joined: dict[str, Subscription] = {}
        self._causes: list[str] = []
        self._again: list[str] = []
        self._is_eager = scenario.surroundings.rebalance_protocol is RebalanceProtocol.EAGER
        self._revoking: set[str] = set()
        self._generation = 0
        self._waits_until_ms = 0
        self._plan: TopicPlan | None = None
        """The same in all rebalances: topics of a scenario do not change."""
        self._racks: dict[str, str | None] = {}
        part_racks = scenario.surroundings.replica_racks
        self._metadata = ClusterMetadata(
            partition_counts={source_topic(part.number): part.partitions for part in scenario.subtopologies},
            partition_racks={
                TopicPartition(source_topic(task.subtopology), task.partition): frozenset(
                    {part_racks[task.partition % len(part_racks)]}
                )
                for task in (scenario.tasks if part_racks else ())
            },
        )

    @property
    def leader(self) -> Thread | None:
        return next(iter(self.present.values()), None)

    def enter(self, thread: Thread, rack: str | None, cause: str) -> None:
        """A new member, or one that was thrown out and comes again."""
        if not self.present:
            self._waits_until_ms = self._agenda.now_ms + self._scenario.surroundings.initial_rebalance_delay_ms
        self.present[thread.name] = thread
        self._racks[thread.name] = rack
        self._begin(cause)
        self._join(thread)

    def rejoin(self, thread: Thread, reason: str) -> None:
        if thread.name not in self.present:
            return
        if self.is_rebalancing and thread.name in self._joined:
            self._again.append(reason)  # what a join under way says can't be changed
            return
        self._begin(reason)
        self._join(thread)

    def leave(self, thread: Thread) -> None:
        self._remove(thread, f"{thread.name} left")

    def evict(self, thread: Thread, reason: str) -> None:
        """The group removes the member, which is notified if it is alive."""
        if thread.name not in self.present:
            return
        thread.incarnation += 1
        thread.assigned_in = -1
        for task in sorted(thread.running):
            self._logs[task].stop(thread.name, self._agenda.now_ms)
            thread.process.directory.freeze(task, self._agenda.now_ms)
        self._remove(thread, reason)
        incarnation = thread.incarnation
        thread.process.when_awake(lambda: self._come_again(thread, reason, incarnation))

    def _come_again(self, thread: Thread, reason: str, incarnation: int) -> None:
        if not thread.has_ended:
            thread.tell(MembershipLost(reason=reason, incarnation=incarnation))
            self.enter(thread, self._racks[thread.name], f"{thread.name} came again")

    def _remove(self, thread: Thread, cause: str) -> None:
        if self.present.pop(thread.name, None) is not None:
            self._joined.pop(thread.name, None)
            self._revoking.discard(thread.name)
            if self.present:
                self._begin(cause)
                self._complete_if_all_joined()

    def _begin(self, cause: str) -> None:
        self._causes.append(cause)
        if self.is_rebalancing:
            return
        self.is_rebalancing = True
        for thread in self.present.values():
            notice = 1 + int(self._draws.random() * self._scenario.surroundings.notice_ms)
            notified = functools.partial(thread.process.when_awake, functools.partial(self._join, thread))
            self._agenda.after(notice, notified, changes_copies=False)  # the rebalance itself comes later

    def _join(self, thread: Thread) -> None:
        if not self.is_rebalancing or thread.name not in self.present or thread.name in self._joined:
            return
        if not self._is_eager or thread.assigned_in < 0:
            self._say(thread)
        elif thread.name not in self._revoking:
            self._revoking.add(thread.name)
            thread.tell(RevokeAllRequested(reason=self._causes[-1]))

    def revoked_all(self, thread: Thread) -> None:
        """An eager member has given everything up, which its join waited for."""
        if thread.name in self._revoking and thread.name in self.present:
            self._revoking.discard(thread.name)
            self._say(thread)

    def _say(self, thread: Thread) -> None:
        self._joined[thread.name] = thread.subscription(self._racks[thread.name])
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        """Not before others of this moment have had the chance to come."""
        if self.is_rebalancing and self._joined.keys() == self.present.keys():
            self._agenda.at(self._waits_until_ms, self._complete, Turn.LAST)

    def _complete(self) -> None:
        if not self.is_rebalancing or self._joined.keys() != self.present.keys() or not self.present:
            return
        self.is_rebalancing = False
        self._generation += 1
        joined, self._joined = self._joined, {}
        causes, self._causes = self._causes, []
        leader = next(iter(self.present.values()))
        answer = self._led_by(leader, joined)
        self._record("; ".join(dict.fromkeys(causes)), leader.name, answer)
        for thread in list(self.present.values()):
            assigned = answer.members[thread.name]
            thread.assigned_in = self._generation
            thread.tell(
                Assigned(
                    generation=self._generation,
                    member_id=thread.name,
                    incarnation=thread.incarnation,
                    partitions=assigned.partitions,
                    user_data=assigned.user_data,
                )
            )
        again, self._again = self._again, []
        if again and self.present:
            self._begin("; ".join(dict.fromkeys(again)))

    def _led_by(self, leader: Thread, joined: dict[str, Subscription]) -> StreamsGroupAssignment:
        config = LeaderConfig(
            leader_process_id=leader.process.process_id,
            assignor=self._assignor.assignor,
            assignor_needs_lags=self._assignor.needs_lags,
            settings=self._scenario.settings,
            to_threads=self._to_threads,
        )
        prepared = prepare(joined, self._metadata, self._topology, config, plan=self._plan)
        answer = prepared
        if isinstance(prepared, PreparedRebalance):
            self._plan = prepared.plan
            answer = complete(prepared, self._offsets(prepared), self._agenda.now_ms)
        assert isinstance(answer, StreamsGroupAssignment)
        if answer.refusal is not None:
            raise AssignmentError(f"scenario {self._scenario.name!r}: {answer.refusal.reason}")
        return answer

    def _offsets(self, prepared: PreparedRebalance) -> FetchedOffsets | None:
        now_ms = self._agenda.now_ms
        if now_ms < self.offsets_unavailable_until_ms:
            return None
        sources = set(prepared.source_changelog_partitions())
        ends: dict[TopicPartition, int] = {}
        committed: dict[TopicPartition, int] = {}
        for task, partitions in prepared.plan.changelogs.items():
            end = self._logs[task].end_at(now_ms)
            for partition in partitions:
                (committed if partition in sources else ends)[partition] = end
        racks = self._metadata.partition_racks
        return FetchedOffsets(
            end_offsets=ends,
            committed_offsets=committed,
            partition_racks={
                partition: racks[TopicPartition(source_topic(task.subtopology), task.partition)]
                for task, partitions in prepared.plan.changelogs.items()
                for partition in partitions
            }
            if racks and prepared.needs_racks
            else {},
        )


def source_topic(subtopology: int) -> str:
    """The source topic of a simulated sub-topology."""
    return f"input-{subtopology}"


def changelog_topic(subtopology: int) -> str:
    """The changelog of a simulated sub-topology with state."""
    return f"store-{subtopology}-changelog"

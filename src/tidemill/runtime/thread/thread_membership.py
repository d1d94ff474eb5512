"""A stream thread's membership of the group: its member, the contents of its joins, and its part as leader.

Decides what a join contains: the subscription and the owned partitions, which are taken from the thread's tasks
(``runtime.thread.task_registry``) at the time of the join, on the member's own threads.

Also keeps commits and joins apart: a commit is refused if the group begins a new generation meanwhile, and then the batch is lost
also for tasks that do not move. So a join waits for the commit, and a commit for the answer to a join, each for a short time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tidemill.assignment.task_load import TaskLoad
from tidemill.deadline import Deadline
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.group import protocol as group_protocol
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.metadata import Membership
from tidemill.membership.member import is_revoking
from tidemill.membership.member_state import MemberState
from tidemill.membership.member_subscription import OwnSubscription, may_commit
from tidemill.membership.topology_metadata import TopologyMetadata
from tidemill.runtime.group.leading import Leader
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.task.tasks import Tasks

_COMMIT_LIMIT_S = 3.0
_JOIN_LIMIT_S = 0.1
_HEARTBEAT_LIMIT_S = 3.0
"""Time that a join waits for a commit under way, and a commit for the answer to a join: the group may wait for others."""
_TAKE_UP_LIMITS_S = (1.0, 2.0, 4.0, 8.0)
"""While a batch lasts: how long the first join, the second ... wait until the thread has taken up its last assignment, which it
does after the batch. A join that does not wait makes another rebalance, in which nothing can change yet; but the group waits."""


class ThreadMembership:
    """Implements ``GroupProtocol`` for ``member``, which is set after it: each needs the other.

    The gate guards what joins and commits know of each other: whether a commit is under way (``_is_committing``) or instructions
    are being carried out (``_acting``), and the generation from which a join begins (``_joins_from``). The stream thread, the
    member's and the control channel's meet there. All waits at the gate have limits.

    ``offset_sums`` is called at each join. It returns the offset sums of the stateful tasks that this member has state of, and
    the tasks that are running. ``loads`` returns the measured loads of tasks.
    """

    def __init__(
        self,
        name: str,
        topics: Sequence[str],
        tasks: TaskRegistry,
        leader: Leader,
        offset_sums: Callable[[], tuple[Mapping[TaskId, int], frozenset[TaskId]]],
        loads: Callable[[], Mapping[TaskId, TaskLoad]] = dict,
    ) -> None:
        self._name, self._topics, self._leader = name, tuple(topics), leader
        self._tasks, self._offset_sums, self._loads = tasks, offset_sums, loads
        self._said: OwnSubscription | None = None
        self._gate = threading.Condition()
        self._is_committing = False
        self._acting = 0
        self._joins_from: tuple[int, int] | None = None
        self._joins_too_early = 0
        self._member: GroupMember | None = None

    def reads(self, topics: Sequence[str], topology: TopologyMetadata) -> None:
        """The next join subscribes to these topics."""
        self._leader.reads(topology)
        self._topics = tuple(topics)

    def bind(self, member: GroupMember) -> None:
        """Sets the member, which needs this object when it is created."""
        self._member = member

    @property
    def member(self) -> GroupMember:
        assert self._member is not None, "bind() was not called"
        return self._member

    @property
    def membership(self) -> Membership:
        """The membership, as last confirmed by the coordinator."""
        return Membership() if self._member is None else self._member.membership

    @property
    def confirmed_s(self) -> float:
        """The last time at which the coordinator knew this member (``GroupMember.confirmed_s``)."""
        return float("-inf") if self._member is None else self._member.confirmed_s

    def confirmed_for_s(self) -> float:
        """``GroupMember.confirmed_for_s``; after an outage the next heartbeat is waited for."""
        deadline = Deadline.after(_HEARTBEAT_LIMIT_S)
        while not (left_s := self.member.confirmed_for_s) and self.membership.is_member and not deadline.is_over:
            time.sleep(0.01)
        return left_s

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """No join begins within this block, in which instructions are carried out: it would contain only some of them."""
        with self._gate:
            self._acting += 1
        try:
            yield
        finally:
            with self._gate:
                self._acting -= 1
                self._gate.notify_all()

    def may_commit(self, tasks: Iterable[TaskId], *, began_incarnation: int) -> bool:
        """Rule 5: the membership is that of the batch's start, and everything that it read is still owned."""
        now, state = self.membership, self.state
        return now.is_member and may_commit(state, tasks, began_incarnation=began_incarnation, incarnation=now.incarnation)

    def begin_commit(self) -> None:
        """Called before the generation is read for a commit; no join begins from here to ``end_commit``."""
        deadline = Deadline.after(_JOIN_LIMIT_S)
        with self._gate:
            while self._joins_from == _generation(self.membership) and not deadline.is_over:
                self._gate.wait(0.002)
            self._joins_from = None
            self._is_committing = True

    def end_commit(self) -> None:
        """The batch is over, whether it was committed or not."""
        with self._gate:
            self._is_committing = False
            self._gate.notify_all()

    @property
    def is_joining(self) -> bool:
        """A join has begun whose assignment has not been taken yet."""
        return self.state.is_joining

    # --- GroupProtocol: on the member's threads ----------------------------------------------------------------------

    @property
    def topics(self) -> Sequence[str]:
        return self._topics

    def wait_until_taken_up(self) -> None:
        """Waits until the previous assignment is carried out, as in Kafka Streams, whose threads join and process."""
        limit_s = _TAKE_UP_LIMITS_S[min(self._joins_too_early, len(_TAKE_UP_LIMITS_S) - 1)]
        with self._gate:
            is_taken_up = self._gate.wait_for(self._has_taken_up, limit_s)
        self._joins_too_early = 0 if is_taken_up else self._joins_too_early + 1

    def _has_taken_up(self) -> bool:
        now, state = self.membership, self.state
        is_read = not now.is_member or (state.incarnation, state.generation) >= (now.incarnation, now.generation)
        return is_read and not self._acting and not is_revoking(state)

    def owned_partitions(self) -> Sequence[TopicPartition]:
        """Asked first in a join. The answer and ``user_data`` are made together, since they must agree."""
        self._said = self._next_subscription()
        return self._said.owned_partitions

    def user_data(self) -> bytes:
        said, self._said = self._said or self._next_subscription(), None
        return said.user_data

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, group_protocol.MemberSubscription]
    ) -> group_protocol.GroupAssignment:
        return self._leader.assign(f"{self._name}-consumer", partition_counts, members)

    def _next_subscription(self) -> OwnSubscription:
        with self._gate:
            self._gate.wait_for(lambda: not self._is_committing, _COMMIT_LIMIT_S)
            self._joins_from = _generation(self.membership)
        sums, running = self._offset_sums()
        now = self.membership
        return self._tasks.joins(
            generation=now.generation, incarnation=now.incarnation, offset_sums=sums, running=running, loads=self._loads()
        )

    @property
    def tasks(self) -> Tasks:
        """The current tasks."""
        return self._tasks.now

    @property
    def state(self) -> MemberState:
        """The state of the member's machine as it is now; it never changes itself, so any thread may read it."""
        return self._tasks.now.member


def _generation(membership: Membership) -> tuple[int, int]:
    return membership.incarnation, membership.generation

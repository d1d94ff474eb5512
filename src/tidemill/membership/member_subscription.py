"""Subscription of a member: the next join, the partitions it owns, and what it may still commit.

Decides the claims that keep the group safe. A partition is owned as long as a task that reads it is held: from the moment when
the task is to be taken up, even if it has to wait for an older copy of itself to be closed, and also while its last batch runs.
Nothing is owned any more once the group counts a later incarnation, even if this member has not handled its loss yet. A batch may
be committed only in the membership in which it began, and only if everything that it read is still owned. The group knows its
generation and incarnation first, so they are handed in with each question. Source: KIP-429;
StreamsPartitionAssignor.subscriptionUserData.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from tidemill.assignment.model import LATEST_OFFSET
from tidemill.assignment.task_load import TaskLoad
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.member_state import Drain, Hold, MemberState, Role
from tidemill.membership.wire import LATEST_SUPPORTED_VERSION, SubscriptionInfo, WireTaskId, encode_subscription
from tidemill.membership.wire.assignment import AssignorError
from tidemill.membership.wire.task_loads import TAG, encode_loads


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSubscription:
    """Contents of one join."""

    info: SubscriptionInfo
    owned_partitions: tuple[TopicPartition, ...]

    @property
    def user_data(self) -> bytes:
        return encode_subscription(self.info)


def next_subscription(
    state: MemberState,
    *,
    generation: int,
    incarnation: int,
    offset_sums: Mapping[TaskId, int],
    running: Set[TaskId],
    loads: Mapping[TaskId, TaskLoad] | None = None,
) -> tuple[MemberState, OwnSubscription]:
    """Contents of the join that begins now, and the state in which the member waits for its assignment.

    Both belong together: an event that is stepped over between the two would make the claims wrong.

    The unique field differs from the last join's, so that the broker sees a changed subscription.

    ``generation``, ``incarnation``: the group's at this moment (-1 = none). The join claims what is owned and what was
    assigned in that generation; an older assignment that is still unread is void from here on.
    ``offset_sums``: for each stateful task with state on this client that this thread answers for, the sum of the
    positions (next offsets) of its changelogs, 0 where unknown. ``running``: those actives that have been restored.
    ``loads``: as this member has measured them, of tasks that it runs or ran until lately.
    """
    unique_field = (state.unique_field + 1 + 128) % 256 - 128
    may_run: Set[TaskId] = running if incarnation == state.incarnation else frozenset()
    sums: dict[WireTaskId, int] = {
        task: LATEST_OFFSET if task in may_run and _is_owned_active(state, task) else offset_sums[task]
        for task in sorted(offset_sums)
    }
    config = state.config
    if state.drain is Drain.ASKED:
        state = replace(state, drain=Drain.SAID)
    info = SubscriptionInfo(
        version=state.used_version,
        latest_supported_version=LATEST_SUPPORTED_VERSION,
        process_id=config.process_id,
        user_endpoint=config.endpoint,
        task_offset_sums=sums,
        unique_field=unique_field,
        error_code=_said_code(state),
        client_tags={**config.client_tags, TAG: encode_loads(loads)} if loads else config.client_tags,
    )
    state = replace(state, unique_field=unique_field, is_joining=True, claimed=(incarnation, generation))
    return state, OwnSubscription(info=info, owned_partitions=owned_partitions(state, incarnation=incarnation))


def _said_code(state: MemberState) -> AssignorError:
    """A wish of this member, if it has one; that all instances shut down comes first."""
    if state.error_code is AssignorError.NONE and state.drain is not Drain.NONE:
        return AssignorError.DRAINING
    return state.error_code


def owned_partitions(state: MemberState, *, incarnation: int) -> tuple[TopicPartition, ...]:
    """Partitions of all active tasks that are held and not lost, or wait to be taken up, sorted.

    Empty if the group has a later ``incarnation``.
    """
    if incarnation != state.incarnation:
        return ()
    held = (had.partitions for task, had in state.held.items() if _is_owned_active(state, task))
    return tuple(sorted({partition for owned in (*held, *state.active.values()) for partition in owned}))


def may_commit(state: MemberState, tasks: Iterable[TaskId], *, began_incarnation: int, incarnation: int) -> bool:
    """True if a batch over ``tasks`` may be committed under the group's current generation.

    ``began_incarnation`` is the group's when the batch began, ``incarnation`` the group's now.
    """
    is_same_membership = began_incarnation == incarnation == state.incarnation
    return is_same_membership and all(_is_owned_active(state, task) for task in tasks)


def _is_owned_active(state: MemberState, task: TaskId) -> bool:
    had = state.held.get(task)
    return had is not None and had.role is Role.ACTIVE and had.hold is not Hold.LOST

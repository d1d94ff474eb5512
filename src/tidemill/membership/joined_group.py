"""The group as its members described it when they joined: subscriptions decoded and gathered by process.

Decides which members form a client, who owns which partition, and which versions and requests the group has. Three rules
guard against stale claims. A partition that members of different generations claim belongs to the latest of them. One that two
members of the same (known) generation claim is disputed: no one may have it until they have let go. Members of an unknown
future version form one client of their own, of which only owned partitions are known.

A member whose subscription can't be read, or can't be answered together with the others, is left out with all that it claims, so
that it affects no other member; its commits are still fenced by the generation. In a subscription that can be read, only what
makes no sense is left out, with a remark in the leader's log: an endpoint without a host or port, sums that no positions add up
to, more client tags than there can be, loads that can't be decoded. What is assigned is decided by
``tidemill.membership.leader``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from tidemill.assignment.model import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from tidemill.assignment.task_load import TaskLoad
from tidemill.config.rules import LONGEST_TAG_KEY, LONGEST_TAG_VALUE, MOST_TAGS
from tidemill.endpoint import EXPECTED, HostInfo, listed_host
from tidemill.errors import WireFormatError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.java_collections.hash_table import hash_order, string_hash, string_order
from tidemill.membership.wire import (
    LATEST_SUPPORTED_VERSION,
    FutureSubscription,
    SubscriptionInfo,
    decode_subscription,
)
from tidemill.membership.wire.assignment import AssignorError
from tidemill.membership.wire.task_loads import TAG, decode_loads
from tidemill.printable import printable

FUTURE_PROCESS = ProcessId(0, 0)
"""The process of members whose version can't be read (Kafka draws a random one)."""


_THREAD = re.compile(r"(.+)-StreamThread-(\d+)-consumer-[0-9A-Fa-f-]{36}")
"""A member id: the client id of a stream thread's consumer, and what the broker adds."""
EARLIEST_PROBEABLE_VERSION = 3
"""The first version whose answer can name to a member of a future version the one to use."""
_LONGEST_REASON = 500

UNKNOWN_GENERATION = -1
"""Generation of a member whose client is too old to send it; its claims count as in Kafka's leader."""


class JoinGroupMember(Protocol):
    """A member's part in JoinGroup, as the leader reads it; a group client's own value will do."""

    @property
    def topics(self) -> Sequence[str]: ...
    @property
    def user_data(self) -> bytes: ...
    @property
    def owned_partitions(self) -> Sequence[TopicPartition]: ...
    @property
    def generation(self) -> int: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def unreadable(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A member's subscription as a plain value. ``topics``: only those of patterns matter; ``generation``: the one in which it
    got ``owned_partitions``, if known; ``unreadable``: why not even that much could be read of it."""

    user_data: bytes
    topics: tuple[str, ...] = ()
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation: int = UNKNOWN_GENERATION
    rack: str | None = None
    unreadable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedClient:
    """One process: its members in order, what they own and what state they have.

    ``endpoint`` None: it answers no queries. ``rack`` None: unknown, or its members disagree.
    """

    process_id: ProcessId
    members: tuple[str, ...]
    owner_of: Mapping[TopicPartition, str]
    offset_sums_of: Mapping[str, Mapping[TaskId, int]]
    endpoint: HostInfo | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str | None = None
    is_draining: bool = False
    loads_of: Mapping[str, Mapping[TaskId, TaskLoad]] = field(default_factory=dict)
    """Loads of tasks, by the member that has measured them."""

    @property
    def offset_sums(self) -> dict[TaskId, int]:
        """Over all members; where two name a task (they never should), the later member counts."""
        if len(self.members) == 1:
            return dict(self.offset_sums_of[self.members[0]])
        return {task: total for member in self.members for task, total in self.offset_sums_of[member].items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedGroup:
    """Clients in the order in which Kafka's leader meets them (it decides ties of the sticky assignors).

    ``remarks`` say what was odd, for the leader's log. ``unreadable``: the members that are left out, and why.
    """

    clients: tuple[JoinedClient, ...]
    owned_partitions: frozenset[TopicPartition]
    disputed_partitions: frozenset[TopicPartition]
    used_version: int
    supported_version: int
    future_version: int | None
    is_shutdown_requested: bool
    shared_process_ids: Mapping[ProcessId, tuple[str, ...]] = field(default_factory=dict)
    """Process ids that two instances or more have, with all their members: a state directory was copied."""
    remarks: tuple[str, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def members(self) -> Iterable[str]:
        return (member for client in self.clients for member in client.members)


def join_group(said: Mapping[str, JoinGroupMember], future_process: ProcessId = FUTURE_PROCESS) -> JoinedGroup:
    """Decode and gather; WireFormatError if not one member can be read."""
    infos, unreadable = _read_each(said)
    if not infos:
        reasons = (f"the subscription of member {printable(name)}: {why}" for name, why in unreadable.items())
        raise WireFormatError("; ".join(reasons))
    members, said = list(infos), {member: said[member] for member in infos}
    known = [info for info in infos.values() if isinstance(info, SubscriptionInfo)]
    latest, disputed, remarks = _disputes(said)
    remarks += [
        f"Member {printable(name)} is left out: its subscription can't be read ({printable(why, longest=_LONGEST_REASON)})."
        for name, why in unreadable.items()
    ]
    owned = {
        member: tuple([p for p in said[member].owned_partitions if said[member].generation == latest[p]])
        for member in members
    }
    by_process: dict[ProcessId, list[str]] = {}
    for member in _in_hash_order(tuple(members)):
        info = infos[member]
        process_id = info.process_id if isinstance(info, SubscriptionInfo) else future_process
        by_process.setdefault(process_id, []).append(member)
    clients = tuple(
        _client(process_id, tuple(sorted(own, key=string_order)), said, infos, owned, remarks)
        for process_id, own in by_process.items()
    )
    shared = {client.process_id: client.members for client in clients if _are_of_two_instances(client.members)}
    remarks += [_shared(process_id, members) for process_id, members in shared.items()]
    future = [info.version for info in infos.values() if isinstance(info, FutureSubscription)]
    return JoinedGroup(
        clients=clients,
        owned_partitions=frozenset(latest),
        disputed_partitions=disputed,
        used_version=min([LATEST_SUPPORTED_VERSION, *(info.version for info in known)]),
        supported_version=min([LATEST_SUPPORTED_VERSION, *(info.latest_supported_version for info in infos.values())]),
        future_version=max(future) if future else None,
        is_shutdown_requested=any(info.error_code == AssignorError.SHUTDOWN_REQUESTED for info in known),
        shared_process_ids=shared,
        remarks=tuple(remarks),
        unreadable=unreadable,
    )


@lru_cache(maxsize=64)
def _in_hash_order(members: tuple[str, ...]) -> tuple[str, ...]:
    """Most rebalances are of the same members as the one before."""
    return tuple(hash_order(members, string_hash))


def _read_each(said: Mapping[str, JoinGroupMember]) -> tuple[dict[str, SubscriptionInfo | FutureSubscription], dict[str, str]]:
    """Subscriptions of the members, in their order, and the reasons why others can't be read or answered."""
    infos: dict[str, SubscriptionInfo | FutureSubscription] = {}
    unreadable: dict[str, str] = {}
    for member in sorted(said, key=string_order):
        try:
            if said[member].unreadable:
                raise WireFormatError(said[member].unreadable)
            infos[member] = decode_subscription(said[member].user_data)
        except WireFormatError as error:
            unreadable[member] = str(error)
    future = [info.version for info in infos.values() if isinstance(info, FutureSubscription)]
    for member in [name for name, info in infos.items() if future and info.version < EARLIEST_PROBEABLE_VERSION]:
        unreadable[member] = (
            f"it is of version {infos.pop(member).version}, from before Kafka 2.0, and an answer of that version can't tell the "
            f"members of version {max(future)} which one to use; expected at least {EARLIEST_PROBEABLE_VERSION}: upgrade it first"
        )
    return infos, unreadable


def _disputes(said: Mapping[str, JoinGroupMember]) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition], list[str]]:
    """The generation whose claim to a partition counts, the partitions that stay disputed, and a remark on all doubles."""
    latest = {p: subscription.generation for subscription in said.values() for p in subscription.owned_partitions}
    if len(latest) == sum(len(subscription.owned_partitions) for subscription in said.values()):
        return latest, frozenset(), []
    claims: dict[TopicPartition, list[int]] = {}
    for subscription in said.values():
        for partition in dict.fromkeys(subscription.owned_partitions):  # naming one twice is no second claim
            claims.setdefault(partition, []).append(subscription.generation)
    # A member that missed rebalances claims what it had then. Its generation shows that others were assigned after it.
    latest = {partition: max(generations) for partition, generations in claims.items()}
    doubles = sorted(partition for partition, generations in claims.items() if len(generations) > 1)
    disputed = frozenset(
        partition
        for partition in doubles
        if latest[partition] != UNKNOWN_GENERATION and claims[partition].count(latest[partition]) > 1
    )
    if not doubles:
        return latest, frozenset(), []
    named = printable(", ".join(map(str, doubles)), longest=_LONGEST_REASON)
    return latest, disputed, [f"More than one member claims to own {named}; the claim of the latest generation counts."]


def _client(
    process_id: ProcessId,
    members: tuple[str, ...],
    said: Mapping[str, JoinGroupMember],
    infos: Mapping[str, SubscriptionInfo | FutureSubscription],
    owned: Mapping[str, tuple[TopicPartition, ...]],
    remarks: list[str],
) -> JoinedClient:
    info = infos[members[0]]
    first = info if isinstance(info, SubscriptionInfo) else None
    racks = {said[member].rack for member in members}
    return JoinedClient(
        process_id=process_id,
        members=members,
        owner_of={partition: member for member in members for partition in owned[member]},
        offset_sums_of={member: _plain_sums(member, infos[member], remarks) for member in members},
        endpoint=_endpoint(process_id, first, remarks),
        tags=_tags(process_id, first, remarks),
        rack=racks.pop() if len(racks) == 1 else None,
        is_draining=any(_drains(infos[member]) for member in members),
        loads_of={member: loads for member in members if (loads := _loads(member, infos[member], remarks))},
    )


def _drains(info: SubscriptionInfo | FutureSubscription) -> bool:
    return isinstance(info, SubscriptionInfo) and info.error_code == AssignorError.DRAINING


def _are_of_two_instances(members: Sequence[str]) -> bool:
    """True if the client ids of Kafka Streams' threads show two instances: another prefix, or one thread number twice.
    Members with other names do not count."""
    threads = [found.groups() for member in members if (found := _THREAD.fullmatch(member))]
    return len(set(threads)) < len(threads) or len({client for client, _ in threads}) > 1


def _shared(process_id: ProcessId, members: Sequence[str]) -> str:
    names = " and ".join(map(printable, members))
    return (
        f"Process id {process_id} is that of more than one instance: {names} have it. A state directory was "
        "copied with the file kafka-streams-process-metadata: their tasks are counted as one instance's, and with "
        "exactly_once_v2 each ends the other's transactions. Stop one of them, remove that file from its state directory and "
        "start it again."
    )


def _endpoint(process_id: ProcessId, first: SubscriptionInfo | None, remarks: list[str]) -> HostInfo | None:
    """Listed as long as Kafka Streams would list it, because a member that does not find itself there asks for a rebalance."""
    if first is None or not first.user_endpoint:
        return None
    endpoint = listed_host(first.user_endpoint)
    if endpoint is None or not endpoint.can_be_asked:
        remarks.append(
            f"application.server of process {process_id} is {printable(first.user_endpoint)!r}, expected {EXPECTED}; "
            + ("it is left out of the hosts for queries." if endpoint is None else "no one can be asked there.")
        )
    return endpoint


def _tags(process_id: ProcessId, first: SubscriptionInfo | None, remarks: list[str]) -> Mapping[str, str]:
    """All or none: which of too many would count can't be decided."""
    if first is None:
        return {}
    tags = {key: value for key, value in first.client_tags.items() if key != TAG}
    if len(tags) <= MOST_TAGS and all(
        len(key) <= LONGEST_TAG_KEY and len(value) <= LONGEST_TAG_VALUE for key, value in tags.items()
    ):
        return tags
    remarks.append(
        f"The {len(tags)} client tags of process {process_id} are left out: expected at most {MOST_TAGS}, with keys of at most "
        f"{LONGEST_TAG_KEY} and values of at most {LONGEST_TAG_VALUE} characters."
    )
    return {}


def _plain_sums(member: str, info: SubscriptionInfo | FutureSubscription, remarks: list[str]) -> dict[TaskId, int]:
    """Without tasks of named topologies, which no leader of an unnamed one can have, and without sums that are none: the member
    counts as one without state of these tasks."""
    if isinstance(info, FutureSubscription):
        return {}
    sums = {task: total for task, total in info.task_offset_sums.items() if isinstance(task, TaskId)}
    usable = {task: total for task, total in sums.items() if total >= 0 or total in (LATEST_OFFSET, UNKNOWN_OFFSET_SUM)}
    if len(usable) < len(sums):
        wrong = next(task for task in sums if task not in usable)
        remarks.append(
            f"Member {printable(member)} sent negative offset sums of {len(sums) - len(usable)} tasks, of {wrong} {sums[wrong]}; "
            "it counts as a member without state of them."
        )
    return usable


def _loads(member: str, info: SubscriptionInfo | FutureSubscription, remarks: list[str]) -> dict[TaskId, TaskLoad]:
    if isinstance(info, FutureSubscription) or TAG not in info.client_tags:
        return {}
    try:
        return decode_loads(info.client_tags[TAG])
    except WireFormatError as error:
        remarks.append(f"The loads that member {printable(member)} sent are left out: {error}.")
        return {}

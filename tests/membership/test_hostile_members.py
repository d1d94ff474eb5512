"""One member says what makes no sense: it is named and served as far as it can be, and all others as if it had kept silent."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.membership.two_subtopologies import CHANGELOG, FACTS
from tidemill.assignment.choice import NAMES, PUBLIC_STICKY, choose_assignor
from tidemill.assignment.invariants import violations
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import LONG_MAX, AssignmentConfig
from tidemill.config.rules import LONGEST_TAG_KEY, LONGEST_TAG_VALUE, MOST_TAGS
from tidemill.config.streams_config import StreamsConfig
from tidemill.endpoint import HostInfo, host_of, listed_host
from tidemill.errors import ConfigError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group.protocol import MemberAssignment as GivenPartitions
from tidemill.kafka.group.protocol import MemberSubscription, handed_over_too_early
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, PreparedRebalance, complete, prepare
from tidemill.membership.member import step
from tidemill.membership.member_state import (
    Assigned,
    AssignTasks,
    LeaveGroup,
    MemberConfig,
    ReportFatal,
    new_member,
)
from tidemill.membership.received_assignment import check_fits, received_assignment
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.wire import (
    AssignmentInfo,
    NamedTaskId,
    SubscriptionInfo,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tidemill.membership.wire.assignment import AssignorError

GOOD, ALSO_GOOD, BAD = ProcessId(1, 1), ProcessId(2, 2), ProcessId(-3, 3)
TASKS = frozenset(TaskId(part, number) for part in (0, 1) for number in range(3))
OFFSETS = FetchedOffsets(end_offsets={TopicPartition(CHANGELOG, number): 1_000 for number in range(3)})
CONFIG = LeaderConfig(
    leader_process_id=GOOD,
    assignor=HighAvailabilityTaskAssignor(),
    settings=AssignmentConfig(acceptable_recovery_lag=10, num_standby_replicas=1, rack_aware_assignment_tags=("zone",)),
)
NOW = 1_700_000_000_000


def said(process: ProcessId, *, owned: tuple[TopicPartition, ...] = (), generation: int = -1, **info: object) -> Subscription:
    data = encode_subscription(SubscriptionInfo(process_id=process, **info))  # type: ignore[arg-type]
    return Subscription(user_data=data, owned_partitions=owned, generation=generation)


def led(
    members: Mapping[str, Subscription], config: LeaderConfig = CONFIG, offsets: FetchedOffsets | None = OFFSETS
) -> StreamsGroupAssignment:
    prepared = prepare(members, ClusterMetadata(partition_counts={"in": 3}), FACTS, config)
    return complete(prepared, offsets, NOW) if isinstance(prepared, PreparedRebalance) else prepared


def good_ones() -> dict[str, Subscription]:
    return {
        "good": said(GOOD, user_endpoint="good:1", client_tags={"zone": "a"}),
        "also-good": said(ALSO_GOOD, user_endpoint="also-good:1", client_tags={"zone": "b"}),
    }


def warnings(answer: StreamsGroupAssignment) -> list[str]:
    return [line.text for line in answer.log if line.level.name == "WARNING"]


def hosts(answer: StreamsGroupAssignment) -> set[HostInfo]:
    info = answer.members["good"].info
    return {*info.partitions_by_host, *info.standby_partitions_by_host}


# --- an endpoint that is none


def test_a_host_that_no_answer_can_carry_is_left_out_of_the_hosts_and_everyone_is_served() -> None:
    answer = led({**good_ones(), "bad": said(BAD, user_endpoint="a" * 65_536 + ":80")})
    assert answer.refusal is None
    assert {member.info.error_code for member in answer.members.values()} == {0}
    assert hosts(answer) == {HostInfo("good", 1), HostInfo("also-good", 1)}
    (warning,) = warnings(answer)
    assert str(BAD) in warning
    assert len(warning) < 800


def test_a_host_that_kafka_streams_takes_is_listed_so_that_its_member_finds_itself_but_named() -> None:
    answer = led({**good_ones(), "bad": said(BAD, user_endpoint="pod-0..default:8080")})
    assert HostInfo("pod-0..default", 8080) in hosts(answer)
    assert "no one can be asked there" in warnings(answer)[0]


@pytest.mark.parametrize(
    "endpoint",
    [
        "pod-0..default:8080", ".host:1", "host:0", "host:65536", "host:000080", f"{'a' * 64}.example:1", f"{'a.' * 127}a:1",
        "::1:99999", "[1::2::3]:1", "ho st:1", "host:1\n", "host\x1b[2J:1", "h\u00f6st:1", ":1", "host", "",
    ],
)  # fmt: skip
def test_what_can_be_no_address_is_no_endpoint(endpoint: str) -> None:
    assert host_of(endpoint) is None


@pytest.mark.parametrize("endpoint", ["a_b.example:1", "localhost:65535", "10.0.0.1:1", "[::1]:1", "[fe80::1%eth0]:1", "x.:80"])
def test_addresses_of_every_kind_are(endpoint: str) -> None:
    assert host_of(endpoint) is not None
    assert host_of(endpoint) == listed_host(endpoint)


def test_two_processes_with_one_endpoint_hide_nothing_of_each_other() -> None:
    answer = led({**good_ones(), "bad": said(BAD, user_endpoint="good:1")})
    listed = answer.members["good"].info.partitions_by_host[HostInfo("good", 1)]
    assert answer.assignment is not None
    of_both = [*answer.assignment.clients[GOOD].active, *answer.assignment.clients[BAD].active]
    assert {(p.topic, p.partition) for p in listed} == {({0: "in", 1: "r"}[t.subtopology], t.partition) for t in of_both}


# --- other claims that make no sense


def test_a_partition_that_one_member_names_twice_is_not_disputed() -> None:
    owned = tuple(TopicPartition("in", number) for number in (0, 1, 2, 0, 1, 2))
    members = {**good_ones(), "bad": said(BAD, owned=owned, generation=5)}
    answer = led(members)
    assert warnings(answer) == []
    assert answer.assignment is not None
    kept = {task for task in answer.assignment.clients[BAD].active if task.subtopology == 0}
    assert kept
    assert kept <= set(answer.members["bad"].info.active_tasks)


@pytest.mark.parametrize("total", [-1, -4, -(2**63)])
def test_an_offset_sum_that_no_positions_add_up_to_counts_as_no_state(total: int) -> None:
    answer = led({**good_ones(), "bad": said(BAD, task_offset_sums={TaskId(1, 0): total, TaskId(1, 1): 999})})
    assert answer.state is not None
    (bad,) = [client for client in answer.state.clients if client.process_id == BAD]
    assert bad.lags == {TaskId(1, 1): 1}
    assert bad.previous_standby == {TaskId(1, 1)}
    assert "negative offset sums of 1 tasks, of 1_0" in warnings(answer)[0]


def test_a_hundred_thousand_sums_that_are_none_are_left_out_one_by_one() -> None:
    """As many as a subscription can hold: looking each of them up among all others would take minutes."""
    answer = led({**good_ones(), "bad": said(BAD, task_offset_sums={TaskId(1, number): -9 for number in range(100_000)})})
    assert answer.refusal is None
    assert "negative offset sums of 100000 tasks, of 1_0" in warnings(answer)[0]


@pytest.mark.parametrize(
    "tags", [{f"t{number}": "x" for number in range(6)}, {"zone": "x" * 31}, {"z" * 21: "x"}, {"zone": "\x1b[2J" * 10}]
)
def test_client_tags_beyond_the_bounds_are_left_out(tags: dict[str, str]) -> None:
    answer = led({**good_ones(), "bad": said(BAD, client_tags=tags)})
    assert answer.state is not None
    assert {client.process_id: client.tags for client in answer.state.clients}[BAD] == {}
    assert "client tags" in warnings(answer)[0]


@pytest.mark.parametrize(("count", "key", "value"), [(5, 20, 30), (6, 20, 30), (5, 21, 30), (5, 20, 31)])
def test_a_leader_takes_the_client_tags_that_a_member_s_own_settings_may_be(count: int, key: int, value: int) -> None:
    """Else one that only the settings allow would be left out without an error."""
    tags = {f"{number}".rjust(key, "k"): "v" * value for number in range(count)}
    needed = {"application.id": "app", "bootstrap.servers": "localhost:9092"}
    try:
        StreamsConfig.of({**needed, **{f"client.tag.{tag}": found for tag, found in tags.items()}})
    except ConfigError:
        expected: dict[str, str] = {}
    else:
        expected = tags
    answer = led({**good_ones(), "bad": said(BAD, client_tags=tags)})
    assert answer.state is not None
    assert {client.process_id: client.tags for client in answer.state.clients}[BAD] == expected
    assert (expected == tags) == ((count, key, value) == (MOST_TAGS, LONGEST_TAG_KEY, LONGEST_TAG_VALUE))


def test_a_member_from_before_version_probing_beside_a_future_one_is_left_out_alone() -> None:
    future = Subscription(user_data=struct.pack(">ii", 12, 13))
    answer = led({**good_ones(), "future": future, "old": said(BAD, version=2)})
    assert answer.left_out == {"old"}
    assert answer.members["old"].info.error_code == AssignorError.ASSIGNMENT_ERROR
    assert "of version 2, from before Kafka 2.0" in warnings(answer)[0]
    assert set().union(*(answer.members[name].info.active_tasks for name in ("good", "also-good", "future"))) == TASKS


@pytest.mark.parametrize("name", ["m\nERROR forged line", "m\x1b[2J\x1b]0;owned\x07", "m\u202egnp.exe", "m" * 10_000])
def test_a_members_name_forges_no_line(name: str) -> None:
    members = {**good_ones(), name: Subscription(user_data=b"junk")}
    (warning,) = warnings(led(members))
    assert warning.isprintable()
    assert len(warning) < 1_500
    first = led({"good": said(GOOD)})
    withheld = led({"good": said(GOOD, owned=first.members["good"].partitions), name: said(BAD)})
    own_line_feeds = "to clients as: \n"
    for line in withheld.log:
        assert line.text.isprintable() or own_line_feeds in line.text


# --- anything


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["in", "r", CHANGELOG, "other"]), st.integers(0, 4))
SUMS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-3, -2, -1, 0, 999, 2**63 - 1])
WIRE_TASKS = st.builds(TaskId, st.sampled_from([0, 1, 9, 2**31 - 1]), st.sampled_from([0, 1, 2, 3, 2**31 - 1])) | st.builds(
    NamedTaskId, st.sampled_from(["x", "\x1b\n", "0_0"]), st.integers(0, 1), st.integers(0, 2)
)
STRANGE_TEXT = st.text(st.sampled_from("a.:-0[]%/ \n\r\t\x1b\x00\x7f\u202eé𝄞"), max_size=30)
ENDPOINTS = st.sampled_from(["good:1", "h:1", "a..b:80", "[::]:1", "x" * 300 + ":1", "x" * 70_000 + ":1"]) | STRANGE_TEXT


@st.composite
def strange_subscriptions(draw: st.DrawFn) -> Subscription:
    """One that is written by the rules and says nonsense, or one whose bytes were changed on top of that."""
    version = draw(st.integers(1, 11))
    tasks = WIRE_TASKS if version >= 10 else WIRE_TASKS.filter(lambda task: isinstance(task, TaskId))
    data = encode_subscription(
        SubscriptionInfo(
            version=version,
            latest_supported_version=draw(st.integers(version, 2**31 - 1)) if version >= 3 else -1,
            process_id=draw(st.sampled_from([BAD, GOOD, ProcessId(0, 0)])),
            user_endpoint=draw(st.none() | ENDPOINTS) if version >= 2 else None,
            task_offset_sums=draw(st.dictionaries(tasks, st.sampled_from([-2, -3]) if version < 7 else SUMS, max_size=6)),
            error_code=draw(st.integers(-(2**31), 2**31 - 1)) if version >= 9 else 0,
            client_tags=draw(st.dictionaries(STRANGE_TEXT, STRANGE_TEXT, max_size=8)) if version >= 11 else {},
        )
    )
    return Subscription(
        user_data=draw(st.just(data) | changed(data)),
        owned_partitions=tuple(draw(st.lists(PARTITIONS, max_size=8))),
        generation=draw(st.integers(-(2**31), 2**31 - 1)),
        rack=draw(st.none() | STRANGE_TEXT),
    )


def changed(data: bytes) -> st.SearchStrategy[bytes]:
    """Some bytes replaced, cut out or put in; numbers such as a garbled length has."""
    numbers = st.sampled_from([struct.pack(">i", number) for number in (-1, 0, 1, 12, 2**31 - 1, -(2**31))])
    place = st.integers(0, len(data))
    return st.one_of(
        st.builds(lambda at, new: data[:at] + new + data[at + len(new) :], place, numbers | st.binary(min_size=1, max_size=4)),
        st.builds(lambda at, new: data[:at] + new + data[at:], place, st.binary(min_size=1, max_size=8)),
        st.builds(lambda at, length: data[:at] + data[at + length :], place, st.integers(1, 40)),
        st.binary(max_size=60),
    )


def assert_served(answer: StreamsGroupAssignment, members: Mapping[str, Subscription]) -> None:
    """Every member has an answer that it can follow; all tasks are given out, or withheld for one that is to ask again."""
    assert answer.refusal is None
    assert set(answer.members) == set(members)
    assert not {"good", "also-good"} & answer.left_out
    assert answer.state is not None
    assert answer.assignment is not None
    assert violations(answer.state, answer.assignment) == []
    given_out: list[TaskId] = []
    for name, member in answer.members.items():
        assert decode_assignment(member.user_data).active_tasks == member.info.active_tasks
        event = Assigned(
            generation=7, member_id=name, incarnation=0, partitions=member.partitions, user_data=member.user_data
        )
        told = received_assignment(event, used_version=11)
        check_fits(told, FACTS.by_number)
        assert told.info.error_code == (AssignorError.ASSIGNMENT_ERROR if name in answer.left_out else AssignorError.NONE)
        given_out += told.active
    counting = {
        name: MemberSubscription(member_id=name, topics=(), owned_partitions=subscription.owned_partitions)
        for name, subscription in members.items()
        if name not in answer.left_out
    }
    given = {name: GivenPartitions(partitions=member.partitions) for name, member in answer.members.items()}
    assert handed_over_too_early(counting, given) == ()
    asked_again = any(member.info.next_rebalance_ms == 0 for member in answer.members.values())
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == TASKS or asked_again
    for line in answer.log:
        assert "The answer of" not in line.text  # no assignor fails by it
        assert all(part.isprintable() for part in line.text.split("\n" if "to clients as: \n" in line.text else "\0"))


@given(
    strange=strange_subscriptions(),
    name=st.sampled_from(["a-bad", "z-bad", "bad\n\x1b[2J"]),
    assignor=st.sampled_from([*NAMES, PUBLIC_STICKY]),
    offsets=st.sampled_from([OFFSETS, OFFSETS, None]),
)
@example(strange=said(BAD, user_endpoint="a" * 65_536 + ":80"), name="bad", assignor=NAMES[0], offsets=OFFSETS)
@example(strange=said(BAD, version=2), name="bad", assignor=NAMES[0], offsets=OFFSETS)
def test_whatever_one_member_says_all_others_are_served(
    strange: Subscription, name: str, assignor: str, offsets: FetchedOffsets | None
) -> None:
    """Twice, the second time with what the good ones got in the first."""
    chosen = choose_assignor(assignor)
    config = replace(CONFIG, assignor=chosen.assignor, assignor_needs_lags=chosen.needs_lags)
    members = {**good_ones(), name: strange}
    answer = led(members, config, offsets)
    if answer.refusal is not None:
        assert answer.refusal.code is AssignorError.SHUTDOWN_REQUESTED  # anyone may ask for that
        return
    assert_served(answer, members)
    for good, process in (("good", GOOD), ("also-good", ALSO_GOOD)):
        info = answer.members[good].info
        sums = {task: -2 for task in info.active_tasks if task.subtopology == 1} | dict.fromkeys(info.standby_tasks, 1_000)
        members[good] = said(
            process, owned=answer.members[good].partitions, generation=6, task_offset_sums=sums, user_endpoint=f"{good}:1"
        )
    assert_served(led(members, config, offsets), members)


# --- a leader that sends nonsense


INPUTS = tuple(TopicPartition("in", number) for number in range(3)) + tuple(TopicPartition("r", number) for number in range(3))
PROPER = AssignmentInfo(
    active_tasks=tuple(TaskId({"in": 0, "r": 1}[p.topic], p.partition) for p in INPUTS[:4]),
    standby_tasks={TaskId(1, 1): (TopicPartition("r", 1),)},
    partitions_by_host={HostInfo("good", 1): INPUTS[:2]},
    standby_partitions_by_host={HostInfo("also-good", 1): INPUTS[3:]},
)
MEMBER = MemberConfig(process_id=GOOD, endpoint="good:1", topology=FACTS.by_number)


def told(info: AssignmentInfo, partitions: tuple[TopicPartition, ...] = INPUTS[:4]) -> Assigned:
    return Assigned(generation=5, member_id="m", incarnation=0, partitions=partitions, user_data=encode_assignment(info))


def test_a_proper_assignment_is_followed() -> None:
    _, instructions = step(new_member(MEMBER), told(PROPER), NOW)
    assert [type(each) for each in instructions] == [AssignTasks]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (told(replace(PROPER, active_tasks=(TaskId(9, 0),)), INPUTS[:1]), "task 9_0, but this instance's topology has the sub-"),
        (told(replace(PROPER, active_tasks=(TaskId(0, 1),)), INPUTS[:1]), "the partition in-0 to task 0_1; expected partition 1"),
        (told(replace(PROPER, active_tasks=(TaskId(1, 0),)), INPUTS[:1]), "the partition in-0 to task 1_0; expected .* of r"),
        (told(replace(PROPER, standby_tasks={TaskId(2, 0): INPUTS[:1]})), "task 2_0, but"),
        (told(replace(PROPER, standby_tasks={TaskId(1, 1): ()})), "no partition to task 1_1"),
        (told(replace(PROPER, standby_tasks={TaskId(1, 0): INPUTS[3:4]})), "task 1_0 both as active and as standby"),
        (told(replace(PROPER, active_tasks=(TaskId(0, 0),) * 2), INPUTS[:1] * 2), "a partition more than once"),
        (told(replace(PROPER, commonly_supported_version=0)), "all members support version 0; expected 11 to 11"),
        (told(replace(PROPER, version=9, commonly_supported_version=-7)), "version -7; expected 9 to 11"),
    ],
)  # fmt: skip
def test_an_assignment_that_contradicts_itself_or_the_topology_ends_the_member(event: Assigned, reason: str) -> None:
    _, (fatal, left) = step(new_member(MEMBER), event, NOW)
    assert isinstance(fatal, ReportFatal)
    assert re.search(reason, fatal.reason), fatal.reason
    assert left == LeaveGroup()


@given(data=changed(encode_assignment(PROPER)), partitions=st.just(INPUTS[:4]) | st.lists(PARTITIONS, max_size=6).map(tuple))
def test_whatever_a_leader_sends_is_followed_within_the_topology_or_ends_the_member(
    data: bytes, partitions: tuple[TopicPartition, ...]
) -> None:
    event = Assigned(generation=5, member_id="m", incarnation=0, partitions=partitions, user_data=data)
    state, instructions = step(new_member(MEMBER), event, NOW)
    for instruction in instructions:
        if isinstance(instruction, AssignTasks):
            for task, inputs in {**instruction.active, **instruction.standby}.items():
                assert task.subtopology in FACTS.by_number
                assert {p.partition for p in inputs} == {task.partition}
    assert 1 <= state.used_version <= 11
    assert state.next_rebalance_ms > NOW
    assert state.next_rebalance_ms <= LONG_MAX

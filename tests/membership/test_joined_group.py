"""What the leader makes of the subscriptions."""

import struct

import pytest

from tidemill.errors import WireFormatError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.joined_group import FUTURE_PROCESS, Subscription, join_group
from tidemill.membership.wire import HostInfo, NamedTaskId, SubscriptionInfo, encode_subscription, host_of

P1, P2 = ProcessId(1, 1), ProcessId(-5, 2)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def said(process, *, owned=(), generation=-1, rack=None, **info):
    data = encode_subscription(SubscriptionInfo(process_id=process, **info))
    return Subscription(user_data=data, owned_partitions=tuple(owned), generation=generation, rack=rack)


def by_process(group):
    return {client.process_id: client for client in group.clients}


def test_members_of_one_process_are_one_client():
    group = join_group(
        {
            "b": said(P1, owned=[T1], task_offset_sums={TaskId(0, 1): -2}, user_endpoint="h:9"),
            "a": said(P1, owned=[T0], task_offset_sums={TaskId(0, 0): 7}, user_endpoint="h:9"),
            "c": said(P2, client_tags={"zone": "x"}),
        }
    )
    assert sorted(group.members) == ["a", "b", "c"]
    first, second = by_process(group)[P1], by_process(group)[P2]
    assert first.members == ("a", "b")
    assert first.owner_of == {T0: "a", T1: "b"}
    assert first.offset_sums == {TaskId(0, 0): 7, TaskId(0, 1): -2}
    assert first.endpoint == HostInfo("h", 9)
    assert second.tags == {"zone": "x"}
    assert second.endpoint is None
    assert group.owned_partitions == {T0, T1}


def test_the_order_in_which_members_are_handed_in_changes_nothing():
    members = {name: said(P1 if name < "m" else P2, task_offset_sums={TaskId(0, 0): ord(name)}) for name in "abxyz"}
    assert join_group(members) == join_group(dict(reversed(members.items())))


def test_the_lowest_version_and_the_lowest_supported_version_are_the_groups():
    group = join_group({"a": said(P1, version=7, latest_supported_version=9), "b": said(P2, version=8)})
    assert (group.used_version, group.supported_version, group.future_version) == (7, 9, None)


def test_members_of_a_future_version_are_a_client_of_their_own():
    future = Subscription(user_data=struct.pack(">ii", 13, 14), owned_partitions=(T0,))
    group = join_group({"a": said(P1), "f": future})
    assert (group.used_version, group.supported_version, group.future_version) == (11, 11, 13)
    assert by_process(group)[FUTURE_PROCESS].owner_of == {T0: "f"}


def test_of_two_claims_to_a_partition_the_later_generation_counts():
    group = join_group({"stale": said(P1, owned=[T0, T1], generation=4), "owner": said(P2, owned=[T0], generation=6)})
    assert by_process(group)[P1].owner_of == {T1: "stale"}
    assert by_process(group)[P2].owner_of == {T0: "owner"}
    assert group.owned_partitions == {T0, T1}
    assert any("t-0" in remark for remark in group.remarks)


def test_two_claims_of_one_generation_are_a_dispute():
    group = join_group({"a": said(P1, owned=[T0, T1], generation=4), "b": said(P2, owned=[T0], generation=4)})
    assert group.disputed_partitions == {T0}


def test_claims_of_unknown_generation_all_count_as_in_kafka():
    group = join_group({"a": said(P1, owned=[T0]), "b": said(P2, owned=[T0])})
    assert [client.owner_of.keys() for client in group.clients] == [{T0}, {T0}]
    assert group.disputed_partitions == frozenset()


def test_a_shutdown_request_of_any_member_is_seen():
    assert not join_group({"a": said(P1, error_code=1)}).is_shutdown_requested
    assert join_group({"a": said(P1), "b": said(P1, error_code=4)}).is_shutdown_requested


def test_racks_count_only_if_the_members_agree():
    agree = join_group({"a": said(P1, rack="r1"), "b": said(P1, rack="r1")})
    differ = join_group({"a": said(P1, rack="r1"), "b": said(P1, rack=None)})
    assert [group.clients[0].rack for group in (agree, differ)] == ["r1", None]


def test_tasks_of_named_topologies_are_passed_over():
    group = join_group({"a": said(P1, task_offset_sums={NamedTaskId("n", 0, 0): 3, TaskId(0, 1): 4})})
    assert group.clients[0].offset_sums == {TaskId(0, 1): 4}


def test_a_member_that_can_not_be_read_is_left_out_with_all_that_it_claims():
    broken = Subscription(user_data=b"\0\0", owned_partitions=(T0,), generation=9)
    group = join_group({"a": said(P1, owned=[T0], generation=4), "b": broken})
    assert group.clients == join_group({"a": said(P1, owned=[T0], generation=4)}).clients
    assert list(group.unreadable) == ["b"]
    assert "Member b is left out" in group.remarks[0]


def test_a_group_of_which_nobody_can_be_read_is_an_error():
    with pytest.raises(WireFormatError, match="subscription of member b: "):
        join_group({"b": Subscription(user_data=b"\0\0")})


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("host:8080", HostInfo("host", 8080)),
        ("http://host.example:1", HostInfo("host.example", 1)),
        ("[::1]:9092", HostInfo("::1", 9092)),
        ("10.0.0.1:65535", HostInfo("10.0.0.1", 65535)),
        ("host", None),
        ("host:", None),
        (":80", None),
        ("host:65536", None),
    ],
)
def test_endpoints_are_host_and_port(text, host):
    assert host_of(text) == host


def test_a_malformed_endpoint_is_left_out_and_remarked():
    group = join_group({"a": said(P1, user_endpoint="nonsense")})
    assert group.clients[0].endpoint is None
    assert "application.server" in group.remarks[0]
    assert "nonsense" in group.remarks[0]


def thread(client, number, ending):
    """A member id as the broker makes it from a thread's client id."""
    return f"{client}-StreamThread-{number}-consumer-{ending:036x}"


@pytest.mark.parametrize(
    "members",
    [
        [thread("app-1", 1, 10), thread("app-1", 1, 11)],
        [thread("here", 1, 10), thread("here", 2, 11), thread("there", 1, 12)],
    ],
    ids=["both with the default client.id", "each with a client.id of its own"],
)
def test_two_instances_of_one_process_id_are_remarked_and_go_on_as_one_client(members):
    group = join_group({**dict.fromkeys(members, said(P1)), thread("another", 1, 13): said(P2)})
    assert {client.process_id for client in group.clients} == {P1, P2}
    assert set(group.shared_process_ids[P1]) == set(members)
    assert group.shared_process_ids.keys() == {P1}
    (remark,) = group.remarks
    assert all(member in remark for member in members)
    assert "kafka-streams-process-metadata" in remark


@pytest.mark.parametrize(
    "members",
    [
        [thread("app-1", 1, 10), thread("app-1", 2, 11)],
        ["instance-1-00000000-0000-0000-0000-00000000000a", "instance-2-00000000-0000-0000-0000-00000000000b"],
    ],
    ids=["threads of one instance", "static members"],
)
def test_members_of_one_instance_are_no_cause_for_a_remark(members):
    group = join_group(dict.fromkeys(members, said(P1)))
    assert (group.remarks, group.shared_process_ids) == ((), {})

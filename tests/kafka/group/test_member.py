"""Group members on a real broker: who gets what, what others notice of it, and which commits are refused."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as DataPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kafka.group.group_application import Application, create_topic, joined, shared_out
from tests.waiting import until
from tidemill.errors import CommitRefusedError, ConfigError, RejoinError, RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.metadata import OffsetAndMetadata, group_metadata_bytes
from tidemill.kafka.group.protocol import GroupAssignment, MemberAssignment, MemberSubscription
from tidemill.membership.member_state import Assigned, MembershipLost, RevokeAllRequested

pytestmark = pytest.mark.broker

Join = Callable[..., tuple[Application, GroupMember]]


@pytest.fixture
def names(unique_name: Callable[[str], str]) -> tuple[str, str]:
    """A topic and a group of this test's own."""
    return unique_name("input"), unique_name("group")


@pytest.fixture
def join(bootstrap_servers: str, names: tuple[str, str]) -> Iterator[Join]:
    """``join("a")`` starts member a of the test's group on the test's topic; all are closed at the end."""
    applications: list[Application] = []

    def start(name: str, *, application: Application | None = None, **options: Any) -> tuple[Application, GroupMember]:
        topic, group = names
        application = application or Application(topics=[topic])
        applications.append(application)
        return application, joined(bootstrap_servers, application, group, name, **options)

    yield start
    for application in applications:
        application.closed = True
        if application.member is not None:
            application.member.close()


@pytest.fixture
def partitions(bootstrap_servers: str, names: tuple[str, str]) -> list[TopicPartition]:
    return create_topic(bootstrap_servers, names[0], 4)


def _settled(*applications: Application, owning: int) -> bool:
    """All partitions are owned, by one each, and every member knows the same generation."""

    def is_settled() -> bool:
        everything = [p for application in applications for p in application.owned]
        snapshots = [application.member.membership for application in applications if application.member]
        generations = {snapshot.generation for snapshot in snapshots}
        return (
            len(everything) == len(set(everything)) == owning
            and all(application.owned for application in applications)
            and len(generations) == 1
            and all(snapshot.is_stable for snapshot in snapshots)
            and all(a.assigned and {a.assigned[-1].generation} == generations for a in applications)  # the events say so, too
        )

    return until(is_settled)


def test_a_member_alone_gets_everything_and_its_user_data(join: Join, partitions: list[TopicPartition]) -> None:
    application, member = join("a")
    assert _settled(application, owning=4)
    [event] = application.events
    membership = member.membership
    assert event == Assigned(
        generation=membership.generation,
        member_id=membership.member_id,
        incarnation=0,
        partitions=tuple(partitions),
        user_data=b"for " + membership.member_id.encode(),
    )
    assert membership.is_stable


@pytest.mark.usefixtures("partitions")
def test_two_members_share_and_a_partition_is_never_owned_twice(join: Join) -> None:
    a, _ = join("a")
    assert _settled(a, owning=4)
    owned_twice: list[frozenset[TopicPartition]] = []
    watching = threading.Event()
    b = Application(topics=a.topics)

    def watch() -> None:
        while not watching.is_set():
            both = a.owned & b.owned
            if both:
                owned_twice.append(both)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        join("b", application=b)
        assert _settled(a, b, owning=4)
    finally:
        watching.set()
        watcher.join()
    assert owned_twice == []
    assert until(lambda: [len(event.partitions) for event in a.assigned] == [4, 2, 2])
    # b never reads the first, empty one if a has joined again, without the two, before b's SyncGroup has arrived.
    assert until(lambda: [len(event.partitions) for event in b.assigned] in ([0, 2], [2]))
    assert a.of_kind(MembershipLost) == []


def test_a_join_tells_owned_partitions_and_the_generation_that_gave_them(
    join: Join, partitions: list[TopicPartition]
) -> None:
    a, member = join("a", rack="r1")
    assert _settled(a, owning=4)
    generation = member.membership.generation
    member.request_rejoin("test")
    assert until(lambda: len(a.seen_subscriptions) >= 2)
    assert a.seen_subscriptions[1] == {
        member.membership.member_id: MemberSubscription(
            member_id=member.membership.member_id,
            topics=tuple(a.topics),
            user_data=b"said by the test",
            owned_partitions=tuple(partitions),
            generation=generation,
            rack="r1",
        )
    }


def test_what_was_assigned_is_claimed_even_if_the_application_has_not_read_of_it(
    join: Join, partitions: list[TopicPartition]
) -> None:
    a = Application(topics=[partitions[0].topic])
    a.reads_events.clear()
    _, member = join("a", application=a)
    a.reads_events.clear()
    assert until(lambda: member.membership.is_stable)
    asked = len(a.seen_subscriptions)
    a.owned = frozenset()
    member.request_rejoin("test")
    assert until(lambda: len(a.seen_subscriptions) > asked)
    [subscription] = a.seen_subscriptions[-1].values()
    assert subscription.owned_partitions == tuple(partitions)


def test_an_assignor_that_takes_longer_than_the_session_evicts_nobody(
    join: Join, partitions: list[TopicPartition], caplog: pytest.LogCaptureFixture
) -> None:
    def slow(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        time.sleep(15 if len(members) == 2 and not any(m.generation > 1 for m in members.values()) else 0)
        return shared_out(counts, members)

    options = {"session_timeout_ms": 12_000, "heartbeat_interval_ms": 200}
    a, first = join("a", application=Application(topics=[partitions[0].topic], assignor=slow), **options)
    assert _settled(a, owning=4)
    caplog.clear()
    b, second = join("b", application=Application(topics=a.topics, assignor=slow), **options)
    assert _settled(a, b, owning=4)
    assert a.of_kind(MembershipLost) == b.of_kind(MembershipLost) == []
    assert first.membership.incarnation == second.membership.incarnation == 0
    assert first.membership.generation == 3  # the hand-over and nothing else
    assert [record for record in caplog.records if record.name.startswith("tidemill")] == []  # no attempt failed


@pytest.mark.usefixtures("partitions")
def test_a_join_that_ends_while_nobody_looks_is_kept_and_not_repeated(join: Join) -> None:
    a, first = join("a")
    assert _settled(a, owning=4)
    a.reads_events.clear()
    time.sleep(0.1)
    first.request_rejoin("test")
    assert until(lambda: first.membership.generation == 2 and first.membership.is_stable)
    time.sleep(1.5)  # long enough for many a heartbeat, and for a storm
    assert first.membership.generation == 2
    a.reads_events.set()
    assert until(lambda: [event.generation for event in a.assigned] == [1, 2])


def test_a_rejoin_asked_for_during_a_join_is_not_lost(join: Join, partitions: list[TopicPartition]) -> None:
    asked = threading.Event()

    def asks_again(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        if not asked.is_set():
            asked.set()
            assert a.member is not None
            a.member.request_rejoin("in the middle of the first join")
        return shared_out(counts, members)

    a = Application(topics=[partitions[0].topic], assignor=asks_again)
    _, member = join("a", application=a)
    assert until(lambda: [event.generation for event in a.assigned] == [1, 2])
    time.sleep(0.5)
    assert member.membership.generation == 2


@pytest.mark.usefixtures("partitions")
def test_a_static_member_comes_back_without_a_rebalance(join: Join) -> None:
    a, _ = join("a", instance_id="one")
    assert _settled(a, owning=4)
    b, second = join("b", instance_id="two")
    assert _settled(a, b, owning=4)
    assert b.seen_subscriptions == []  # so a leads
    generation, before, had = second.membership.generation, len(b.events), a.owned
    leader_is_back = Application(topics=a.topics)
    assert a.member is not None
    a.member.close()
    _, returned = join("a", application=leader_is_back, instance_id="one")
    assert until(lambda: leader_is_back.owned == had)
    time.sleep(1)
    assert returned.membership.generation == second.membership.generation == generation
    assert len(b.events) == before
    assert leader_is_back.seen_subscriptions == []


def test_the_older_of_two_members_with_one_instance_id_stops(join: Join, partitions: list[TopicPartition]) -> None:
    a, first = join("a", instance_id="one")
    assert _settled(a, owning=4)
    was = first.membership
    b, _ = join("b", instance_id="one")
    assert until(lambda: bool(a.failed))
    assert _settled(b, owning=4)
    [failure] = a.failed
    assert failure.fatal
    assert isinstance(failure.error, StopError)
    assert "group.instance.id='one'" in str(failure.error)
    assert a.of_kind(MembershipLost)
    assert first.membership.incarnation == was.incarnation + 1
    with pytest.raises(CommitRefusedError):
        first.commit({partitions[0]: OffsetAndMetadata(1)}, was)


def test_a_commit_of_a_stale_generation_is_refused(join: Join, partitions: list[TopicPartition]) -> None:
    a, member = join("a")
    assert _settled(a, owning=4)
    stale = member.membership
    member.commit({partitions[0]: OffsetAndMetadata(7, "seven")}, stale)
    member.request_rejoin("test")
    assert until(lambda: member.membership.generation == 2 and member.membership.is_stable)
    with pytest.raises(CommitRefusedError, match="IllegalGeneration"):
        member.commit({partitions[0]: OffsetAndMetadata(8)}, stale)
    assert member.committed(partitions) == {partitions[0]: OffsetAndMetadata(7, "seven")}
    member.commit({partitions[0]: OffsetAndMetadata(9)})
    assert member.committed(partitions) == {partitions[0]: OffsetAndMetadata(9)}
    assert member.membership.incarnation == 0  # a stale commit is no reason to give up a good membership


def test_a_commit_works_while_the_broker_holds_the_members_join(join: Join, partitions: list[TopicPartition]) -> None:
    a, first = join("a")
    b, second = join("b")
    assert _settled(a, b, owning=4)
    b.may_join.clear()
    first.request_rejoin("test")  # is held until b joins too
    assert until(lambda: not first.membership.is_stable)
    first.commit({partitions[0]: OffsetAndMetadata(3)}, timeout_ms=240_000)
    assert not first.membership.is_stable
    assert second.membership.is_stable
    assert first.committed([partitions[0]]) == {partitions[0]: OffsetAndMetadata(3)}
    b.may_join.set()


@pytest.mark.usefixtures("partitions")
def test_a_hand_over_does_not_wait_for_the_heartbeat_interval(join: Join) -> None:
    """Members that have just been assigned something ask sooner: giving up and getting are two rebalances."""
    slow = {"session_timeout_ms": 1_500_000, "heartbeat_interval_ms": 600_000}
    a, _ = join("a", **slow)
    assert _settled(a, owning=4)
    b, _ = join("b", **slow)
    assert _settled(a, b, owning=4)
    assert a.of_kind(MembershipLost) == b.of_kind(MembershipLost) == []


@pytest.mark.usefixtures("partitions")
def test_a_member_knows_since_when_the_group_has_not_confirmed_it(join: Join) -> None:
    a, member = join("a")
    began_s = time.monotonic()
    assert _settled(a, owning=4)
    assert until(lambda: member.confirmed_s > began_s)
    confirmed_s = member.confirmed_s
    assert until(lambda: member.confirmed_s > confirmed_s)
    assert member.confirmed_s <= time.monotonic()


@pytest.mark.usefixtures("partitions")
def test_a_member_is_confirmed_from_its_assignment_on_until_it_was_silent_for_its_session(join: Join) -> None:
    a, member = join("a", session_timeout_ms=30_000, heartbeat_interval_ms=9_000)
    assert _settled(a, owning=4)
    assert 0 < member.confirmed_for_s <= 30, "no heartbeat has been sent yet"
    member.confirmed_s = time.monotonic() - 30  # as when the process was frozen for so long
    assert member.confirmed_for_s == 0
    assert until(lambda: member.confirmed_for_s)


def test_a_commit_between_join_and_sync_asks_to_wait(join: Join, partitions: list[TopicPartition]) -> None:
    release = threading.Event()

    def held(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        release.wait(240)
        return shared_out(counts, members)

    a, member = join("a", application=Application(topics=[partitions[0].topic], assignor=held))
    assert until(lambda: bool(a.seen_subscriptions))
    with pytest.raises(RejoinError):
        member.commit({partitions[0]: OffsetAndMetadata(3)})
    release.set()
    assert _settled(a, owning=4)
    member.commit({partitions[0]: OffsetAndMetadata(3)})
    assert member.membership.generation == 1


def test_committed_waits_for_an_open_transaction(
    join: Join, partitions: list[TopicPartition], bootstrap_servers: str, names: tuple[str, str]
) -> None:
    a, member = join("a")
    assert _settled(a, owning=4)
    one = partitions[1]
    member.commit({one: OffsetAndMetadata(5)})
    who = member.membership
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": names[1]})
    producer.init_transactions(240)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [DataPartition(one.topic, one.partition, 6)],
        group_metadata_bytes(names[1], who.generation, who.member_id),
        240,
    )
    assert member.committed([one], require_stable=False) == {one: OffsetAndMetadata(5)}
    for limit_ms in (300, 3_000, 30_000):  # on a busy machine the first may be too short for the broker's answer
        with pytest.raises(RetriableError) as told:
            member.committed([one], timeout_ms=limit_ms)
        if "still open" in str(told.value):
            break
    assert "still open" in str(told.value)
    timer = threading.Timer(0.5, producer.commit_transaction, [240])
    timer.start()
    assert member.committed([one])[one].offset == 6, "not 5, which is what was committed before"
    timer.join()


@pytest.mark.parametrize("metadata_max_age_ms", [300, 3_600_000], ids="asked for after {} ms".format)
def test_more_partitions_of_a_subscribed_topic_lead_to_a_rebalance_soon(
    join: Join, partitions: list[TopicPartition], bootstrap_servers: str, metadata_max_age_ms: int
) -> None:
    a, _ = join("a", client_settings={"metadata_max_age_ms": metadata_max_age_ms})
    assert _settled(a, owning=4)
    topic = partitions[0].topic
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(240)
    assert until(lambda: len(a.owned) == 6)


def test_a_topic_that_appears_leads_to_a_rebalance(join: Join, bootstrap_servers: str, names: tuple[str, str]) -> None:
    a, _ = join("a")
    assert until(lambda: [event.partitions for event in a.assigned] == [()])
    created = create_topic(bootstrap_servers, names[0], 2)
    assert until(lambda: a.owned == set(created))


def test_a_topic_created_by_the_assignor_leads_to_no_further_rebalance(
    join: Join, bootstrap_servers: str, names: tuple[str, str]
) -> None:
    def creates(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        if not counts:
            counts = {names[0]: len(create_topic(bootstrap_servers, names[0], 2))}
        return shared_out(counts, members)

    application = Application(topics=[names[0]], assignor=creates)
    a, member = join("a", application=application, client_settings={"metadata_max_age_ms": 200})
    assert until(lambda: len(a.owned) == 2)
    time.sleep(2.5)
    assert member.membership.generation == 1


@pytest.mark.usefixtures("partitions")
def test_a_stream_thread_that_stops_polling_leaves_and_comes_back(join: Join, caplog: pytest.LogCaptureFixture) -> None:
    a, member = join("a", max_poll_interval_ms=12_000)
    assert _settled(a, owning=4)
    a.reads_events.clear()  # and with it its signs of life
    assert until(lambda: not member.membership.is_member)
    assert member.membership.incarnation == 1
    assert until(lambda: "event=left-behind" in caplog.text)  # said right after
    [said] = [line for line in caplog.messages if "event=left-behind" in line]
    assert "has not polled for max.poll.interval.ms (12000)" in said
    assert "raise it, or have them take less" in said
    time.sleep(0.6)
    assert not member.membership.is_member
    a.reads_events.set()
    assert until(lambda: [type(event) for event in a.events] == [Assigned, MembershipLost, Assigned])
    assert a.assigned[-1].incarnation == 1
    assert [next(iter(m.values())).owned_partitions for m in a.seen_subscriptions] == [(), ()]


@pytest.mark.usefixtures("partitions")
def test_an_eager_member_gives_everything_up_before_it_joins(join: Join) -> None:
    a, _ = join("a", eager=True)
    assert _settled(a, owning=4)
    b, _ = join("b", eager=True)
    assert _settled(a, b, owning=4)
    assert [type(event) for event in a.events] == [Assigned, RevokeAllRequested, Assigned]
    assert all(not said.owned_partitions for seen in a.seen_subscriptions for said in seen.values())


@pytest.mark.usefixtures("partitions")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_another_kind_of_member_in_the_group_is_a_configuration_error(
    join: Join, bootstrap_servers: str, names: tuple[str, str], protocol: str
) -> None:
    foreigner = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": names[1], "group.protocol": protocol})
    foreigner.subscribe([names[0]])
    try:
        assert until(lambda: foreigner.poll(0.05) is None and bool(foreigner.assignment()))
        a, member = join("a")
        assert until(lambda: bool(a.failed))
    finally:
        foreigner.close()
    [failure] = a.failed
    assert failure.fatal
    assert isinstance(failure.error, ConfigError)
    assert "another application.id" in str(failure.error)
    assert not member.membership.is_member


def test_an_assignor_may_ask_to_be_called_again(join: Join, partitions: list[TopicPartition]) -> None:
    calls: list[int] = []

    def third_time(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        calls.append(1)
        if len(calls) < 3:
            raise RetriableError("end offsets are not known yet")
        return shared_out(counts, members)

    a, _ = join("a", application=Application(topics=[partitions[0].topic], assignor=third_time))
    assert _settled(a, owning=4)
    assert len(calls) == 3
    assert a.failed == []


def test_a_leader_whose_assignor_fails_makes_room_for_another(join: Join, partitions: list[TopicPartition]) -> None:
    def broken(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        raise StopError(f"{len(counts)} topic can't be assigned to {len(members)} member")

    a, _ = join("a", application=Application(topics=[partitions[0].topic], assignor=broken), session_timeout_ms=600_000)
    assert until(lambda: bool(a.failed))
    assert str(a.failed[0].error) == "1 topic can't be assigned to 1 member"
    assert a.failed[0].fatal
    b, _ = join("b")
    assert _settled(b, owning=4)  # it left: nobody waited for its session to time out


def test_a_member_that_is_closed_during_a_join_has_not_failed(
    join: Join, partitions: list[TopicPartition], caplog: pytest.LogCaptureFixture
) -> None:
    assigns, closed = threading.Event(), threading.Event()

    def overtaken(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        assigns.set()
        assert closed.wait(60)
        raise RetriableError(f"{len(counts)} topic is not assigned to {len(members)} member that is gone")

    a, member = join("a", application=Application(topics=[partitions[0].topic], assignor=overtaken))
    assert assigns.wait(60)
    caplog.clear()  # the first group of a new broker waits for its coordinator
    a.closed = True
    closing = threading.Thread(target=member.close)
    closing.start()
    assert until(lambda: not member.membership.member_id)
    closed.set()
    closing.join(60)
    assert not closing.is_alive()
    assert "join-failed" not in caplog.text


def test_an_assignment_that_hands_over_too_early_is_not_sent(join: Join, partitions: list[TopicPartition]) -> None:
    def to_the_newest(counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> GroupAssignment:
        newest = min(members, key=lambda member: members[member].generation)
        given = {m: MemberAssignment(partitions=tuple(partitions) if m == newest else ()) for m in members}
        return GroupAssignment(members=given, partition_counts=counts)

    a, _ = join("a", application=Application(topics=[partitions[0].topic], assignor=to_the_newest))
    assert until(lambda: len(a.owned) == 4)
    b, _ = join("b", application=Application(topics=[partitions[0].topic], assignor=to_the_newest))
    assert until(lambda: bool(a.failed))
    assert "still claim them" in str(a.failed[0].error)
    assert until(lambda: len(b.owned) == 4)
    assert a.owned == frozenset()


@pytest.mark.usefixtures("partitions")
def test_a_closed_member_leaves_no_thread_or_socket(join: Join) -> None:
    process = psutil.Process(os.getpid())
    a, warm_up = join("warm-up")
    assert _settled(a, owning=4)
    assert until(lambda: warm_up.confirmed_s > 0)  # heartbeats have a connection of their own
    threads, files = set(threading.enumerate()), process.num_fds()
    b, member = join("b", session_timeout_ms=600_000)
    assert _settled(a, b, owning=4)
    b.closed = True
    member.close()
    assert _settled(a, owning=4)  # it left: nobody waited for its session to time out
    assert until(lambda: set(threading.enumerate()) <= threads)
    assert until(lambda: process.num_fds() <= files)

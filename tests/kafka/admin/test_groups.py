"""The members of a group as its coordinator describes them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.freezing import freeze, thaw
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import EnvironmentProblem, RetriableError, StopError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin import groups
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.admin.groups import describe_group, live_group, member_hosts, set_committed_offsets
from tidemill.kafka.group.client import GroupClient


@pytest.fixture
def freezing(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker that stops once it is known as the group's coordinator, before it describes the group."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        answer: Callable[..., Any] = groups._answer

        def asked(client: GroupClient, group: str) -> Any:
            client.coordinator()
            freeze(broker.pid)
            return answer(client, group)

        monkeypatch.setattr(groups, "_answer", asked)
        yield broker
        thaw(broker.pid)


def test_a_coordinator_that_stops_answering_is_waited_for_within_the_limit(freezing: EmbeddedBroker) -> None:
    settings = {"bootstrap_servers": freezing.bootstrap_servers, "request_timeout_ms": 90_000}
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"'words' was not found stable within 3 s \(no broker has answered"):
        live_group(settings, "words", limit_s=3)
    assert time.monotonic() - began < 60


def test_hosts_of_members_are_asked_for_within_the_limit(freezing: EmbeddedBroker) -> None:
    settings = {"bootstrap_servers": freezing.bootstrap_servers, "request_timeout_ms": 90_000}
    with pytest.raises(RetriableError, match=r"describing group words: not done after 3 s"):
        member_hosts(settings, "words", limit_s=3)


def test_members_have_the_hosts_that_their_coordinator_sees(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    group = unique_name("hosts")
    settings = {"bootstrap_servers": bootstrap_servers}
    assert member_hosts(settings, group, limit_s=60) == {}
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=group, partitions=1)])
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.subscribe([group])

    def is_seen() -> bool:
        consumer.poll(0.1)
        return member_hosts(settings, group, limit_s=60) == {consumer.memberid(): "/127.0.0.1"}

    assert until(is_seen)
    consumer.close()


def test_a_group_is_described_with_its_members_and_what_they_own(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    name, settings = unique_name("described"), {"bootstrap_servers": bootstrap_servers}
    assert describe_group(settings, name, limit_s=60) is None
    Admin({"bootstrap.servers": bootstrap_servers}).create_topics([TopicSpec(name=name, partitions=2)])
    own = {"group.id": name, "client.id": "me\x1b[2J", "group.instance.id": "i-1"}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, **own})
    consumer.subscribe([name])

    def has_both() -> bool:
        consumer.poll(0.2)
        return len(consumer.assignment()) == 2

    assert until(has_both)
    group = describe_group(settings, name, limit_s=60)
    assert group is not None
    assert (group.group, group.state, group.protocol) == (name, "Stable", "range")
    (member,) = group.members
    assert (member.client_id, member.instance_id, member.host) == ("me\\x1b[2J", "i-1", "/127.0.0.1")
    assert member.assignment == (TopicPartition(name, 0), TopicPartition(name, 1))
    assert member.member_id == consumer.memberid()
    with pytest.raises(StopError, match=f"setting the offsets of group {name}: it has active members, expected none"):
        set_committed_offsets(settings, name, {TopicPartition(name, 0): 1}, limit_s=60)
    consumer.close()


def test_offsets_of_a_group_without_members_are_set(bootstrap_servers: str, unique_name: Callable[[str], str]) -> None:
    name, settings = unique_name("set"), {"bootstrap_servers": bootstrap_servers}
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([TopicSpec(name=name, partitions=2)])
    offsets = {TopicPartition(name, 0): 3, TopicPartition(name, 1): 0}
    set_committed_offsets(settings, name, offsets, limit_s=60)
    set_committed_offsets(settings, name, {}, limit_s=60)
    assert admin.committed_offsets(name) == offsets
    found = describe_group(settings, name, limit_s=60)
    assert found is not None
    assert (found.state, found.members) == ("Empty", ())
    with pytest.raises(RetriableError, match=rf"setting the offsets of group {name}: not done after 1 s: .*nowhere"):
        set_committed_offsets(settings, name, {TopicPartition("nowhere", 0): 3}, limit_s=1)


@pytest.mark.parametrize(
    ("call", "doing"),
    [
        (lambda settings: describe_group(settings, "words", limit_s=3), "describing group words"),
        (lambda settings: member_hosts(settings, "words", limit_s=3), "describing group words"),
        (
            lambda settings: set_committed_offsets(settings, "words", {TopicPartition("t", 0): 1}, limit_s=3),
            "setting the offsets of group words",
        ),
    ],
    ids=["describe", "hosts", "set"],
)
def test_a_coordinator_that_is_killed_within_a_call_ends_no_process(
    private_broker: Callable[..., EmbeddedBroker],
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[dict[str, object]], object],
    doing: str,
) -> None:
    """As librdkafka's admin client would (its issue 4605)."""
    broker = private_broker()
    request = GroupClient.request

    def killed(client: GroupClient, *message: Any, **options: Any) -> Any:
        client.coordinator()
        broker.kill()
        return request(client, *message, **options)

    monkeypatch.setattr(GroupClient, "request", killed)
    with pytest.raises(RetriableError, match=rf"{doing}: not done after 3 s: no broker has answered"):
        call({"bootstrap_servers": broker.bootstrap_servers})

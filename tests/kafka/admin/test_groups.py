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
from tidemill.errors import EnvironmentProblem, RetriableError
from tidemill.kafka.admin import groups
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.kafka.admin.groups import live_group, member_hosts


@pytest.fixture
def freezing(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker that stops once it is known as the group's coordinator, before it describes the group."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=240) as broker:
        answer: Callable[..., Any] = groups._answer

        def asked(client: groups.GroupClient, group: str) -> Any:
            client.coordinator()
            freeze(broker.pid)
            return answer(client, group)

        monkeypatch.setattr(groups, "_answer", asked)
        yield broker
        thaw(broker.pid)


def test_a_coordinator_that_stops_answering_is_waited_for_within_the_limit(freezing: EmbeddedBroker) -> None:
    settings = {"bootstrap_servers": freezing.bootstrap_servers, "request_timeout_ms": 90_000}
    began = time.monotonic()
    with pytest.raises(EnvironmentProblem, match=r"'words' was not found stable within 3 s \(no broker describes it"):
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


def test_a_coordinator_that_is_killed_while_it_describes_a_group_ends_no_process(
    private_broker: Callable[..., EmbeddedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As librdkafka's admin client would (its issue 4605)."""
    broker = private_broker()
    answer: Callable[..., Any] = groups._answer

    def asked(client: groups.GroupClient, group: str) -> Any:
        client.coordinator()
        broker.kill()
        return answer(client, group)

    monkeypatch.setattr(groups, "_answer", asked)
    with pytest.raises(RetriableError, match=r"describing group words: not done after 3 s"):
        member_hosts({"bootstrap_servers": broker.bootstrap_servers}, "words", limit_s=3)

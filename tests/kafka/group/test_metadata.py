"""The bytes that identify a member to librdkafka are those that its own consumer returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from tests.kafka.group.group_application import create_topic
from tests.waiting import until
from tidemill.kafka.group.metadata import Membership, group_metadata_bytes


def _of_a_consumer(consumer: Consumer) -> bytes:
    metadata = consumer.consumer_group_metadata()
    assert isinstance(metadata, bytes)
    return metadata


@pytest.mark.parametrize("instance", [None, "instance-1"])
def test_before_joining_the_bytes_equal_a_consumers(instance: str | None) -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "größe", "log_level": 0}
    consumer = Consumer(settings | ({} if instance is None else {"group.instance.id": instance}))
    try:
        nobody = Membership()
        assert group_metadata_bytes("größe", nobody.generation, nobody.member_id, instance) == _of_a_consumer(consumer)
    finally:
        consumer.close()


@pytest.mark.broker
@pytest.mark.parametrize("instance", [None, "instance-1"])
def test_after_joining_the_bytes_equal_a_consumers(
    bootstrap_servers: str, unique_name: Callable[[str], str], instance: str | None
) -> None:
    topic, group = unique_name("input"), unique_name("group")
    create_topic(bootstrap_servers, topic, 1)
    settings = {"bootstrap.servers": bootstrap_servers, "group.id": group}
    consumer = Consumer(settings | ({} if instance is None else {"group.instance.id": instance}))
    try:
        consumer.subscribe([topic])
        assert until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))
        ours = group_metadata_bytes(group, 1, consumer.memberid(), instance)
        assert ours == _of_a_consumer(consumer)
    finally:
        consumer.close()


def test_a_zero_character_in_an_id_is_refused() -> None:
    with pytest.raises(ValueError, match="zero character"):
        group_metadata_bytes("g\0", 1, "m")


def test_only_a_member_with_id_and_generation_is_a_member() -> None:
    assert Membership(generation=1, member_id="m").is_member
    assert not Membership(generation=1).is_member
    assert not Membership(member_id="m").is_member

"""What a micro-batch reads for standbys: a share of its own, never instead of inputs, and nothing beyond a limit; nor has
restoring."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.data.reader import ThreadReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

RECORDS = 1_000


@pytest.fixture
def topics(bootstrap_servers: str, unique_name: Callable[[str], str]) -> tuple[TopicPartition, TopicPartition]:
    """A changelog and an input of as many records each."""
    names = [unique_name("changelog"), unique_name("input")]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(240)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for number in range(RECORDS):
        for name in names:
            producer.produce(name, b"v", str(number).encode())
    assert producer.flush(240) == 0
    return TopicPartition(names[0], 0), TopicPartition(names[1], 0)


def batch(reader: ThreadReader, request: BatchRequest) -> tuple[list[Any], list[Any]]:
    """(for standbys and restoring, of inputs)."""
    reader.place(request)
    found: tuple[list[Any], list[Any]] = ([], [])
    for restoring, messages in reader.read(request):
        found[0 if restoring else 1].extend(messages)
    return found


def until_read(reader: ThreadReader, ask: Callable[[], BatchRequest], enough: Callable[[list[Any]], bool]) -> list[Any]:
    followed: list[Any] = []
    deadline = time.monotonic() + 120
    while not enough(followed):
        assert time.monotonic() < deadline, len(followed)
        followed += batch(reader, ask())[0]
    return followed


def test_each_batch_follows_its_share_and_the_next_goes_on_there(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition]
) -> None:
    log, _ = topics
    at = {log: 0}
    followed: list[int] = []
    deadline = time.monotonic() + 120
    while len(followed) < RECORDS and time.monotonic() < deadline:
        found, _ = batch(reader, BatchRequest(batch_id=1, inputs={}, standbys=dict(at), max_standby_records=150, wait_ms=50))
        assert len(found) <= 150
        followed += [message.offset() for message in found]
        at.update(reader.ends()[1])
    assert followed == list(range(RECORDS))
    assert at == {log: RECORDS}


def test_a_full_share_of_standbys_takes_nothing_from_the_inputs(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition]
) -> None:
    log, source = topics
    at = {log: 0, source: 0}
    most: dict[str, Any] = {"max_records": 20, "max_standby_records": 10}
    shares: set[tuple[int, int]] = set()
    deadline = time.monotonic() + 120
    while (10, 20) not in shares and time.monotonic() < deadline:
        at = {tp: 0 if offset == RECORDS else offset for tp, offset in at.items()}  # one may be through before the other comes
        asked = BatchRequest(batch_id=1, inputs={source: at[source]}, standbys={log: at[log]}, wait_ms=5_000, **most)
        found, inputs = batch(reader, asked)
        shares.add((len(found), len(inputs)))
        at.update({**reader.ends()[0], **reader.ends()[1]})
    assert max(followed for followed, _ in shares) <= 10
    assert (10, 20) in shares, shares


def test_a_trickle_for_standbys_ends_the_wait_for_inputs_a_moment_later_not_at_once(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition]
) -> None:
    log, source = topics
    asked = BatchRequest(batch_id=1, inputs={source: RECORDS}, standbys={log: 0}, wait_ms=400)
    until_read(reader, lambda: asked, lambda found: len(found) > 0)
    began = time.monotonic()
    found, inputs = batch(reader, BatchRequest(batch_id=2, inputs={source: RECORDS}, standbys={log: RECORDS - 5}, wait_ms=60_000))
    assert (len(found), inputs) == (5, [])
    assert 0.1 <= time.monotonic() - began < 60


@pytest.mark.parametrize("role", ["standbys", "changelogs"])
def test_nothing_at_or_behind_the_limit_is_taken_until_the_limit_moves(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition], role: str
) -> None:
    log, _ = topics
    at, followed = 0, []
    for limit in (100, 400):
        deadline = time.monotonic() + 120
        while at < limit and time.monotonic() < deadline:
            held: Any = {role: {log: at}}
            found, _ = batch(reader, BatchRequest(batch_id=1, inputs={}, limits={log: limit}, wait_ms=50, **held))
            followed += [message.offset() for message in found]
            at = reader.ends()[1][log]
        assert (at, followed) == (limit, list(range(limit)))


def test_a_batch_ends_when_it_has_as_many_bytes_as_it_may(
    reader: ThreadReader, bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    name, size, count = unique_name("large"), 900_000, 60
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(240)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for _ in range(count):
        producer.produce(name, b"v" * size)
    assert producer.flush(240) == 0
    at, most = TopicPartition(name, 0), 0
    deadline = time.monotonic() + 120
    position = 0
    while position < count:
        assert time.monotonic() < deadline, position
        _, found = batch(reader, BatchRequest(batch_id=1, inputs={at: position}, max_bytes=2_000_000))
        most = max(most, len(found))
        position = reader.ends()[0][at]
    assert 3 <= most < count, "what is fetched already is the most that is taken beyond it"

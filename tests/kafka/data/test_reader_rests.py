"""How long a micro-batch leaves source topics and repartition topics alone, and what ends its wait for records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill.ids import TopicPartition
from tidemill.kafka.data.reader import ThreadReader
from tidemill.task.batch import BatchRequest

pytestmark = pytest.mark.broker

RECORDS = 10
LONG_MS = 60_000


@pytest.fixture
def hurried() -> threading.Event:
    return threading.Event()


@pytest.fixture
def reader(bootstrap_servers: str, hurried: threading.Event) -> Iterator[ThreadReader]:
    made = ThreadReader(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reads without a group", "log_level": 0}, hurried
    )
    yield made
    made.close()


@pytest.fixture
def topics(bootstrap_servers: str, unique_name: Callable[[str], str]) -> tuple[TopicPartition, TopicPartition]:
    """A source and a repartition topic."""
    names = [unique_name("source"), unique_name("repartition")]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(240)
    return TopicPartition(names[0], 0), TopicPartition(names[1], 0)


def send(bootstrap_servers: str, *partitions: TopicPartition) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for tp in partitions:
        for number in range(RECORDS):
            producer.produce(tp.topic, b"v", str(number).encode())
    assert producer.flush(240) == 0


def batch(reader: ThreadReader, at: dict[TopicPartition, int], internal: TopicPartition, **rests: int) -> dict[str, int]:
    """Records by topic; ``at`` goes on to where reading stands."""
    request = BatchRequest(batch_id=1, inputs=dict(at), internal=frozenset({internal.topic}), wait_ms=LONG_MS, **rests)
    reader.place(request)
    found: dict[str, int] = {}
    for _, messages in reader.read(request):
        for message in messages:
            found[message.topic()] = found.get(message.topic(), 0) + 1
    at.update(reader.ends()[0])
    return found


def test_repartition_topics_are_read_while_source_topics_rest(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition], bootstrap_servers: str
) -> None:
    source, internal = topics
    send(bootstrap_servers, source, internal)
    at = {source: 0, internal: 0}
    assert batch(reader, at, internal, sources_rest_ms=LONG_MS) == {internal.topic: RECORDS}
    assert not reader.has_read_sources
    assert at == {source: 0, internal: RECORDS}
    assert batch(reader, at, internal) == {source.topic: RECORDS}
    assert reader.has_read_sources


def test_source_topics_are_read_when_they_have_rested(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition], bootstrap_servers: str
) -> None:
    source, internal = topics
    send(bootstrap_servers, source, internal)
    at = {source: 0, internal: 0}
    assert batch(reader, at, internal, sources_rest_ms=50, internal_rest_ms=LONG_MS) == {source.topic: RECORDS}
    assert reader.has_read_sources


def test_whoever_hurries_a_batch_ends_its_rest_with_what_is_there(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition], bootstrap_servers: str, hurried: threading.Event
) -> None:
    source, internal = topics
    send(bootstrap_servers, source)
    at = {source: 0, internal: 0}
    batch(reader, at, internal)
    send(bootstrap_servers, source)
    for _ in range(20):  # what is sent may not be there yet, or not all of it, when the first wait is ended
        ends = threading.Timer(1.0, hurried.set)
        ends.start()
        batch(reader, at, internal, sources_rest_ms=LONG_MS, internal_rest_ms=LONG_MS)
        ends.join()
        assert not hurried.is_set()
        if at[source] == 2 * RECORDS:
            break
    assert at == {source: 2 * RECORDS, internal: 0}


def test_whoever_hurries_a_batch_ends_its_wait_though_nothing_is_there(
    reader: ThreadReader, topics: tuple[TopicPartition, TopicPartition], hurried: threading.Event
) -> None:
    source, internal = topics
    hurried.set()
    assert batch(reader, {source: 0, internal: 0}, internal) == {}
    assert reader.has_read_sources

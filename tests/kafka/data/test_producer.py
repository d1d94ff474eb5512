"""Producers of the last step on a real broker: what is visible, what is known after an error, and who fences whom."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as DataPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.freezing import freeze, thaw
from tests.kafka.data.holding_proxy import END_TXN, HoldingProxy
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import (
    BatchLostError,
    CommitRefusedError,
    ConfigError,
    FencedError,
    RecordRefusedError,
    RecordTooLargeError,
    RetriableError,
    StopError,
)
from tidemill.ids import TopicPartition
from tidemill.kafka.data import record_producer
from tidemill.kafka.data.producer import CommitOutcome, FlushingProducer, TransactionalProducer, fence
from tidemill.kafka.group.metadata import OffsetAndMetadata, group_metadata_bytes
from tidemill.kafka.security.connection_notes import tells_of_a_lost_request
from tidemill.task.raw_records import RecordColumns

NO_GROUP_MEMBER = -1, ""
"""How a producer commits offsets for a group that has no members."""
FAR_AHEAD = 10_000_000_000_000
"""The year 2286."""
LARGE = random.Random(1).randbytes(50_000)
"""Stays large when compressed, which is what the broker looks at."""


@pytest.fixture
def topic(bootstrap_servers: str, unique_name: Callable[[str], str]) -> str:
    return _create(bootstrap_servers, unique_name("output"))


def _create(bootstrap_servers: str, name: str) -> str:
    """Four partitions; LARGE and FAR_AHEAD are refused by the broker, though not by the client."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    config = {"max.message.bytes": "20000", "message.timestamp.after.max.ms": "3600000"}
    admin.create_topics([NewTopic(name, 4, 1, config=config)])[name].result(240)
    return name


@pytest.fixture
def source(bootstrap_servers: str, unique_name: Callable[[str], str]) -> TopicPartition:
    """Of a group whose coordinator is known: librdkafka does not wait for the first group's on a new broker."""
    made = TopicPartition(_create(bootstrap_servers, unique_name("source")), 0)
    _committed(bootstrap_servers, made.topic, made)
    return made


@pytest.fixture
def producer(bootstrap_servers: str, topic: str) -> Iterator[TransactionalProducer]:
    made = _producer(bootstrap_servers, topic)
    yield made
    made.close()


def _producer(
    bootstrap_servers: str, transactional_id: str, *, timeout_ms: int = 60_000, **settings: int | str
) -> TransactionalProducer:
    return TransactionalProducer(
        {"bootstrap.servers": bootstrap_servers, "log_level": 0, "transaction.timeout.ms": 120_000, **settings},
        transactional_id=transactional_id,
        timeout_ms=timeout_ms,
    )


@pytest.fixture(scope="module")
def freezable() -> Iterator[EmbeddedBroker]:
    """A broker of this file's own, to be stopped for a while: it does not lose its own registration meanwhile."""
    with EmbeddedBroker(environ=os.environ, start_limit_s=240, settings={"broker.session.timeout.ms": "60000"}) as broker:
        yield broker


@contextmanager
def _frozen(broker: EmbeddedBroker) -> Iterator[None]:
    freeze(broker.pid)
    try:
        yield
    finally:
        thaw(broker.pid)


@contextmanager
def _reading(bootstrap_servers: str, topic: str, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "readers",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([DataPartition(topic, number, 0) for number in range(4)])
    try:
        yield consumer
    finally:
        consumer.close()


def _values(bootstrap_servers: str, topic: str, expected: int, isolation: str = "read_committed") -> list[bytes]:
    """What can be read, sorted; stops half a second after what is expected has come."""
    found: list[bytes] = []
    deadline = time.monotonic() + 240
    with _reading(bootstrap_servers, topic, isolation) as consumer:
        while time.monotonic() < deadline:
            found += [bytes(message.value() or b"") for message in consumer.consume(1_000, 0.1) if not message.error()]
            if len(found) >= expected:
                deadline = min(deadline, time.monotonic() + 0.5)
    return sorted(found)


def _committed(bootstrap_servers: str, group: str, partition: TopicPartition) -> tuple[int, str]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    deadline = time.monotonic() + 240
    try:
        while True:
            try:
                [answer] = consumer.committed([DataPartition(*partition)], 60)
                return answer.offset, answer.metadata or ""
            except KafkaException as problem:  # the first group of a new broker makes its coordinator
                if problem.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def _write(producer: TransactionalProducer | FlushingProducer, topic: str, *values: bytes) -> None:
    producer.write(topic, RecordColumns([b"key"] * len(values), values, [1_000] * len(values)))


@pytest.mark.broker
def test_a_topic_that_the_broker_has_not_heard_of_yet_is_waited_for(
    producer: TransactionalProducer, bootstrap_servers: str, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_producer, "HEARD_OF_LIMIT_S", 240.0)
    name = unique_name("later")
    creation = threading.Timer(1.0, _create, (bootstrap_servers, name))
    creation.start()
    assert producer.partitions_of(name) == 4
    creation.join()


@pytest.mark.parametrize(("age_ms", "found"), [(1, 6), (300_000, 4)])
def test_partitions_that_a_topic_has_got_are_seen_when_the_metadata_is_too_old(
    bootstrap_servers: str, unique_name: Callable[[str], str], age_ms: int, found: int
) -> None:
    """A partitioner, and keys of windows, would go on with the number before."""
    topic = _create(bootstrap_servers, unique_name("growing"))
    producer = _producer(bootstrap_servers, topic, **{"metadata.max.age.ms": age_ms})
    assert producer.partitions_of(topic) == 4
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_partitions([NewPartitions(topic, 6)])[topic].result(240)
    assert until(lambda: len(admin.list_topics(topic, 60).topics[topic].partitions) == 6)
    assert producer.partitions_of(topic) == found
    producer.close()


def test_a_topic_that_is_not_there_has_no_partitions(
    producer: TransactionalProducer, unique_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_producer, "HEARD_OF_LIMIT_S", 0.5)
    with pytest.raises(StopError, match=r"looking at nowhere.*the topic or partition does not exist; create it and start again"):
        producer.partitions_of(unique_name("nowhere"))


def test_a_committed_batch_is_visible_with_its_offsets_and_an_aborted_one_is_not(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str, source: TopicPartition
) -> None:
    metadata = group_metadata_bytes(topic, *NO_GROUP_MEMBER)
    _write(producer, topic, b"aborted")
    producer.send_offsets({source: 5}, metadata)
    producer.abort()
    assert not producer.is_open
    _write(producer, topic, b"one", b"two")
    producer.send_offsets({source: OffsetAndMetadata(7, "time")}, metadata)
    assert producer.commit() is CommitOutcome.COMMITTED
    assert producer.failure is None
    assert _values(bootstrap_servers, topic, 2) == [b"one", b"two"]
    assert _committed(bootstrap_servers, topic, source) == (7, "time")


@pytest.mark.broker
def test_the_ends_are_behind_the_last_record_of_each_partition(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    for values in ([b"a"] * 3, [b"b"] * 5):
        producer.write(topic, RecordColumns([None] * len(values), values, [0] * len(values), [2] * len(values)))
        producer.write(topic, RecordColumns([b"k"], [None], [0], [0]))
        assert producer.commit() is CommitOutcome.COMMITTED
    with _reading(bootstrap_servers, topic, "read_uncommitted") as consumer:
        last: dict[TopicPartition, int] = {}
        while len(last) < 2 or last[TopicPartition(topic, 2)] < 8:
            for message in consumer.consume(100, 0.1):
                last[TopicPartition(topic, message.partition() or 0)] = message.offset() or 0
    assert dict(producer.ends) == {partition: offset + 1 for partition, offset in last.items()}
    assert producer.ends[TopicPartition(topic, 2)] == 9  # 3, a commit marker, 5


@pytest.mark.broker
def test_a_batch_without_records_or_offsets_needs_no_transaction(producer: TransactionalProducer) -> None:
    assert producer.commit() is CommitOutcome.COMMITTED
    producer.abort()
    assert producer.must_init  # nothing was even connected


@pytest.mark.broker
def test_keys_go_where_a_java_producer_puts_them(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    """Hashes from Kafka's own tests of its murmur2."""
    java = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    producer.write(topic, RecordColumns(list(java), list(java), [0] * 3))
    assert producer.commit() is CommitOutcome.COMMITTED
    found = {}
    with _reading(bootstrap_servers, topic, "read_committed") as consumer:
        while len(found) < 3:
            found.update({message.key(): message.partition() for message in consumer.consume(100, 0.1)})
    assert found == {key: (value & 0x7FFFFFFF) % 4 for key, value in java.items()}


@pytest.mark.broker
def test_offsets_of_a_stale_member_are_refused_and_another_producer_goes_on(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str, source: TopicPartition
) -> None:
    _write(producer, topic, b"zombie")
    with pytest.raises(CommitRefusedError):
        producer.send_offsets({source: 5}, group_metadata_bytes(topic, 3, "nobody"))
    assert not producer.is_open
    assert producer.must_init  # librdkafka now and then counts on in what the abort has thrown away
    _write(producer, topic, b"good")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(bootstrap_servers, topic, 1) == [b"good"]


@pytest.mark.broker
def test_a_text_with_the_offsets_that_the_brokers_do_not_take_stops_with_their_setting(
    producer: TransactionalProducer, topic: str, source: TopicPartition
) -> None:
    _write(producer, topic, b"one")
    too_long = OffsetAndMetadata(5, "x" * 5_000)
    with pytest.raises(StopError, match=r"raise the brokers' offset\.metadata\.max\.bytes"):
        producer.send_offsets({source: too_long}, group_metadata_bytes(topic, *NO_GROUP_MEMBER))


@pytest.mark.broker
def test_a_second_producer_fences_the_first_which_then_makes_a_new_one(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    _write(producer, topic, b"fenced")
    second = _producer(bootstrap_servers, topic)
    second.init()
    _write(producer, topic, b"fenced too")
    assert producer.commit() is not CommitOutcome.COMMITTED
    assert isinstance(producer.failure, FencedError)
    assert producer.must_init
    _write(second, topic, b"second")
    assert second.commit() is CommitOutcome.COMMITTED
    _write(producer, topic, b"first again")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(bootstrap_servers, topic, 2) == [b"first again", b"second"]


@pytest.mark.broker
def test_fencing_a_dead_owner_frees_what_waits_behind_its_open_transaction(
    bootstrap_servers: str, topic: str
) -> None:
    dead = _producer(bootstrap_servers, topic, **{"transaction.timeout.ms": 600_000})
    _write(dead, topic, b"never committed")
    dead.make_room()
    other = _producer(bootstrap_servers, f"{topic}-other")
    _write(other, topic, b"waiting")
    assert other.commit() is CommitOutcome.COMMITTED
    with _reading(bootstrap_servers, topic, "read_committed") as consumer:
        assert consumer.consume(1, 1) == []
        fence({"bootstrap.servers": bootstrap_servers, "log_level": 0}, topic)
        [message] = consumer.consume(1, 240)  # the dead owner's transaction would time out after ten minutes
        assert message.value() == b"waiting"
    with suppress(FencedError):  # where the client has heard of it before the commit
        _write(dead, topic, b"zombie")
        assert dead.commit() is not CommitOutcome.COMMITTED
        assert isinstance(dead.failure, FencedError)
    assert dead.must_init


@pytest.mark.broker
@pytest.mark.parametrize("waits_for_room", [False, True])
def test_a_fenced_producer_says_so_wherever_it_hears_of_it(
    bootstrap_servers: str, topic: str, waits_for_room: bool
) -> None:
    """librdkafka raises a fatal error from whichever call serves its events first."""

    def write_on() -> None:
        for _ in range(5_000):
            _write(zombie, topic, b"zombie")
            if waits_for_room:
                zombie.make_room()
            time.sleep(0.05)

    zombie = _producer(bootstrap_servers, topic)
    _write(zombie, topic, b"never committed")
    zombie.make_room()
    fence({"bootstrap.servers": bootstrap_servers, "log_level": 0}, topic)
    with pytest.raises(FencedError, match="another producer or member has taken over"):
        write_on()
    assert zombie.must_init


@pytest.mark.broker
def test_a_producer_whose_transaction_the_broker_has_ended_says_that_it_was_open_for_too_long(
    bootstrap_servers: str, topic: str
) -> None:
    slow = _producer(bootstrap_servers, topic, **{"transaction.timeout.ms": 5_000})
    _write(slow, topic, b"too late")
    slow.make_room()
    other = _producer(bootstrap_servers, f"{topic}-other")
    _write(other, topic, b"waiting")
    assert other.commit() is CommitOutcome.COMMITTED
    with _reading(bootstrap_servers, topic, "read_committed") as consumer:
        [message] = consumer.consume(1, 240)  # which waits for the end of the first transaction
        assert message.value() == b"waiting"
    assert slow.commit() is not CommitOutcome.COMMITTED
    assert isinstance(slow.failure, FencedError)
    assert re.search(r"was open for \d+\.\d s, .* transaction\.timeout\.ms=5000", str(slow.failure))


@pytest.mark.broker
def test_a_record_that_the_broker_refuses_for_good_stops_with_the_reason(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    _write(producer, topic, b"good", LARGE, b"good")
    assert producer.commit() is not CommitOutcome.COMMITTED
    assert isinstance(producer.failure, StopError)
    assert "max.message.bytes" in str(producer.failure)
    assert topic in str(producer.failure)
    _write(producer, topic, b"after it")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(bootstrap_servers, topic, 1) == [b"after it"]


def _write_on(producer: TransactionalProducer, topic: str, limit_s: float) -> None:
    """Until the client has heard that the broker refuses what was written before."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        _write(producer, topic, b"more of it")
        time.sleep(0.05)


@pytest.mark.broker
@pytest.mark.parametrize("by_number", [True, False], ids=["with its reason", "without"])
def test_a_batch_that_had_failed_when_more_of_it_is_written_is_told_of(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str, by_number: bool
) -> None:
    producer.write(topic, RecordColumns([b"key"], [LARGE], [1_000], [0] if by_number else None))
    with pytest.raises(StopError if by_number else BatchLostError) as caught:
        _write_on(producer, topic, limit_s=240)
    assert ("max.message.bytes" if by_number else "had failed before") in str(caught.value)
    assert not producer.is_open
    assert producer.must_init
    _write(producer, topic, b"after it")
    assert producer.commit() is CommitOutcome.COMMITTED, producer.failure
    assert _values(bootstrap_servers, topic, 1) == [b"after it"]


@pytest.mark.broker
def test_a_record_that_the_client_refuses_is_told_by_its_place_and_leaves_the_batch_open(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    with pytest.raises(RecordTooLargeError, match="larger than allowed") as refused:
        _write(producer, topic, b"before it", b"x" * 2_000_000, b"not reached")
    assert refused.value.at == 1
    assert producer.is_open
    _write(producer, topic, b"behind it")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(bootstrap_servers, topic, 2) == [b"before it", b"behind it"]


@pytest.mark.broker
@pytest.mark.parametrize("written", [bytearray(b"v"), memoryview(b"v"), 5])
def test_what_is_no_bytes_stops_with_its_type(producer: TransactionalProducer, topic: str, written: Any) -> None:
    with pytest.raises(StopError, match=rf"{topic}: found a key .* bytes and a value .* {type(written).__name__}; expected"):
        producer.write(topic, RecordColumns([b"k", b"k"], [b"v", written], [1, 1], None))
    assert not producer.is_open


def test_the_batch_after_one_with_a_refused_record_counts_at_once(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    outcomes = []
    for value in (b"counts", LARGE, b"counts, too"):
        producer.write(topic, RecordColumns([b"key"], [value], [1_000], [0]))
        outcomes.append(producer.commit())
    assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.ABORTED, CommitOutcome.COMMITTED], producer.failure
    assert _values(bootstrap_servers, topic, 2) == [b"counts", b"counts, too"]


@pytest.mark.broker
@pytest.mark.parametrize("times", [(1, FAR_AHEAD, 1), (1, FAR_AHEAD, FAR_AHEAD)], ids=["one", "several"])
@pytest.mark.parametrize("by_number", [True, False], ids=["by number", "by key"])
def test_a_timestamp_too_far_ahead_stops_with_the_reason_wherever_the_record_is(
    producer: TransactionalProducer, topic: str, by_number: bool, times: tuple[int, ...]
) -> None:
    """Several in one request are invalid records to the client, as one without a key in a compacted topic is."""
    for _ in range(3):
        producer.write(topic, RecordColumns([b"k"] * 3, [b"a", b"b", b"c"], times, [0] * 3 if by_number else None))
        assert producer.commit() is not CommitOutcome.COMMITTED
        if not isinstance(producer.failure, BatchLostError):
            break
    assert isinstance(producer.failure, StopError)
    assert re.search(r"INVALID_TIMESTAMP|INVALID_RECORD", str(producer.failure))
    assert re.search(r"message\.timestamp\.before\.max\.ms (or|and) message\.timestamp\.after\.max\.ms of", str(producer.failure))
    assert topic in str(producer.failure)


def _left_out(producer: TransactionalProducer | FlushingProducer, topic: str, values: list[bytes], times: list[int]) -> list[int]:
    """Runs a batch again and again without what is refused by its place, as the last step does with a handler that continues."""
    for _ in range(9):
        left_out, begin = [], 0
        try:
            while begin < len(values):
                try:
                    producer.write(topic, RecordColumns([b"k"] * len(values[begin:]), values[begin:], times[begin:]))
                    break
                except RecordRefusedError as refused:
                    left_out.append(begin + refused.at)
                    begin += refused.at + 1
            if producer.commit() is CommitOutcome.COMMITTED:
                return left_out
        except BatchLostError:
            continue
        assert isinstance(producer.failure, BatchLostError), producer.failure
    raise AssertionError(f"lost again and again: {producer.failure}")


@pytest.mark.broker
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_records_that_the_broker_refuses_are_found_and_the_batch_counts_without_them(
    bootstrap_servers: str, topic: str, guarantee: str
) -> None:
    settings = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
    # Longer than this test may take: records of a transaction behind one that was refused are not waited for.
    beyond_ms = 400_000
    producer: TransactionalProducer | FlushingProducer = (
        TransactionalProducer(
            {**settings, "transaction.timeout.ms": beyond_ms}, transactional_id=topic, timeout_ms=beyond_ms, leaves_out=True
        )
        if guarantee == "exactly_once_v2"
        else FlushingProducer(settings, leaves_out=True)
    )
    values = [b"%d" % number for number in range(20)]
    assert _left_out(producer, topic, values, [FAR_AHEAD if at in (3, 7) else 5 for at in range(20)]) == [3, 7]
    assert _left_out(producer, topic, [b"one", b"two"], [FAR_AHEAD, 5]) == [0]
    assert _left_out(producer, topic, [b"a", LARGE, b"b"], [5] * 3) == [1]
    assert _left_out(producer, topic, [b"c", b"d"], [0, 5]) == []
    wanted = {*values, b"two", b"a", b"b", b"c", b"d"} - {b"3", b"7"}
    found = _values(bootstrap_servers, topic, len(wanted))
    assert set(found) == wanted
    assert guarantee == "at_least_once" or len(found) == len(wanted)
    producer.close()


@pytest.mark.broker
def test_a_missing_partition_stops_with_its_name(producer: TransactionalProducer, topic: str) -> None:
    try:
        producer.write(topic, RecordColumns([b"key"], [b"value"], [0], [99]))
        assert producer.commit() is CommitOutcome.ABORTED
        problem = producer.failure
    except StopError as refused:  # the client knew already which partitions there are
        problem = refused
    assert isinstance(problem, StopError)
    assert f"{topic}-99" in str(problem)


@pytest.mark.broker
def test_a_missing_topic_is_named_where_the_transaction_is_refused_for_it(
    producer: TransactionalProducer, topic: str, unique_name: Callable[[str], str]
) -> None:
    """As one that was deleted since its partitions were found: the brokers refuse to add them, and name none."""
    missing = unique_name("deleted")
    refused = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    for written in (topic, missing):
        producer.write(written, RecordColumns([b"key"], [b"value"], [0]))
    problem = producer.refused(refused, "sending the input offsets", ["orders"], reader="a group")
    assert isinstance(problem, StopError)
    named = f"sending the input offsets, with records for {missing}: .*: the topic or partition does not exist"
    assert re.match(named, str(problem))


@pytest.mark.broker
def test_a_reason_that_no_error_of_the_commit_gives_is_known_at_the_second_attempt(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    missing = unique_name("missing")
    producer = _producer(bootstrap_servers, missing, **{"topic.metadata.propagation.max.ms": 300})
    _write(producer, missing, b"v")
    assert producer.commit() is not CommitOutcome.COMMITTED
    assert isinstance(producer.failure, BatchLostError)
    _write(producer, missing, b"v")
    assert producer.commit() is CommitOutcome.ABORTED
    assert isinstance(producer.failure, StopError)
    assert missing in str(producer.failure)


@pytest.mark.broker
def test_a_missing_topic_is_named_also_where_records_may_not_wait_long(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    missing = unique_name("missing")
    producer = FlushingProducer({"bootstrap.servers": bootstrap_servers, "log_level": 0, "delivery.timeout.ms": 2_000})
    _write(producer, missing, b"v")
    assert producer.commit() is CommitOutcome.UNKNOWN
    assert isinstance(producer.failure, StopError)
    assert missing in str(producer.failure)


@pytest.mark.broker
def test_a_small_buffer_only_slows_a_batch_down(bootstrap_servers: str, topic: str) -> None:
    producer = _producer(bootstrap_servers, topic, **{"queue.buffering.max.messages": 500})
    _write(producer, topic, *[b"v"] * 5_000)
    assert producer.commit() is CommitOutcome.COMMITTED
    assert len(_values(bootstrap_servers, topic, 5_000)) == 5_000


@pytest.mark.broker
@pytest.mark.fault
def test_a_commit_that_is_not_answered_is_unknown_until_the_committed_offsets_are_read(
    freezable: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    servers = freezable.bootstrap_servers
    topic, source = _create(servers, unique_name("output")), TopicPartition(_create(servers, unique_name("source")), 0)
    metadata = group_metadata_bytes(topic, *NO_GROUP_MEMBER)
    _committed(servers, topic, source)  # the group's coordinator is there
    producer = _producer(servers, topic, timeout_ms=10_000)
    _write(producer, topic, b"first")
    producer.send_offsets({source: 1}, metadata)
    assert producer.commit() is CommitOutcome.COMMITTED
    _write(producer, topic, b"second")
    producer.send_offsets({source: 2}, metadata)
    producer.make_room()  # the record is acknowledged: only the commit is left to do
    with _frozen(freezable):
        assert producer.commit() is CommitOutcome.UNKNOWN
        assert isinstance(producer.failure, BatchLostError)
        assert producer.must_init
    producer.init()
    counts = _committed(servers, topic, source)[0] == 2
    seen = _values(servers, topic, 1 + counts)
    assert seen == ([b"first", b"second"] if counts else [b"first"])  # offsets and records agree, whatever it was


@pytest.mark.broker
@pytest.mark.fault
def test_a_group_without_a_coordinator_loses_the_batch_in_time(unique_name: Callable[[str], str]) -> None:
    too_many = {"offsets.topic.replication.factor": "3"}  # of one broker: the topic of the groups' offsets can't be made
    with EmbeddedBroker(environ=os.environ, start_limit_s=240, settings=too_many) as broker:
        topic = _create(broker.bootstrap_servers, unique_name("output"))
        producer = _producer(broker.bootstrap_servers, topic, timeout_ms=10_000)
        _write(producer, topic, b"first")
        began = time.monotonic()
        with pytest.raises(BatchLostError, match=r"(?s)input offsets: no answer within 10 s.*__consumer_offsets"):
            producer.send_offsets({TopicPartition(topic, 0): 1}, group_metadata_bytes("group", *NO_GROUP_MEMBER))
        assert time.monotonic() - began < 120
        assert producer.must_init
        assert not producer.is_open
        _write(producer, topic, b"second")  # by a new producer, which has fenced the one that waits
        assert producer.commit() is CommitOutcome.COMMITTED
        assert _values(broker.bootstrap_servers, topic, 1) == [b"second"]


@pytest.mark.broker
@pytest.mark.fault
def test_records_that_are_not_acknowledged_in_time_abort_the_batch(
    freezable: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    topic = _create(freezable.bootstrap_servers, unique_name("output"))
    producer = _producer(freezable.bootstrap_servers, topic, timeout_ms=10_000)
    _write(producer, topic, b"first")
    with _frozen(freezable):
        _write(producer, topic, b"second")
        assert producer.commit() is CommitOutcome.ABORTED  # not all was written, so the commit was never asked for
        assert isinstance(producer.failure, BatchLostError)
    _write(producer, topic, b"third")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(freezable.bootstrap_servers, topic, 1) == [b"third"]


@pytest.mark.broker
@pytest.mark.fault
def test_a_full_buffer_that_never_empties_loses_the_batch(
    freezable: EmbeddedBroker, unique_name: Callable[[str], str]
) -> None:
    topic = _create(freezable.bootstrap_servers, unique_name("output"))
    options = {"queue.buffering.max.messages": 100}
    producer = _producer(freezable.bootstrap_servers, topic, timeout_ms=10_000, **options)
    _write(producer, topic, b"good")
    assert producer.commit() is CommitOutcome.COMMITTED
    with _frozen(freezable):
        with pytest.raises(BatchLostError, match="buffer is full"):
            _write(producer, topic, *[b"v"] * 1_000)
        assert not producer.is_open
    assert producer.must_init  # librdkafka now and then counts on in what the abort has thrown away
    _write(producer, topic, b"good")
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _values(freezable.bootstrap_servers, topic, 2) == [b"good", b"good"]


@pytest.mark.broker
def test_at_least_once_counts_a_batch_when_all_is_acknowledged(bootstrap_servers: str, topic: str) -> None:
    producer = FlushingProducer({"bootstrap.servers": bootstrap_servers})
    producer.write(topic, RecordColumns([None] * 3, [b"v"] * 3, [0] * 3, [1] * 3))
    assert producer.commit() is CommitOutcome.COMMITTED
    assert producer.ends == {TopicPartition(topic, 1): 3}
    assert len(_values(bootstrap_servers, topic, 3)) == 3


@pytest.mark.broker
def test_at_least_once_a_part_of_a_batch_can_be_flushed(bootstrap_servers: str, topic: str) -> None:
    producer = FlushingProducer({"bootstrap.servers": bootstrap_servers})
    producer.write(topic, RecordColumns([None] * 2, [b"first"] * 2, [0] * 2, [1] * 2))
    producer.flush()
    assert producer.ends == {TopicPartition(topic, 1): 2}, "acknowledged"
    producer.write(topic, RecordColumns([None], [b"then"], [0], [1]))
    assert producer.commit() is CommitOutcome.COMMITTED
    assert producer.fills(TopicPartition(topic, 1), 0)


def test_at_least_once_a_batch_is_lost_when_its_first_part_is_not_acknowledged() -> None:
    producer = FlushingProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, timeout_ms=300)
    _write(producer, "t", b"v")
    with pytest.raises(BatchLostError):
        producer.flush()
    assert not producer.is_open


@pytest.mark.broker
def test_at_least_once_it_is_known_whether_another_one_has_written_between(bootstrap_servers: str, topic: str) -> None:
    producer, other = (FlushingProducer({"bootstrap.servers": bootstrap_servers}) for _ in range(2))
    partition = TopicPartition(topic, 1)

    def written(by: FlushingProducer, *partitions: int) -> None:
        by.write(topic, RecordColumns([None] * len(partitions), [b"v"] * len(partitions), [0] * len(partitions), partitions))

    written(producer, 1, 0, 1)
    written(producer, 1)
    assert producer.commit() is CommitOutcome.COMMITTED
    assert producer.fills(partition, 0)
    assert not producer.fills(partition, 1)
    written(other, 1)
    assert other.commit() is CommitOutcome.COMMITTED
    assert other.fills(partition, 3)
    written(producer, 1, 1)
    assert producer.commit() is CommitOutcome.COMMITTED
    assert not producer.fills(partition, 3)
    assert producer.fills(partition, 4)


def test_at_least_once_has_one_request_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first batch of a partition that is new to its broker may be lost: refused, and a duplicate when it comes again."""
    made: list[Mapping[str, object]] = []
    monkeypatch.setattr(record_producer, "Producer", made.append)
    FlushingProducer({"bootstrap.servers": "127.0.0.1:1"}).init()
    assert [settings["max.in.flight.requests.per.connection"] for settings in made] == [1]


@pytest.mark.broker
def test_at_least_once_notices_any_record_that_was_refused(bootstrap_servers: str, topic: str) -> None:
    producer = FlushingProducer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    _write(producer, topic, LARGE)
    _write(producer, topic, b"the last one is good")
    assert producer.commit() is CommitOutcome.UNKNOWN
    assert isinstance(producer.failure, StopError)
    assert "max.message.bytes" in str(producer.failure)
    _write(producer, topic, b"next batch")
    assert producer.commit() is CommitOutcome.COMMITTED


def _times(bootstrap_servers: str, topic: str, expected: int) -> dict[int, list[int]]:
    """The timestamps of each partition's records, in their order."""
    found: dict[int, list[int]] = {}
    deadline = time.monotonic() + 240
    with _reading(bootstrap_servers, topic, "read_committed") as consumer:
        while sum(map(len, found.values())) < expected and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.1):
                found.setdefault(message.partition() or 0, []).append(message.timestamp()[1])
    return found


TIMES = [0, 1, 0, 0, 1_700_000_000_000, 0]


@pytest.mark.broker
@pytest.mark.parametrize("codec", ["lz4", "none"])
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_the_timestamp_0_arrives_as_0_among_others(bootstrap_servers: str, topic: str, guarantee: str, codec: str) -> None:
    settings: dict[str, int | str] = {"compression.type": codec}
    producer: TransactionalProducer | FlushingProducer = (
        _producer(bootstrap_servers, topic, **settings)
        if guarantee == "exactly_once_v2"
        else FlushingProducer({"bootstrap.servers": bootstrap_servers, "log_level": 0, **settings})
    )
    for partition in (0, 1):
        keys = [b"key" if at % 2 else None for at in range(len(TIMES))]
        values = [None if at == 3 else b"" if at == 2 else b"v" * 300 for at in range(len(TIMES))]
        headers = [[("name", b"value")] if at == 1 else None for at in range(len(TIMES))]
        producer.write(topic, RecordColumns(keys, values, TIMES, [partition] * len(TIMES), headers))
    producer.write(topic, RecordColumns([b"x"], [b"y"], [0], [2]))
    assert producer.commit() is CommitOutcome.COMMITTED, producer.failure
    assert producer.ends[TopicPartition(topic, 1)] == len(TIMES)
    producer.write(topic, RecordColumns([b"x"], [b"y"], [5], [3]))
    producer.write(topic, RecordColumns([b"x"], [b"y"], [0], [3]))
    assert producer.commit() is CommitOutcome.COMMITTED, producer.failure
    assert _times(bootstrap_servers, topic, 15) == {0: TIMES, 1: TIMES, 2: [0], 3: [5, 0]}
    producer.close()


@pytest.mark.broker
def test_a_first_0_behind_other_records_costs_a_transaction_and_at_least_once_nothing(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    _write(producer, topic, b"not of time 0")
    with pytest.raises(BatchLostError, match="has the timestamp 0"):
        producer.write(topic, RecordColumns([b"k"], [b"zero"], [0]))
    assert not producer.is_open
    _write(producer, topic, b"again")
    producer.write(topic, RecordColumns([b"k"], [b"zero"], [0]))
    assert producer.commit() is CommitOutcome.COMMITTED, producer.failure
    assert _values(bootstrap_servers, topic, 2) == [b"again", b"zero"]
    flushing = FlushingProducer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    flushing.write(topic, RecordColumns([b"k"], [b"before"], [5], [1]))
    flushing.write(topic, RecordColumns([b"k"], [b"behind"], [0], [1]))
    assert flushing.commit() is CommitOutcome.COMMITTED, flushing.failure
    assert _values(bootstrap_servers, topic, 4) == [b"again", b"before", b"behind", b"zero"]


@pytest.mark.broker
def test_a_record_that_is_refused_among_zeros_leaves_the_batch_open(
    producer: TransactionalProducer, bootstrap_servers: str, topic: str
) -> None:
    with pytest.raises(RecordTooLargeError) as refused:
        producer.write(topic, RecordColumns([b"k"] * 3, [b"a", b"x" * 2_000_000, b"b"], [0, 0, 0], [0] * 3))
    assert refused.value.at == 1
    producer.write(topic, RecordColumns([b"k"], [b"b"], [0], [0]))
    assert producer.commit() is CommitOutcome.COMMITTED
    assert _times(bootstrap_servers, topic, 2) == {0: [0, 0]}


@pytest.mark.broker
@pytest.mark.fault
def test_a_commit_that_arrives_late_does_not_end_the_next_transaction(bootstrap_servers: str, topic: str) -> None:
    proxy = HoldingProxy(bootstrap_servers)
    producer = _producer(proxy.bootstrap_servers, topic)
    try:
        _write(producer, topic, b"first")
        proxy.hold(END_TXN)
        assert producer.commit() is CommitOutcome.COMMITTED, producer.failure  # asked for once more on another connection
        _write(producer, topic, b"aborted")
        producer.make_room()  # it is written
        proxy.deliver()
        producer.abort()
        _write(producer, topic, b"last")
        assert producer.commit() is CommitOutcome.COMMITTED, producer.failure
        assert _values(bootstrap_servers, topic, 2) == [b"first", b"last"]
    finally:
        producer.close()
        proxy.close()


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("FAIL [p#producer-1] [thrd:h:1/1]: h:1/1: Disconnected (after 23ms in state UP)", True),
        ("FAIL [p#producer-1] [thrd:h:1/1]: h:1/1: Receive failed: Connection reset by peer (after 9ms in state UP)", True),
        ("FAIL [p#producer-1] [thrd:h:1/1]: h:1/1: 1 request(s) timed out: disconnect (rtt 2ms) (after 9ms in state UP)", True),
        ("REQTMOUT [p#producer-1] [thrd:h:1/1]: h:1/1: Timed out EndTxnRequest in flight (after 1000ms, timeout #0)", True),
        ("FAIL [p#producer-1] [thrd:h:1/1]: h:1/1: Connect to ipv4#h:1 failed: refused (after 0ms in state CONNECT)", False),
        ("FAIL [p#producer-1] [thrd:h:1/1]: h:1/1: SSL handshake failed (after 5ms in state SSL_HANDSHAKE)", False),
        ("CONFWARN [p#producer-1] [thrd:app]: Configuration property x is ignored", False),
    ],
)
def test_a_connection_that_is_lost_with_requests_under_way_is_noted(line: str, lost: bool) -> None:
    assert tells_of_a_lost_request(line) is lost


def test_a_negative_timestamp_is_never_written() -> None:
    producer = FlushingProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    with pytest.raises(StopError, match="writing to topic: a record has the timestamp -2"):
        producer.write("topic", RecordColumns([None] * 3, [b"v"] * 3, [0, -2, 5]))
    assert not producer.is_open


def test_without_a_broker_init_gives_up_in_time() -> None:
    producer = TransactionalProducer(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, transactional_id="id", init_timeout_ms=600
    )
    began = time.monotonic()
    with pytest.raises(RetriableError, match="no answer within"):
        producer.init()
    assert time.monotonic() - began < 30


def test_without_a_broker_nothing_is_taken_for_written() -> None:
    producer = FlushingProducer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, timeout_ms=300)
    _write(producer, "t", b"v")
    assert producer.commit() is CommitOutcome.UNKNOWN
    assert isinstance(producer.failure, BatchLostError)


@pytest.mark.parametrize("settings", [{"no.such.setting": 1}, {"acks": "some"}])
def test_a_setting_that_librdkafka_refuses_is_named(settings: dict[str, int | str]) -> None:
    [name] = settings
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        FlushingProducer({"bootstrap.servers": "127.0.0.1:1", **settings}).init()


def test_a_worker_can_import_it_without_the_group_client() -> None:
    code = "import sys; sys.modules['kafka'] = None; import tidemill.kafka.data.producer, tidemill.kafka.group.metadata"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)

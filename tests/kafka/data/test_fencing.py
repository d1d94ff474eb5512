"""Ending what vanished members left open, and nobody else's (correctness.md, rule 7)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.waiting import until
from tidemill.errors import FencedError, RetriableError
from tidemill.ids import TopicPartition
from tidemill.kafka.admin import group_offsets
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.data import fencing
from tidemill.kafka.data.fencing import fence_vanished, transactional_id
from tidemill.kafka.data.producer import CommitOutcome, TransactionalProducer
from tidemill.task.raw_records import RecordColumns


@pytest.mark.broker
def test_only_open_transactions_of_this_applications_vanished_processes_are_ended(
    bootstrap_servers: str, unique_name: Callable[[str], str]
) -> None:
    topic, application = unique_name("output"), unique_name("fencing")
    client = AdminClient({"bootstrap.servers": bootstrap_servers})
    client.create_topics([NewTopic(topic, 3, 1)])[topic].result(240)
    here, gone = str(uuid4()), str(uuid4())
    names = [
        transactional_id(application, here, 1),
        transactional_id(application, gone, 2),
        transactional_id(application + "-other", gone, 1),
    ]
    producers = []
    for partition, name in enumerate(names):
        producer = TransactionalProducer(
            {"bootstrap.servers": bootstrap_servers, "transaction.timeout.ms": 600_000}, transactional_id=name
        )
        producer.init()
        producer.write(topic, RecordColumns([b"k"], [b"v"], [1], [partition]))
        producers.append(producer)
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    partitions = [TopicPartition(topic, number) for number in range(3)]
    deadline = time.monotonic() + 240
    while any(end == 0 for end in admin.end_offsets(partitions).values()):
        assert time.monotonic() < deadline
    assert set(admin.stable_end_offsets(partitions).values()) == {0}

    fence_vanished({"bootstrap_servers": bootstrap_servers}, {"bootstrap.servers": bootstrap_servers}, application, {here})

    while admin.stable_end_offsets(partitions)[partitions[1]] == 0:
        assert time.monotonic() < deadline + 240, "its transaction was not ended long before its time-out"
    assert admin.stable_end_offsets(partitions)[partitions[0]] == 0
    assert [producers[0].commit(), producers[2].commit()] == [CommitOutcome.COMMITTED] * 2
    assert producers[1].commit() is not CommitOutcome.COMMITTED
    assert isinstance(producers[1].failure, FencedError)


def test_brokers_that_do_not_answer_leave_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "_TRANSACTIONS_LIMIT_MS", 200)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RetriableError, match="the brokers did not say which transactions are open"):
            group_offsets.open_transactions({"bootstrap_servers": address}, "words-")
    assert until(lambda: set(threading.enumerate()) <= before)


def test_what_is_not_ended_within_the_limit_is_left_to_the_broker_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = [transactional_id("words", str(uuid4()), 1) for _ in range(3)]
    ended = []

    def end(settings: object, name: str) -> None:
        ended.append(name)
        monkeypatch.setattr(fencing.Deadline, "is_over", True)  # the coordinator did not answer

    monkeypatch.setattr(fencing, "open_transactions", lambda *_: names)
    monkeypatch.setattr(fencing, "fence_quietly", end)
    fence_vanished({}, {}, "words", set())
    assert ended == names[:1]
    assert f"event=fencing-skipped problem='not done within 15 s' transactional_ids=[{', '.join(names[1:])}]" in caplog.text

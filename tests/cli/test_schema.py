"""`tidemill schema infer`: the schema of a topic's newest records, and what contradicts it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.cli_process import LIMIT_S
from tests.waiting import until
from tidemill.cli.main import main
from tidemill.cli.schema import class_name
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec

pytestmark = pytest.mark.broker


@dataclass
class Topic:
    """A topic of two partitions with a transaction's markers between the records."""

    name: str
    servers: str

    def infer(self, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
        try:
            main(["schema", "infer", self.name, "--bootstrap-server", self.servers, *options])
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err


@pytest.fixture
def topic(bootstrap_servers: str, unique_name: Callable[[str], str]) -> Topic:
    made = Topic(unique_name("orders"), bootstrap_servers)
    admin = Admin({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([TopicSpec(name=made.name, partitions=2)])
    one_by_one = {"max.in.flight.requests.per.connection": 1}  # else a new topic's first batch may be lost
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": made.name, **one_by_one})
    producer.init_transactions(LIMIT_S)
    old: list[Any] = [{"customer": 5}] * 20  # other than what is newest
    new: list[Any] = [{"customer": "ada", "amount": at, "at": "2026-01-31T12:00:00Z"} for at in range(6)]
    for values in (old, new, [{"customer": "grace", "amount": "12,5"}] * 2):
        producer.begin_transaction()
        for at, value in enumerate(values):
            producer.produce(made.name, json.dumps(value).encode(), partition=at % 2)
        producer.commit_transaction(LIMIT_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(made.name, b'{"not": "committed"}', partition=partition)
    assert producer.flush(LIMIT_S) == 0
    producer.abort_transaction(LIMIT_S)
    partitions = [TopicPartition(made.name, number) for number in range(2)]
    # A transaction is over before its markers are written, and what is read ends before one without.
    assert until(lambda: admin.stable_end_offsets(partitions) == admin.end_offsets(partitions))
    return made


def test_the_newest_records_say_the_schema(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = topic.infer(capsys, "--records", "16", "--required")
    assert code == 0
    assert out == "customer string NOT NULL,\namount bigint NOT NULL,\nat timestamp\n"
    assert "value.amount: 6 numbers, taken as bigint; 2 texts (such as '12,5') would be refused" in err
    assert f"{topic.name}: 8 objects read" in err


def test_all_records_and_their_conflicts(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = topic.infer(capsys)
    assert (code, out) == (0, "customer bigint,\namount bigint,\nat timestamp\n")
    assert "value.customer: 20 numbers, taken as bigint; 8 texts (such as 'ada') would be refused" in err


def test_as_a_dataclass(topic: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = topic.infer(capsys, "--as", "dataclass")
    assert code == 0
    assert f"class {class_name(topic.name)}:\n    customer: int | None = None\n" in out


def test_a_topic_that_is_not_there(bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = Topic("not-there", bootstrap_servers).infer(capsys)
    assert code == 2
    assert "there is no topic 'not-there'" in err


@pytest.mark.parametrize(("topic_name", "name"), [("shop.orders-v2", "ShopOrdersV2"), ("2nd", "Topic2nd"), ("a_b", "AB")])
def test_the_name_of_the_class(topic_name: str, name: str) -> None:
    assert class_name(topic_name) == name

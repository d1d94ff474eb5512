"""Topics that others write in transactions: aborted records count nowhere, and an open transaction holds up no start."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
STRING, LONG = Serdes.string(), Serdes.long()
TEXT = {"default.key.serde": "string", "default.value.serde": "string", "topology.optimization": "all"}
Sent = Sequence[tuple[bytes, bytes | None]]


@pytest.fixture
def place(bootstrap_servers: str, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(bootstrap_servers, spark, tmp_path, unique_name("foreign"))


@contextlib.contextmanager
def transaction(place: Place, name: str, topics: Sequence[str], records: Sent) -> Iterator[Producer]:
    """A transaction with the records in each topic, still open; ended by who wants it to end."""
    longest = {"transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": place.bootstrap_servers, "transactional.id": f"{place.name}-{name}", **longest})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    for topic in topics:
        for key, value in records:
            producer.produce(place.topic(topic), value, key)
    assert producer.flush(LIMIT_S) == 0
    yield producer


def program(place: Place) -> StreamsBuilder:
    """Each order with the rows of its key in a table and in a global table; the numbers of rows by value."""
    builder = StreamsBuilder()
    rows, shared = builder.table(place.topic("rows"), store="rows"), builder.global_table(place.topic("shared"))
    orders = builder.stream(place.topic("orders"))
    with_rows = orders.left_join(rows, lambda order, row: f"{order} {row}")
    with_both = with_rows.left_join(shared, lambda order, row: f"{order} {row}", selector=lambda key, _value: key)
    with_both.to(place.topic("joined"))
    counts = rows.group_by(lambda key, value: (value, key), key=STRING, value=STRING).count(store="counts")
    counts.to_stream().to(place.topic("counts"), key=STRING, value=LONG)
    return builder


def joined(place: Place, count: int) -> list[tuple[bytes, bytes]]:
    return [(m.key(), m.value()) for m in place.received("joined", count)]


def counted(place: Place) -> dict[bytes, int]:
    found = {m.key(): int.from_bytes(m.value(), "big") for m in place.received("counts", 100, 3)}
    return {key: number for key, number in found.items() if number}


def test_aborted_records_count_nowhere_and_an_open_transaction_holds_up_no_start(place: Place) -> None:
    place.create("rows", "shared", "orders", "joined", "counts")
    tables = ["rows", "shared"]
    with transaction(place, "first", tables, [(b"a", b"one"), (b"b", b"two")]) as first:
        first.commit_transaction(LIMIT_S)
    with transaction(place, "gone", [*tables, "orders"], [(b"a", b"WRONG"), (b"c", b"WRONG")]) as gone:
        gone.abort_transaction(LIMIT_S)
    with transaction(place, "open", tables, [(b"a", b"later"), (b"d", b"two")]) as later:
        with place.running(program(place), **TEXT):
            place.send("orders", [(b"a", b"1"), (b"c", b"2"), (b"d", b"3")])
            assert joined(place, 3) == [(b"a", b"1 one one"), (b"c", b"2 None None"), (b"d", b"3 None None")]
            assert until(lambda: counted(place) == {b"one": 1, b"two": 1})
        shutil.rmtree(place.folder / place.name)  # what is read again, of topics that end with an open transaction
        with place.running(program(place), **TEXT):
            place.send("orders", [(b"a", b"4")])
            assert joined(place, 4)[3:] == [(b"a", b"4 one one")]
            later.commit_transaction(LIMIT_S)
            assert until(lambda: counted(place) == {b"later": 1, b"two": 2})
            place.send("orders", [(b"a", b"5"), (b"d", b"6")])
            assert joined(place, 6)[4:] == [(b"a", b"5 later later"), (b"d", b"6 two two")]
    with transaction(place, "last", tables, [(b"a", b"WRONG"), (b"b", None)]) as last:
        last.abort_transaction(LIMIT_S)
    shutil.rmtree(place.folder / place.name)  # and of topics that end with an aborted one
    with place.running(program(place), **TEXT):
        place.send("orders", [(b"a", b"7"), (b"b", b"8")])
        assert joined(place, 8)[6:] == [(b"a", b"7 later later"), (b"b", b"8 two two")]
        assert until(lambda: counted(place) == {b"later": 1, b"two": 2}), counted(place)

"""A second application for the fault tests: windowed count, stream-table join, foreign-key join and versioned table in one
program; what goes in, and what must come out, computed from the input alone, timestamps included.

Tables change and streams come in turns, and each turn begins when the group has committed all of the one before: so which row a
record of a stream meets does not depend on timing. What comes out is the same however often processes were killed meanwhile.
"""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidemill import Materialized, Serdes, StreamsBuilder, TimeWindows, per_record
from tidemill.kafka.admin.client import Admin

PARTITIONS = 2
INPUTS = ("sales", "prices", "history", "orders", "customers")
OUTPUTS = ("windows", "priced", "asof", "named")
WINDOW_MS = 1_000
SPAN_MS = 20_000
"""The times of all records lie within so long."""
DAY_MS = 86_400_000
ITEMS = [f"item{number}" for number in range(12)]
CUSTOMERS = [f"c{number}" for number in range(6)]
ORDERS = [f"o{number}" for number in range(40)]


def shop(prefix: str) -> StreamsBuilder:
    """The topics' names begin with ``prefix``."""
    text = Serdes.string()

    def kept(name: str, history_retention: int | None = None) -> Materialized:
        return Materialized(name=name, history_retention=history_retention)

    builder = StreamsBuilder()
    sales = builder.stream(f"{prefix}-sales", key=text, value=text)
    prices = builder.table(f"{prefix}-prices", key=text, value=text, store=kept("prices"))
    history = builder.table(f"{prefix}-history", key=text, value=text, store=kept("history", DAY_MS))
    orders = builder.table(f"{prefix}-orders", key=text, value=text, store=kept("orders"))
    customers = builder.table(f"{prefix}-customers", key=text, value=text, store=kept("customers"))
    windows = sales.group_by_key().windowed_by(TimeWindows.of_size(WINDOW_MS, grace=DAY_MS)).count(store="windows")
    as_text = per_record(lambda window, count: (f"{window.key}@{window.start}", str(count)), (text, text))
    windows.to_stream().map(as_text).to(f"{prefix}-windows", key=text, value=text)
    both = per_record(lambda sale, row: f"{sale}|{row}", text)
    sales.join(prices, both).to(f"{prefix}-priced", key=text, value=text)
    sales.join(history, both).to(f"{prefix}-asof", key=text, value=text)
    named = orders.join(customers, both, foreign_key=lambda order: order.split("|")[0], store="named")
    named.to_stream().to(f"{prefix}-named", key=text, value=text)
    return builder


def create_shop_topics(bootstrap_servers: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topics = [NewTopic(f"{prefix}-{name}", PARTITIONS, 1) for name in (*INPUTS, *OUTPUTS)]
    for made in admin.create_topics(topics).values():
        made.result(60)
    Admin({"bootstrap.servers": bootstrap_servers}).wait_for_leaders([topic.topic for topic in topics])


class Row(NamedTuple):
    key: str
    value: str | None
    timestamp: int


class Shop:
    """Sends records, and knows what must come of them."""

    def __init__(self, bootstrap_servers: str, prefix: str, seed: int) -> None:
        self.prefix = prefix
        self.begin = int(time.time() * 1000) // WINDOW_MS * WINDOW_MS - SPAN_MS
        self._servers = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = AdminClient(self._servers)
        # Joins by key want Java's partitioner; the left side of a foreign-key join may be partitioned in any way.
        settings = {**self._servers, "enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({**settings, "partitioner": "murmur2_random"})
        self._otherwise = Producer({**settings, "partitioner": "consistent_random"})
        self._random = random.Random(seed)
        self._now = self.begin
        self._tables: dict[str, dict[str, Row]] = {"prices": {}, "orders": {}, "customers": {}}
        self.versions: list[Row] = []
        self._sales = 0
        self.windows: dict[str, tuple[int, int]] = {}
        self.priced: Counter[Row] = Counter()
        self.asof: Counter[Row] = Counter()

    # --- what goes in ----------------------------------------------------------------------------------------------

    def change_tables(self) -> None:
        """Rows come, change and go, each later than all before it; versions of the history come in any order."""
        for item in ITEMS:
            self._put("prices", item, f"p{self._random.randrange(1000)}")
        for customer in self._random.sample(CUSTOMERS, 4):
            self._put("customers", customer, None if self._random.random() < 0.3 else f"n{self._random.randrange(1000)}")
        for order in self._random.sample(ORDERS, 25):
            gone = self._random.random() < 0.15
            self._put("orders", order, None if gone else f"{self._random.choice(CUSTOMERS)}|{self._random.randrange(1000)}")
        for item in ITEMS:
            taken = {row.timestamp for row in self.versions if row.key == item}
            free = [at for at in range(self.begin, self.begin + SPAN_MS, 10) if at not in taken]
            row = Row(item, f"v{self._random.randrange(1000)}", self._random.choice(free))
            self.versions.append(row)
            self._send("history", row)

    def sell(self, count: int) -> None:
        for _ in range(count):
            self._sales += 1
            item = self._random.choice(ITEMS)
            at = self.begin + self._random.randrange(SPAN_MS)
            sale = Row(item, f"s{self._sales}", at)
            self._send("sales", sale)
            key = f"{item}@{at // WINDOW_MS * WINDOW_MS}"
            number, latest = self.windows.get(key, (0, 0))
            self.windows[key] = (number + 1, max(latest, at))
            price = self._tables["prices"].get(item)
            if price is not None:
                self.priced[Row(item, f"{sale.value}|{price.value}", at)] += 1
            known = [row for row in self.versions if row.key == item and row.timestamp <= at]
            if known:
                version = max(known, key=lambda row: row.timestamp)
                self.asof[Row(item, f"{sale.value}|{version.value}", at)] += 1

    @property
    def named(self) -> dict[str, tuple[str, int]]:
        """The rows of the foreign-key join as they must be at last."""
        found = {}
        for key, order in self._tables["orders"].items():
            customer = self._tables["customers"].get((order.value or "").split("|")[0])
            if order.value is not None and customer is not None and customer.value is not None:
                found[key] = (f"{order.value}|{customer.value}", max(order.timestamp, customer.timestamp))
        return found

    @property
    def prices(self) -> dict[str, tuple[str | None, int]]:
        return {row.key: (row.value, row.timestamp) for row in self._tables["prices"].values()}

    def flush(self) -> None:
        assert self._producer.flush(240) == 0
        assert self._otherwise.flush(240) == 0

    def _put(self, table: str, key: str, value: str | None) -> None:
        self._now += 1
        row = Row(key, value, self._now)
        self._tables[table][key] = row
        self._send(table, row)

    def _send(self, topic: str, row: Row) -> None:
        producer = self._otherwise if topic == "orders" else self._producer
        value = None if row.value is None else row.value.encode()
        producer.produce(f"{self.prefix}-{topic}", value, row.key, timestamp=row.timestamp)
        producer.poll(0)

    # --- what comes out --------------------------------------------------------------------------------------------

    def is_committed(self) -> bool:
        """The group has committed all that was sent."""
        inputs = [TopicPartition(f"{self.prefix}-{name}", number) for name in INPUTS for number in range(PARTITIONS)]
        with_end = self._reader()
        try:
            ends = {(tp.topic, tp.partition): with_end.get_watermark_offsets(tp, 240)[1] for tp in inputs}
        finally:
            with_end.close()
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.prefix, inputs)])[self.prefix]
        committed = {(tp.topic, tp.partition): tp.offset for tp in asked.result(240).topic_partitions}
        return all(end == 0 or committed.get(tp, -1) >= end for tp, end in ends.items())

    def records(self, topic: str) -> list[Any]:
        """All committed records of a topic of the application, partition by partition."""
        reader = self._reader()
        try:
            found, ended = [], set()
            reader.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
            deadline = time.monotonic() + 240
            while len(ended) < PARTITIONS:
                assert time.monotonic() < deadline, f"{topic} could not be read to its end within 240 s"
                for message in reader.consume(5_000, 0.5):
                    error = message.error()
                    if error is None:
                        found.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:  # others pass
                        ended.add(message.partition())
            return found
        finally:
            reader.close()

    def out(self, name: str) -> list[Row]:
        return [_row(message) for message in self.records(f"{self.prefix}-{name}")]

    def latest(self, name: str) -> dict[str, tuple[str, int]]:
        """The last row of each key, tombstones left out."""
        rows = {row.key: row for row in self.out(name)}
        return {row.key: (row.value, row.timestamp) for row in rows.values() if row.value is not None}

    def changelog(self, store: str) -> list[Row]:
        """Of a key-value store."""
        return [_row(message) for message in self.records(f"{self.prefix}-{store}-changelog")]

    def window_changelog(self) -> dict[str, tuple[int, int]]:
        """Kafka's bytes of a window store: key, begin (8), sequence number (4); the value is the count."""
        found = {}
        for message in self.records(f"{self.prefix}-windows-changelog"):
            (begin,) = struct.unpack(">q", message.key()[-12:-4])
            count = int.from_bytes(message.value(), "big", signed=True)
            found[f"{message.key()[:-12].decode()}@{begin}"] = (count, message.timestamp()[1])
        return found

    def _reader(self) -> Consumer:
        settings = {"group.id": "reads without a group", "isolation.level": "read_committed", "enable.auto.commit": False}
        return Consumer({**self._servers, **settings, "enable.partition.eof": True})


def _row(message: Any) -> Row:
    value = message.value()
    return Row(message.key().decode(), None if value is None else value.decode(), message.timestamp()[1])


def wrong(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key -> (found, expected) where they are not the same."""
    keys = {*found, *expected}
    return {key: (found.get(key), expected.get(key)) for key in keys if found.get(key) != expected.get(key)}

"""Programs as a type checker sees them (``make lint``): what is right passes, and each line with an ignored error is one.

mypy is strict about ignored errors: one that is not found any more is an error itself. Nothing runs this file.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemill import (
    Aggregators,
    BatchId,
    JoinWindows,
    KeyValueMapper,
    ProcessorContext,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    ValueMapper,
    of_columns,
    per_batch,
    per_record,
    per_record_async,
)

ORDER = Serdes.json("customer string, amount double")
WINDOWS = JoinWindows.of_time_difference(1_000)
builder = StreamsBuilder()
orders = builder.stream("orders", key=Serdes.string(), value=ORDER, timestamp_extractor=lambda record, before: record.timestamp)
customers = builder.table("customers", key=Serdes.string(), value=ORDER)
everywhere = builder.global_table("everywhere", key=Serdes.string(), value=ORDER)
by_customer = orders.group_by(lambda key, order: order["customer"], key=Serdes.string(), value=ORDER)

orders.to(lambda key, order, record: record.topic + "-late" if record.offset > 0 else f"to-{record.partition}")
orders.to(lambda key, order, record: record.timestamp)  # type: ignore[arg-type, return-value]

# --- functions of Columns ---

orders.map_values(lambda order: order["amount"] + 1).map_values(F.upper).map_values(lambda value: 1)
orders.map_values(lambda key, order: F.concat(key, order["customer"]))
orders.map_values(per_record(lambda order: order["amount"], Serdes.double()))
orders.map(lambda key, order: (order["customer"], order)).select_key(lambda key, order: order["customer"])
orders.flat_map(lambda key, order: F.array(F.struct(key, order))).flat_map_values(lambda text: F.split(text, " "))
orders.filter(lambda key, order: order["amount"] > 0).filter_not(per_record(lambda key, order: not order))
orders.split().branch(lambda key, order: order["amount"] > 9, name="large").default_branch()
customers.filter(lambda key, row: row["amount"] > 0).map_values(lambda row: row["amount"]).to_stream(lambda key, row: key)
amount: ValueMapper = lambda order: order["amount"]  # noqa: E731
customer: KeyValueMapper[Column] = lambda key, order: order["customer"]  # noqa: E731
orders.map_values(amount)
orders.select_key(customer)

orders.map_values(lambda order: order.lower())  # type: ignore[operator]
orders.map_values(lambda key, order: order.get("amount"))  # type: ignore[arg-type, misc]
orders.filter(lambda key, order: len(order) > 0)  # type: ignore[arg-type]
orders.map(lambda key, order: order)  # type: ignore[arg-type, return-value]

# --- functions of batches, and async ones ---


async def asked(key: str, order: dict[str, object]) -> tuple[str, object]:
    return key, order


orders.map(per_batch(lambda keys, frame: (frame["customer"], frame), (Serdes.string(), ORDER)))
orders.map(per_record_async(asked, (Serdes.string(), ORDER))).flat_map(per_record_async(asked, max_in_flight=4))
orders.select_key(per_batch(lambda keys, frame: frame["customer"], Serdes.string(), form="pandas"))
orders.flat_map(per_batch(lambda keys, frame: ([], []))).flat_map_values(per_batch(lambda values: values.str.split(",")))

orders.map(per_record_async(lambda key, order: (key, order)))  # type: ignore[arg-type, return-value]
orders.group_by(per_batch(lambda keys, frame: frame["customer"]))  # type: ignore[arg-type]

# --- functions of Python values ---


def shown(key: str, order: dict[str, object]) -> None:
    print(key, order)


def longer(left: str, right: str) -> str:
    return max(left, right, key=len)


class Forwarding:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Doubling:
    def transform(self, key: str, value: int) -> int:
        return 2 * value


orders.peek(shown).peek(print)
orders.to("copies", partitioner=lambda topic, key, value, partitions: {0, partitions - 1})
orders.to(lambda key, order, record: f"orders-{record.key}")
orders.process(Forwarding, Stores.key_value_store("kept"), "another")
customers.transform_values(Doubling)
customers.group_by(lambda key, row: (row["customer"], row)).count()
by_customer.reduce(of_columns(lambda total, order: total + order))
by_customer.aggregate(lambda: 0, lambda key, order, count: count + 1, value=Serdes.long())
by_customer.windowed_by(TimeWindows.of_size(10)).aggregate(*Aggregators.sum(Serdes.double(), lambda order: order["amount"]))
amounts = Aggregators.mean(lambda order: order["amount"])
by_customer.windowed_by(SessionWindows.of_inactivity_gap(10)).aggregate(*amounts, amounts.merger, store="sessions")
customers.group_by(lambda key, row: (row["customer"], row)).aggregate(*amounts, amounts.subtractor, store="means")

orders.peek(lambda order: str(order).strip())  # type: ignore[arg-type, misc]
orders.process(Doubling)  # type: ignore[arg-type]
by_customer.reduce(lambda total: total)  # type: ignore[arg-type, misc]

# --- joins ---

orders.join(orders, longer, WINDOWS).left_join(orders, lambda key, left, right: left, WINDOWS)
orders.join(customers, longer).left_join(customers, of_columns(lambda left, right: left["amount"] + right["amount"]))
orders.join(everywhere, longer, selector=lambda key, order: order["customer"])
customers.join(customers, longer, foreign_key=lambda row: row["customer"])
customers.left_join(customers, longer, foreign_key=lambda key, row: row["customer"])
orders.join_dataframe(lambda session: session.table("names"), lambda order, row: row["name"], on="id")

orders.join(orders, longer)  # type: ignore[call-overload]
orders.join(everywhere, longer)  # type: ignore[call-overload]
orders.join(customers, longer, WINDOWS)  # type: ignore[call-overload]
orders.join(customers, of_columns(lambda left, right: left.lower()))  # type: ignore[operator]

# --- batches ---


def written(rows: DataFrame, batch: BatchId) -> None:
    rows.write.saveAsTable(str(batch))


orders.foreach_batch(written)
orders.foreach_batch(lambda rows, batch: rows.nothing_of_a_dataframe())  # type: ignore[operator]

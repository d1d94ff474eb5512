"""Branches: orders sorted by their size into topics, with the rest counted apart.

Shows JSON values, split, select_key, and several outputs from one input.
"""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

config = {"application.id": "order-branches", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()

order = Serdes.json("customer string, item string, amount double")
orders = builder.stream("orders", key=Serdes.string(), value=order)

branches = (
    orders.filter(lambda _, order: order["amount"] > 0, name="valid")
    .split(name="by-size-")
    .branch(lambda _, order: order["amount"] >= 1000, name="large")
    .branch(lambda _, order: order["amount"] >= 100, name="medium")
    .default_branch(name="small")
)
branches["by-size-large"].to("orders-large")
branches["by-size-medium"].to("orders-medium")
(
    branches["by-size-small"]
    .map_values(lambda order: F.upper(order["item"]))
    .select_key(lambda _, item: item)
    .group_by_key(key=Serdes.string(), value=Serdes.string())
    .count(store="small-orders-per-item")
    .to_stream()
    .to("small-orders-per-item")
)

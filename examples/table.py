"""A table: the latest address of each user, kept in a store, with only some countries passed on.

Run with ``topology.optimization`` set to ``all``, the input topic itself serves as the store's changelog.
"""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

config = {
    "application.id": "addresses",
    "bootstrap.servers": "localhost:9092",
    "topology.optimization": "reuse.ktable.source.topics",
}
builder = StreamsBuilder()

address = Serdes.json("street string, city string, country string")
users = builder.table("addresses", key=Serdes.string(), value=address, store="addresses-store")

cities = users.filter(lambda _, address: address["country"].isin("JP", "KR")).map_values(
    lambda address: F.initcap(address["city"]), value=Serdes.string()
)
cities.to_stream().to("cities")  # a user who moves abroad, or is deleted, becomes a null value here

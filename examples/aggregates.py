"""Aggregates: per sensor the highest reading, and mean with count, by functions on Python values.

Shows reduce and aggregate; both share one repartition topic, because the group is named.
"""

from tidemill import Serdes, StreamsBuilder

config = {"application.id": "sensor-aggregates", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()

readings = builder.stream("readings", key=Serdes.string(), value=Serdes.double())
by_sensor = readings.select_key(lambda place, _: place.substr(1, 8)).group_by_key(
    key=Serdes.string(), value=Serdes.double(), name="by-sensor"
)

highest = by_sensor.reduce(max, store="highest-reading")
highest.to_stream().to("highest-readings")


def with_reading(_: str, reading: float, so_far: dict) -> dict:
    """The mean of one reading more."""
    count = so_far["count"] + 1
    return {"count": count, "mean": so_far["mean"] + (reading - so_far["mean"]) / count}


means = by_sensor.aggregate(
    lambda: {"count": 0, "mean": 0.0},
    with_reading,
    store="mean-reading",
    value=Serdes.json("count bigint, mean double"),
)
means.to_stream().to("mean-readings")

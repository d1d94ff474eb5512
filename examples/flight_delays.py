"""Flight delays: mean departure delay per airport in windows of three hours, a new one every hour.

Shows hopping windows with grace, an aggregate of two numbers, and results whose keys carry their window.
Feed it with `python examples/feeds/flight_records.py` (every flight that left New York in 2013).
"""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder, TimeWindows, WindowedSerdes

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS  # a flight is known when it has left, and that may be long after its time
FLIGHT = Serdes.json("carrier string, flight int, tailnum string, origin string, dest string, dep_delay double, hour_at bigint")
DELAY = Serdes.json("flights bigint, minutes double")

config = {"application.id": "flight-delays", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()


def with_flight(_airport: str, flight: dict, so_far: dict) -> dict:
    return {"flights": so_far["flights"] + 1, "minutes": so_far["minutes"] + flight["dep_delay"]}


flights = builder.stream("flights", key=Serdes.string(), value=FLIGHT)
delays = (
    flights.filter(lambda _, flight: flight["dep_delay"].isNotNull())  # what was cancelled has no delay
    .group_by(lambda _, flight: flight["origin"], key=Serdes.string(), value=FLIGHT)
    .windowed_by(TimeWindows.of_size(3 * HOUR_MS, advance=HOUR_MS, grace=DAY_MS))
    .aggregate(lambda: {"flights": 0, "minutes": 0.0}, with_flight, store="delays", value=DELAY)
)
mean = delays.to_stream().map_values(lambda delay: F.round(delay["minutes"] / delay["flights"], 2))
mean.to("delays", key=WindowedSerdes.time_windowed_serde_from(Serdes.string(), 3 * HOUR_MS), value=Serdes.double())

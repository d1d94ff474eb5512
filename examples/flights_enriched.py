"""Flights with the name of their airline, the make of their plane and the weather of their hour.

Shows three joins of a stream: with a table of another key (planes: the stream goes through a repartition topic), with a table
whose key is made of two fields (weather, by hour) and with a global table (airlines: small, whole on every instance).
Feed it with `python examples/feeds/flight_records.py`.
"""

from pyspark.sql import functions as F

from tidemill import Joined, Serdes, StreamsBuilder, per_record

TEXT = Serdes.string()
FLIGHT = Serdes.json("carrier string, flight int, tailnum string, origin string, dest string, dep_delay double, hour_at bigint")
PLANE = Serdes.json("manufacturer string, model string, seats int")
WEATHER = Serdes.json("temp double, wind_speed double, visib double")
ENRICHED = Serdes.json(
    "carrier string, flight int, tailnum string, origin string, dest string, dep_delay double, hour_at bigint,"
    " airline string, plane string, wind_speed double, visib double"
)

config = {"application.id": "flights-enriched", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()

airlines = builder.global_table("airlines", key=TEXT, value=TEXT)
planes = builder.table("planes", key=TEXT, value=PLANE, store="planes")
weather = builder.table("weather", key=TEXT, value=WEATHER, store="weather")


def with_airline(flight: dict, airline: str | None) -> dict:
    return {**flight, "airline": airline}


def with_plane(flight: dict, plane: dict | None) -> dict:
    return {**flight, "plane": None if plane is None else f"{plane['manufacturer']} {plane['model']}"}


def with_weather(flight: dict, hour: dict | None) -> dict:
    return flight if hour is None else {**flight, "wind_speed": hour["wind_speed"], "visib": hour["visib"]}


flights = builder.stream("flights", key=TEXT, value=FLIGHT)
by_plane = flights.select_key(lambda _, flight: flight["tailnum"])
planed = by_plane.left_join(planes, per_record(with_plane, ENRICHED), joined=Joined(key=TEXT, value=FLIGHT))
by_hour = planed.select_key(lambda _, flight: F.concat_ws("|", flight["origin"], flight["hour_at"]))
hourly = by_hour.left_join(weather, per_record(with_weather, ENRICHED), joined=Joined(key=TEXT, value=ENRICHED))
named = hourly.left_join(airlines, per_record(with_airline, ENRICHED), selector=lambda _, flight: flight["carrier"])
named.to("flights-enriched", key=TEXT, value=ENRICHED)

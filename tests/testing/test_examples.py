"""The examples, each as a user would try it: records in, results out, on the real plan."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tidemill import Serdes, Windowed, WindowedSerdes
from tidemill.testing import TestRecord

pytestmark = pytest.mark.spark
EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT, LONG = Serdes.string(), Serdes.long()
MINUTE, HOUR = 60_000, 3_600_000


@pytest.fixture(scope="module")
def tidemill_session(spark: SparkSession) -> SparkSession:
    return spark


@pytest.fixture(autouse=True)
def examples_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for folder in (EXAMPLES, EXAMPLES / "feeds"):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in [path.stem for path in EXAMPLES.glob("**/*.py")]:
        sys.modules.pop(name, None)


def example(name: str) -> Any:
    return importlib.import_module(name)


def test_flight_delays_are_the_means_of_each_airports_hours(topology_test_driver: Any) -> None:
    app, data = example("flight_delays"), example("flight_records")
    driver = topology_test_driver(app.builder)
    flights = driver.create_input_topic("flights", TEXT, TEXT)
    records = [TestRecord(key, value, at) for key, value, at in islice(data.flights(), 200)]
    flights.pipe_records(records, batch=50)
    key = WindowedSerdes.time_windowed_serde_from(TEXT, 3 * HOUR)
    found = driver.create_output_topic("delays", key, Serdes.double()).read_key_values_to_dict()
    expected: dict[Any, list[float]] = {}
    for record in records:
        flight = json.loads(record.value)
        if flight["dep_delay"] is None:
            continue
        for start in range(record.timestamp // HOUR * HOUR - 2 * HOUR, record.timestamp + 1, HOUR):
            expected.setdefault(Windowed(flight["origin"], start, start + 3 * HOUR), []).append(flight["dep_delay"])
    assert len(found) > 20
    assert found == {window: pytest.approx(sum(d) / len(d), abs=0.006) for window, d in expected.items()}


def test_flights_get_airline_plane_and_weather(topology_test_driver: Any) -> None:
    app, data = example("flights_enriched"), example("flight_records")
    driver = topology_test_driver(app.builder)
    flights = list(islice(data.flights(), 40))
    wanted = {json.loads(value)["tailnum"] for _, value, _ in flights}
    hours = {f"{json.loads(v)['origin']}|{json.loads(v)['hour_at']}" for _, v, _ in flights}
    tables = {
        "airlines": list(data.airlines()),
        "planes": [row for row in data.planes() if row[0] in wanted],
        "weather": [row for row in data.weather() if row[0] in hours],
    }
    for topic, rows in {**tables, "flights": flights}.items():
        into = driver.create_input_topic(topic, TEXT, TEXT)
        into.pipe_records([TestRecord(key, value, at) for key, value, at in rows], batch=None)
    found = driver.create_output_topic("flights-enriched", TEXT, app.ENRICHED).read_records()
    airlines, planes = {k: v for k, v, _ in tables["airlines"]}, {k: json.loads(v) for k, v, _ in tables["planes"]}
    weather = {k: json.loads(v) for k, v, _ in tables["weather"]}
    assert len(found) == 40
    assert {f"{r.value['carrier']}{r.value['flight']}" for r in found} == {key for key, _, _ in flights}
    for flight in (record.value for record in found):
        assert flight["airline"] == airlines[flight["carrier"]]
        plane = planes.get(flight["tailnum"])
        assert flight["plane"] == (plane and f"{plane['manufacturer']} {plane['model']}")
        hour = weather.get(f"{flight['origin']}|{flight['hour_at']}")
        assert (flight["wind_speed"], flight["visib"]) == ((hour["wind_speed"], hour["visib"]) if hour else (None, None))
    assert any(flight.value["plane"] for flight in found)
    assert any(flight.value["wind_speed"] for flight in found)


def test_a_click_session_is_sent_when_it_is_over(topology_test_driver: Any) -> None:
    app = example("click_sessions")
    driver = topology_test_driver(app.builder)
    clicks = driver.create_input_topic("clicks", TEXT, TEXT)
    key = WindowedSerdes.session_windowed_serde_from(TEXT)
    sessions = driver.create_output_topic("click-sessions", key, app.SESSION)
    for page, minute in (("home", 0), ("shop", 20), ("pay", 51), ("shop", 30)):  # the last joins two sessions
        clicks.pipe_input("ada", page, minute * MINUTE)
    assert sessions.is_empty
    driver.advance_wall_clock_time(2_000)  # windows that are over are looked for once a second
    clicks.pipe_input("grace", "home", 87 * MINUTE)
    window, session = sessions.read_key_value()
    assert window == Windowed("ada", 0, 51 * MINUTE)
    assert session["clicks"] == 4
    assert sorted(session["pages"]) == ["home", "pay", "shop"]
    assert sessions.is_empty


def test_the_fraud_rule_alerts_at_the_fourth_payment_and_forgets_after_a_minute(topology_test_driver: Any) -> None:
    app = example("fraud_rule")
    driver = topology_test_driver(app.builder)
    payments = driver.create_input_topic("payments", TEXT, app.PAYMENT)
    alerts = driver.create_output_topic("alerts", TEXT, app.ALERT)
    for second in (1, 2, 3):
        payments.pipe_input("card", {"amount": 10.0, "shop": "s"}, second * 1_000)
    assert alerts.is_empty
    payments.pipe_input("card", {"amount": 10.0, "shop": "t"}, 4_000)
    assert alerts.read_key_value() == ("card", {"payments": 4, "amount": 40.0, "shop": "t"})
    payments.pipe_input("other", {"amount": 2_000.0, "shop": "s"}, 5_000)
    assert alerts.read_key_value()[0] == "other"
    payments.pipe_input("third", {"amount": 1.0, "shop": "s"}, 70_000)
    assert [key for key, _ in driver.store("spent").all()] == ["third"]


def test_orders_are_paid_or_said_to_be_unpaid(topology_test_driver: Any) -> None:
    app = example("order_payments")
    driver = topology_test_driver(app.builder)
    orders = driver.create_input_topic("orders", TEXT, app.ORDER)
    payments = driver.create_input_topic("order-payments", TEXT, app.PAYMENT)
    settled = driver.create_output_topic("settled-orders", TEXT, app.SETTLED)
    orders.pipe_input("1", {"customer": "ada", "total": 50.0}, 0)
    orders.pipe_input("2", {"customer": "grace", "total": 80.0}, MINUTE)
    payments.pipe_input("1", {"method": "card", "amount": 50.0}, 10 * MINUTE)
    assert settled.read_key_value() == (
        "1", {"customer": "ada", "total": 50.0, "paid": 50.0, "method": "card", "state": "paid"},
    )  # fmt: skip
    driver.advance_wall_clock_time(2_000)
    payments.pipe_input("3", {"method": "card", "amount": 1.0}, 3 * HOUR)
    orders.pipe_input("4", {"customer": "edsger", "total": 1.0}, 3 * HOUR)
    found = {key: value["state"] for key, value in settled.read_key_values()}
    assert found["2"] == "unpaid"


def test_the_customer_view_follows_both_tables_and_towns_lose_who_moves(topology_test_driver: Any) -> None:
    app = example("customer_view")
    driver = topology_test_driver(app.builder)
    customers = driver.create_input_topic("customers", TEXT, app.CUSTOMER)
    addresses = driver.create_input_topic("addresses", TEXT, app.ADDRESS)
    view = driver.create_output_topic("customer-view", TEXT, app.VIEW)
    towns = driver.create_output_topic("customers-by-town", TEXT, LONG)
    addresses.pipe_input("a1", {"street": "Main", "town": "Ithaca"}, 1)
    addresses.pipe_input("a2", {"street": "High", "town": "Oxford"}, 2)
    for number, name in enumerate(("ada", "grace"), start=1):
        customers.pipe_input(str(number), {"name": name, "address": "a1"}, 2 + number)
    customers.pipe_input("1", {"name": "ada", "address": "a2"}, 9)
    assert view.read_key_values_to_dict() == {
        "1": {"name": "ada", "street": "High", "town": "Oxford"},
        "2": {"name": "grace", "street": "Main", "town": "Ithaca"},
    }
    assert towns.read_key_values_to_dict() == {"Ithaca": 1, "Oxford": 1}
    addresses.pipe_input("a1", {"street": "Main", "town": "Rome"}, 10)
    assert towns.read_key_values_to_dict() == {"Ithaca": 0, "Rome": 1}
    customers.pipe_input("2", None, 11)
    assert dict(view.read_key_values()) == {"2": None}
    assert driver.store("customers-by-town").get("Rome") == (0, 11)

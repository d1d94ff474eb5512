"""Values as JSON has them in an answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal

from tidemill.query.http_answer import to_json


@dataclass
class Item:
    sku: bytes


@dataclass
class Order:
    at: datetime
    amount: Decimal
    items: list[Item]


def test_instances_are_objects_and_times_and_decimals_text() -> None:
    order = Order(datetime(2026, 1, 31, tzinfo=timezone.utc), Decimal("1.50"), [Item(b"\x01"), Item(b"")])
    expected = b'{"value":{"at":"2026-01-31T00:00:00+00:00","amount":"1.50","items":[{"sku":"01"},{"sku":""}]}}'
    assert to_json({"value": order}) == expected

"""Keys are compared as their bytes would be."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from tidemill.operators.record import is_same_value
from tidemill.topology.windows import Windowed

ALIKE = (
    0.0, -0.0, 0, False, Decimal("0"), Decimal("0.0"), "0", b"0", [0.0], [-0.0], {"a": 0.0}, {"a": -0.0}, {"b": 0.0}, None, "",
    Windowed(0.0, 0, 5), Windowed(-0.0, 0, 5), "é", "e\u0301",
)  # fmt: skip


def test_values_that_python_takes_for_one_differ_if_their_bytes_do() -> None:
    for at, one in enumerate(ALIKE):
        assert [other for number, other in enumerate(ALIKE) if is_same_value(one, other) and number != at] == [], one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (math.nan, float("nan")), ({"a": [math.nan]}, {"a": [float("nan")]}), ((1, "x"), (1, "x")), (math.inf, math.inf),
        (Decimal("1.50"), Decimal("1.50")), (Windowed(math.nan, 0, 5), Windowed(float("nan"), 0, 5)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)  # fmt: skip
def test_equal_values_are_the_same(one: object, other: object) -> None:
    assert is_same_value(one, other)

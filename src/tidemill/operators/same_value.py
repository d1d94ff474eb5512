"""Equality of keys as in Java (``equals``), and so of their bytes.

Python's ``==`` differs for numbers: NaN is not equal to itself, 0.0 equals -0.0, and decimals of different scales are equal. In
doubt keys are unequal: two keys taken for one give wrong results, one key taken for two an additional intermediate result.
"""

from __future__ import annotations

import math
from decimal import Decimal


def is_same_value(one: object, other: object) -> bool:
    """True if both are the same value, also within structs, arrays and windowed keys."""
    if one is other:
        return True
    if isinstance(one, float) and isinstance(other, float):
        if one != other:
            return math.isnan(one) and math.isnan(other)
        return math.copysign(1.0, one) == math.copysign(1.0, other)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one.as_tuple() == other.as_tuple()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_value(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(is_same_value, one, other))
    return type(one) is type(other) and one == other

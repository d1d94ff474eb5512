"""Results of a user's function that stand for several values: a pair of a key and a value, or all that becomes of a record.

Decides what counts as one. Python itself would unpack a text of two characters, and take a text's characters or a dict's keys one
by one, without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemill.topology.values import Key, Value


def pair_of(result: object) -> tuple[Key, Value]:
    """Raises TypeError for what is no tuple or list of two."""
    if isinstance(result, (tuple, list)):
        if len(result) == 2:
            return result[0], result[1]
        raise TypeError(f"the function returned a {type(result).__name__} of {len(result)}, expected a pair (key, value)")
    raise TypeError(f"the function returned {_named(result)}, expected a pair (key, value)")


def several_of(result: object) -> Iterable[Value]:
    """Raises TypeError for a text, bytes, a dict, and what can't be iterated."""
    if isinstance(result, list):
        return result
    if isinstance(result, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(result, Iterable):
        expected = "a list of what becomes of the record: [result] for one, [] for none"
        raise TypeError(f"the function returned {_named(result)}, expected {expected}")
    return result


def _named(result: object) -> str:
    return "None" if result is None else f"a value of type {type(result).__name__}"

"""Keys and values as a program has them: Python values of the types that its serdes read and write.

Decides nothing about them. Not ``object``, since functions of the program declare the types that they get.
"""

from __future__ import annotations

from typing import Any

Key = Any
"""A record's key, decoded; None where it is null."""

Value = Any
"""A record's value, decoded; None where it is null."""

TableRow = tuple[Value, int]
"""A table's row of a key: (value, timestamp in ms since the epoch)."""

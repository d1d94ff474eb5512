"""Serdes that the program leaves open: the application's defaults take their place when a task's operators are made.

A serde that is made of others has ``with_defaults(key_serde, value_serde)``, which gives it with its own gaps filled.
"""

from __future__ import annotations

from tidemill.topology.nodes import Serde


def completed(serde: Serde | None, default: Serde, *, key_serde: Serde, value_serde: Serde) -> Serde:
    """The serde, ``default`` if there is none, without gaps: ``key_serde`` and ``value_serde`` are the application's defaults."""
    if serde is None:
        return default
    fill = getattr(serde, "with_defaults", None)
    if fill is None:
        return serde
    filled: Serde = fill(key_serde, value_serde)
    return filled

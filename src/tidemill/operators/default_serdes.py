"""Serdes that the program leaves open: the application's defaults take their place when a task's operators are made.

A serde around another one has ``with_inner(serde)``, which fills its gap: with the default of values, or of keys where it has
``inner_is_key``.
"""

from __future__ import annotations

from typing import overload

from tidemill.topology.values import Serde


@overload
def completed(serde: Serde | None, default: Serde, *, key_serde: Serde, value_serde: Serde) -> Serde: ...
@overload
def completed(
    serde: Serde | None, default: Serde | None, *, key_serde: Serde | None, value_serde: Serde | None
) -> Serde | None: ...
def completed(
    serde: Serde | None, default: Serde | None, *, key_serde: Serde | None, value_serde: Serde | None
) -> Serde | None:
    """The serde, ``default`` if there is none, without gaps: ``key_serde`` and ``value_serde`` are the application's defaults."""
    if serde is None:
        return default
    with_inner = getattr(serde, "with_inner", None)
    if with_inner is None:
        return serde
    filled: Serde = with_inner(key_serde if getattr(serde, "inner_is_key", False) else value_serde)
    return filled

"""Default serdes (``default.key.serde``, ``default.value.serde``) in place of those that the program does not name.

A serde around another one may lack its inner serde: ``with_inner(serde)`` sets it, to the default of values, or of keys if it
has ``inner_is_key``.
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
    """The serde, or ``default`` if there is none, complete with its inner serde. ``key_serde``, ``value_serde``: the defaults."""
    if serde is None:
        return default
    with_inner = getattr(serde, "with_inner", None)
    if with_inner is None:
        return serde
    filled: Serde = with_inner(key_serde if getattr(serde, "inner_is_key", False) else value_serde)
    return filled

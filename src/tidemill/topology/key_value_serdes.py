"""The serdes of keys and of values together: an application's defaults, a store's, those of records on their way.

Decides how gaps are filled. A program names serdes where it likes; what it leaves open is None until something else says it
(``default.key.serde``, ``default.value.serde``, the records that arrive). A serde around another one may lack its inner serde:
``with_inner(serde)`` sets it, to that of values, or of keys if it has ``inner_is_key``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueSerdes:
    """None: nothing says which."""

    key: Serde | None
    value: Serde | None

    @property
    def settled(self) -> tuple[Serde, Serde]:
        """Both, where all that is needed is known."""
        assert self.key is not None
        assert self.value is not None
        return self.key, self.value

    @property
    def missing(self) -> tuple[str, ...]:
        """``key``, ``value``: the sides that have none."""
        return tuple(side for side, serde in (("key", self.key), ("value", self.value)) if serde is None)

    def otherwise(self, other: KeyValueSerdes) -> KeyValueSerdes:
        """``other``'s where this one has none."""
        return KeyValueSerdes(
            key=other.key if self.key is None else self.key, value=other.value if self.value is None else self.value
        )

    def completed_by(self, known: KeyValueSerdes) -> KeyValueSerdes:
        """With their inner serdes, which those around another one may leave to ``known``."""
        return KeyValueSerdes(key=known.complete(self.key), value=known.complete(self.value))

    def complete(self, serde: Serde | None) -> Serde | None:
        """``serde``, if there is one, with its inner serde, which it may leave to these."""
        with_inner = getattr(serde, "with_inner", None)
        if with_inner is None:
            return serde
        complete: Serde = with_inner(self.key if getattr(serde, "inner_is_key", False) else self.value)
        return complete


NO_SERDES = KeyValueSerdes(key=None, value=None)

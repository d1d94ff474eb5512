"""What the serdes of this library have in common: which of them are equal, and what of them travels to the workers."""

from __future__ import annotations

from dataclasses import fields

from tidemill.topology.values import Serde


class StatefulSerde:
    """The base of all serdes here, and so of classes that a program derives from them: equality and pickling take in all that an
    instance has, be it a field or not."""

    __slots__ = ()

    def _state(self) -> tuple[dict[str, object], dict[str, object]]:
        """Its fields but for those that are made of others, and what a derived class has besides."""
        given = {part.name: getattr(self, part.name) for part in fields(self) if part.compare}  # type: ignore[arg-type]
        return given, {name: value for name, value in getattr(self, "__dict__", {}).items() if name not in given}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._state() == self._state()

    def __hash__(self) -> int:
        return hash((type(self), *self._state()[0].values()))

    def __reduce__(self) -> tuple[object, ...]:
        return _with_state, (type(self), *self._state())


def _with_state(kind: type[Serde], given: dict[str, object], besides: dict[str, object]) -> Serde:
    serde = object.__new__(kind)
    for name, value in given.items():
        object.__setattr__(serde, name, value)
    if hasattr(serde, "__post_init__"):
        serde.__post_init__()
    if besides:
        serde.__dict__.update(besides)
    return serde

"""The serdes of stores: bytes that can't be read are an error that names the store, not the record being processed.

Decides the message only. A retry would read the same bytes, so the application must stop.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.errors import SerdeError, StoredBytesError
from tidemill.topology.values import Serde


def reading(serde: Serde, store: str) -> Callable[[bytes | None], object]:
    """The deserializer of ``store``'s values. Raises StoredBytesError."""
    read = serde.deserialize

    def deserialize(data: bytes | None) -> object:
        try:
            return read(data)
        except SerdeError as problem:
            raise StoredBytesError(store, str(problem)) from problem

    return deserialize


class StoredSerde:
    """A store's serde: ``serde``, with errors that name the store."""

    __slots__ = ("deserialize", "inner", "name", "serialize", "sql_type")

    def __init__(self, serde: Serde, store: str) -> None:
        self.name, self.sql_type = serde.name, serde.sql_type
        self.serialize: Callable[[object], bytes | None] = serde.serialize
        self.deserialize = reading(serde, store)
        self.inner: Serde | None = getattr(serde, "inner", None)
        """The inner serde, of a serde around another one."""

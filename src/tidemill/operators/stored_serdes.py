"""The serdes of stores: what a store holds and can't be read is an error that names the store, not the record at work.

Decides the sentence only. Such bytes stay what they are however often a batch is run, so the application must stop.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.errors import SerdeError, StoredBytesError
from tidemill.topology.values import Serde


def reading(serde: Serde, store: str) -> Callable[[bytes | None], object]:
    """How the values that ``store`` holds are read. Raises StoredBytesError."""
    read = serde.deserialize

    def deserialize(data: bytes | None) -> object:
        try:
            return read(data)
        except SerdeError as problem:
            raise StoredBytesError(store, str(problem)) from problem

    return deserialize


class StoredSerde:
    """A store's serde: ``serde``, whose reading is the store's."""

    __slots__ = ("deserialize", "inner", "name", "serialize", "sql_type")

    def __init__(self, serde: Serde, store: str) -> None:
        self.name, self.sql_type = serde.name, serde.sql_type
        self.serialize: Callable[[object], bytes | None] = serde.serialize
        self.deserialize = reading(serde, store)
        self.inner: Serde | None = getattr(serde, "inner", None)
        """Of a serde around another one."""

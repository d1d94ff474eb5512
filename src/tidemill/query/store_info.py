"""Description of a store for readers: directories of its tasks, serdes of its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.dsl.value_types import as_python
from tidemill.errors import QueryError, RetriableError, SerdeError, UnknownStoreError
from tidemill.operators.segments import LONG_MAX
from tidemill.printable import repr_of, said_by
from tidemill.state.keys import TIMESTAMP_SIZE
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreInfo:
    """A store. ``folder``: where its files lie below a task's directory; ``source_topics``: what its sub-topology reads."""

    name: str
    subtopology: int
    key_serde: Serde
    value_serde: Serde
    timestamped: bool
    changelog: str | None
    source_topics: tuple[str, ...]
    is_placed: bool
    """Its keys are where the default partitioner says (``keys_are_placed``)."""
    folder: str = ""
    store: Store | None = None
    """The topology's: its kind, and what it needs to know of windows."""

    @property
    def is_versioned(self) -> bool:
        """Its rows have every version; read as a key-value store it has the newest ones, with the times from which they hold."""
        return self.store is not None and self.store.kind is StoreKind.VERSIONED

    @property
    def layout(self) -> str:
        """What the bytes of its rows are as instances send them to each other. Those of two programs in a rolling upgrade may
        differ: a changelog can be read by stores of several kinds, rows can't. Read as a key-value store, a versioned one is a
        timestamped one."""
        kind = StoreKind.TIMESTAMPED_KEY_VALUE if self.timestamped else StoreKind.KEY_VALUE
        kept, windows = self.store, ""
        if kept is not None:
            kind = kind if kept.kind in _OF_KEYS else kept.kind
            windows = f" windows_ms={kept.windows}" if kept.windows is not None else ""
        return f"{kind.value} key={self.key_serde.name} value={self.value_serde.name}{windows}"

    def key_bytes(self, key: object) -> bytes:
        """QueryError if the key is null or not of the serde's type."""
        return self.bytes_of(key, self.key_serde, "key")

    def bytes_of(self, given: object, serde: Serde, what: str) -> bytes:
        """A key, or a prefix of keys, as ``serde`` writes it. QueryError if it is null or not of the serde's type."""
        try:
            data = serde.serialize(given)
        except RetriableError:
            raise
        except Exception as error:  # a serde of the application's own may raise any
            said = said_by(error)
            found = said.partition("; ")[0] if isinstance(error, SerdeError) else f"{type(error).__name__}: {said}"
            instead = as_python(given) or f"one that the serde {serde.name} writes"
            raise QueryError(f"{self.name}: {repr_of(given):.80} is no {what} of this store: {found}; give {instead}") from error
        if data is None:
            raise QueryError(f"{self.name}: null is no {what}: give one that the serde {serde.name} writes")
        return data

    def require_keys(self, *bounds: object) -> None:
        """QueryError if one is of another type; None is no bound."""
        for bound in bounds:
            if bound is not None:
                self.key_bytes(bound)

    def require_times(self, *times: object) -> None:
        """QueryError if one is no time in ms."""
        for given in times:
            if not isinstance(given, int) or isinstance(given, bool) or given > LONG_MAX:
                instead = as_python(given) or ("int(value.timestamp() * 1000)" if hasattr(given, "timestamp") else "")
                advice = f": give {instead}" if instead else ""
                raise QueryError(f"{self.name}: a time is {given!r}, expected ms as a whole number below 2^63{advice}")

    def key(self, data: bytes) -> Any:
        return self.key_serde.deserialize(data)

    def value(self, stored: bytes) -> Any:
        return self.value_serde.deserialize(stored[TIMESTAMP_SIZE:] if self.timestamped else stored)

    def timestamp_ms(self, stored: bytes) -> int | None:
        """None for a store that keeps no timestamps."""
        return int.from_bytes(stored[:TIMESTAMP_SIZE], "big", signed=True) if self.timestamped else None


_OF_KEYS = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.VERSIONED)
_KEPT_FOR_OPERATORS = (StoreKind.SUPPRESS_BUFFER, StoreKind.GRACE_BUFFER, StoreKind.OUTER_JOIN, StoreKind.SUBSCRIPTIONS)


def readable_store(stores: Mapping[str, StoreInfo], name: str) -> StoreInfo:
    """UnknownStoreError if the topology has none of this name, QueryError if its rows mean something to operators only."""
    found = known_store(stores, name)
    if found.store is not None and found.store.kind in _KEPT_FOR_OPERATORS:
        raise QueryError(
            f"{name} is a {found.store.kind.value.replace('_', ' ')}, which an operator keeps for itself: "
            "key-value, window, session and versioned stores can be read"
        )
    return found


def known_store(stores: Mapping[str, StoreInfo], name: str) -> StoreInfo:
    """UnknownStoreError if the topology has none of this name."""
    found = stores.get(name) if isinstance(name, str) else None
    if found is None:
        raise UnknownStoreError(name, stores)
    return found

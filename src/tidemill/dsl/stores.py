"""Stores: state stores that a program adds for its processors, and those of stream joins.

Decides kinds and defaults as Kafka Streams' ``Stores``: persistent, with a changelog. The names of the functions are those of
``Stores.*Builder``; ``persistent=False`` is its ``inMemory...``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.dsl.arguments import serde_or_none
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde


class Stores(Spelled):
    """Makes stores for ``add_state_store``, ``add_global_store`` and ``StreamJoined`` (org.apache.kafka.streams.state.Stores).

    ``key`` and ``value`` are serdes; without them the default serdes hold. ``persistent`` False: in memory. ``logged`` False: no
    changelog. Durations are ms or timedelta.

    Raises:
        TopologyError: for an illegal name, what is no serde, or a window longer than its retention.
    """

    @staticmethod
    def key_value_store(
        name: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        persistent: bool = True,
        logged: bool = True,
        caching: bool = False,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Keys and values: ``get``, ``put``, ``delete``, ``range``, ``all``, ``prefix_scan``. As ``persistentKeyValueStore``."""
        return _store(name, StoreKind.KEY_VALUE, key, value, persistent, logged, caching, changelog_config)

    @staticmethod
    def timestamped_key_value_store(
        name: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        persistent: bool = True,
        logged: bool = True,
        caching: bool = False,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Keys, and values with the time of their last change in ms; what tables are kept in. As
        ``persistentTimestampedKeyValueStore``.
        """
        return _store(name, StoreKind.TIMESTAMPED_KEY_VALUE, key, value, persistent, logged, caching, changelog_config)

    @staticmethod
    def versioned_key_value_store(
        name: str,
        history_retention: Duration,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        logged: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """All versions of each key's value of the last ``history_retention`` (KIP-889): ``get_as_of(key, timestamp)``."""
        kept = milliseconds(history_retention, f"the store {name!r}: history_retention")
        return _store(name, StoreKind.VERSIONED, key, value, True, logged, False, changelog_config, retention_ms=kept)

    @staticmethod
    def window_store(
        name: str,
        retention: Duration,
        window_size: Duration,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        retain_duplicates: bool = False,
        timestamped: bool = False,
        persistent: bool = True,
        logged: bool = True,
        caching: bool = False,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Values by key and start of a window, kept for ``retention`` behind the newest. As ``persistentWindowStore``.

        ``retain_duplicates``: several of one key and time, as joins keep them. ``timestamped``: values carry their time.
        """
        kept = milliseconds(retention, f"the store {name!r}: retention")
        size = milliseconds(window_size, f"the store {name!r}: window_size")
        if size > kept:
            raise TopologyError(f"the store {name!r}: the window size of {size} ms is longer than the retention of {kept} ms")
        return _store(
            name, StoreKind.TIMESTAMPED_WINDOW if timestamped else StoreKind.WINDOW, key, value, persistent, logged, caching,
            changelog_config, retention_ms=kept, window_size_ms=size, retain_duplicates=retain_duplicates,
        )

    @staticmethod
    def session_store(
        name: str,
        retention: Duration,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        persistent: bool = True,
        logged: bool = True,
        caching: bool = False,
        changelog_config: Mapping[str, str] | None = None,
    ) -> Store:
        """Values by key, and start and end of a session, kept for ``retention`` behind the newest. As
        ``persistentSessionStore``.
        """
        kept = milliseconds(retention, f"the store {name!r}: retention")
        return _store(name, StoreKind.SESSION, key, value, persistent, logged, caching, changelog_config, retention_ms=kept)


def checked_store(store: object, operator: str) -> Store:
    """``store`` if it is one, else TopologyError."""
    if not isinstance(store, Store):
        raise TopologyError(f"{operator}: expected a store of Stores, such as Stores.key_value_store(name), got {store!r}")
    return store


def _store(
    name: str,
    kind: StoreKind,
    key: Serde | None,
    value: Serde | None,
    persistent: bool,
    logged: bool,
    caching: bool,
    changelog_config: Mapping[str, str] | None,
    retention_ms: int | None = None,
    window_size_ms: int | None = None,
    retain_duplicates: bool = False,
) -> Store:
    return Store(
        name=legal_name(name, "a store"), kind=kind, key_serde=serde_or_none(key, f"the store {name!r}: key"),
        value_serde=serde_or_none(value, f"the store {name!r}: value"), persistent=persistent, logged=logged, caching=caching,
        changelog_config=dict(changelog_config or {}), retention_ms=retention_ms, window_size_ms=window_size_ms,
        retain_duplicates=retain_duplicates,
    )

"""Stores: state stores that a program adds for its processors, and those of stream joins.

Decides kinds and defaults as Kafka Streams' ``Stores``: persistent, with a changelog. The names of the functions are those of
``Stores.*Builder``; ``persistent=False`` is its ``inMemory...``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
        return _legal(Store(
            name=name, kind=StoreKind.KEY_VALUE, key_serde=key, value_serde=value, persistent=persistent, logged=logged,
            caching=caching, changelog_config=changelog_config or {},
        ))  # fmt: skip

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
        return _legal(Store(
            name=name, kind=StoreKind.TIMESTAMPED_KEY_VALUE, key_serde=key, value_serde=value, persistent=persistent,
            logged=logged, caching=caching, changelog_config=changelog_config or {},
        ))  # fmt: skip

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
        return _legal(Store(
            name=name, kind=StoreKind.VERSIONED, key_serde=key, value_serde=value, logged=logged, caching=False,
            changelog_config=changelog_config or {}, retention_ms=kept,
        ))  # fmt: skip

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
        return _legal(Store(
            name=name, kind=StoreKind.TIMESTAMPED_WINDOW if timestamped else StoreKind.WINDOW, key_serde=key, value_serde=value,
            persistent=persistent, logged=logged, caching=caching, changelog_config=changelog_config or {}, retention_ms=kept,
            window_size_ms=size, retain_duplicates=retain_duplicates,
        ))  # fmt: skip

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
        return _legal(Store(
            name=name, kind=StoreKind.SESSION, key_serde=key, value_serde=value, persistent=persistent, logged=logged,
            caching=caching, changelog_config=changelog_config or {}, retention_ms=kept,
        ))  # fmt: skip


def checked_store(store: object, operator: str) -> Store:
    """``store`` if it is one, else TopologyError."""
    if not isinstance(store, Store):
        raise TopologyError(f"{operator}: expected a store of Stores, such as Stores.key_value_store(name), got {store!r}")
    return store


def _legal(store: Store) -> Store:
    """``store`` with its own copy of the changelog's settings. TopologyError for an illegal name, and for what is no serde."""
    name = store.name
    return replace(
        store,
        name=legal_name(name, "a store"),
        key_serde=serde_or_none(store.key_serde, f"the store {name!r}: key"),
        value_serde=serde_or_none(store.value_serde, f"the store {name!r}: value"),
        changelog_config=dict(store.changelog_config),
    )

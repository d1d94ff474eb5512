"""The classes of stores by kind, and the creation of a store over its rows.

A store class is called with ``(store, rows)``: the topology's ``Store``, serdes filled in, and the task's rows of it. It has
``restore(key, value, timestamp, headers)``, which turns a changelog record into rows (written by ``rows.put``, not logged),
and the reads and writes of its kind. What it logs is byte for byte what Kafka Streams logs; its rows are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.operators.grace_buffer import GraceBuffer
from tidemill.operators.key_value_store import KeyValueStore, TimestampedKeyValueStore
from tidemill.operators.outer_join_store import OuterJoinStore
from tidemill.operators.rows import Rows
from tidemill.operators.session_store import SessionStore
from tidemill.operators.stored_serdes import StoredSerde
from tidemill.operators.subscription_store import SubscriptionStore
from tidemill.operators.suppress_buffer import SuppressBuffer
from tidemill.operators.versioned_store import VersionedStore
from tidemill.operators.window_store import TimestampedWindowStore, WindowStore
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde

_CLASSES: Mapping[StoreKind, Callable[[Store, Rows], Any]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
    StoreKind.VERSIONED: VersionedStore,
    StoreKind.WINDOW: WindowStore,
    StoreKind.TIMESTAMPED_WINDOW: TimestampedWindowStore,
    StoreKind.SESSION: SessionStore,
    StoreKind.SUPPRESS_BUFFER: SuppressBuffer,
    StoreKind.OUTER_JOIN: OuterJoinStore,
    StoreKind.GRACE_BUFFER: GraceBuffer,
    StoreKind.SUBSCRIPTIONS: SubscriptionStore,
}


def store_of(store: Store, rows: Rows, default: KeyValueSerdes) -> Any:
    """The store object over ``rows``; ``default``: the serdes of a store that names none."""

    def stored(own: Serde | None, otherwise: Serde | None) -> Serde | None:
        serde = otherwise if own is None else default.complete(own)
        return None if serde is None else StoredSerde(serde, store.name)  # an application may have no default

    filled = replace(
        store,
        key_serde=stored(store.key_serde, default.key),
        value_serde=stored(store.value_serde, default.value),
        other_value_serde=stored(store.other_value_serde, default.value),
    )
    return _CLASSES[store.kind](filled, rows)

"""Materialized: how the store of a table is kept, and under which name it can be queried.

Decides the defaults (timestamped key-value, persistent, logged, cached, as the DSL of Kafka Streams) and what an
operator's ``store=`` may be. Leaves where stores live to ``tidemill.state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.dsl.arguments import serde_or_none
from tidemill.dsl.recorder import Recorder
from tidemill.errors import TopologyError
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Serde, Store, StoreKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """What ``store=`` takes where a name is not enough. ``name`` None: a generated name, not for queries."""

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    persistent: bool = True
    logged: bool = True
    caching: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)


def materialized(
    store: str | Materialized | None, operator: str, *, key: Serde | None = None, value: Serde | None = None
) -> Materialized | None:
    """The one description of a store that an operator's ``store=``, ``key=`` and ``value=`` make; None if none is given."""
    if store is None and key is None and value is None:
        return None
    if isinstance(store, str):
        store = Materialized(name=store)
    elif store is None:
        store = Materialized()
    elif not isinstance(store, Materialized):
        raise TopologyError(f"{operator}: store must be a name or a Materialized, got {store!r}")
    if store.name is not None:
        legal_name(store.name, "a store")
    return Materialized(
        name=store.name,
        key=serde_or_none(key or store.key, f"{operator}: key"),
        value=serde_or_none(value or store.value, f"{operator}: value"),
        persistent=store.persistent,
        logged=store.logged,
        caching=store.caching,
        changelog_config=dict(store.changelog_config),
    )


def store_of(
    recorder: Recorder,
    asked: Materialized | None,
    prefix: str,
    *,
    key: Serde | None = None,
    value: Serde | None = None,
) -> Store:
    """The store that was asked for; ``key`` and ``value`` are the serdes where it names none of its own.

    A store without a name gets a generated one, which uses up an index of the counter.
    """
    asked = asked or Materialized()
    return Store(
        name=asked.name if asked.name is not None else recorder.store_name(prefix),
        kind=StoreKind.TIMESTAMPED_KEY_VALUE,
        key_serde=asked.key or key,
        value_serde=asked.value or value,
        logged=asked.logged,
        persistent=asked.persistent,
        caching=asked.caching,
        changelog_config=asked.changelog_config,
    )

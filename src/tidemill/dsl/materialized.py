"""Materialized: how the store of a table is kept, and under which name it can be queried.

Decides the defaults (timestamped key-value, persistent, logged, cached, as the DSL of Kafka Streams) and what an
operator's ``store=`` may be. Leaves where stores live to ``tidemill.state``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemill.dsl.arguments import serde_or_none
from tidemill.dsl.recorder import Recorder
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde
from tidemill.topology.windows import MAX_TIME, AnyWindows, SessionWindows, SlidingWindows, TimeWindows, Windows, own_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized(Spelled):
    """The store of a table, for ``store=`` where a name is not enough (org.apache.kafka.streams.kstream.Materialized).

    ``name`` None: a generated name, not for queries. ``key`` and ``value`` are serdes. ``persistent`` False: in memory, as
    ``Stores.inMemory...``; None: as ``dsl.store.suppliers.class`` says. ``logged`` False: no changelog, so the state is lost
    with the directory. ``caching`` False: every change of the table is forwarded, where it may else be the last one of a row and
    micro-batch. ``changelog_config``: settings of the changelog topic, over those of ``topic.*``.

    Raises:
        TopologyError: from the operator that gets it, for a retention shorter than its windows need, or one of the wrong kind.
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    persistent: bool | None = None
    logged: bool = True
    caching: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    retention: Duration | None = None
    """Retention of windows and sessions, in ms or a timedelta, if longer than size and grace require."""
    history_retention: Duration | None = None
    """Makes the store a versioned one (KIP-889): rows can be looked up as of times up to this long ago, in ms or a timedelta."""
    headers: bool | None = None
    """Rows carry the headers of the record that made them; None: as ``dsl.store.format`` says."""


def materialized(
    store: str | Materialized | None, operator: str, *, key: Serde | None = None, value: Serde | None = None
) -> Materialized | None:
    """The description of a store that an operator's ``store=``, ``key=`` and ``value=`` make; None if none is given.

    Raises:
        TopologyError: ``store`` is none, has an illegal name, or ``key`` or ``value`` is no serde.
    """
    if store is None and key is None and value is None:
        return None
    if isinstance(store, str):
        store = Materialized(name=store)
    elif store is None:
        store = Materialized()
    elif isinstance(store, Store):
        raise TopologyError(
            f"{operator}: store must be a name or a Materialized, got the store {store.name!r} of Stores, which is for"
            f" processors; write {_as_materialized(store)}"
        )
    elif not isinstance(store, Materialized):
        raise TopologyError(f"{operator}: store must be a name or a Materialized, got {store!r}")
    if store.name is not None:
        legal_name(store.name, "a store")
    return replace(
        store,
        key=serde_or_none(store.key if key is None else key, f"{operator}: key"),
        value=serde_or_none(store.value if value is None else value, f"{operator}: value"),
        changelog_config=dict(store.changelog_config),
    )


def _as_materialized(store: Store) -> str:
    """The Materialized that says what a store of ``Stores`` does; the serdes, which have no short text, are left out."""
    versioned = store.kind is StoreKind.VERSIONED
    said = {
        "name": store.name,
        "history_retention": store.retention_ms if versioned else None,
        "retention": None if versioned else store.retention_ms,
        "persistent": None if store.persistent else False,
        "logged": None if store.logged else False,
    }
    return f"Materialized({', '.join(f'{key}={value!r}' for key, value in said.items() if value is not None)})"


def queryable_name(asked: Materialized | None) -> str | None:
    """The name under which a table can be queried: one that the program gave."""
    return None if asked is None else asked.name


def store_of(
    recorder: Recorder,
    asked: Materialized | None,
    prefix: str,
    *,
    key: Serde | None = None,
    value: Serde | None = None,
) -> Store:
    """The key-value store that was asked for; ``key`` and ``value`` are the serdes where it names none of its own.

    A store without a name gets a generated one, which uses up an index of the counter.
    """
    asked = asked or Materialized()
    if asked.retention is not None:
        raise TopologyError(
            f"the store {asked.name!r}: retention is for windows and sessions; for the history of a table give"
            " history_retention"
        )
    versioned = asked.history_retention is not None
    return Store(
        name=_name(recorder, asked, prefix),
        kind=StoreKind.VERSIONED if versioned else StoreKind.TIMESTAMPED_KEY_VALUE,
        key_serde=asked.key or key,
        value_serde=asked.value or value,
        logged=asked.logged,
        persistent=asked.persistent is not False,
        caching=asked.caching and not versioned,
        changelog_config=asked.changelog_config,
        retention_ms=None if asked.history_retention is None else milliseconds(asked.history_retention, "history_retention"),
        with_headers=bool(asked.headers),
        left_open=frozenset() if versioned else _left_open(asked),
    )


def window_store_of(
    recorder: Recorder,
    asked: Materialized | None,
    prefix: str,
    windows: AnyWindows,
    *,
    key: Serde | None = None,
    value: Serde | None = None,
) -> Store:
    """The store of a windowed aggregation, kept as long as ``windows`` need or as was asked for."""
    asked = asked or Materialized()
    if asked.history_retention is not None:
        raise TopologyError(f"the store {asked.name!r}: windows can't be kept in a versioned store; leave history_retention out")
    needed = windows.retention
    kept = needed if asked.retention is None else milliseconds(asked.retention, "retention")
    name = _name(recorder, asked, prefix)
    if kept < needed:
        raise TopologyError(
            f"the store {name!r}: the retention of {kept} ms is shorter than its windows and their grace, {needed} ms; give"
            " at least that"
        )
    return Store(
        name=name,
        kind=StoreKind.SESSION if isinstance(windows, SessionWindows) else StoreKind.TIMESTAMPED_WINDOW,
        key_serde=asked.key or key,
        value_serde=asked.value or value,
        logged=asked.logged,
        persistent=asked.persistent is not False,
        caching=asked.caching,
        changelog_config=asked.changelog_config,
        retention_ms=kept,
        reach_ms=windows.reach,
        window_size_ms=_size(windows),
        own_windows=own_windows(windows),
        windows=_spelling(windows),
        with_headers=bool(asked.headers),
        left_open=_left_open(asked),
    )


def _left_open(asked: Materialized) -> frozenset[str]:
    said = {"persistent": asked.persistent, "with_headers": asked.headers}
    return frozenset(name for name, value in said.items() if value is None)


def _name(recorder: Recorder, asked: Materialized, prefix: str) -> str:
    return asked.name if asked.name is not None else recorder.store_name(prefix)


def _spelling(windows: AnyWindows) -> str | None:
    """Where windows begin and end, in ms: no grace, and no gap of sessions, which may change."""
    match windows:
        case TimeWindows(size=None, start=start):
            return f"from/{start}"
        case TimeWindows(size=size, advance=advance):
            return f"{size}/{advance}"
        case SlidingWindows(difference=difference):
            return f"sliding/{difference}"
    return None


def _size(windows: AnyWindows) -> int | None:
    match windows:
        case Windows(size=size):
            return MAX_TIME if size is None else size
        case SlidingWindows(difference=difference):
            return difference
        case SessionWindows():
            return None

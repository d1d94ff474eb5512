"""The argument ``joined`` of joins, where a name is not enough: names, serdes, stores, grace.

``StreamJoined`` is for two streams, ``Joined`` for a stream and a table, ``TableJoined`` for tables by foreign key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidemill.dsl.arguments import serde_or_none
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.durations import Duration
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store
from tidemill.topology.partitioning import StreamPartitioner
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoined(Spelled):
    """Options of a stream-stream join (org.apache.kafka.streams.kstream.StreamJoined).

    ``name`` begins the names of the join's operators and repartitions, ``store_name`` those of its stores. ``key``, ``value`` and
    ``other_value`` are serdes: of both sides' keys, of this side's values, of the other's. ``this_store`` and ``other_store``
    (``Stores.window_store(..., retain_duplicates=True)``) replace the stores.
    """

    name: str | None = None
    store_name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    this_store: Store | None = None
    other_store: Store | None = None
    persistent: bool | None = None
    logged: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Spelled):
    """Options of a stream-table join (org.apache.kafka.streams.kstream.Joined).

    ``name`` names the join and its repartition; ``key``, ``value`` and ``other_value`` are serdes, as in ``StreamJoined``.
    ``grace`` (ms or timedelta): how long records wait, to see a versioned table as of their time (KIP-923).
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    other_value: Serde | None = None
    grace: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoined(Spelled):
    """Options of a foreign-key join of two tables (org.apache.kafka.streams.kstream.TableJoined, KIP-213 and KIP-775).

    ``name`` begins the names of all that the join makes. ``partitioner(topic, key, value, partitions)`` says where the left
    table's keys are, ``other_partitioner`` the right one's, where their writers did not use murmur2.
    """

    name: str | None = None
    partitioner: StreamPartitioner | None = None
    other_partitioner: StreamPartitioner | None = None


AnyJoined = TypeVar("AnyJoined", StreamJoined, Joined, TableJoined)


def joined_as(kind: type[AnyJoined], joined: object, name: str | None, operator: str) -> AnyJoined:
    """``joined`` with ``name`` where it gives none; TopologyError if it is of another kind."""
    given = kind() if joined is None else joined
    if not isinstance(given, kind):
        raise TopologyError(f"{operator}: joined must be a {kind.__name__} here, got {joined!r}")
    for what in ("key", "value", "other_value"):
        if hasattr(given, what):
            serde_or_none(getattr(given, what), f"{operator}: {what}")
    name = given.name if name is None else name
    return replace(given, name=None if name is None else legal_name(name, "a join"))

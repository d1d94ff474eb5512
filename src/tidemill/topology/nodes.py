"""The nodes of a topology: immutable values, made by the DSL, read by describe, the leader and the Spark compiler.

Decides what a node says about itself. Leaves numbering into sub-topologies to ``graph``, names to ``naming``, text to
``describe`` and execution to ``tidemill.spark``. Functions held here are opaque: nothing in this package calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

UserFunction = Callable[..., Any]


class Serde(Protocol):
    """How keys and values are written as bytes; ``tidemill.dsl.serdes`` has them.

    ``None`` is Kafka's null: every serde writes it as None and reads None as it.
    """

    @property
    def name(self) -> str:
        """The name for configuration and messages: ``string``, ``long`` ..."""

    @property
    def sql_type(self) -> str:
        """The Spark type of the values, as DDL text."""

    def serialize(self, value: Any) -> bytes | None:
        """The bytes of a value; SerdeError where the value is not of the serde's type."""

    def deserialize(self, data: bytes | None) -> Any:
        """The value of the bytes; SerdeError where they can't be read."""


class StoreKind(Enum):
    KEY_VALUE = "key_value"
    TIMESTAMPED_KEY_VALUE = "timestamped_key_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A state store: its kind, how its rows are written and whether it has a changelog.

    ``source_topic`` is the source topic that serves as changelog (``topology.optimization``), else None; where it is
    set nothing is logged, and ``logged`` is False.
    """

    name: str
    kind: StoreKind
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    logged: bool = True
    persistent: bool = True
    caching: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    source_topic: str | None = None


# --- operations: what a processor node does ------------------------------------------------------------------------
# Functions over (key, value) get and return PySpark Columns unless said otherwise.


@dataclass(frozen=True, slots=True)
class Map:
    """``function(key, value) -> (key, value)``; changes the key."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class MapValues:
    """``function(value) -> value``, or ``function(key, value) -> value`` where ``takes_key``."""

    function: UserFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class FlatMap:
    """``function(key, value) -> array of struct(key, value)``; changes the key."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    """``function(value) -> array of values``, or ``function(key, value) -> array of values`` where ``takes_key``."""

    function: UserFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Passes a record when ``predicate(key, value)`` is true (``negate``: when it is not)."""

    predicate: UserFunction
    negate: bool = False


@dataclass(frozen=True, slots=True)
class SelectKey:
    """``function(key, value) -> key``; also what group_by inserts."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class Peek:
    """``function(key, value)`` for its side effect, in a Python worker, on decoded values; passes everything on."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class Foreach:
    """``function(key, value)`` for its side effect, as Peek; nothing is forwarded."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class Print:
    """Writes ``[label]: key, value`` to standard output for each record; nothing is forwarded."""

    label: str


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Merge, and every other node that only forwards (KSTREAM-MERGE, KTABLE-TOSTREAM)."""


@dataclass(frozen=True, slots=True)
class NullKeyFilter:
    """The filter before a repartition sink: drops null keys, not counted as dropped records."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The i-th child gets the records whose first true predicate is the i-th; ``default``, if not None, the rest."""

    predicates: tuple[UserFunction, ...]
    children: tuple[str, ...]
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """Counts the non-null values of each non-null key into ``store`` (values: long)."""

    store: str


@dataclass(frozen=True, slots=True)
class Reduce:
    """``reducer(aggregate, value) -> aggregate`` on decoded values; the first value is the aggregate."""

    store: str
    reducer: UserFunction


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``aggregator(key, value, aggregate) -> aggregate`` on decoded values, from ``initializer()``."""

    store: str
    initializer: UserFunction
    aggregator: UserFunction


@dataclass(frozen=True, slots=True)
class TableSource:
    """KTABLE-SOURCE and KSTREAM-TOTABLE: keep the latest value of each key (null deletes), drop null keys.

    ``store`` None = not materialized: records only pass.
    """

    store: str | None


@dataclass(frozen=True, slots=True)
class TableFilter:
    """KTABLE-FILTER: what ``predicate(key, value)`` refuses goes on as a tombstone; null values stay null.

    ``negate`` as in Filter. ``store`` None = not materialized.
    """

    predicate: UserFunction
    negate: bool = False
    store: str | None = None


@dataclass(frozen=True, slots=True)
class TableMapValues:
    """KTABLE-MAPVALUES: as MapValues for non-null values; null values stay null. ``store`` None = not materialized."""

    function: UserFunction
    takes_key: bool = False
    store: str | None = None


Operation = (
    Map | MapValues | FlatMap | FlatMapValues | Filter | SelectKey | Peek | Foreach | Print | PassThrough
    | NullKeyFilter | Branch | Count | Reduce | Aggregate | TableSource | TableFilter | TableMapValues
)
STATEFUL_OPERATIONS = (Count, Reduce, Aggregate, TableSource, TableFilter, TableMapValues)
"""What may use a store; the last three do only where their ``store`` is not None."""


# --- nodes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """Reads topics. Topic names of internal topics stand without the application id here and in describe()."""

    name: str
    topics: tuple[str, ...]
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    topic_pattern: str | None = None
    offset_reset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorNode:
    name: str
    operation: Operation
    stores: tuple[str, ...] = ()
    key_serde: Serde | None = None
    """What the keys that leave this node are written with, where it is known (None: the default)."""
    value_serde: Serde | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNode:
    """Writes a topic; ``topic`` stands without the application id where it is internal."""

    name: str
    topic: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None


Node = SourceNode | ProcessorNode | SinkNode


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionTopic:
    """An internal topic to repartition through; ``partitions`` None = as many as its writers' largest source."""

    name: str
    partitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A finished topology: nodes in insertion order, who feeds whom, stores and repartition topics, all by name."""

    nodes: Mapping[str, Node]
    parents: Mapping[str, tuple[str, ...]]
    stores: Mapping[str, Store]
    repartition_topics: Mapping[str, RepartitionTopic]
    copartition_groups: tuple[frozenset[str], ...] = ()
    """Source topics, as the nodes name them, that need equally many partitions."""

    def children(self, name: str) -> tuple[str, ...]:
        """The nodes that ``name`` forwards to, in insertion order."""
        return tuple(n for n, above in self.parents.items() if name in above)

    def describe(self) -> str:
        """The text of Kafka's ``Topology.describe()``, to the character."""
        from tidemill.topology.describe import describe  # reads this module

        return describe(self)

"""The operations of processor nodes: immutable values, made by the DSL, run by the Spark plan or by ``tidemill.operators``.

Decides what an operation needs to know (functions, stores, windows); nothing here calls a function. Functions over
(key, value) get and return PySpark Columns and run in the JVM, unless they are wrapped in ``PerRecord`` or described as functions
that get Python values: then they run in a Python worker, one record at a time. What else there is to know of each (where it runs,
its serdes, its shortcut) is in ``tidemill.operators.operation_table``.

A table's records carry a change between nodes that run in Python: new value and, where ``ProcessorNode.sends_old``, the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.topology.batch_operations import (
    FilterInBatches,
    FlatMapInBatches,
    FlatMapValuesInBatches,
    MapInBatches,
    MapValuesInBatches,
    PeekInBatches,
    SelectKeyInBatches,
)
from tidemill.topology.spark_operations import ChangedValues, DataFrameJoin, ForeachBatch, HeldAggregates, MergedAggregates
from tidemill.topology.values import Serde, Value
from tidemill.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

UserFunction = Callable[..., Value]
"""A function of the program, of the arguments that its operation says."""


@dataclass(frozen=True, slots=True)
class PerRecord:
    """A plain Python function, called with decoded values for each record. ``serde`` writes what it returns, where known."""

    function: UserFunction
    serde: Serde | tuple[Serde | None, Serde | None] | None = None

    def __call__(self, *arguments: object) -> Value:
        return self.function(*arguments)


@dataclass(frozen=True, slots=True)
class OfColumns:
    """A function of PySpark Columns, where an operator's functions get Python values otherwise."""

    function: UserFunction


JoinFunction = UserFunction | OfColumns
"""A joiner; one of Columns runs in the JVM, behind the join."""


# --- streams, record by record ------------------------------------------------------------------------------------


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
    """``reducer(aggregate, value) -> aggregate`` on decoded values; the first value is the aggregate.

    ``OfColumns``: an associative function of Columns, for merges of several values too.
    """

    store: str
    reducer: UserFunction | OfColumns


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
    """KTABLE-FILTER: rows that ``predicate(key, value)`` refuses become tombstones; null values stay null.

    ``negate`` as in Filter. ``store`` None = not materialized. ``forgets_versions``: the program has given a ``Materialized``
    that keeps nothing; Kafka Streams then takes the result for a table without versions. ``of_changes``, ``gives_changes``: set
    in the planned topology (``spark.plan.planned_topology``) if pairs of new and old value arrive or are forwarded.
    """

    predicate: UserFunction
    negate: bool = False
    store: str | None = None
    forgets_versions: bool = False
    of_changes: bool = False
    gives_changes: bool = False


@dataclass(frozen=True, slots=True)
class TableMapValues:
    """KTABLE-MAPVALUES: as MapValues for non-null values; null values stay null. The other fields are as in TableFilter."""

    function: UserFunction
    takes_key: bool = False
    store: str | None = None
    forgets_versions: bool = False
    of_changes: bool = False


@dataclass(frozen=True, slots=True)
class TableToStream:
    """KTABLE-TOSTREAM: the new value of each change."""


# --- windows: functions get Python values -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counting:
    """Each record counts one."""


@dataclass(frozen=True, slots=True)
class Reducing:
    """``reducer(aggregate, value)``; the first value is the first aggregate."""

    reducer: UserFunction


@dataclass(frozen=True, slots=True)
class Aggregating:
    """``aggregator(key, value, aggregate)`` from ``initializer()``; ``merger(key, first, second)`` joins two sessions."""

    initializer: UserFunction
    aggregator: UserFunction
    merger: UserFunction | None = None


Aggregation = Counting | Reducing | Aggregating


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """KStreamWindowAggregate and KStreamSlidingWindowAggregate: forwards changes of windowed keys.

    ``emit_final``: only once the window has closed (EmitStrategy.onWindowClose).
    """

    store: str
    windows: TimeWindows | SlidingWindows
    aggregation: Aggregation
    emit_final: bool = False


@dataclass(frozen=True, slots=True)
class SessionAggregate:
    """KStreamSessionWindowAggregate."""

    store: str
    windows: SessionWindows
    aggregation: Aggregation
    emit_final: bool = False


@dataclass(frozen=True, slots=True)
class Suppress:
    """KTableSuppressProcessor over ``store``, its buffer.

    ``grace_ms`` is set for "until the window closes", ``wait_ms`` for "until the time limit"; one of the two.
    ``max_records`` None = unbounded; ``shut_down_when_full``: stop instead of emitting early. ``on_wall_clock``: ``wait_ms`` is
    counted by the wall clock.
    """

    store: str
    grace_ms: int | None = None
    wait_ms: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    on_wall_clock: bool = False


@dataclass(frozen=True, slots=True)
class CogroupMerge:
    """COGROUPKSTREAM-MERGE: forwards the changes of the aggregates above it, which share ``store``: the table's rows."""

    store: str


# --- joins: functions get Python values -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinWindowed:
    """KSTREAM-WINDOWED: keeps the record in its side's window store, then passes it on."""

    store: str


@dataclass(frozen=True, slots=True)
class StreamStreamJoin:
    """KStreamKStreamJoin of one side. ``joiner(left, right)`` or, where ``takes_key``, ``joiner(key, left, right)``.

    ``other_store`` is the other side's window store; ``outer_store``, set on both sides of left and outer joins, holds what has
    found no match yet. ``outer``: records of this side are forwarded without a match. ``windows`` are the left side's on both
    sides.
    """

    is_left: bool
    own_store: str
    other_store: str
    windows: JoinWindows
    joiner: JoinFunction
    takes_key: bool = False
    outer: bool = False
    outer_store: str | None = None


@dataclass(frozen=True, slots=True)
class StreamSelfJoin:
    """KStreamKStreamSelfJoin (``topology.optimization``): both sides are the same stream, with one store."""

    store: str
    windows: JoinWindows
    joiner: JoinFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """KSTREAM-JOIN with a table: ``table`` is the node whose rows are looked up.

    ``grace_ms`` None: the table as it is now; else the record waits in ``buffer`` and sees the versioned table as of then.
    """

    table: str
    joiner: JoinFunction
    takes_key: bool = False
    left: bool = False
    grace_ms: int | None = None
    buffer: str | None = None


@dataclass(frozen=True, slots=True)
class GlobalTableJoin:
    """A stream with a global table in ``store``: ``selector(key, value)`` gives the table's key.

    ``joiner(value, other)`` or, where ``takes_key``, ``joiner(stream key, value, other)``; where ``takes_mapped_key``,
    ``joiner(stream key, selected key, value, other)`` (KIP-1340).
    """

    store: str
    selector: UserFunction
    joiner: JoinFunction
    takes_key: bool = False
    left: bool = False
    takes_mapped_key: bool = False


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """KTABLE-JOINTHIS / KTABLE-JOINOTHER: a change of one table against the row of ``other``, a node.

    ``keeps_this`` / ``keeps_other``: a result is made though the other / this side is missing; ``is_left``: this side's
    value is the joiner's first. Left outer = keeps_this on the left, keeps_other on the right.
    """

    other: str
    joiner: UserFunction
    is_left: bool
    takes_key: bool = False
    keeps_this: bool = False
    keeps_other: bool = False


@dataclass(frozen=True, slots=True)
class TableJoinMerge:
    """KTABLE-MERGE: both sides' results as one table, kept in ``store`` if it has one."""

    store: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeySubscribe:
    """KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION: a change of the left table becomes subscriptions under its foreign keys.

    ``extractor(value)`` or, where ``takes_key``, ``extractor(key, value)``. ``value_serde`` writes the left value that is hashed.
    """

    extractor: UserFunction
    takes_key: bool = False
    left: bool = False
    foreign_key_serde: Serde | None = None
    value_serde: Serde | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeyReceive:
    """KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR: keeps subscriptions in ``store``; forwards the change."""

    store: str


@dataclass(frozen=True, slots=True)
class ForeignKeyLookup:
    """The right table's row (of node ``table``) for a subscription that has changed."""

    table: str


@dataclass(frozen=True, slots=True)
class ForeignKeyChange:
    """KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR of the right table: a change goes to all subscribers in ``store``."""

    store: str


@dataclass(frozen=True, slots=True)
class ForeignKeyResolve:
    """KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER: joins an answer with the left row (of node ``table``) it was asked for.

    ``joiner(left, right)`` or, where ``takes_key``, ``joiner(key, left, right)``. ``value_serde`` as in ForeignKeySubscribe.
    ``subscribe``: the node that asks.
    """

    table: str
    subscribe: str
    joiner: UserFunction
    takes_key: bool = False
    left: bool = False
    value_serde: Serde | None = None


# --- tables that are grouped by other keys ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableSelect:
    """KTABLE-SELECT: ``function(key, value) -> (key, value)`` of old and new row, Python values, for a topic of changes."""

    function: UserFunction


@dataclass(frozen=True, slots=True)
class TableAggregate:
    """KTABLE-AGGREGATE: subtracts the old value, adds the new one; ``adder(key, value, aggregate)``, Python values."""

    store: str
    initializer: UserFunction
    adder: UserFunction
    subtractor: UserFunction


@dataclass(frozen=True, slots=True)
class TableReduce:
    """KTABLE-REDUCE: ``adder(aggregate, value)``, ``subtractor(aggregate, value)``, Python values."""

    store: str
    adder: UserFunction
    subtractor: UserFunction


@dataclass(frozen=True, slots=True)
class TableTransformValues:
    """KTABLE-TRANSFORMVALUES: ``supplier()`` makes a ValueTransformerWithKey. The store's fields are as in TableFilter."""

    supplier: UserFunction
    store: str | None = None
    stores: tuple[str, ...] = ()
    forgets_versions: bool = False


# --- the Processor API --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessRecords:
    """``supplier()`` makes a Processor; ``fixed_key``: it may not change keys (process_values)."""

    supplier: UserFunction
    stores: tuple[str, ...] = ()
    fixed_key: bool = False


@dataclass(frozen=True, slots=True)
class GlobalUpdate:
    """Keeps a global store: ``supplier()`` makes a Processor; None = the latest value of each key."""

    store: str
    supplier: UserFunction | None = None


Operation = (
    Map | MapValues | FlatMap | FlatMapValues | Filter | SelectKey | Peek | Foreach | ForeachBatch | Print | PassThrough
    | NullKeyFilter | Branch | Count | Reduce | Aggregate | TableSource | TableFilter | TableMapValues | TableToStream
    | WindowAggregate | SessionAggregate | CogroupMerge | Suppress | JoinWindowed | StreamStreamJoin | StreamSelfJoin
    | StreamTableJoin | GlobalTableJoin | DataFrameJoin | TableTableJoin | TableJoinMerge
    | ForeignKeySubscribe | ForeignKeyReceive | ForeignKeyLookup | ForeignKeyChange | ForeignKeyResolve
    | TableSelect | TableAggregate | TableReduce | TableTransformValues
    | ProcessRecords | GlobalUpdate | HeldAggregates | MergedAggregates | ChangedValues
    | MapInBatches | MapValuesInBatches | FlatMapInBatches | FlatMapValuesInBatches | SelectKeyInBatches
    | FilterInBatches | PeekInBatches
)

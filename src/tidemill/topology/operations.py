"""The operations of processor nodes: immutable values, created by the DSL, run by the Spark plan or by ``tidemill.operators``.

Has the fields of each operation (functions, stores, windows), and their union ``Operation``; nothing here calls a function.
Functions of (key, value) get and return PySpark Columns and run in the JVM, unless they are wrapped in ``PerRecord`` or described
as functions of Python values, which run in a Python worker, one record at a time. Joins are in ``join_operations``, operations
that only Spark has in ``spark_operations`` and ``batch_operations``. All other properties of an operation (where it runs, its
serdes, its shortcut) are in ``tidemill.operators.operation_table``.

A table's records carry a change between nodes that run in Python: new value and, where ``ProcessorNode.sends_old``, the old one.
"""

from __future__ import annotations

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
from tidemill.topology.functions import OfColumns, UserFunction
from tidemill.topology.join_operations import (
    ForeignKeyChange,
    ForeignKeyLookup,
    ForeignKeyReceive,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    GlobalTableJoin,
    JoinWindowed,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
    TableJoinMerge,
    TableTableJoin,
)
from tidemill.topology.spark_operations import ChangedValues, DataFrameJoin, ForeachBatch, HeldAggregates, MergedAggregates
from tidemill.topology.windows import SessionWindows, SlidingWindows, Windows

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

    ``store`` None = not materialized: records only pass. ``drops_null_changes``: set in the planned topology
    (``spark.plan.planned_topology``) if it keeps what a filter has made, which forwards no tombstone for a key without a row.
    """

    store: str | None
    drops_null_changes: bool = False


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
    windows: Windows | SlidingWindows
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

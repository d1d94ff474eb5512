"""The table of operations: one entry has all properties of an operation that other modules use.

Decides for each operation (``topology.operations``, ``topology.spark_operations``) where it runs, which class runs it record by
record, which of its fields are functions, stores and tables, with which serdes records enter and leave it, and its shortcut.
Planning, inference of serdes and execution use this table; no other module distinguishes operations by their classes. Leaves to
the three places how they do it: the classes named here, ``steps.vector.vector_step`` and ``spark.plan.column_nodes``
(``test_operation_table`` holds them against this table).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from tidemill.operators import aggregates, foreign_key, processors, stateless, stream_join, table_groups, table_join, tables
from tidemill.operators.aggregates import CogroupMerge
from tidemill.operators.context import Context, Operator
from tidemill.operators.session_windows import SessionAggregate
from tidemill.operators.sliding_windows import window_aggregate
from tidemill.operators.stream_table_join import GlobalTableJoin, StreamTableJoin
from tidemill.operators.suppress import Suppress
from tidemill.topology import batch_operations as batch_op
from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology import spark_operations as spark_op
from tidemill.topology.functions import PerRecord, UserFunction
from tidemill.topology.nodes import ProcessorNode, SinkNode, Topology


class Runs(Enum):
    """The place where an operation runs, unless another operation needs it record by record."""

    COLUMNS = "columns"
    """Runs in the JVM, as an expression of a layer."""
    FORWARDS = "forwards"
    """Anywhere: it only forwards records."""
    STEP = "step"
    """Runs in a vectorised Python step, which handles a batch at once: it keeps a store or calls Python."""
    GRAPH = "graph"
    """Record by record only, in a task's graph of operators."""
    DRIVER = "driver"
    """Runs in the driver: the plan has a sink in its place."""

    @property
    def is_by_batch(self) -> bool:
        """True if a whole batch of records is at hand at once: in a layer, or in a vectorised step."""
        return self in (Runs.COLUMNS, Runs.FORWARDS, Runs.STEP)


class Shortcut(Enum):
    """Vectorised forms of operations that run record by record elsewhere; ``spark.plan.shortcuts`` decides where they are
    used."""

    WINDOW_COUNT = "window_count"
    SESSION_FOLD = "session_fold"
    TABLE_LOOKUP = "table_lookup"
    WINDOW_JOIN = "window_join"
    """Unlike the others it stays in its part, which is this join and nothing else."""


class Enters(Enum):
    """The serdes with which a JVM layer writes the records that enter a vectorised step."""

    BY_TYPE = "by_type"
    """Serdes follow the columns' types: functions in the step get the values that the program has computed."""
    AS_STORED = "as_stored"
    """The serdes of the operation's store; the defaults where the store has none."""
    KEY_AS_STORED = "key_as_stored"
    """The store's serde for the key, the column's type for the value."""
    KEY_ONLY = "key_only"
    """The store's serde for the key, and no value: rows are counted, and one row may count for several records."""


class Leaves(Enum):
    """The serde of keys or values that leave an operation, if neither the node nor its function names one."""

    ARRIVING = "arriving"
    """The serde of the records that arrive: the operation forwards or combines them."""
    STORED = "stored"
    """The store's, which keeps the result."""
    COUNT = "count"
    """A count's: long."""
    WINDOWED = "windowed"
    """That of the arriving keys, with the operation's windows around it."""
    OWN = "own"
    """The application's default only, since a function makes the value."""
    AGGREGATE = "aggregate"
    """The operation's ``aggregation`` decides: COUNT, ARRIVING (a reduce) or STORED (an aggregate)."""


_OF_AGGREGATION = {op.Counting: Leaves.COUNT, op.Reducing: Leaves.ARRIVING, op.Aggregating: Leaves.STORED}


class Gives(Enum):
    """The results of an operation's functions; ``per_record(..., serde=...)`` may name their serde."""

    KEY = "key"
    VALUE = "value"
    """The value, or key and value if a pair of serdes is given."""
    TRUTH = "truth"


class TableRows(Enum):
    """The place of a table's rows, and of its old values and versions."""

    KEPT = "kept"
    """The rows are in its store."""
    DERIVED = "derived"
    """The rows are in its store if it has one; else they are computed from those of the table above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEntry:
    """An operation's entry in the table; fields of the operation are given by their names.

    ``kafka``: the class of Kafka Streams that does it (without "Supplier"), for readers; "" where it has none.
    ``operator``: runs it record by record; None: it can't.
    """

    kafka: str
    operator: Callable[[Any, Context], Operator] | None
    runs: Runs
    with_store: Runs | None = None
    """The place where it runs if its ``store`` is set."""
    functions: tuple[str, ...] = ()
    """Functions of Columns, unless they are ``PerRecord``: one of them, or a tuple."""
    gives: Gives = Gives.VALUE
    stores: tuple[str, ...] = ()
    """Stores that it reads or writes besides those that are connected to its node; None where it has none."""
    tables: tuple[str, ...] = ()
    """Nodes whose rows it looks up."""
    table: TableRows | None = None
    """Set where it makes a table whose rows are its own, or made of the rows above; None of suppress, which holds both kinds."""
    takes_changes: bool = True
    """Below a table it needs changes, old value and new; else the new value is enough."""
    takes_last_change: bool = False
    """Set where of several changes of a row the last is enough for it, though it runs record by record only."""
    waits_for_changes: bool = False
    """Set where a record must not meet a row whose change a record cache holds back: it waits until that has been forwarded."""
    keeps_global_store: bool = False
    behind_a_layer: bool = False
    """A layer merges what the step before has found, before this one runs."""
    shortcut: Shortcut | None = None
    enters: Enters = Enters.BY_TYPE
    key: Leaves = Leaves.ARRIVING
    value: Leaves = Leaves.OWN

    @property
    def is_stateless(self) -> bool:
        """True if each record is handled by itself, in the JVM or a batch at a time."""
        return not self.stores and self.runs.is_by_batch


_columns, _forwards, _step, _graph = Runs.COLUMNS, Runs.FORWARDS, Runs.STEP, Runs.GRAPH
_arriving, _stored, _own = Leaves.ARRIVING, Leaves.STORED, Leaves.OWN
_kept, _derived = TableRows.KEPT, TableRows.DERIVED
_STORE = ("store",)

OPERATIONS: Mapping[type, OperationEntry] = {
    # --- streams ---------------------------------------------------------------------------------------------------
    op.Map: OperationEntry(
        kafka="KStreamMap", operator=stateless.map_records, runs=_columns, functions=("function",), key=_own
    ),
    op.MapValues: OperationEntry(
        kafka="KStreamMapValues", operator=stateless.map_values, runs=_columns, functions=("function",)
    ),
    op.FlatMap: OperationEntry(
        kafka="KStreamFlatMap", operator=stateless.flat_map, runs=_columns, functions=("function",), key=_own
    ),
    op.FlatMapValues: OperationEntry(
        kafka="KStreamFlatMapValues", operator=stateless.flat_map_values, runs=_columns, functions=("function",)
    ),
    op.Filter: OperationEntry(
        kafka="KStreamFilter", operator=stateless.filter_records, runs=_columns, functions=("predicate",), gives=Gives.TRUTH,
        value=_arriving,
    ),
    op.SelectKey: OperationEntry(
        kafka="KStreamMap", operator=stateless.select_key, runs=_columns, functions=("function",), gives=Gives.KEY, key=_own,
        value=_arriving,
    ),
    op.Branch: OperationEntry(
        kafka="KStreamBranch", operator=stateless.branch, runs=_columns, functions=("predicates",), gives=Gives.TRUTH,
        value=_arriving,
    ),
    op.NullKeyFilter: OperationEntry(
        kafka="KStreamFilter", operator=stateless.null_key_filter, runs=_columns, value=_arriving
    ),
    op.PassThrough: OperationEntry(
        kafka="PassThrough", operator=stateless.pass_through, runs=_forwards, takes_changes=False, value=_arriving
    ),
    op.Peek: OperationEntry(
        kafka="KStreamPeek", operator=stateless.peek, runs=_step, takes_changes=False, value=_arriving
    ),
    op.Foreach: OperationEntry(
        kafka="KStreamPeek", operator=stateless.foreach, runs=_step, takes_changes=False, value=_arriving
    ),
    op.Print: OperationEntry(
        kafka="KStreamPrint", operator=stateless.print_records, runs=_step, takes_changes=False, value=_arriving
    ),
    batch_op.MapInBatches: OperationEntry(kafka="KStreamMap", operator=None, runs=_step, takes_changes=False, key=_own),
    batch_op.MapValuesInBatches: OperationEntry(kafka="KStreamMapValues", operator=None, runs=_step, takes_changes=False),
    batch_op.FlatMapInBatches: OperationEntry(
        kafka="KStreamFlatMap", operator=None, runs=_step, takes_changes=False, key=_own
    ),
    batch_op.FlatMapValuesInBatches: OperationEntry(
        kafka="KStreamFlatMapValues", operator=None, runs=_step, takes_changes=False
    ),
    batch_op.SelectKeyInBatches: OperationEntry(
        kafka="KStreamMap", operator=None, runs=_step, takes_changes=False, key=_own, value=_arriving
    ),
    batch_op.FilterInBatches: OperationEntry(
        kafka="KStreamFilter", operator=None, runs=_step, takes_changes=False, value=_arriving
    ),
    batch_op.PeekInBatches: OperationEntry(
        kafka="KStreamPeek", operator=None, runs=_step, takes_changes=False, value=_arriving
    ),
    spark_op.ForeachBatch: OperationEntry(kafka="", operator=None, runs=Runs.DRIVER, value=_arriving),
    spark_op.DataFrameJoin: OperationEntry(kafka="", operator=None, runs=_columns),
    # --- aggregates ------------------------------------------------------------------------------------------------
    op.Count: OperationEntry(
        kafka="KStreamAggregate", operator=aggregates.count, runs=_step, stores=_STORE, table=_kept, enters=Enters.KEY_ONLY,
        value=Leaves.COUNT,
    ),
    op.Reduce: OperationEntry(
        kafka="KStreamReduce", operator=aggregates.reduce, runs=_step, stores=_STORE, table=_kept, enters=Enters.AS_STORED,
        value=_arriving,
    ),
    op.Aggregate: OperationEntry(
        kafka="KStreamAggregate", operator=aggregates.aggregate, runs=_step, stores=_STORE, table=_kept,
        enters=Enters.KEY_AS_STORED, value=_stored,
    ),
    spark_op.HeldAggregates: OperationEntry(
        kafka="", operator=None, runs=_step, stores=_STORE, enters=Enters.AS_STORED, value=_arriving
    ),
    spark_op.MergedAggregates: OperationEntry(
        kafka="", operator=None, runs=_step, stores=_STORE, table=_kept, behind_a_layer=True, enters=Enters.AS_STORED,
        value=_arriving,
    ),
    op.WindowAggregate: OperationEntry(
        kafka="KStreamWindowAggregate", operator=window_aggregate, runs=_graph, stores=_STORE, table=_kept,
        shortcut=Shortcut.WINDOW_COUNT, enters=Enters.KEY_AS_STORED, key=Leaves.WINDOWED, value=Leaves.AGGREGATE,
    ),
    op.SessionAggregate: OperationEntry(
        kafka="KStreamSessionWindowAggregate", operator=SessionAggregate, runs=_graph, stores=_STORE, table=_kept,
        shortcut=Shortcut.SESSION_FOLD, enters=Enters.KEY_AS_STORED, key=Leaves.WINDOWED, value=Leaves.AGGREGATE,
    ),
    op.CogroupMerge: OperationEntry(
        kafka="KTablePassThrough", operator=CogroupMerge, runs=_graph, stores=_STORE, table=_kept
    ),
    op.Suppress: OperationEntry(
        kafka="KTableSuppressProcessor", operator=Suppress, runs=_graph, stores=_STORE, value=_arriving
    ),
    # --- tables ----------------------------------------------------------------------------------------------------
    op.TableSource: OperationEntry(
        kafka="KTableSource", operator=tables.TableSource, runs=_columns, with_store=_step, stores=_STORE, table=_kept,
        takes_changes=False, enters=Enters.AS_STORED, value=_arriving,
    ),
    op.TableFilter: OperationEntry(
        kafka="KTableFilter", operator=tables.table_filter, runs=_columns, with_store=_step, functions=("predicate",),
        gives=Gives.TRUTH, stores=_STORE, table=_derived, enters=Enters.AS_STORED, value=_arriving,
    ),
    op.TableMapValues: OperationEntry(
        kafka="KTableMapValues", operator=tables.table_map_values, runs=_columns, with_store=_step, functions=("function",),
        stores=_STORE, table=_derived, enters=Enters.AS_STORED, value=_stored,
    ),
    spark_op.ChangedValues: OperationEntry(kafka="", operator=tables.changed_values, runs=_step, value=_arriving),
    op.TableToStream: OperationEntry(
        kafka="KStreamMapValues", operator=tables.TableToStream, runs=_forwards, takes_changes=False, value=_arriving
    ),
    op.TableTransformValues: OperationEntry(
        kafka="KTableTransformValues", operator=processors.TransformedTable, runs=_graph, stores=_STORE, table=_derived,
        value=_stored,
    ),
    op.TableSelect: OperationEntry(
        kafka="KTableRepartitionMap", operator=table_groups.table_select, runs=_graph, takes_last_change=True, key=_own
    ),
    op.TableAggregate: OperationEntry(
        kafka="KTableAggregate", operator=table_groups.TableAggregate, runs=_graph, stores=_STORE, table=_kept, value=_stored
    ),
    op.TableReduce: OperationEntry(
        kafka="KTableReduce", operator=table_groups.TableReduce, runs=_graph, stores=_STORE, table=_kept, value=_arriving
    ),
    # --- joins -----------------------------------------------------------------------------------------------------
    join_op.JoinWindowed: OperationEntry(
        kafka="KStreamJoinWindow", operator=stream_join.JoinWindowed, runs=_graph, stores=_STORE, shortcut=Shortcut.WINDOW_JOIN,
        value=_arriving,
    ),
    join_op.StreamStreamJoin: OperationEntry(
        kafka="KStreamKStreamJoin", operator=stream_join.StreamStreamJoin, runs=_graph,
        stores=("own_store", "other_store", "outer_store"), shortcut=Shortcut.WINDOW_JOIN,
    ),
    join_op.StreamSelfJoin: OperationEntry(
        kafka="KStreamKStreamSelfJoin", operator=stream_join.StreamSelfJoin, runs=_graph, stores=_STORE
    ),
    join_op.StreamTableJoin: OperationEntry(
        kafka="KStreamKTableJoin", operator=StreamTableJoin, runs=_graph, stores=("buffer",), tables=("table",),
        shortcut=Shortcut.TABLE_LOOKUP,
    ),
    join_op.GlobalTableJoin: OperationEntry(
        kafka="KStreamGlobalKTableJoin", operator=GlobalTableJoin, runs=_graph, stores=_STORE
    ),
    join_op.TableTableJoin: OperationEntry(
        kafka="KTableKTableJoin", operator=table_join.TableTableJoin, runs=_graph, tables=("other",)
    ),
    join_op.TableJoinMerge: OperationEntry(
        kafka="KTableKTableJoinMerger", operator=table_join.TableJoinMerge, runs=_graph, stores=_STORE, table=_kept,
        value=_arriving,
    ),
    join_op.ForeignKeySubscribe: OperationEntry(
        kafka="SubscriptionSendProcessor", operator=foreign_key.ForeignKeySubscribe, runs=_graph, takes_last_change=True, key=_own
    ),
    join_op.ForeignKeyReceive: OperationEntry(
        kafka="SubscriptionReceiveProcessor", operator=foreign_key.ForeignKeyReceive, runs=_graph, stores=_STORE, key=_own
    ),
    join_op.ForeignKeyLookup: OperationEntry(
        kafka="SubscriptionJoinProcessor", operator=foreign_key.ForeignKeyLookup, runs=_graph, tables=("table",), key=_own
    ),
    join_op.ForeignKeyChange: OperationEntry(
        kafka="ForeignTableJoinProcessor", operator=foreign_key.ForeignKeyChange, runs=_graph, stores=_STORE, key=_own
    ),
    join_op.ForeignKeyResolve: OperationEntry(
        kafka="ResponseJoinProcessor", operator=foreign_key.ForeignKeyResolve, runs=_graph, tables=("table",),
        waits_for_changes=True,
    ),
    # --- the Processor API -----------------------------------------------------------------------------------------
    op.ProcessRecords: OperationEntry(kafka="Processor", operator=processors.ProcessorOperator, runs=_graph),
    op.GlobalUpdate: OperationEntry(
        kafka="Processor", operator=processors.GlobalUpdate, runs=_graph, stores=_STORE, keeps_global_store=True
    ),
}


def entry_of(operation: op.Operation) -> OperationEntry:
    """The operation's entry; KeyError for what is no operation."""
    return OPERATIONS[type(operation)]


def operator_of(operation: op.Operation, context: Context) -> Operator:
    """The operator that runs the operation of one node record by record.

    Raises:
        TypeError: it can't run so.
    """
    operator = entry_of(operation).operator
    if operator is None:
        raise TypeError(f"{type(operation).__name__} does not run record by record")
    return operator(operation, context)


def runs(operation: op.Operation) -> Runs:
    """The place where it runs, unless another operation needs it record by record."""
    entry = entry_of(operation)
    return entry.runs if entry.with_store is None or kept_store(operation) is None else entry.with_store


def functions_of(operation: op.Operation) -> tuple[UserFunction, ...]:
    """Its functions that work on columns unless they are ``PerRecord``."""
    found: list[UserFunction] = []
    for field in entry_of(operation).functions:
        given = getattr(operation, field)
        found += given if isinstance(given, tuple) else (given,)
    return tuple(found)


def works_on_columns(operation: op.Operation) -> bool:
    """True if it can't run record by record: the JVM must do some of it."""
    if entry_of(operation).operator is None:
        return True
    return not all(isinstance(function, PerRecord) for function in functions_of(operation))


def kept_store(operation: op.Operation) -> str | None:
    """Its ``store``: where it keeps its result, or what it holds back; None if it has none."""
    found: str | None = getattr(operation, "store") if "store" in entry_of(operation).stores else None  # noqa: B009
    return found


def stores_of(node: ProcessorNode) -> tuple[str, ...]:
    """All stores that the node reads or writes: those connected to it and those that its operation names."""
    named = (getattr(node.operation, field) for field in entry_of(node.operation).stores)
    return tuple(dict.fromkeys([*node.stores, *(name for name in named if name)]))


def tables_of(operation: op.Operation) -> tuple[str, ...]:
    """The table nodes whose rows the operation asks for."""
    return tuple(getattr(operation, field) for field in entry_of(operation).tables)


def value_leaves(operation: op.Operation) -> Leaves:
    """The rule for the serde of the values that leave it; never AGGREGATE."""
    found = entry_of(operation).value
    return _OF_AGGREGATION[type(operation.aggregation)] if found is Leaves.AGGREGATE else found  # type: ignore[union-attr]


_Kind = TypeVar("_Kind")


def record_caches(topology: Topology) -> frozenset[str]:
    """The tables that have a record cache. ``topology``: the whole one, not a part."""
    return frozenset(name for name in topology.nodes if has_record_cache(topology, name))


def has_record_cache(topology: Topology, name: str) -> bool:
    """True if a table forwards the last change of each row and batch: its store has a cache, and below it only that change
    counts. That is so where every way leads, through nodes without state, to a sink or to a node that ``takes_last_change``; not
    to the sink of a repartition topic of streams, behind which each change may be counted. ``topology``: the whole one, not a
    part."""
    node = topology.nodes[name]
    store = kept_store(node.operation) if isinstance(node, ProcessorNode) else None
    return store is not None and topology.stores[store].caching and _needs_last_changes(topology, name)


def _needs_last_changes(topology: Topology, name: str) -> bool:
    seen, todo = {name}, [name]  # each node once: branches that are merged again have many ways
    while todo:
        for child in topology.children(todo.pop()):
            node = topology.nodes[child]
            if isinstance(node, SinkNode):
                if node.topic in topology.repartition_topics:
                    return False
                continue
            assert isinstance(node, ProcessorNode)
            if child in seen or entry_of(node.operation).takes_last_change:
                continue
            if kept_store(node.operation) is not None or not runs(node.operation).is_by_batch:
                return False
            seen.add(child)
            todo.append(child)
    return True


def waits_for_changes(topology: Topology, node: ProcessorNode, caching: Collection[str]) -> bool:
    """True if the node's records wait until the record caches of the tables in ``caching`` have forwarded what they hold."""
    entry = entry_of(node.operation)
    return entry.waits_for_changes and any(_is_made_of(topology, table, caching) for table in tables_of(node.operation))


def _is_made_of(topology: Topology, table: str, caching: Collection[str]) -> bool:
    """True if the rows of ``table`` are those of one in ``caching``, or are computed from them."""
    seen, todo = {table}, [table]
    while todo:
        name = todo.pop()
        if name in caching:
            return True
        node = topology.nodes[name]
        if isinstance(node, ProcessorNode) and kept_store(node.operation) is None:
            above = [parent for parent in topology.parents[name] if parent not in seen]
            seen.update(above)
            todo += above
    return False


def operations_of(topology: Topology, kind: type[_Kind]) -> dict[str, _Kind]:
    """The operations of one kind, by node, in insertion order."""
    nodes = topology.nodes.items()
    return {name: found for name, node in nodes if isinstance(node, ProcessorNode) and isinstance(found := node.operation, kind)}


def global_stores(topology: Topology) -> tuple[str, ...]:
    """The stores that all tasks of an instance share."""
    nodes = (node for node in topology.nodes.values() if isinstance(node, ProcessorNode))
    kept = (kept_store(node.operation) for node in nodes if entry_of(node.operation).keeps_global_store)
    return tuple(store for store in kept if store is not None)

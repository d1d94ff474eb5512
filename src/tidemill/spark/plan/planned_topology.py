"""The planned topology: the program's, with operations on Columns rewritten into nodes that the plan can run.

Decides six rewritings, which leave a topology without such nodes as it is:

    foreach_batch(f)         a sink of no topic, whose records go into a file; the driver calls the function
    join(of_columns(f))      ``NAME|pair``: the join, in its Python step, which forwards both sides (``codecs_wire.PairSerde``)
                             ``NAME``: the function, as a ``map_values`` of such a pair, in the layer below
    reduce(of_columns(f))    ``NAME|held``: puts what the store holds before a batch's records of a key
                             ``NAME``: keeps what the layer between has merged (``combined_rows``)
    table.filter(f)          of Columns, without a store, behind a table that knows old values
                             ``NAME|changes``: a change of that table as a pair of new and old value
                             ``NAME``: passes on what passes, and a tombstone for what did only before
    table.filter(f, store)   of Columns, or ``map_values``, with a versioned store, or one that another node reads or writes
                             ``NAME|computed``: the function, without a store
                             ``NAME``: keeps the rows, record by record, as a table does that is read from a topic
    s.merge(s.merge(t))      the merge inside is marked (``meets_copies``): each record of s goes on twice, and both ways from a
                             node in Python would else be one

The children of a node are those of ``NAME`` then. Whether a layer can follow at all is checked where nodes are placed
(``stages``), as for every function of Columns. None of these functions leaves the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import Column

from tidemill.errors import TopologyError
from tidemill.operators.operation_table import Runs, operations_of, runs, stores_of, tables_of, works_on_columns
from tidemill.operators.versioned_tables import drops_null_changes
from tidemill.topology.functions import OfColumns, UserFunction
from tidemill.topology.join_operations import GlobalTableJoin, StreamSelfJoin, StreamStreamJoin, StreamTableJoin
from tidemill.topology.nodes import BATCH_SINK, Node, ProcessorNode, SinkNode, StoreKind, Topology, parents_first, processor_node
from tidemill.topology.operations import MapValues, PassThrough, Reduce, TableFilter, TableMapValues, TableSource
from tidemill.topology.spark_operations import ChangedValues, ForeachBatch, HeldAggregates, MergedAggregates, both_sides

_PAIR, _HELD, _CHANGES, _COMPUTED = "|pair", "|held", "|changes", "|computed"
"""End the names of nodes that the plan adds; no node's name has such a character."""


def planned(topology: Topology) -> Topology:
    """The planned topology; the same one if nothing has another form, as in a planned topology."""
    functions = with_column_stores(with_column_filters(with_batch_sinks(topology)))
    return with_copies_apart(with_column_joins(with_column_reduces(functions)))


# --- foreach_batch ------------------------------------------------------------------------------------------------


def with_batch_sinks(topology: Topology) -> Topology:
    """``foreach_batch`` as sinks, so that all rules for sinks hold for them."""
    found = operations_of(topology, ForeachBatch)
    return _changed(topology, {name: _as_sink(processor_node(topology, name)) for name in found})


def _as_sink(node: ProcessorNode) -> SinkNode:
    return SinkNode(name=node.name, topic=BATCH_SINK + node.name, key_serde=node.key_serde, value_serde=node.value_serde)


def is_batch_sink(node: Node) -> bool:
    return isinstance(node, SinkNode) and node.topic.startswith(BATCH_SINK)


def _changed(topology: Topology, changed: Mapping[str, Node], above: Mapping[str, Node] | None = None) -> Topology:
    """With other nodes of the same names, and with nodes ``above`` some of them, by the name of the lower one."""
    if not changed:
        return topology
    nodes: dict[str, Node] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for name, node in topology.nodes.items():
        feeds = topology.parents[name]
        if above and name in above:
            upper = above[name]
            nodes[upper.name], parents[upper.name] = upper, feeds
            feeds = (upper.name,)
        nodes[name], parents[name] = changed.get(name, node), feeds
    return replace(topology, nodes=nodes, parents=parents)


# --- records that go on twice ------------------------------------------------------------------------------------------


def with_copies_apart(topology: Topology) -> Topology:
    """Marks, of the ways by which the records of one node in Python arrive twice at another, all but one: a node that only
    forwards. The ways between nodes in the JVM have rows of their own anyway."""
    origins: dict[str, frozenset[str]] = {}
    """The nodes in Python whose records a node gives."""
    apart: set[str] = set()
    for name in parents_first(topology):
        arriving: frozenset[str] = frozenset()
        # Those that only forward come last: another one can't be marked.
        for parent in sorted({*topology.parents[name]} - apart, key=lambda parent: (only_forwards(topology, parent), parent)):
            if only_forwards(topology, parent) and origins[parent] & arriving:
                apart.add(parent)
            else:
                arriving |= origins[parent]
        node = topology.nodes[name]
        in_python = isinstance(node, ProcessorNode) and not (works_on_columns(node.operation) or node.meets_copies)
        origins[name] = arriving if only_forwards(topology, name) else frozenset([name] if in_python else ())
    return _changed(topology, {name: replace(processor_node(topology, name), meets_copies=True) for name in apart})


def only_forwards(topology: Topology, name: str) -> bool:
    """True if the node has no work of its own, and needs no rows of its own either."""
    node = topology.nodes[name]
    return isinstance(node, ProcessorNode) and runs(node.operation) is Runs.FORWARDS and not node.meets_copies


# --- tables that are filtered by Columns ------------------------------------------------------------------------------


def with_column_filters(topology: Topology) -> Topology:
    """Rewrites table filters of Columns below a table with old values to filters of changes, with the nodes between them."""
    changed = topology
    for name in reversed(operations_of(topology, TableFilter)):  # the lowest first: it removes nodes that only it has read
        node = processor_node(topology, name)
        if name in changed.nodes and drops_null_changes(topology, node) and _on_changes(node) is not None:
            changed = _of_changes(topology, changed, name)
    return changed


def _of_changes(program: Topology, topology: Topology, name: str) -> Topology:
    derived: list[ProcessorNode] = []
    """The filter and the derived tables of Columns above it, the lowest first."""
    table = name
    while (operation := _on_changes(program.nodes[table])) is not None:
        derived.append(replace(processor_node(program, table), operation=operation))
        table = program.parents[table][0]
    filtered, *others = derived
    way = [ProcessorNode(name=name + _CHANGES, operation=ChangedValues())]
    way += [replace(node, name=f"{name}|{node.name}") for node in reversed(others)]
    assert isinstance(filtered.operation, TableFilter)
    way.append(replace(filtered, operation=replace(filtered.operation, gives_changes=False)))
    nodes: dict[str, Node] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for other, node in topology.nodes.items():
        if other != name:
            nodes[other], parents[other] = node, topology.parents[other]
            continue
        for above, each in zip([table, *(each.name for each in way)], way, strict=False):
            nodes[each.name], parents[each.name] = each, (above,)
    for node in others:
        if not any(node.name in above for above in parents.values()):  # no node reads it any more
            del nodes[node.name], parents[node.name]
    return replace(topology, nodes=nodes, parents=parents)


def _on_changes(node: Node) -> TableFilter | TableMapValues | None:
    """The node's operation on changes, if it is one of Columns without a store; else None."""
    operation = node.operation if isinstance(node, ProcessorNode) else None
    if not isinstance(operation, TableFilter | TableMapValues) or operation.store is not None or not works_on_columns(operation):
        return None
    if isinstance(operation, TableFilter):
        return None if operation.of_changes else replace(operation, of_changes=True, gives_changes=True)
    return replace(operation, of_changes=True)


# --- stores of what Columns have filtered or mapped ------------------------------------------------------------------------


def with_column_stores(topology: Topology) -> Topology:
    """Filters and mappings of Columns whose stores a vectorised step can't keep, as a function and a table of its results below:
    such a step keeps one row of each key, and what it writes is seen by no processor that has the store, too."""
    tables: dict[str, TableFilter | TableMapValues] = {
        **operations_of(topology, TableFilter), **operations_of(topology, TableMapValues),
    }  # fmt: skip
    changed: dict[str, Node] = {}
    above: dict[str, Node] = {}
    for name, derived in tables.items():
        node, store = processor_node(topology, name), derived.store
        if store is None or not works_on_columns(derived):
            continue
        if topology.stores[store].kind is StoreKind.VERSIONED or _is_shared(topology, store, name):
            function = replace(derived, store=None)
            above[name] = replace(node, name=name + _COMPUTED, operation=function, stores=(), sends_old=False)
            changed[name] = replace(node, operation=TableSource(store, drops_null_changes=drops_null_changes(topology, node)))
    return _changed(topology, changed, above)


def _is_shared(topology: Topology, store: str, table: str) -> bool:
    """True if a node has the store of ``table`` as a store of its own; not if it looks the table's rows up."""
    nodes = (node for node in topology.nodes.values() if isinstance(node, ProcessorNode) and node.name != table)
    return any(store in stores_of(node) and table not in tables_of(node.operation) for node in nodes)


# --- functions of Columns in a reduce ---------------------------------------------------------------------------------


def merge_functions(topology: Topology) -> dict[str, UserFunction]:
    """Functions of Columns of reduces, by the nodes of the planned topology whose records they merge."""
    found: dict[str, UserFunction] = {}
    for name, reduce in operations_of(topology, Reduce).items():
        if isinstance(reduce.reducer, OfColumns):
            found[name + _HELD] = reduce.reducer.function
    return found


def with_column_reduces(topology: Topology) -> Topology:
    """A ``reduce`` with a function of Columns as two nodes, with a layer between them.

    Raises:
        TopologyError: each update is to be forwarded; the layer merges those of a batch.
    """
    changed: dict[str, Node] = {}
    above: dict[str, Node] = {}
    for name, reduce in operations_of(topology, Reduce).items():
        if isinstance(reduce.reducer, OfColumns):
            node = processor_node(topology, name)
            if not topology.stores[reduce.store].caching:
                raise TopologyError(
                    f"{name} merges the records of a batch by a function of Columns, but its store has no cache (caching=False, "
                    "or statestore.cache.max.bytes=0), so each update is to be forwarded: reduce with a plain Python function"
                )
            above[name] = replace(node, name=name + _HELD, operation=HeldAggregates(reduce.store))
            changed[name] = replace(node, operation=MergedAggregates(reduce.store))
    return _changed(topology, changed, above)


# --- functions of Columns in a join -----------------------------------------------------------------------------------

_PairJoin = StreamStreamJoin | StreamSelfJoin | StreamTableJoin | GlobalTableJoin
"""Joins that can forward both sides as a pair."""


def with_column_joins(topology: Topology) -> Topology:
    """A join with a function of Columns as a join of pairs, with the function below it."""
    changed: dict[str, Node] = {}
    above: dict[str, Node] = {}
    for name, node in topology.nodes.items():
        if not isinstance(node, ProcessorNode):
            continue
        made = changed[name] = _of_pairs(node)
        function = _function_below(topology, node)
        if function is not None:
            above[name] = replace(made, name=name + _PAIR, value_serde=None)
            changed[name] = replace(made, operation=MapValues(function, takes_key=True), stores=())
    return _changed(topology, changed if above else {}, above)


def _function_below(topology: Topology, node: ProcessorNode) -> UserFunction | None:
    """The function that the records of this node go through: of a join of two streams behind the node that merges both sides."""
    if isinstance(node.operation, PassThrough):
        merged = operations_of(topology, StreamStreamJoin)
        joins = [merged[parent] for parent in topology.parents[node.name] if parent in merged]
        return next((_of_pair(join) for join in joins if isinstance(join.joiner, OfColumns)), None)
    join = _column_join(node)
    return None if join is None or isinstance(join, StreamStreamJoin) else _of_pair(join)


def _column_join(node: ProcessorNode) -> _PairJoin | None:
    """The node's join, if its joiner is a function of Columns."""
    join = node.operation
    return join if isinstance(join, _PairJoin) and isinstance(join.joiner, OfColumns) else None


def _of_pair(join: _PairJoin) -> UserFunction:
    assert isinstance(join.joiner, OfColumns)
    function, takes_key = join.joiner.function, join.takes_key

    def joined(key: Column, pair: Column) -> object:
        left, right = pair["left"], pair["right"]
        return function(key, left, right) if takes_key else function(left, right)

    return joined


def _of_pairs(node: ProcessorNode) -> ProcessorNode:
    """The node with a join that forwards pairs, if its joiner is a function of Columns."""
    join = _column_join(node)
    if join is None:
        return node
    return replace(node, value_serde=None, operation=replace(join, joiner=both_sides, takes_key=False))

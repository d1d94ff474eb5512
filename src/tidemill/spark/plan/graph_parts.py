"""Which nodes run record by record, in a task's graph of operators (``operators.task_graph``), and which of them together.

Decides the *parts* of a topology: nodes that need Python values one record at a time, with all their neighbours that can run
there too. A part is one unit of the plan: its nodes run in one Python step, in the order in which records cause each other,
and between them nothing is encoded. What a part does not need stays with Catalyst and the vectorised steps, so a topology
without such nodes has no part at all. Refuses parts that a node of columns would cut in two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.errors import TopologyError
from tidemill.steps.vector.vector_groups import has_shortcut
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, StoreKind, Topology
from tidemill.topology.operations import (
    Aggregate,
    Branch,
    Count,
    Filter,
    FlatMap,
    FlatMapValues,
    Foreach,
    GlobalUpdate,
    Map,
    MapValues,
    NullKeyFilter,
    Operation,
    PassThrough,
    Peek,
    PerRecord,
    Print,
    Reduce,
    SelectKey,
    TableFilter,
    TableMapValues,
    TableSource,
    TableToStream,
)
from tidemill.topology.spark_operations import DataFrameJoin, HeldAggregates, MergedAggregates

_ON_COLUMNS = (Map, MapValues, FlatMap, FlatMapValues, Filter, SelectKey, Branch, TableFilter, TableMapValues)
"""Operations whose functions work on columns unless they are ``PerRecord``."""
_ELSEWHERE = (
    *_ON_COLUMNS, NullKeyFilter, PassThrough, TableToStream, Peek, Foreach, Print, Count, Reduce, Aggregate, TableSource,
)  # fmt: skip
"""What also runs outside of a part: in the JVM, or as a vectorised step."""
_OF_STREAMS = (TableToStream, PassThrough, Peek, Foreach, Print)
"""What has enough of a table's new rows."""
_TABLES_ON_COLUMNS = (TableFilter, TableMapValues)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """Nodes that run together, in insertion order; ``sources`` are those whose records go nowhere else, but to sinks.

    ``is_global``: it keeps a global store, once for the whole instance and not for a task.
    """

    number: int
    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    is_global: bool = False


def global_stores(topology: Topology) -> tuple[str, ...]:
    """The stores that all tasks of an instance share."""
    operations = (node.operation for node in topology.nodes.values() if isinstance(node, ProcessorNode))
    return tuple(operation.store for operation in operations if isinstance(operation, GlobalUpdate))


def functions(operation: Operation) -> tuple[Callable[..., object], ...]:
    """The functions of an operation that may work on columns."""
    if isinstance(operation, Branch):
        return operation.predicates
    if isinstance(operation, (Filter, TableFilter)):
        return (operation.predicate,)
    return (operation.function,) if isinstance(operation, _ON_COLUMNS) else ()


def works_on_columns(operation: Operation) -> bool:
    if isinstance(operation, (DataFrameJoin, HeldAggregates, MergedAggregates)):
        return True
    return isinstance(operation, _ON_COLUMNS) and not all(isinstance(f, PerRecord) for f in functions(operation))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How the nodes that need Python values run: in parts, or vectorised, all nodes of a group in one step."""

    parts: tuple[GraphPart, ...] = ()
    vectorised: tuple[frozenset[str], ...] = ()


def graph_parts(topology: Topology, *, all_that_can: bool = False, one_by_one: bool = False) -> Parts:
    """The parts, in the order of their first nodes. ``all_that_can``: also of nodes that have no need of it, and nothing is
    vectorised. ``one_by_one``: only the latter, so that a single record can be left out.

    Raises:
        TopologyError: a node of columns stands where a part needs Python values.
    """
    able = [n for n, node in topology.nodes.items() if isinstance(node, ProcessorNode) and not works_on_columns(node.operation)]
    needy = {name for name in able if all_that_can or _needs_values(topology, name)}
    if not needy and not all_that_can:
        return Parts()
    parts: list[GraphPart] = []
    vectorised: list[frozenset[str]] = []
    for members in _connected(topology, able):
        wanting = needy & members
        if not wanting:
            continue
        _check_merged(topology, members)
        if not all_that_can and not one_by_one and all(has_shortcut(topology, name) for name in wanting):
            vectorised.append(frozenset(members))
            continue
        _check_tables(topology, members)
        sources = tuple(name for name in topology.nodes if _enters_only(topology, name, members))
        nodes = tuple(name for name in topology.nodes if name in members)
        keeps_global = any(isinstance(topology.nodes[name].operation, GlobalUpdate) for name in nodes)  # type: ignore[union-attr]
        parts.append(GraphPart(number=len(parts), nodes=nodes, sources=sources, is_global=keeps_global))
    if all_that_can:
        parts += [
            GraphPart(number=number, nodes=(), sources=(name,))
            for number, name in enumerate(_only_written(topology), start=len(parts))
        ]
    return Parts(parts=tuple(parts), vectorised=tuple(vectorised))


def _only_written(topology: Topology) -> list[str]:
    """Sources whose records go to sinks as they are."""
    return [
        name
        for name, node in topology.nodes.items()
        if isinstance(node, SourceNode) and all(isinstance(topology.nodes[child], SinkNode) for child in topology.children(name))
    ]


def _needs_values(topology: Topology, name: str) -> bool:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    operation = node.operation
    if not isinstance(operation, _ELSEWHERE):
        return True
    if isinstance(operation, Branch) and not operation.predicates:
        return False
    if functions(operation) or len(node.stores) > 1:
        return True
    return any(topology.stores[store].kind is not StoreKind.TIMESTAMPED_KEY_VALUE for store in node.stores)


def _connected(topology: Topology, able: list[str]) -> list[set[str]]:
    """Nodes that hand records to each other, share a store, look each other's rows up, or are all that one source feeds."""
    root_of = {name: name for name in able}

    def root(name: str) -> str:
        while root_of[name] != name:
            root_of[name] = root_of[root_of[name]]
            name = root_of[name]
        return name

    def unite(one: str, other: str) -> None:
        if one in root_of and other in root_of:
            root_of[root(one)] = root(other)

    users: dict[str, str] = {}
    shared = global_stores(topology)
    for name in able:
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        for parent in topology.parents[name]:
            unite(name, parent)
        for store in stores_of(node):
            if store not in shared:
                unite(name, users.setdefault(store, name))
        for table in looked_up(node.operation):
            unite(name, table)
    for name, source in topology.nodes.items():
        children = topology.children(name) if isinstance(source, SourceNode) else ()
        if all(child in root_of or isinstance(topology.nodes[child], SinkNode) for child in children):
            inside = [child for child in children if child in root_of]
            for child in inside[1:]:
                unite(inside[0], child)
    groups: dict[str, set[str]] = {}
    for name in able:
        groups.setdefault(root(name), set()).add(name)
    return list(groups.values())


def stores_of(node: ProcessorNode) -> tuple[str, ...]:
    """All stores that the node reads or writes: those connected to it and those that its operation names."""
    named = (getattr(node.operation, which, None) for which in _STORE_FIELDS)
    return tuple(dict.fromkeys([*node.stores, *(name for name in named if name)]))


_STORE_FIELDS = ("store", "own_store", "other_store", "outer_store", "buffer")


def looked_up(operation: Operation) -> tuple[str, ...]:
    """The table nodes whose rows the operation asks for."""
    return tuple(name for which in ("table", "other") if (name := getattr(operation, which, None)))


def _enters_only(topology: Topology, name: str, members: set[str]) -> bool:
    """Is it a source all of whose records go into the part, or to sinks, and nowhere else?"""
    children = topology.children(name)
    if not isinstance(topology.nodes[name], SourceNode) or members.isdisjoint(children):
        return False
    return all(child in members or isinstance(topology.nodes[child], SinkNode) for child in children)


def _check_merged(topology: Topology, members: set[str]) -> None:
    """A table that is reduced by a function of Columns shows its rows to none of them: they are merged elsewhere."""
    for name in sorted(members):
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        tables = [*looked_up(node.operation)]
        if not isinstance(node.operation, _OF_STREAMS):
            tables += topology.parents[name]
        for table in tables:
            above = topology.nodes[table]
            if isinstance(above, ProcessorNode) and isinstance(above.operation, MergedAggregates):
                raise TopologyError(
                    f"the function of {table} works on columns, but {name} needs that table's changes and rows as Python values: "
                    "reduce with a plain Python function"
                )


def _check_tables(topology: Topology, members: set[str]) -> None:
    for name in topology.nodes:
        if name not in members:
            continue
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        tables = [*looked_up(node.operation)]
        if not isinstance(node.operation, (TableToStream, PassThrough, TableSource)):
            tables += topology.parents[name]
        for table in tables:
            above = topology.nodes[table]
            if isinstance(above, ProcessorNode) and isinstance(above.operation, _TABLES_ON_COLUMNS) and table not in members:
                raise TopologyError(
                    f"the function of {table} works on columns, but {name} needs that table's changes and rows as Python values: "
                    "wrap the function in per_record(...)"
                )

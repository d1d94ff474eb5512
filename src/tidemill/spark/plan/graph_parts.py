"""Parts of the topology that run record by record, in a task's graph of operators (``operators.task_graph``).

Decides the *parts* of a topology: nodes that need Python values one record at a time, with all their neighbours that can run
there too. A part is one unit of the plan: its nodes run in one Python step, in the order in which records cause each other,
and between them nothing is encoded. What a part does not need stays with Catalyst and the vectorised steps, so a topology
without such nodes has no part at all. Refuses parts that a node of columns would cut in two.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.errors import TopologyError
from tidemill.operators.operation_table import (
    Leaves,
    Runs,
    entry_of,
    functions_of,
    global_stores,
    kept_store,
    stores_of,
    tables_of,
    works_on_columns,
)
from tidemill.spark.plan.shortcuts import has_shortcut, keeps_longs
from tidemill.topology.graph import united
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, StoreKind, Topology, processor_node
from tidemill.topology.operations import Aggregate, Count, Reduce


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """Nodes that run together, in insertion order; ``sources`` are those whose records go nowhere else, but to sinks.

    ``is_global``: it keeps a global store, once for the whole instance and not for a task.
    """

    number: int
    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    is_global: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The nodes that need Python values: those that run in parts, and those that run vectorised, all of a group in one step."""

    parts: tuple[GraphPart, ...] = ()
    vectorised: tuple[frozenset[str], ...] = ()


def graph_parts(topology: Topology, *, all_that_can: bool = False, one_by_one: bool = False) -> Parts:
    """The parts, in the order of their first nodes. ``all_that_can``: also of nodes that have no need of it, and nothing is
    vectorised. ``one_by_one``: only the latter, so that a single record can be left out.

    Raises:
        TopologyError: a node of columns is where a part needs Python values.
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
        in_graph = all_that_can or one_by_one or any(_is_of_a_graph(processor_node(topology, name)) for name in members)
        if not in_graph and all(has_shortcut(topology, name) for name in wanting):
            vectorised.append(members)
            continue
        _check_tables(topology, members)
        sources = tuple(name for name in topology.nodes if _enters_only(topology, name, members))
        nodes = tuple(name for name in topology.nodes if name in members)
        keeps_global = any(entry_of(processor_node(topology, name).operation).keeps_global_store for name in nodes)
        parts.append(GraphPart(number=len(parts), nodes=nodes, sources=sources, is_global=keeps_global))
    if all_that_can:
        parts += [
            GraphPart(number=number, nodes=(), sources=(name,))
            for number, name in enumerate(_only_written(topology, parts), start=len(parts))
        ]
    return Parts(parts=tuple(parts), vectorised=tuple(vectorised))


def _only_written(topology: Topology, parts: list[GraphPart]) -> list[str]:
    """Sources whose records go to sinks as they are, and meet those of no part there."""
    met = {name for part in parts for name in part.sources}
    return [
        name
        for name, node in topology.nodes.items()
        if isinstance(node, SourceNode) and name not in met
        and all(isinstance(topology.nodes[child], SinkNode) for child in topology.children(name))
    ]


def _is_of_a_graph(node: ProcessorNode) -> bool:
    """A processor of the program wraps it; or the records that it forwards meet copies of themselves, which within one vectorised
    step would be one record."""
    return node.wrapped is not None or node.meets_copies


def _needs_values(topology: Topology, name: str) -> bool:
    node = processor_node(topology, name)
    entry = entry_of(node.operation)
    if node.wrapped is not None:
        return True
    if entry.runs is Runs.GRAPH or functions_of(node.operation) or len(node.stores) > 1:
        return True
    if entry.value is Leaves.COUNT and not keeps_longs(topology, node):
        return True
    if _forwards_each_update(topology, node):
        return True
    return any(topology.stores[store].kind is not StoreKind.TIMESTAMPED_KEY_VALUE for store in node.stores)


def _forwards_each_update(topology: Topology, node: ProcessorNode) -> bool:
    """True for an aggregate whose store has no cache: a step would forward the last result of a key and batch."""
    return isinstance(node.operation, (Count, Reduce, Aggregate)) and not topology.stores[node.operation.store].caching


def _connected(topology: Topology, able: list[str]) -> tuple[frozenset[str], ...]:
    """Nodes that hand records to each other, share a store, look each other's rows up, or are all that one source feeds; or,
    where none works on columns, that meet in a sink: their punctuators see the time of each other's records."""
    inside = frozenset(able)
    users: dict[str, str] = {}
    shared = global_stores(topology)
    linked: list[tuple[str, ...]] = []
    for name in able:
        node = processor_node(topology, name)
        stores = [store for store in stores_of(node) if store not in shared]
        others = (*topology.parents[name], *(users.setdefault(store, name) for store in stores), *tables_of(node.operation))
        linked.append((name, *(other for other in others if other in inside)))
    for name, source in topology.nodes.items():
        children = topology.children(name) if isinstance(source, SourceNode) else ()
        if all(child in inside or isinstance(topology.nodes[child], SinkNode) for child in children):
            linked.append(tuple(child for child in children if child in inside))
    if all(name in inside for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)):
        sinks = (name for name, node in topology.nodes.items() if isinstance(node, SinkNode))
        for sink in sinks:
            above = topology.parents[sink]
            siblings = (child for name in above if name not in inside for child in topology.children(name))
            linked.append(tuple(name for name in (*above, *siblings) if name in inside))
    return united(linked)


def _enters_only(topology: Topology, name: str, members: frozenset[str]) -> bool:
    """True for a source whose records go only to the part or to sinks, and to one of the part's at least."""
    children = topology.children(name)
    if not isinstance(topology.nodes[name], SourceNode):
        return False
    meets = {parent for child in children if isinstance(topology.nodes[child], SinkNode) for parent in topology.parents[child]}
    if members.isdisjoint((*children, *meets)):
        return False
    return all(child in members or isinstance(topology.nodes[child], SinkNode) for child in children)


def _check_merged(topology: Topology, members: frozenset[str]) -> None:
    """A table that is reduced by a function of Columns shows its rows to none of them: they are merged elsewhere."""
    for name, table in _asked_for_values(topology, members):
        if entry_of(processor_node(topology, table).operation).behind_a_layer:
            raise TopologyError(_on_columns(name, table) + "reduce with a plain Python function")


def _check_tables(topology: Topology, members: frozenset[str]) -> None:
    """Nor does a table that is filtered or mapped by one."""
    for name, table in _asked_for_values(topology, members):
        entry = entry_of(processor_node(topology, table).operation)
        if table not in members and entry.functions and entry.stores:
            raise TopologyError(_on_columns(name, table) + "wrap the function in per_record(...)")


def _asked_for_values(topology: Topology, members: frozenset[str]) -> list[tuple[str, str]]:
    """(member, a node above it or a table that it looks up or whose store it has, whose changes or rows it needs), in insertion
    order."""
    found: list[tuple[str, str]] = []
    keepers = {kept_store(node.operation): name for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)}
    for name in topology.nodes:
        if name in members:
            node = processor_node(topology, name)
            above = topology.parents[name] if entry_of(node.operation).takes_changes else ()
            kept = (keepers[store] for store in stores_of(node) if store in keepers)
            asked = (*tables_of(node.operation), *above, *kept)
            found += [(name, table) for table in asked if isinstance(topology.nodes[table], ProcessorNode)]
    return found


def _on_columns(name: str, table: str) -> str:
    return f"the function of {table} works on columns, but {name} needs that table's changes and rows as Python values: "


# --- the borders of a part -----------------------------------------------------------------------------------------


def entered_by_columns(topology: Topology, part: GraphPart) -> tuple[str, ...]:
    """The part's nodes that get rows from outside of it, sources of its own not counted."""
    own = {*part.nodes, *part.sources}
    return tuple(name for name in part.nodes if any(parent not in own for parent in topology.parents[name]))


def left_to_columns(topology: Topology, part: GraphPart) -> tuple[str, ...]:
    """The nodes of columns right below the part."""
    below = (child for name in part.nodes for child in topology.children(name))
    return tuple(dict.fromkeys(n for n in below if n not in part.nodes and isinstance(topology.nodes[n], ProcessorNode)))

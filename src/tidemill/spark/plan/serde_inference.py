"""Serdes: what the keys and values are written with on every edge of a plan, in every store and by every sink.

Decides by what the program says (node, the function's own serde), then by what the table of operations says of the operation:
that a count is a long, that what arrives goes on, that the store keeps the result; then by the defaults. One rule holds for
nodes that run record by record and for those of a vectorised step. A step differs in that it makes bytes of its results: what it
does not change it passes on as it came, functions of Columns have been called in the layer above it, and where nothing says
how a result is written, it asks the sinks below, or takes the serde of what arrives.

Walks in the order of the data, a layer and a step after the other, as ``compile`` does: a repartition topic's source reads what
its sinks write, a Python node what its columns' types say. None where nothing is known, which is an error only if bytes are
needed there. How columns are written is ``codecs``'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column
from pyspark.sql.types import DataType

from tidemill.dsl.serdes import BytesSerde, JsonClassSerde, JsonSerde, Serdes, StringSerde, UUIDSerde
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.errors import TopologyError
from tidemill.operators.default_serdes import completed
from tidemill.operators.operation_table import (
    Enters,
    Gives,
    Leaves,
    OperationEntry,
    entry_of,
    functions_of,
    kept_store,
    operations_of,
    stores_of,
    value_leaves,
)
from tidemill.spark.plan.changes import Pair
from tidemill.spark.plan.codecs import Encoded, encoded, serde_for_type
from tidemill.spark.plan.graph_parts import GraphPart, entered_by_columns, left_to_columns
from tidemill.spark.plan.planned_topology import is_batch_sink
from tidemill.spark.plan.stages import Stages, outer_targets, parents_first, runs_as_columns, targets
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, Topology
from tidemill.topology.operations import (
    GlobalTableJoin,
    JoinWindowed,
    Operation,
    PerRecord,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from tidemill.topology.spark_operations import makes_pairs
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The serdes of the records' keys and values where they leave a node or enter one; None: nothing says it."""

    key: Serde | None
    value: Serde | None

    @property
    def settled(self) -> tuple[Serde, Serde]:
        """Both, where all that is needed is known."""
        assert self.key is not None
        assert self.value is not None
        return self.key, self.value

    def otherwise(self, other: Edge) -> Edge:
        """``other``'s where this one has none."""
        return Edge(key=self.key or other.key, value=self.value or other.value)


NOTHING_KNOWN = Edge(key=None, value=None)
_OF_CLASSES = (JsonClassSerde, TimeWindowedSerde, SessionWindowedSerde)


def filled(serde: Serde | None, known: Edge) -> Serde | None:
    """``serde`` without gaps: a serde around another one may leave that to what is known of the record."""
    return completed(serde, known.value, key_serde=known.key, value_serde=known.value)


# --- what leaves a node -----------------------------------------------------------------------------------------------


def leaving(topology: Topology, name: str, above: Sequence[Edge], default: Edge, *, in_step: bool) -> Edge:
    """The serdes of what leaves a processor node. ``above``: what enters it, on all ways that are known. ``in_step``: it runs in
    a vectorised step, else record by record."""
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    operation = node.operation
    entry, of_value, store = entry_of(operation), value_leaves(operation), kept_store(operation)
    arriving = Edge(
        key=next((edge.key for edge in above if edge.key is not None), None),
        value=next((edge.value for edge in above if edge.value is not None), None),
    )
    if in_step and entry.functions:
        of_value = Leaves.ARRIVING  # they have been called in the layer above
    passes_values_on = in_step and of_value is Leaves.ARRIVING and store is None
    if passes_values_on and entry.key is Leaves.ARRIVING:
        return arriving
    given = Edge(key=node.key_serde, value=node.value_serde)
    if not in_step:
        given = given.otherwise(_of_functions(entry, functions_of(operation)))
    elif store is None:
        of_sinks = _of_sinks(topology, name)
        only_sent = all(isinstance(topology.nodes[target], SinkNode) for target in targets(topology, name))
        given = of_sinks.otherwise(given) if only_sent else given.otherwise(of_sinks)
    key, value = given.key, arriving.value if passes_values_on else given.value
    if entry.key is Leaves.ARRIVING:
        key = arriving.key if in_step else key or arriving.key
    if of_value is Leaves.COUNT:
        value = value or Serdes.long()
    elif of_value is not Leaves.OWN and store is not None:
        value = value or topology.stores[store].value_serde
    if of_value is Leaves.ARRIVING:
        value = value or arriving.value
    if store is not None and isinstance(value, ChangeSerde):
        value = value.inner  # of a table that is grouped: changes arrive, and what is kept are their values
    known = Edge(key=key, value=value).otherwise(default)
    return known.otherwise(arriving) if in_step and of_value is Leaves.STORED else known


def _of_functions(entry: OperationEntry, functions: Sequence[object]) -> Edge:
    """Serdes that ``per_record(..., serde=...)`` names for the functions' results."""
    given = next((f.serde for f in functions if isinstance(f, PerRecord) and f.serde is not None), None)
    if given is None or entry.gives is Gives.TRUTH:
        return NOTHING_KNOWN
    key, value = given if isinstance(given, tuple) else (given if entry.gives is Gives.KEY else None, given)
    return Edge(key=key, value=None if entry.gives is Gives.KEY else value)


def _of_sinks(topology: Topology, name: str) -> Edge:
    """The serdes of the nearest sinks that records reach as they are, as far as these agree: a step makes the bytes before they
    get them."""
    keys, values = {}, {}
    for sink in _sinks_below(topology, [name]):
        keys[id(sink.key_serde)], values[id(sink.value_serde)] = sink.key_serde, sink.value_serde
    return Edge(
        key=next(iter(keys.values())) if len(keys) == 1 else None, value=next(iter(values.values())) if len(values) == 1 else None
    )


def _sinks_below(topology: Topology, names: Sequence[str]) -> list[SinkNode]:
    below = {child: topology.nodes[child] for name in names for child in targets(topology, name)}
    sinks = [node for node in below.values() if isinstance(node, SinkNode) and not is_batch_sink(node)]
    passing = [name for name, node in below.items() if isinstance(node, ProcessorNode) and _passes_on(node.operation)]
    return sinks if sinks or not passing else _sinks_below(topology, passing)


def _passes_on(operation: Operation) -> bool:
    """Does it pass on records as they are, or drop them?"""
    entry = entry_of(operation)
    return entry.is_stateless and entry.key is Leaves.ARRIVING and entry.value is Leaves.ARRIVING


def _writes_the_same(given: Serde | None, own: Serde | None) -> bool:
    """True if a sink's own serde writes the bytes that the given one has written; bytes are nothing else to a serde of bytes."""
    if given is None or own is None or given == own or BytesSerde in (type(given), type(own)):
        return True
    for form in ((StringSerde, UUIDSerde), (JsonSerde, JsonClassSerde)):
        if isinstance(given, form) and isinstance(own, form):
            return given.sql_type == own.sql_type
    return False


def pair_of_sides(
    topology: Topology, join: str, above: Sequence[Edge], known: Mapping[str, Edge], default: Edge
) -> PairSerde | None:
    """Of a join that hands on pairs: the values that its sides' stores keep, or its stream and table have. ``known``: what leaves
    other nodes."""
    node = topology.nodes[join]
    assert isinstance(node, ProcessorNode)
    kept_by = {kept.store: name for name, kept in operations_of(topology, JoinWindowed).items()}

    def of(name: str) -> Serde | None:
        return known[name].value if name in known else None

    match node.operation:
        case StreamStreamJoin(own_store=own, other_store=other, is_left=is_left):
            left, right = (of(kept_by[own]), of(kept_by[other])) if is_left else (of(kept_by[other]), of(kept_by[own]))
        case StreamSelfJoin(store=store):
            left = right = of(kept_by[store])
        case StreamTableJoin(table=table):
            left, right = above[0].value, of(table)
        case GlobalTableJoin(store=store):
            left, right = above[0].value, topology.stores[store].value_serde or default.value
        case _:
            return None
    return None if left is None or right is None else PairSerde(left, right)


# --- parts that run record by record ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEntries:
    """The serdes of records that enter a part: from sources of its own, and from columns, by the node that they enter."""

    sources: Mapping[str, Edge]
    columns: Mapping[str, Edge]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSerdes:
    """``leaving``: by its nodes and sources. ``from_columns``: what enters it from columns, by the node that it enters.
    ``stores``: those of its nodes, with the serdes that they are written with."""

    leaving: Mapping[str, Edge]
    from_columns: Mapping[str, Edge]
    stores: Mapping[str, Store]


def serdes_of_part(topology: Topology, part: GraphPart, entries: PartEntries, default: Edge) -> PartSerdes:
    """The serdes inside a part."""
    known: dict[str, Edge] = dict(entries.sources)
    for name in part.nodes:
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        above = [known[parent] for parent in topology.parents[name] if parent in known]
        if name in entries.columns:
            above.append(entries.columns[name])
        known[name] = leaving(topology, name, above, default, in_step=False)
        if makes_pairs(node.operation):
            known[name] = replace(known[name], value=pair_of_sides(topology, name, above, known, default))
    return PartSerdes(leaving=known, from_columns=entries.columns, stores=_stores(topology, part, entries, known, default))


def _stores(
    topology: Topology, part: GraphPart, entries: PartEntries, known: Mapping[str, Edge], default: Edge
) -> dict[str, Store]:
    found: dict[str, Store] = {}
    for name in part.nodes:
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        above = next((known[parent] for parent in topology.parents[name] if parent in known), None)
        arriving = entries.columns.get(name) or above or default
        for store in stores_of(node):
            kept = topology.stores.get(store)
            if kept is None or store in found:
                continue
            value = (known[name] if store == kept_store(node.operation) else arriving).value
            written = Edge(key=arriving.key, value=value).otherwise(default)
            inner = default.otherwise(written)
            found[store] = replace(
                kept,
                key_serde=filled(kept.key_serde or written.key, inner),
                value_serde=filled(kept.value_serde or written.value, inner),
                other_value_serde=filled(kept.other_value_serde, inner) if kept.other_value_serde else None,
            )
    return found


def sink_edge(topology: Topology, name: str, known: Mapping[str, Edge], default: Edge) -> Edge:
    """The serdes that a sink below a part writes with; None where nothing says it. ``known``: what leaves the part's nodes."""
    node = topology.nodes[name]
    assert isinstance(node, SinkNode)
    above = next((known[parent] for parent in topology.parents[name] if parent in known), default).otherwise(default)
    inner = default.otherwise(above)
    return Edge(key=filled(node.key_serde or above.key, inner), value=filled(node.value_serde or above.value, inner))


def exit_edge(topology: Topology, name: str, known: Mapping[str, Edge]) -> Edge:
    """The serdes of what goes on to a node of columns; all its parents in the part must have the same.

    Raises:
        TopologyError: they have not, or nothing says which.
    """
    above = [known[parent] for parent in topology.parents[name] if parent in known]
    if any(edge != above[0] for edge in above):
        raise TopologyError(_merges_different(name))
    for side in ("key", "value"):
        if getattr(above[0], side) is None:
            raise TopologyError(
                f"no serde for the {side}s that enter {name}, whose function works on columns: give the function above it one "
                f"(per_record(f, serde=...)), set default.{side}.serde, or wrap {name}'s function in per_record(...) too"
            )
    return above[0]


def _merges_different(name: str) -> str:
    return f"{name} merges streams with different serdes: give the operators above it the same"


# --- the whole plan ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SerdeInference:
    """The serdes of a plan's edges as far as they are known, by node."""

    topology: Topology
    stages: Stages
    default: Edge
    leaving: dict[str, Edge] = field(default_factory=dict)
    """Of records that leave a source, or a node that runs in Python."""
    entering: dict[str, Edge] = field(default_factory=dict)
    """Of records that enter a sink, a node of a vectorised step, or one of a part from columns."""
    from_parts: dict[str, Edge] = field(default_factory=dict)
    """Of records that leave a part for a node of columns below it."""

    def settle_source(self, name: str) -> bool:
        """Settles what a source reads, if that is known by now."""
        node = self.topology.nodes[name]
        assert isinstance(node, SourceNode)
        known = Edge(key=node.key_serde, value=node.value_serde).otherwise(self.default)
        for sink, above in self.topology.nodes.items():
            if isinstance(above, SinkNode) and above.topic in node.topics and sink in self.entering:
                known = known.otherwise(self.entering[sink])
        if known.key is None or known.value is None:
            return False
        self.leaving[name] = Edge(key=filled(known.key, known), value=filled(known.value, self.default))
        return True

    def finish_step(self, number: int) -> list[str]:
        """Settles the serdes of the step's Python nodes; gives those whose records travel on."""
        onward = []
        for name in parents_first(self.topology):
            if not (runs_as_columns(self.topology, self.stages, name) and self.stages.step_of[name] == number):
                continue
            entry = self.entering.get(name) or self._inline(name)
            if entry is None:
                continue  # behind a source whose serdes are not known yet
            left = self._leaving_step(name, entry)
            if left is None:
                continue
            self.entering[name], self.leaving[name] = entry, left
            if outer_targets(self.topology, self.stages, name):
                onward.append(name)
        for part in self.stages.parts:
            if self.stages.step_of_part(part) == number:
                self._leave_part(part)
        return onward

    def _leaving_step(self, name: str, entry: Edge) -> Edge | None:
        """The serdes of records that leave a vectorised node; None while those of a table in its pairs are unknown.

        Raises:
            TopologyError: nothing says how its keys or its values are written.
        """
        node = self.topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        if makes_pairs(node.operation):
            pair = pair_of_sides(self.topology, name, [entry], self.leaving, self.default)
            return None if pair is None else Edge(key=entry.key, value=pair)
        found = leaving(self.topology, name, [entry], self.default, in_step=True)
        for side in ("key", "value"):
            if getattr(found, side) is None:
                raise TopologyError(
                    f"no serde for the {side}s of {name}: give its result one (per_batch(..., serde=...), .to(..., {side}=...)),"
                    f" or set default.{side}.serde"
                )
        return found

    def entries_of(self, part: GraphPart) -> PartEntries | None:
        """The serdes of what enters the part; None while they are not all known."""
        entered = entered_by_columns(self.topology, part)
        if not (self.leaving.keys() >= set(part.sources) and self.entering.keys() >= set(entered)):
            return None
        return PartEntries(
            sources={name: self.leaving[name] for name in part.sources}, columns={name: self.entering[name] for name in entered}
        )

    def serdes_of(self, part: GraphPart) -> PartSerdes:
        """The serdes inside a part, once all are settled."""
        entries = self.entries_of(part)
        assert entries is not None
        return serdes_of_part(self.topology, part, entries, self.default)

    def _leave_part(self, part: GraphPart) -> None:
        if self.entries_of(part) is None:
            return
        known = self.serdes_of(part).leaving
        for name in (*part.sources, *part.nodes):
            if name in part.nodes:
                self.leaving[name] = known[name]
            for child in self.topology.children(name):
                if isinstance(self.topology.nodes[child], SinkNode):
                    self.entering[child] = sink_edge(self.topology, child, known, self.default)
        for name in left_to_columns(self.topology, part):
            self.from_parts[name] = exit_edge(self.topology, name, known)

    def _inline(self, name: str) -> Edge | None:
        """Of a node that a Python node's records reach in its own step."""
        for parent in parents_first(self.topology):
            in_step = runs_as_columns(self.topology, self.stages, parent)
            if parent in self.leaving and in_step and name in targets(self.topology, parent, self.stages.part_of):
                return self.leaving[parent]
        return None

    # --- from columns -----------------------------------------------------------------------------------------------

    def enter(self, name: str, at: Pair) -> tuple[Encoded, Encoded | None]:
        """Settles what enters a node from a layer; gives key and value as they are written. Value None: it has none, since rows
        are counted there."""
        node, is_counted = self.topology.nodes[name], False
        said, default = NOTHING_KNOWN, NOTHING_KNOWN  # what the column is, says its type
        if isinstance(node, SinkNode):
            said = Edge(key=node.key_serde, value=node.value_serde)
            default = default if is_batch_sink(node) else self.default
        elif name not in self.stages.part_of:
            assert isinstance(node, ProcessorNode)
            enters, store = entry_of(node.operation).enters, kept_store(node.operation)
            if enters is not Enters.BY_TYPE and store is not None:
                said = Edge(key=self.topology.stores[store].key_serde, value=self.topology.stores[store].value_serde)
            if enters is Enters.KEY_AS_STORED:
                said = replace(said, value=None)
            is_counted = enters is Enters.KEY_ONLY
            default = self.default if enters in (Enters.AS_STORED, Enters.KEY_ONLY) else default
        if isinstance(node, ProcessorNode):
            said = said.otherwise(self._of_classes(name, at))
        key = _written(said.key or default.key, at.key, at.key_type, f"into {name}, key")
        value = None if is_counted else _written(said.value or default.value, at.value, at.value_type, f"into {name}, value")
        self.entering[name] = Edge(key=key[0], value=None if value is None else value[0])
        return key[1], None if value is None else value[1]

    def at_sink(self, name: str) -> Edge:
        """The serdes of a sink's records: of those that enter it, or leave the Python node whose step sends them."""
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        own = self._own(node)
        found = self.entering.get(name) or own.otherwise(self._inline(name) or NOTHING_KNOWN)
        return found.otherwise(own).otherwise(self.default)

    def rewritten(self, name: str, leaving: Edge) -> tuple[Serde | None, Serde | None]:
        """The serdes of a sink in whose step records already are as bytes, as ``leaving`` writes them; None for a side whose
        bytes are the sink's too."""
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        own = self._own(node)
        key = None if _writes_the_same(leaving.key, own.key) else own.key
        return key, None if _writes_the_same(leaving.value, own.value) else own.value

    def _own(self, node: SinkNode) -> Edge:
        return Edge(key=filled(node.key_serde, self.default), value=filled(node.value_serde, self.default))

    def _of_classes(self, name: str, at: Pair) -> Edge:
        """The serdes of what has come through the JVM unchanged, where they make instances of a class of it, ``Windowed`` too:
        functions of Python get the same behind functions of Columns."""
        above = [self.topology.nodes[parent] for parent in self.topology.parents[name]]
        found = {}
        for side, kind in (("key", at.key_type), ("value", at.value_type)):
            first, *others = [getattr(node, f"{side}_serde") for node in above] or [None]
            is_kept = isinstance(first, _OF_CLASSES) and all(first == other for other in others)
            found[side] = first if is_kept and first.sql_type == kind.simpleString() else None
        return Edge(**found)

    def at_batch_sink(self, name: str) -> Edge:
        """The serdes of records that reach a ``foreach_batch`` node, on whichever way.

        Raises:
            TopologyError: on two ways in two forms.
        """
        found = [edge for edge in (self.entering.get(name), self._inline(name)) if edge is not None]
        if len(found) == 2 and found[0] != found[1]:
            raise TopologyError(_merges_different(name))
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        said = found[0] if found else Edge(key=node.key_serde, value=node.value_serde)
        return said.otherwise(self.default)


def _written(serde: Serde | None, column: Column, data_type: DataType, where: str) -> tuple[Serde, Encoded]:
    """The serde, given or what fits the column's type, and the column as it writes it."""
    chosen = serde or serde_for_type(data_type, where)
    return chosen, encoded(chosen, column, data_type, where)

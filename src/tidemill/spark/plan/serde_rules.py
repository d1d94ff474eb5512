"""The rules by which the serdes of an edge follow from those of the edges above it.

Decides by what the program says (node, the function's own serde), then by what the table of operations says of the operation:
long for a count, the serde of the arriving records, that of the store; then by the defaults. Nodes that run record by
record and those of a vectorised step have the same rules for values. A step differs in that it makes bytes of its results: what
it does not change it passes on as it came, and where nothing says how a result is written, it asks the sinks below, or takes the
serde of what arrives. None where nothing is known, which is an error only if bytes are needed there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidemill.dsl.json_schema import StructType, parts_of
from tidemill.dsl.serdes import BytesSerde, Serdes, StringSerde, UUIDSerde
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.dsl.serdes_foreign_key import SubscriptionResponseSerde
from tidemill.dsl.serdes_json import JsonClassSerde, JsonSerde
from tidemill.dsl.serdes_windowed import windowed_serde
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import (
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
from tidemill.spark.plan.graph_parts import GraphPart
from tidemill.spark.plan.planned_topology import is_batch_sink
from tidemill.spark.plan.stages import targets
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.topology.functions import PerRecord
from tidemill.topology.join_operations import (
    ForeignKeyChange,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    GlobalTableJoin,
    JoinWindowed,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
)
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.methods import method_of
from tidemill.topology.nodes import ProcessorNode, SinkNode, Store, Topology, processor_node
from tidemill.topology.operations import SessionAggregate, WindowAggregate
from tidemill.topology.spark_operations import ChangedValues, makes_pairs
from tidemill.topology.values import Serde

# --- what leaves a node -----------------------------------------------------------------------------------------------


def leaving_in_graph(topology: Topology, name: str, above: Sequence[KeyValueSerdes], default: KeyValueSerdes) -> KeyValueSerdes:
    """The serdes of what leaves a node that runs record by record. ``above``: what enters it, on all ways that are known."""
    node, arriving = processor_node(topology, name), _arriving(above)
    entry = entry_of(node.operation)
    given = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
    given = given.otherwise(_of_functions(entry, functions_of(node.operation)))
    key = given.key or _key_left(node, entry, arriving, default)
    value = _value_left(topology, node, value_leaves(node.operation), given.value, arriving)
    return KeyValueSerdes(key=key, value=value).otherwise(default)


def leaving_in_step(topology: Topology, name: str, arriving: KeyValueSerdes, default: KeyValueSerdes) -> KeyValueSerdes:
    """The serdes of what leaves a node that runs in a vectorised step."""
    node = processor_node(topology, name)
    entry, store = entry_of(node.operation), kept_store(node.operation)
    # Functions of Columns have been called in the layer above.
    of_value = Leaves.ARRIVING if entry.functions else value_leaves(node.operation)
    passes_values_on = of_value is Leaves.ARRIVING and store is None
    if passes_values_on and entry.key is Leaves.ARRIVING:
        return arriving
    given = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
    if store is None:
        of_sinks = _of_sinks(topology, name)
        only_sent = all(isinstance(topology.nodes[target], SinkNode) for target in targets(topology, name))
        given = of_sinks.otherwise(given) if only_sent else given.otherwise(of_sinks)
    key = arriving.key if entry.key is Leaves.ARRIVING else given.key or _key_left(node, entry, arriving, default)
    said = arriving.value if passes_values_on else given.value
    known = KeyValueSerdes(key=key, value=_value_left(topology, node, of_value, said, arriving)).otherwise(default)
    return known.otherwise(arriving) if of_value is Leaves.STORED else known


def _key_left(node: ProcessorNode, entry: OperationEntry, arriving: KeyValueSerdes, default: KeyValueSerdes) -> Serde | None:
    if entry.key is Leaves.WINDOWED:
        assert isinstance(node.operation, (WindowAggregate, SessionAggregate))
        return windowed_serde(arriving.key or default.key, node.operation.windows)
    return arriving.key if entry.key is Leaves.ARRIVING else None


def _value_left(
    topology: Topology, node: ProcessorNode, of_value: Leaves, said: Serde | None, arriving: KeyValueSerdes
) -> Serde | None:
    """``said``, or else the operation's serde: long for a count, the store's for a stored result, that of the records that
    arrive."""
    value, store = said, kept_store(node.operation)
    if of_value is Leaves.COUNT:
        value = value or Serdes.long()
    elif of_value is not Leaves.OWN and store is not None:
        value = value or topology.stores[store].value_serde
    if of_value is Leaves.ARRIVING:
        value = value or arriving.value
    if store is not None and isinstance(value, ChangeSerde):
        return value.inner  # of a table that is grouped: changes arrive, and what is kept are their values
    return value


def _arriving(above: Sequence[KeyValueSerdes]) -> KeyValueSerdes:
    """The first serdes that are known."""
    return KeyValueSerdes(
        key=next((edge.key for edge in above if edge.key is not None), None),
        value=next((edge.value for edge in above if edge.value is not None), None),
    )


def _of_functions(entry: OperationEntry, functions: Sequence[object]) -> KeyValueSerdes:
    """Serdes that ``per_record(..., serde=...)`` names for the functions' results."""
    given = next((f.serde for f in functions if isinstance(f, PerRecord) and f.serde is not None), None)
    if given is None or entry.gives is Gives.TRUTH:
        return NO_SERDES
    key, value = given if isinstance(given, tuple) else (given if entry.gives is Gives.KEY else None, given)
    return KeyValueSerdes(key=key, value=None if entry.gives is Gives.KEY else value)


def _of_sinks(topology: Topology, name: str) -> KeyValueSerdes:
    """The serdes of the nearest sinks that keys, or values, reach as they are, as far as these agree: a step makes the bytes
    before they get them."""
    keys = [sink.key_serde for sink in _sinks_below(topology, [name], "key")]
    values = [sink.value_serde for sink in _sinks_below(topology, [name], "value")]
    return KeyValueSerdes(key=_only(keys), value=_only(values))


def _of_sinks_behind(topology: Topology, name: str) -> KeyValueSerdes:
    """``_of_sinks`` of a node of columns, for the side that it passes on as it is."""
    passed, found = [side for side in ("key", "value") if _passes_on(topology, name, side)], _of_sinks(topology, name)
    return KeyValueSerdes(key=found.key if "key" in passed else None, value=found.value if "value" in passed else None)


def _only(serdes: Sequence[Serde | None]) -> Serde | None:
    return serdes[0] if serdes and all(serde is serdes[0] for serde in serdes) else None


def _sinks_below(topology: Topology, names: Sequence[str], side: str) -> list[SinkNode]:
    below = {child: topology.nodes[child] for name in names for child in targets(topology, name)}
    sinks = [node for node in below.values() if isinstance(node, SinkNode) and not is_batch_sink(node)]
    passing = [name for name in below if _passes_on(topology, name, side)]
    return sinks if sinks or not passing else _sinks_below(topology, passing, side)


def _passes_on(topology: Topology, name: str, side: str) -> bool:
    """True if it forwards the keys, or the values, unchanged or drops them."""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return False
    entry = entry_of(node.operation)
    return entry.is_stateless and (entry.key if side == "key" else entry.value) is Leaves.ARRIVING


def writes_as_it_came(topology: Topology, name: str, side: str, default: KeyValueSerdes) -> bool:
    """True if keys, or values, that reach a node of a vectorised step from columns may get into a topic or a store as the text in
    which they came: a store or a sink that they reach as they are has no serde, or one of JSON."""
    seen, todo = {name}, [name]
    while todo:
        at = todo.pop()
        node = topology.nodes[at]
        if isinstance(node, SinkNode):
            serde = node.key_serde if side == "key" else node.value_serde
            if is_batch_sink(node) or serde is None or type(serde) in (JsonSerde, JsonClassSerde):
                return True
            continue
        store = kept_store(processor_node(topology, at).operation)
        if store is not None:
            kept = topology.stores[store]
            if (kept.key_serde or default.key if side == "key" else kept.value_serde or default.value) is None:
                return True
        elif _passes_on(topology, at, side):
            below = [child for child in targets(topology, at) if child not in seen]
            seen.update(below)
            todo += below
    return False


def writes_the_same(given: Serde | None, own: Serde | None) -> bool:
    """True if a sink's own serde writes the bytes that the given one has written, and refuses none of them. Bytes are nothing
    else to a serde of bytes, but those that are the values of another serde, too."""
    if given is None or own is None or given == own:
        return True
    if BytesSerde in (type(given), type(own)):
        return given.sql_type != own.sql_type
    if type(own) is StringSerde:
        return type(given) is UUIDSerde
    if type(own) is not JsonSerde or type(given) not in (JsonSerde, JsonClassSerde) or given.sql_type != own.sql_type:
        return False
    return not any(isinstance(part, StructType) and part.required for part in parts_of(own.type))


def makers_of(topology: Topology, name: str, side: str) -> list[str]:
    """The nodes above ``name`` whose results the keys, or values, are that reach it: others pass them on."""
    found: list[str] = []
    for parent in topology.parents[name]:
        node, left = topology.nodes[parent], None
        if isinstance(node, ProcessorNode):
            left = entry_of(node.operation).key if side == "key" else value_leaves(node.operation)
        found += makers_of(topology, parent, side) if left is Leaves.ARRIVING else [parent]
    return found


def other_serdes(leaving: KeyValueSerdes, own: KeyValueSerdes) -> tuple[Serde | None, Serde | None]:
    """``own`` for key and value; None for a side whose bytes ``leaving`` writes alike."""
    key = None if writes_the_same(leaving.key, own.key) else own.key
    return key, None if writes_the_same(leaving.value, own.value) else own.value


def pair_of_sides(
    topology: Topology, join: str, above: Sequence[KeyValueSerdes], known: Mapping[str, KeyValueSerdes], default: KeyValueSerdes
) -> PairSerde | None:
    """The serde of a node that forwards pairs: of the values in its sides' stores, or of its stream and table. ``known``: serdes
    that leave other nodes."""
    node = processor_node(topology, join)
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
        case ChangedValues():
            left = right = above[0].value
        case _:
            return None
    return None if left is None or right is None else PairSerde(left, right)


# --- joins by foreign key ---------------------------------------------------------------------------------------------


def of_foreign_key_join(
    topology: Topology, name: str, arriving: KeyValueSerdes, known: Mapping[str, KeyValueSerdes], default: KeyValueSerdes
) -> ProcessorNode:
    """A node that runs record by record; of a join by foreign key with the serde of the left values, which it hashes.

    Raises:
        TopologyError: no serde is named for what the join's internal topics hold. Each side reads what the other one has
            written, so a serde that is only found on the way of one of them won't do.
    """
    node = processor_node(topology, name)

    def require_named(
        side: str, table: str, of: str, named: Serde | None, found: Serde | None, use: str = "writes into its internal topics"
    ) -> None:
        if named is None:
            such = "" if found is None else f" (there they are written as {found.name})"
            raise TopologyError(
                f"join by foreign key {name}: no serde is named for the {of}s of its {side} table, {table} "
                f"({method_of(topology.nodes[table])}), which the join {use}: give {of}= to the method"
                f" that makes the table{such}, or set default.{of}.serde"
            )

    match node.operation:
        case ForeignKeySubscribe() as subscribe:
            table = topology.parents[name][0]
            require_named("left", table, "key", subscribe.key_serde or default.key, arriving.key)
            value = subscribe.value_serde or default.value or arriving.value
            require_named("left", table, "value", value, None, "hashes")
            return replace(node, operation=replace(subscribe, value_serde=value))
        case ForeignKeyResolve() as resolve:
            left = known.get(resolve.table, NO_SERDES)
            return replace(node, operation=replace(resolve, value_serde=resolve.value_serde or default.value or left.value))
        case ForeignKeyChange() as change:
            table, answers = topology.parents[name][0], node.value_serde
            assert isinstance(answers, SubscriptionResponseSerde)
            require_named("right", table, "key", topology.stores[change.store].key_serde or default.key, arriving.key)
            require_named("right", table, "value", answers.inner or default.value, arriving.value)
    return node


# --- parts that run record by record ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEntries:
    """The serdes of records that enter a part: from sources of its own, and from columns, by the node that they enter."""

    sources: Mapping[str, KeyValueSerdes]
    columns: Mapping[str, KeyValueSerdes]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSerdes:
    """``leaving``: by its nodes and sources. ``from_columns``: what enters it from columns, by the node that it enters.
    ``stores``: those of its nodes, with the serdes that they are written with."""

    leaving: Mapping[str, KeyValueSerdes]
    from_columns: Mapping[str, KeyValueSerdes]
    stores: Mapping[str, Store]
    letters: Mapping[str, KeyValueSerdes] = field(default_factory=dict)
    """With which serdes what enters from columns came to these, if it enters in other bytes."""


def serdes_of_part(topology: Topology, part: GraphPart, entries: PartEntries, default: KeyValueSerdes) -> PartSerdes:
    """The serdes inside a part."""
    known: dict[str, KeyValueSerdes] = dict(entries.sources)
    for name in part.nodes:
        node = processor_node(topology, name)
        above = [known[parent] for parent in topology.parents[name] if parent in known]
        if name in entries.columns:
            above.append(entries.columns[name])
        known[name] = leaving_in_graph(topology, name, above, default)
        if makes_pairs(node.operation):
            known[name] = replace(known[name], value=pair_of_sides(topology, name, above, known, default))
    return PartSerdes(leaving=known, from_columns=entries.columns, stores=_stores(topology, part, entries, known, default))


def _stores(
    topology: Topology, part: GraphPart, entries: PartEntries, known: Mapping[str, KeyValueSerdes], default: KeyValueSerdes
) -> dict[str, Store]:
    found: dict[str, Store] = {}
    for name in part.nodes:
        node = processor_node(topology, name)
        above = next((known[parent] for parent in topology.parents[name] if parent in known), None)
        arriving = entries.columns.get(name) or above or default
        for store in stores_of(node):
            kept = topology.stores.get(store)
            if kept is None or store in found:
                continue
            value = (known[name] if store == kept_store(node.operation) else arriving).value
            written = KeyValueSerdes(key=arriving.key, value=value).otherwise(default)
            inner = default.otherwise(written)
            found[store] = replace(
                kept,
                key_serde=inner.complete(kept.key_serde or written.key),
                value_serde=inner.complete(kept.value_serde or written.value),
                other_value_serde=inner.complete(kept.other_value_serde),
            )
    return found


def sink_edge(topology: Topology, name: str, known: Mapping[str, KeyValueSerdes], default: KeyValueSerdes) -> KeyValueSerdes:
    """The serdes that a sink below a part writes with; None where nothing says it. ``known``: what leaves the part's nodes."""
    node = topology.nodes[name]
    assert isinstance(node, SinkNode)
    above = next((known[parent] for parent in topology.parents[name] if parent in known), default).otherwise(default)
    return KeyValueSerdes(key=node.key_serde, value=node.value_serde).otherwise(above).completed_by(default.otherwise(above))


def require(edge: KeyValueSerdes, whose: str, where: str) -> None:
    """Raises TopologyError if the edge has no serde for its keys or its values: ``whose`` they are, ``where`` to name it."""
    for side in edge.missing:
        raise TopologyError(f"no serde for the {side}s {whose}: give {side}= {where}, or set default.{side}.serde")


def exit_edge(topology: Topology, name: str, known: Mapping[str, KeyValueSerdes]) -> KeyValueSerdes:
    """The serdes of records for a node of columns; all its parents in the part must have the same.

    Raises:
        TopologyError: they have not, or nothing says which.
    """
    above = [known[parent] for parent in topology.parents[name] if parent in known]
    if any(edge != above[0] for edge in above):
        raise TopologyError(merges_different(name))
    sinks = _of_sinks_behind(topology, name)
    edge = above[0].otherwise(sinks)
    for side in edge.missing:
        made_by = " and ".join(f"{maker} ({method_of(topology.nodes[maker])})" for maker in _without(side, topology, name, known))
        raise TopologyError(
            f"no serde for the {side}s that enter {name} ({method_of(topology.nodes[name])}), whose function works on columns: "
            f"give {made_by} one (wrap its function or joiner: per_record(f, serde=...); {side}= where it has none), "
            f"set default.{side}.serde, or wrap {name}'s function in per_record(...) too"
        )
    return edge


def _without(side: str, topology: Topology, name: str, known: Mapping[str, KeyValueSerdes]) -> list[str]:
    """The nodes above from which on nothing says how keys or values are written."""
    lacking = [parent for parent in topology.parents[name] if parent in known and getattr(known[parent], side) is None]
    return sorted({each for parent in lacking for each in _without(side, topology, parent, known) or [parent]})


def merges_different(name: str) -> str:
    return f"{name} merges streams with different serdes: give the operators above it the same"

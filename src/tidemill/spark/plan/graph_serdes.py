"""Which serdes the keys and values have that leave a node of a part, and which its stores are written with.

Decides by what the program says (node, store, the function's own serde), then by what arrives where the operation keeps a
side as it is, then by the defaults; None where nothing is known, which is an error only if bytes are needed there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.operators.default_serdes import completed
from tidemill.spark.plan.graph_parts import functions, stores_of
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.steps.vector.column_join import makes_pairs
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, Store, Topology


@dataclass(frozen=True, slots=True)
class Sides:
    """The serdes of a record's key and value where it leaves a node or enters a part."""

    key: Any
    value: Any


def filled(serde: Any, sides: Sides) -> Any:
    """``serde`` without gaps: a serde around another one may leave that to what is known of the record."""
    return completed(serde, sides.value, key_serde=sides.key, value_serde=sides.value)


_NEW_KEY = (
    op.Map, op.FlatMap, op.SelectKey, op.TableSelect, op.WindowAggregate, op.SessionAggregate, op.ForeignKeySubscribe,
    op.ForeignKeyReceive, op.ForeignKeyLookup, op.ForeignKeyChange,
)  # fmt: skip
_SAME_VALUE = (
    op.Filter, op.SelectKey, op.Peek, op.PassThrough, op.NullKeyFilter, op.Branch, op.TableFilter, op.TableToStream,
    op.TableSource, op.JoinWindowed, op.Suppress, op.Reduce, op.TableReduce, op.TableJoinMerge,
)  # fmt: skip


def leaving_serdes(
    topology: Topology, nodes: tuple[str, ...], entering: Mapping[str, Sides], default: Sides
) -> dict[str, Sides]:
    """What leaves each of ``nodes`` (parents first). ``entering``: of sources, and of nodes that columns enter by ``name|in``."""
    found: dict[str, Sides] = {name: sides for name, sides in entering.items() if not name.endswith("|in")}
    for name in nodes:
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        above = [found[parent] for parent in topology.parents[name] if parent in found]
        if name + "|in" in entering:
            above.append(entering[name + "|in"])
        found[name] = _leaving(topology, node, above, default)
        if makes_pairs(node.operation):
            pair = _pair_serde(topology, nodes, node.operation, above, found, default)
            found[name] = replace(found[name], value=pair)
    return found


def _pair_serde(
    topology: Topology, nodes: tuple[str, ...], join: op.Operation, above: list[Sides], found: Mapping[str, Sides], default: Sides
) -> PairSerde | None:
    """Of what a join hands on to a function of Columns: the values that its sides' stores keep, or its stream and table have."""
    kept_by = {}
    for name in nodes:
        node = topology.nodes[name]
        if isinstance(node, ProcessorNode) and isinstance(node.operation, op.JoinWindowed):
            kept_by[node.operation.store] = found[name].value
    match join:
        case op.StreamStreamJoin(own_store=own, other_store=other, is_left=is_left):
            left, right = (kept_by[own], kept_by[other]) if is_left else (kept_by[other], kept_by[own])
        case op.StreamSelfJoin(store=store):
            left = right = kept_by[store]
        case op.StreamTableJoin(table=table):
            left, right = above[0].value, found[table].value
        case op.GlobalTableJoin(store=store):
            left, right = above[0].value, topology.stores[store].value_serde or default.value
        case _:
            return None
    return None if left is None or right is None else PairSerde(left, right)


def _leaving(topology: Topology, node: ProcessorNode, above: list[Sides], default: Sides) -> Sides:
    operation = node.operation
    key, value = node.key_serde, node.value_serde
    given = next((f.serde for f in functions(operation) if isinstance(f, op.PerRecord) and f.serde is not None), None)
    if given is not None and not isinstance(operation, (op.Filter, op.TableFilter, op.Branch)):
        if isinstance(operation, op.SelectKey):
            key = key or given
        elif isinstance(given, tuple):
            key, value = key or given[0], value or given[1]
        else:
            value = value or given
    if isinstance(operation, op.Count) or isinstance(getattr(operation, "aggregation", None), op.Counting):
        value = value or Serdes.long()
    if not isinstance(operation, _NEW_KEY):
        key = key or next((sides.key for sides in above if sides.key is not None), None)
    if isinstance(operation, _SAME_VALUE) or isinstance(getattr(operation, "aggregation", None), op.Reducing):
        value = value or next((sides.value for sides in above if sides.value is not None), None)
    if isinstance(operation, op.TableReduce) and isinstance(value, ChangeSerde):
        value = value.inner  # what arrives are changes; what is reduced, and kept, are their values
    store = topology.stores.get(getattr(operation, "store", None) or "")
    if store is not None and value is None and isinstance(operation, _KEEPS_RESULT):
        value = store.value_serde
    return Sides(key or default.key, value or default.value)


_KEEPS_RESULT = (
    op.Aggregate, op.WindowAggregate, op.SessionAggregate, op.TableAggregate, op.TableMapValues, op.TableTransformValues,
    op.TableJoinMerge,
)  # fmt: skip


def store_serdes(
    topology: Topology, nodes: tuple[str, ...], leaving: Mapping[str, Sides], entering: Mapping[str, Sides], default: Sides
) -> dict[str, Store]:
    """The stores of ``nodes`` with the serdes that they are written with."""
    found: dict[str, Store] = {}
    for name in nodes:
        node = topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        above = next((leaving[parent] for parent in topology.parents[name] if parent in leaving), None)
        arriving = entering.get(name + "|in") or above or default
        for store in stores_of(node):
            kept = topology.stores.get(store)
            if kept is None or store in found:
                continue
            of_result = store == getattr(node.operation, "store", None) and not isinstance(node.operation, op.Suppress)
            value = (leaving[name] if of_result else arriving).value
            known = Sides(arriving.key or default.key, value or default.value)
            inner = Sides(default.key or known.key, default.value or known.value)
            found[store] = replace(
                kept,
                key_serde=filled(kept.key_serde or known.key, inner),
                value_serde=filled(kept.value_serde or known.value, inner),
                other_value_serde=filled(kept.other_value_serde, inner) if kept.other_value_serde else None,
            )
    return found

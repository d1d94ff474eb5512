"""The serdes of what enters and leaves a vectorised node, where the program leaves them open.

Decides by the node, its store and what arrives; leaves types of columns to ``compile``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.spark.plan.batch_sinks import is_batch_sink
from tidemill.spark.plan.stages import targets
from tidemill.topology.nodes import ProcessorNode, SinkNode, Topology
from tidemill.topology.operations import Count, Counting, SessionAggregate, StreamTableJoin, WindowAggregate


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """How records that leave a node are written where they pass a Python step: the serdes of key and value."""

    key: Any
    value: Any


def leaving_edge(topology: Topology, name: str, entry: Edge, default_value: Any) -> Edge:
    """What leaves a vectorised node that ``entry`` enters.

    Raises:
        TopologyError: nothing says how its values are written.
    """
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    operation = node.operation
    store_name = getattr(operation, "store", None)
    store = topology.stores[store_name] if store_name else None
    if isinstance(operation, StreamTableJoin):
        value = node.value_serde or _serde_of_sinks(topology, name) or default_value
        if value is None:
            raise TopologyError(
                f"no serde for the values of {name}: give the join's result one (.to(..., value=...)), or set default.value.serde"
            )
        return Edge(key=entry.key, value=value)
    if isinstance(operation, (WindowAggregate, SessionAggregate)):
        counts = isinstance(operation.aggregation, Counting)
        of_result = Serdes.long() if counts else store.value_serde if store else None
        return Edge(key=node.key_serde, value=node.value_serde or of_result or entry.value or default_value)
    if isinstance(operation, Count):
        return Edge(key=entry.key, value=Serdes.long())
    return Edge(key=entry.key, value=entry.value if store is None else store.value_serde or entry.value or default_value)


def _serde_of_sinks(topology: Topology, name: str) -> Any:
    """What the sinks right below write with, if they agree."""
    below = [topology.nodes[child] for child in targets(topology, name)]
    found = {id(node.value_serde): node.value_serde for node in below if isinstance(node, SinkNode) and not is_batch_sink(node)}
    return next(iter(found.values())) if len(found) == 1 else None

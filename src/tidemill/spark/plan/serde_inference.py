"""The serdes of every edge of a plan: what the program says, and where it leaves them open what arrives there.

Decides in the order of the data, a layer and a step after the other, as ``compile`` walks through them: a repartition topic's
source reads what its sinks write, a Python node what its columns' types say. How columns are written is ``codecs``'.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import DataType

from tidemill.errors import TopologyError
from tidemill.spark.plan.batch_sinks import is_batch_sink
from tidemill.spark.plan.changes import Pair
from tidemill.spark.plan.codecs import Encoded, encoded, serde_for_type
from tidemill.spark.plan.edges import Edge, leaving_edge
from tidemill.spark.plan.graph_parts import GraphPart
from tidemill.spark.plan.graph_plan import entered_by_columns, exit_sides, left_to_columns, sides_of_part, sink_sides
from tidemill.spark.plan.graph_serdes import Sides, filled
from tidemill.spark.plan.stages import Stages, outer_targets, parents_first, runs_as_columns, targets
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.steps.vector.column_join import makes_pairs
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology
from tidemill.topology.operations import (
    Aggregate,
    Foreach,
    Peek,
    Print,
    Reduce,
    SessionAggregate,
    StreamTableJoin,
    TableFilter,
    TableMapValues,
    TableSource,
    WindowAggregate,
)
from tidemill.topology.spark_operations import HeldAggregates, MergedAggregates

_KEEPS_VALUES = (HeldAggregates, MergedAggregates, Reduce, Aggregate, TableSource, TableFilter, TableMapValues)


class SettledEdges:
    """``edges``: by node what leaves it; ``node|in`` what enters it, ``node|out`` what leaves a part towards it."""

    def __init__(self, topology: Topology, plan: Stages, default_key: Any, default_value: Any) -> None:
        self.topology, self.stages = topology, plan
        self._default_key, self._default_value = default_key, default_value
        self.default = Sides(default_key, default_value)
        self.edges: dict[str, Edge] = {}

    def settle_source(self, name: str) -> bool:
        """Settles what a source reads, if that is known by now."""
        node = self.topology.nodes[name]
        assert isinstance(node, SourceNode)
        key, value = node.key_serde or self._default_key, node.value_serde or self._default_value
        for sink, above in self.topology.nodes.items():
            if isinstance(above, SinkNode) and above.topic in node.topics and sink + "|in" in self.edges:
                key, value = key or self.edges[sink + "|in"].key, value or self.edges[sink + "|in"].value
        if key is None or value is None:
            return False
        known = Sides(key, value)
        self.edges[name] = Edge(key=filled(key, known), value=filled(value, self.default))
        return True

    def finish_step(self, number: int) -> list[str]:
        """Settles the serdes of the step's Python nodes; gives those whose records travel on."""
        onward = []
        for name in parents_first(self.topology):
            if not (runs_as_columns(self.topology, self.stages, name) and self.stages.step_of[name] == number):
                continue
            entry = self.edges.get(name + "|in") or self.inline_edge(name)
            if entry is None or not self._table_is_settled(name):
                continue  # behind a source whose serdes are not known yet
            self.edges[name + "|in"] = entry
            self.edges[name] = self._pair_edge(name, entry) or leaving_edge(self.topology, name, entry, self._default_value)
            if outer_targets(self.topology, self.stages, name):
                onward.append(name)
        for part in self.stages.parts:
            if self.stages.step_of_part(part) == number:
                self._leave_part(part)
        return onward

    def _pair_edge(self, name: str, entry: Edge) -> Edge | None:
        """What leaves a join with a table that a function of Columns stands below."""
        table = self._table_of_pairs(name)
        return None if table is None else Edge(key=entry.key, value=PairSerde(entry.value, self.edges[table].value))

    def _table_is_settled(self, name: str) -> bool:
        table = self._table_of_pairs(name)
        return table is None or table in self.edges

    def _table_of_pairs(self, name: str) -> str | None:
        node = self.topology.nodes[name]
        operation = node.operation if isinstance(node, ProcessorNode) else None
        return operation.table if isinstance(operation, StreamTableJoin) and makes_pairs(operation) else None

    def entering_part(self, part: GraphPart) -> dict[str, Sides] | None:
        """The serdes of what enters the part; None while they are not all known."""
        wanted = [*part.sources, *(name + "|in" for name in entered_by_columns(self.topology, part))]
        if not self.edges.keys() >= set(wanted):
            return None
        return {name: Sides(self.edges[name].key, self.edges[name].value) for name in wanted}

    def _leave_part(self, part: GraphPart) -> None:
        entering = self.entering_part(part)
        if entering is None:
            return
        leaving, _ = sides_of_part(self.topology, part, entering, self.default)
        for name in (*part.sources, *part.nodes):
            if name in part.nodes:
                self.edges[name] = Edge(key=leaving[name].key, value=leaving[name].value)
            for child in self.topology.children(name):
                if isinstance(self.topology.nodes[child], SinkNode):
                    sides = sink_sides(self.topology, child, leaving, self.default)
                    self.edges[child + "|in"] = Edge(key=sides.key, value=sides.value)
        for name in left_to_columns(self.topology, part):
            sides = exit_sides(self.topology, name, leaving)
            self.edges[name + "|out"] = Edge(key=sides.key, value=sides.value)

    def inline_edge(self, name: str) -> Edge | None:
        """Of a node that a Python node's records reach in its own step."""
        for parent in parents_first(self.topology):
            in_step = runs_as_columns(self.topology, self.stages, parent)
            if parent in self.edges and in_step and name in targets(self.topology, parent):
                return self.edges[parent]
        return None

    def entering(self, name: str, at: Pair, where: str) -> tuple[tuple[Any, Encoded], tuple[Any, Encoded]]:
        """Serde and written columns of both sides of what enters a node from a layer."""
        node = self.topology.nodes[name]
        key: Any = None
        value: Any = None
        default_key, default_value = self._default_key, self._default_value
        if isinstance(node, SinkNode):
            key, value = node.key_serde, node.value_serde
            if is_batch_sink(node):
                default_key = default_value = None  # what the column is, says its type
        elif name in self.stages.part_of:
            default_key = default_value = None  # what the column is, says its type
        else:
            assert isinstance(node, ProcessorNode)
            operation = node.operation
            if isinstance(operation, _KEEPS_VALUES) and operation.store:
                store = self.topology.stores[operation.store]
                key = store.key_serde
                value = None if isinstance(operation, Aggregate) else store.value_serde
            if isinstance(operation, (WindowAggregate, SessionAggregate)):
                key = self.topology.stores[operation.store].key_serde
            if isinstance(operation, (Peek, Foreach, Print, Aggregate, StreamTableJoin, WindowAggregate, SessionAggregate)):
                default_key = default_value = None  # what the column is, says its type
        return (
            self.side(key, at.key, at.key_type, default_key, f"{where}, key"),
            self.side(value, at.value, at.value_type, default_value, f"{where}, value"),
        )

    def side(self, serde: Any, column: Column, data_type: DataType, default: Any, where: str) -> tuple[Any, Encoded]:
        """The serde: the given one, the default, or what fits the column's type."""
        chosen = serde or default or serde_for_type(data_type, where)
        return chosen, encoded(chosen, column, data_type, where)

    def at_batch_sink(self, name: str) -> Edge:
        """What reaches a ``foreach_batch`` node, on whichever way.

        Raises:
            TopologyError: on two ways in two forms.
        """
        found = [edge for edge in (self.edges.get(name + "|in"), self.inline_edge(name)) if edge is not None]
        if len(found) == 2 and found[0] != found[1]:
            raise TopologyError(f"{name} merges streams with different serdes: give the operators above it the same")
        node = self.topology.nodes[name]
        assert isinstance(node, SinkNode)
        edge = found[0] if found else Edge(key=node.key_serde, value=node.value_serde)
        return Edge(key=edge.key or self._default_key, value=edge.value or self._default_value)

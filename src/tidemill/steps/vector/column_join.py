"""Joins whose joiner is a function of Columns, on a plan: the join runs in its Python step and hands on both sides as they are.

    step    ``NAME|pair``: the join, whose results are pairs of left and right side       (``codecs_wire.PairSerde``)
    layer   ``NAME``: the user's function, as a ``map_values`` of such a pair

Decides the rewriting of such a node into two; whoever stood below the join stands below the function. That a layer can follow
at all is checked where nodes are placed (``stages``), as for every function of Columns. The function never leaves the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidemill.topology.nodes import Node, ProcessorNode, Topology
from tidemill.topology.operations import (
    GlobalTableJoin,
    MapValues,
    OfColumns,
    Operation,
    PassThrough,
    StreamSelfJoin,
    StreamStreamJoin,
    StreamTableJoin,
)

_PAIR = "|pair"
_JOINS = (StreamStreamJoin, StreamSelfJoin, StreamTableJoin, GlobalTableJoin)


def both_sides(left: Any, right: Any) -> tuple[Any, Any]:
    """The joiner of a join that hands on pairs."""
    return left, right


def makes_pairs(operation: Operation) -> bool:
    return isinstance(operation, _JOINS) and operation.joiner is both_sides


def with_column_joins(topology: Topology) -> Topology:
    """The topology as the plan sees it; the same if it has no such join."""
    functions = {name: found for name in topology.nodes if (found := _function_below(topology, name)) is not None}
    if not functions:
        return topology
    nodes: dict[str, Node] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for name, node in topology.nodes.items():
        above = topology.parents[name]
        made = _of_pairs(node)
        if name in functions:
            assert isinstance(made, ProcessorNode)
            nodes[name + _PAIR], parents[name + _PAIR] = replace(made, name=name + _PAIR, value_serde=None), above
            made = replace(made, operation=MapValues(functions[name], takes_key=True), stores=())
            above = (name + _PAIR,)
        nodes[name], parents[name] = made, above
    return replace(topology, nodes=nodes, parents=parents)


def _function_below(topology: Topology, name: str) -> Callable[[Any, Any], Any] | None:
    """The function that the records of this node go through: of a join of two streams behind the node that merges both sides."""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return None
    operation = node.operation
    if isinstance(operation, PassThrough):
        above = [topology.nodes[parent] for parent in topology.parents[name]]
        joins = [parent.operation for parent in above if isinstance(parent, ProcessorNode)]
        return next((_of_pair(join) for join in joins if isinstance(join, StreamStreamJoin) and _is_of_columns(join)), None)
    return _of_pair(operation) if _is_of_columns(operation) and not isinstance(operation, StreamStreamJoin) else None


def _is_of_columns(operation: Operation) -> bool:
    return isinstance(operation, _JOINS) and isinstance(operation.joiner, OfColumns)


def _of_pair(join: Operation) -> Callable[[Any, Any], Any]:
    assert isinstance(join, _JOINS)
    assert isinstance(join.joiner, OfColumns)
    function, takes_key = join.joiner.function, join.takes_key

    def joined(key: Any, pair: Any) -> Any:
        left, right = pair["left"], pair["right"]
        return function(key, left, right) if takes_key else function(left, right)

    return joined


def _of_pairs(node: Node) -> Node:
    """The node with a join that hands on pairs, if its joiner is a function of Columns."""
    if not isinstance(node, ProcessorNode) or not _is_of_columns(node.operation):
        return node
    assert isinstance(node.operation, _JOINS)
    return replace(node, value_serde=None, operation=replace(node.operation, joiner=both_sides, takes_key=False))

"""Which step of a thread's plan runs which node: Python steps 1..K, JVM layers between them.

Decides, for a whole topology at once (a thread's plan serves every task it may ever get): source nodes are step 0; a node
that keeps state or calls Python runs in a Python step; everything else is Catalyst in the layer behind its parent's step;
nodes that only forward run wherever they are met. Adjacent Python nodes share a step; sinks are written by the last.
Leaves expressions to ``compile`` and execution to ``state_step``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology
from tidemill.topology.operations import STATEFUL_OPERATIONS, Count, Foreach, PassThrough, Peek, Print, TableToStream


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """``step_of``: Python step of each source (0), Python node and sink (always the last); ``last`` = K, at least 1.

    ``summed_sinks``: sinks of repartition topics whose only reader is a count, so that records may be summed before them.
    """

    step_of: dict[str, int]
    last: int
    summed_sinks: frozenset[str]


def parents_first(topology: Topology) -> tuple[str, ...]:
    """Node names so that every node stands behind its parents, otherwise in insertion order."""
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for parent in topology.parents.get(name, ()):
                visit(parent)
            done[name] = None

    for name in topology.nodes:
        visit(name)
    return tuple(done)


def runs_in_python(topology: Topology, name: str) -> bool:
    """Does the node keep a store or call Python?"""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return False
    if isinstance(node.operation, (Peek, Foreach, Print)):
        return True
    return isinstance(node.operation, STATEFUL_OPERATIONS) and node.operation.store is not None


def only_forwards(topology: Topology, name: str) -> bool:
    node = topology.nodes[name]
    return isinstance(node, ProcessorNode) and isinstance(node.operation, (PassThrough, TableToStream))


def stages(topology: Topology) -> Stages:
    layer: dict[str, int] = {}  # Catalyst or forwarding nodes: the layer that they are met in
    in_python: dict[str, int] = {}
    for name in parents_first(topology):
        if isinstance(topology.nodes[name], SourceNode):
            in_python[name] = 0
            continue
        parents = topology.parents.get(name, ())
        if runs_in_python(topology, name):
            in_python[name] = max(_earliest_step(topology, parent, in_python, layer) for parent in parents)
        else:
            layer[name] = max((in_python[p] if p in in_python else layer[p] for p in parents), default=0)
    behind_catalyst = [
        layer[name] + 1
        for name, node in topology.nodes.items()
        if name in layer and not isinstance(node, SinkNode) and not only_forwards(topology, name)
    ]
    last = max([1, *in_python.values(), *behind_catalyst])
    sinks = {name: last for name, node in topology.nodes.items() if isinstance(node, SinkNode)}
    return Stages(step_of={**in_python, **sinks}, last=last, summed_sinks=_summed_sinks(topology))


def targets(topology: Topology, name: str) -> tuple[str, ...]:
    """The nodes that a Python node's records really go to: its children, forwarding nodes replaced by theirs."""
    found: dict[str, None] = {}
    for child in topology.children(name):
        found.update(dict.fromkeys(targets(topology, child) if only_forwards(topology, child) else (child,)))
    return tuple(found)


def inline_targets(topology: Topology, plan: Stages, name: str) -> tuple[str, ...]:
    """Those that the same Python step serves."""
    return tuple(t for t in targets(topology, name) if plan.step_of.get(t) == plan.step_of[name])


def outer_targets(topology: Topology, plan: Stages, name: str) -> tuple[str, ...]:
    """Those for which the record travels on with the plan."""
    return tuple(t for t in targets(topology, name) if plan.step_of.get(t) != plan.step_of[name])


def _earliest_step(topology: Topology, parent: str, in_python: dict[str, int], layer: dict[str, int]) -> int:
    """The first Python step that can run a node fed by ``parent``: the parent's own if nothing but forwarding lies between."""
    if parent in in_python:
        return max(1, in_python[parent])
    if only_forwards(topology, parent):
        return max(_earliest_step(topology, above, in_python, layer) for above in topology.parents[parent])
    return layer[parent] + 1


def _summed_sinks(topology: Topology) -> frozenset[str]:
    readers: dict[str, list[str]] = {}
    for name, node in topology.nodes.items():
        if isinstance(node, SourceNode):
            for topic in node.topics:
                readers.setdefault(topic, []).append(name)
    return frozenset(
        name
        for name, node in topology.nodes.items()
        if isinstance(node, SinkNode)
        and node.topic in topology.repartition_topics
        and len(readers.get(node.topic, [])) == 1
        and all(_is_count(topology, child) for child in topology.children(readers[node.topic][0]))
        and topology.children(readers[node.topic][0])
    )


def _is_count(topology: Topology, name: str) -> bool:
    node = topology.nodes[name]
    return isinstance(node, ProcessorNode) and isinstance(node.operation, Count)

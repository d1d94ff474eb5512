"""Stages of a plan: the step that runs each node; Python steps 1..K, JVM layers between them.

Decides for a whole topology at once, since a thread's plan serves every task that it may ever get:

- Source nodes are step 0.
- A node that keeps state or calls Python runs in a Python step, all nodes of a part (``graph_parts``) in one. Adjacent Python
  nodes share a step.
- Nodes that only forward run wherever they are met.
- Everything else is Catalyst, in the layer behind its parent's step.
- Sinks are written by the last step.

Leaves expressions to ``compile`` and execution to ``vector_step`` and ``graph_step``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tidemill.errors import TopologyError
from tidemill.operators.operation_table import Enters, Runs, entry_of, functions_of, global_stores, kept_store, runs
from tidemill.spark.plan.graph_parts import GraphPart, graph_parts
from tidemill.spark.plan.planned_topology import only_forwards, planned
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """``step_of``: Python step of each source (0), Python node and sink (always the last); ``last`` = K, at least 1.

    ``summed_sinks``: sinks of repartition topics whose only reader is a count, so that records may be summed before them.
    ``part_of``: for the nodes of ``parts``, those sources included that feed nothing else, the part's number.
    """

    step_of: dict[str, int]
    last: int
    summed_sinks: frozenset[str]
    parts: tuple[GraphPart, ...] = ()
    part_of: Mapping[str, int] = field(default_factory=dict)
    vectorised: tuple[frozenset[str], ...] = ()
    """Neighbours that run in one vectorised step (``shortcuts``)."""

    def step_of_part(self, part: GraphPart) -> int:
        return self.step_of[part.nodes[0]] if part.nodes else 1

    def parts_in(self, step: int) -> list[GraphPart]:
        """Parts that the step runs record by record, after the global stores, of which it has copies if there are any others."""
        own = [part for part in self.parts if self.step_of_part(part) == step]
        keeps_copies = step == self.last or any(not part.is_global for part in own)
        return [*(part for part in self.parts if part.is_global and keeps_copies), *(part for part in own if not part.is_global)]


def runs_in_python(topology: Topology, name: str) -> bool:
    """True if the node, outside of any part, runs in a Python step: itself or as its shortcut."""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return False
    return runs(node.operation) is Runs.STEP or entry_of(node.operation).shortcut is not None


def runs_vectorised(topology: Topology, plan: Stages, name: str) -> bool:
    """True if the node runs vectorised in a Python step, outside of any part."""
    return name not in plan.part_of and runs_in_python(topology, name)


def stages(topology: Topology, *, without_jvm: bool = False, one_by_one: bool = False) -> Stages:
    """``without_jvm``: whatever can run in a part does. ``one_by_one``: nothing that calls functions is vectorised."""
    topology = planned(topology)
    found = graph_parts(topology, all_that_can=without_jvm, one_by_one=one_by_one)
    parts = found.parts
    placed = _Placing(topology, parts, found.vectorised)
    for name in topology.nodes:
        placed.place(name)
    in_python, layer = placed.in_python, placed.layer
    behind_catalyst = [
        layer[name] + 1
        for name, node in topology.nodes.items()
        if name in layer and not isinstance(node, SinkNode) and not only_forwards(topology, name)
    ]
    last = max([1, *in_python.values(), *behind_catalyst])
    for part in parts:
        # The last step keeps the global stores whatever it runs; a part that no columns wait for spares another copy there.
        if part.is_global or (_joins_globally(topology, part) and _ends_in_sinks(topology, part)):
            in_python.update(dict.fromkeys(part.nodes, last))
    sinks = {name: last for name, node in topology.nodes.items() if isinstance(node, SinkNode)}
    part_of = {name: part.number for part in parts for name in (*part.sources, *part.nodes)}
    return Stages(
        step_of={**in_python, **sinks},
        last=last,
        summed_sinks=_summed_sinks(topology, part_of),
        parts=parts,
        part_of=part_of,
        vectorised=found.vectorised,
    )


class _Placing:
    """Steps and layers of all nodes; those of a part are placed at once."""

    def __init__(self, topology: Topology, parts: tuple[GraphPart, ...], vectorised: tuple[frozenset[str], ...]) -> None:
        self._topology = topology
        self._members = {name: part.nodes for part in parts for name in part.nodes}
        self._group_of: dict[str, frozenset[str]] = {}
        """All nodes of a vectorised group, by those that stay in its step; the others only forward between them."""
        self._part_of = {name: part.number for part in parts for name in part.nodes}
        for group in vectorised:
            stay = tuple(name for name in topology.nodes if name in group and runs_in_python(topology, name))
            self._members |= dict.fromkeys(stay, stay)
            self._group_of |= dict.fromkeys(stay, group)
        self._on_the_way: set[str] = set()
        self.layer: dict[str, int] = {}
        """Catalyst or forwarding nodes: the layer that they are met in."""
        self.in_python: dict[str, int] = {}

    def place(self, name: str) -> None:
        if name in self.layer or name in self.in_python:
            return
        if isinstance(self._topology.nodes[name], SourceNode):
            self.in_python[name] = 0
            return
        members = self._members.get(name, (name,))
        if name in self._on_the_way:
            raise TopologyError(self._cut_in_two())
        self._on_the_way.update(members)
        inside = self._group_of.get(name, frozenset(members))
        above = (p for one in self._topology.nodes if one in inside for p in self._topology.parents[one] if p not in inside)
        parents = list(dict.fromkeys(above))
        for parent in parents:
            self.place(parent)
        self._on_the_way.difference_update(members)
        if name in self._members or runs_in_python(self._topology, name):
            step = max((self._earliest_step(name, parent) for parent in parents), default=1)
            if self._merges_again(name):
                step += 1
            self.in_python.update(dict.fromkeys(members, step))
        else:
            self.layer[name] = max((self.in_python[p] if p in self.in_python else self.layer[p] for p in parents), default=0)

    def _earliest_step(self, name: str, parent: str) -> int:
        """The first step that can run a node of Python below ``parent``: a layer lies between a part and a vectorised node, and
        before a table whose function of Columns it computes."""
        step = _earliest_step(self._topology, parent, self.in_python, self.layer)
        if isinstance(self._topology.nodes[parent], SourceNode) or parent not in self.in_python:
            return step
        return step + (self._part_of.get(parent) != self._part_of.get(name) or self._is_computed_by_a_layer(name))

    def _is_computed_by_a_layer(self, name: str) -> bool:
        node = self._topology.nodes[name]
        return name not in self._members and isinstance(node, ProcessorNode) and bool(functions_of(node.operation))

    def _merges_again(self, name: str) -> bool:
        """True if a JVM layer must merge the results of its parent's step first."""
        node = self._topology.nodes[name]
        return isinstance(node, ProcessorNode) and entry_of(node.operation).behind_a_layer

    def _cut_in_two(self) -> str:
        together = next(self._members[name] for name in self._on_the_way if name in self._members)
        between = sorted({name.partition("|")[0] for name in self._on_the_way if name not in together})  # as the program has them
        return (
            f"{' and '.join(between)} works on columns, but is between operators that run together in Python "
            f"({', '.join(together)}): give it a function of Python values (in per_record(...); a joiner or reducer without "
            "of_columns(...))"
        )


def _joins_globally(topology: Topology, part: GraphPart) -> bool:
    """True if an operation itself reads a global store, other than processors, which may."""
    shared = global_stores(topology)
    nodes = (topology.nodes[name] for name in part.nodes)
    return any(isinstance(node, ProcessorNode) and kept_store(node.operation) in shared for node in nodes)


def _ends_in_sinks(topology: Topology, part: GraphPart) -> bool:
    """True if its records leave it for sinks only."""
    below = {target for name in part.nodes for target in targets(topology, name)} - set(part.nodes)
    return all(isinstance(topology.nodes[name], SinkNode) for name in below)


def targets(topology: Topology, name: str, part_of: Mapping[str, int] = MappingProxyType({})) -> tuple[str, ...]:
    """The nodes that a Python node's records really go to: its children, forwarding nodes replaced by theirs unless they are of
    a part."""
    found: dict[str, None] = {}
    for child in topology.children(name):
        passes = only_forwards(topology, child) and child not in part_of
        found.update(dict.fromkeys(targets(topology, child, part_of) if passes else (child,)))
    return tuple(found)


def inline_targets(topology: Topology, plan: Stages, name: str) -> tuple[str, ...]:
    """Targets in the same Python step."""
    return tuple(t for t in targets(topology, name, plan.part_of) if plan.step_of.get(t) == plan.step_of[name])


def outer_targets(topology: Topology, plan: Stages, name: str) -> tuple[str, ...]:
    """Targets in later layers or steps."""
    return tuple(t for t in targets(topology, name, plan.part_of) if plan.step_of.get(t) != plan.step_of[name])


def _earliest_step(topology: Topology, parent: str, in_python: dict[str, int], layer: dict[str, int]) -> int:
    """The first Python step that can run a node fed by ``parent``: the parent's own if nothing but forwarding lies between."""
    if parent in in_python:
        return max(1, in_python[parent])
    if only_forwards(topology, parent):
        return max(_earliest_step(topology, above, in_python, layer) for above in topology.parents[parent])
    return layer[parent] + 1


def _summed_sinks(topology: Topology, part_of: Mapping[str, int]) -> frozenset[str]:
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
        and node.partitioner is None
        and len(readers.get(node.topic, [])) == 1
        and all(_is_count(topology, child) and child not in part_of for child in topology.children(readers[node.topic][0]))
        and topology.children(readers[node.topic][0])
    )


def _is_count(topology: Topology, name: str) -> bool:
    node = topology.nodes[name]
    return isinstance(node, ProcessorNode) and entry_of(node.operation).enters is Enters.KEY_ONLY

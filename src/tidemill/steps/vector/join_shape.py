"""Which parts of a topology are one join of two streams and nothing else, so that ``window_join`` can run them.

Decides that by nodes, stores and serdes; all else is left to the operators: more than sources, one join, and sinks or columns
below it, stores of other serdes than the records', keys that a function may change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemill.dsl.serdes import BooleanSerde, BytesSerde, StringSerde, WholeNumberSerde
from tidemill.steps.step_spec import GraphEntry, GraphSpec
from tidemill.steps.vector.retained_rows import IMMUTABLE
from tidemill.topology.nodes import ProcessorNode, Serde, SinkNode, SourceNode, Store, StoreKind
from tidemill.topology.operations import JoinWindowed, PassThrough, StreamStreamJoin

_ONE_FORM = (StringSerde, BytesSerde, WholeNumberSerde, BooleanSerde)


def writes_as_read(read: Any, written: Any) -> bool:
    """Whether ``written`` gives back the very bytes that ``read`` could read (of text: where they are UTF-8)."""
    return isinstance(read, _ONE_FORM) and read == written


@dataclass(frozen=True, slots=True)
class JoinSide:
    """The source whose records enter this side, the nodes that keep and join them, their store."""

    source: str
    windowed: str
    node: str
    operation: StreamStreamJoin
    store: Store


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """A part of the topology that ``JoinTask`` can run: left, then right. ``targets``: where its results go, sinks or columns,
    which all read ``value_serde``. ``waiting``: the store of what has found no match, of left and outer joins."""

    sides: tuple[JoinSide, JoinSide]
    waiting: Store | None
    targets: tuple[str, ...]
    value_serde: Serde


def window_join_of(spec: GraphSpec) -> WindowJoin | None:
    """The join that is all of ``spec``; None if it is something else, or has more to it."""
    topology = spec.topology
    nodes = topology.nodes
    sides: dict[bool, JoinSide] = {}
    below: set[tuple[str, ...]] = set()
    waiting: set[str | None] = set()
    for entry in spec.entries.values():
        path, name = [nodes[entry.node]], entry.node
        while len(path) < 3:
            children = topology.children(name)
            if len(children) != 1:
                return None
            name = children[0]
            path.append(nodes[name])
        source, windowed, join = path
        if not isinstance(source, SourceNode) or not isinstance(windowed, ProcessorNode) or not isinstance(join, ProcessorNode):
            return None
        kept, operation = windowed.operation, join.operation
        if not isinstance(kept, JoinWindowed) or not isinstance(operation, StreamStreamJoin):
            return None
        store = topology.stores[kept.store]
        if not _keeps_what_comes(store, entry):
            return None
        waiting.add(operation.outer_store)
        sides[operation.is_left] = JoinSide(entry.node, windowed.name, name, operation, store)
        below.add(topology.children(name))
    if len(spec.entries) != 2 or len(sides) != 2 or len(below) != 1 or len(waiting) != 1:
        return None
    targets = _targets(spec, below.pop())
    if not targets or len(nodes) != 2 * 3 + 1 + len(targets):
        return None
    serdes = [_value_serde(spec, target) for target in targets]
    if any(serde != serdes[0] for serde in serdes):
        return None
    [outer] = waiting
    return WindowJoin((sides[True], sides[False]), None if outer is None else topology.stores[outer], targets, serdes[0])


def _keeps_what_comes(store: Store, entry: GraphEntry) -> bool:
    is_plain = store.kind is StoreKind.WINDOW and store.retain_duplicates and not store.time_ordered and not store.with_headers
    same = store.key_serde == entry.key_serde and store.value_serde == entry.value_serde
    return is_plain and same and isinstance(store.key_serde, IMMUTABLE)


def _value_serde(spec: GraphSpec, target: str) -> Serde:
    node = spec.topology.nodes[target]
    serde = node.value_serde if isinstance(node, SinkNode) else spec.exits[target].value_serde
    assert serde is not None
    return serde


def _targets(spec: GraphSpec, below: tuple[str, ...]) -> tuple[str, ...] | None:
    """What the node that merges both sides forwards to, if these are sinks of one topic or nodes of columns."""
    topology = spec.topology
    if len(below) != 1:
        return None
    merge = topology.nodes[below[0]]
    if not isinstance(merge, ProcessorNode) or not isinstance(merge.operation, PassThrough) or below[0] not in spec.inside:
        return None
    targets = topology.children(below[0])
    for name in targets:
        node = topology.nodes[name]
        if name in spec.choosing_sinks or (isinstance(node, SinkNode) and node.topic_extractor is not None):
            return None
        if not isinstance(node, SinkNode) and name not in spec.exits:
            return None
    return targets

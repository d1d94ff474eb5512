"""The recorder: the only mutable part of a builder.

Decides names (the counter that every operator advances, named or not, as in Kafka Streams) and keeps the logical graph so far,
repartition topics among it. Calls no function of the user. Leaves what the graph becomes to ``tidemill.topology``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemill.dsl.late_binding import GivenFunctions, functions_of
from tidemill.topology.functions import UserFunction
from tidemill.topology.logical import (
    KTableJoin,
    KTableSource,
    LogicalGraph,
    LogicalNode,
    Process,
    Repartition,
    StateStore,
    added,
    changed,
    linked,
    moved_last,
)
from tidemill.topology.naming import legal_name, numbered, repartition_nodes, repartition_topic
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde


class Recorder:
    """The counter and the logical graph of one builder."""

    __slots__ = ("_generated", "_given", "_graph", "_index")

    def __init__(self) -> None:
        self._graph, self._index, self._generated = LogicalGraph(), 0, set[str]()
        self._given = GivenFunctions()

    @property
    def graph(self) -> LogicalGraph:
        """The program so far; a value, it does not change later."""
        return self._graph

    @property
    def generated_names(self) -> frozenset[str]:
        """The names so far that the program has not given; those of internal resources begin with them."""
        return frozenset(self._generated)

    def generated(self, name: str) -> str:
        """Records that ``name`` was not given by the program; gives it back."""
        self._generated.add(name)
        return name

    def take_index(self, count: int = 1) -> int:
        """The next index of the counter, which moves on by ``count``."""
        index = self._index
        self._index += count
        return index

    def node_name(self, prefix: str, given: str | None, *, suffix: str = "") -> str:
        """The name of a node: the given one (with ``suffix``), or ``prefix`` and the next index.

        The index is used up in either case, so that naming one operator does not rename the others.
        """
        index = self.take_index()
        if given is None:
            return self.generated(numbered(prefix, index))
        return legal_name(given + suffix if isinstance(given, str) else given, "an operator")

    def store_name(self, prefix: str) -> str:
        """A generated store name: ``KSTREAM-AGGREGATE-STATE-STORE-0000000003``."""
        return self.generated(numbered(f"{prefix}STATE-STORE-", self.take_index()))

    def add(self, node: LogicalNode, *parents: int) -> int:
        """Records an operator below its parents; its id."""
        self._given.take(node.name, node.effect)
        self._graph, made = added(self._graph, node, parents)
        return made

    def link(self, parent: int, node: int) -> None:
        """Lets ``parent`` feed an operator too, which is written later."""
        self._graph = moved_last(linked(self._graph, parent, node), node)

    def add_again(self, node: int) -> None:
        """Records that an operator was linked once more: it is written later."""
        self._graph = moved_last(self._graph, node)

    def stores(self) -> tuple[Store, ...]:
        """The stores so far, those included that tables have only if somebody needs them."""
        found: list[Store | None] = []
        for node in self._graph.nodes.values():
            match node.effect:
                case Process() as process:
                    found += [process.store, process.spare_store, *process.more_stores]
                case KTableSource(store=store) | KTableJoin(store=store) | StateStore(store=store):
                    found.append(store)
                case _:
                    pass
        return tuple(store for store in found if store is not None)

    def copartition(self, sources: frozenset[str]) -> None:
        """Records that the topics of these source nodes need equally many partitions."""
        self._graph = replace(self._graph, copartitioned=(*self._graph.copartitioned, sources))

    def change(self, node: int, change: Callable[[LogicalNode], LogicalNode]) -> None:
        """Replaces an operator by what ``change`` makes of it."""
        before = tuple(functions_of(self._graph.nodes[node].effect))
        self._graph = changed(self._graph, node, change)
        now = self._graph.nodes[node]
        self._given.take(now.name, now.effect, before)


def repartition_node(
    recorder: Recorder,
    prefix: str,
    *,
    key: Serde | None,
    value: Serde | None,
    partitions: int | None = None,
    partitioner: UserFunction | None = None,
    mergeable: bool,
) -> LogicalNode:
    """The operator that sends records through ``<prefix>-repartition``; uses up three indexes of the counter."""
    sink, null_filter, source = repartition_nodes(prefix, recorder.take_index(3))
    topic = legal_name(repartition_topic(prefix), "a repartition topic")
    return LogicalNode(name=source, effect=Repartition(
        topic=topic, filter_name=null_filter, sink_name=sink, key_serde=key, value_serde=value,
        partitions=partitions, partitioner=partitioner, mergeable=mergeable,
    ))

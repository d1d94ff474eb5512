"""The ``Context`` of an operator, as a node of its task's graph.

Decides the order of forwarding (depth first, children in their order) and that an error of a user function is named where it
happened: the innermost node's forwarding catches it first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tidemill.ids import TaskId
from tidemill.operators.context import NO_ORIGIN, AsOfGetter, Changed, Getter, RecordMetadata, Subscriber, WaitedRecord
from tidemill.operators.function_failures import says_where
from tidemill.operators.punctuation import first_from
from tidemill.operators.record import Record
from tidemill.operators.versioned_tables import is_versioned_table
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, Topology

if TYPE_CHECKING:
    from tidemill.operators.task_graph import TaskGraph


class NodeContext:
    """A ``Context``: one node's place in its graph."""

    __slots__ = ("_by_name", "_graph", "_targets", "is_versioned", "node", "sends_old")

    def __init__(self, graph: TaskGraph, node: str) -> None:
        self._graph, self.node = graph, node
        described = graph.topology.nodes[node]
        self._targets: tuple[tuple[str, Callable[[Record], None]], ...] = ()
        self._by_name: dict[str, Callable[[Record], None]] = {}
        parents = graph.topology.parents[node]
        self.sends_old = isinstance(described, ProcessorNode) and described.sends_old
        self.is_versioned = bool(parents) and is_versioned_table(graph.topology, parents[0])

    def wire(self, targets: tuple[tuple[str, Callable[[Record], None]], ...]) -> None:
        """Says to whom ``forward`` hands records."""
        self._targets, self._by_name = targets, dict(targets)

    @property
    def task(self) -> TaskId:
        return self._graph.task

    @property
    def topology(self) -> Topology:
        return self._graph.topology

    @property
    def parents(self) -> tuple[str, ...]:
        return self._graph.topology.parents[self.node]

    @property
    def origin(self) -> RecordMetadata:
        return self._graph.origin

    @property
    def waited(self) -> tuple[bytes | None, bytes | None] | None:
        return self._graph.waited

    @property
    def stream_time(self) -> int:
        return self._graph.stream_time

    @property
    def wall_clock(self) -> int:
        return self._graph.wall_clock

    @property
    def emit_interval_ms(self) -> int:
        return self._graph.emit_interval_ms

    @property
    def defers(self) -> bool:
        return self._graph.defers

    def emitted(self, store: str) -> int:
        return self._graph.emitted.get(store, -1)

    @property
    def default_serdes(self) -> KeyValueSerdes:
        return self._graph.default_serdes

    def forward(self, record: Record, child: str | None = None) -> None:
        targets = self._targets if child is None else self._only(child)
        for name, process in targets:
            try:
                process(record)
            except BaseException as problem:
                if says_where(problem):
                    raise
                self._graph.refuse(name, record, problem)

    def _only(self, child: str) -> tuple[tuple[str, Callable[[Record], None]], ...]:
        found = self._by_name.get(child)
        if found is None:
            raise ValueError(f"{self.node} has no child {child!r}; its children are {', '.join(self._by_name) or 'none'}")
        return ((child, found),)

    def forward_as(self, waited: WaitedRecord, record: Record) -> None:
        graph = self._graph
        current = graph.origin, graph.waited
        graph.origin, graph.waited = waited.origin, waited.data
        self.forward(record)
        graph.origin, graph.waited = current

    def refuse(self, waited: WaitedRecord, problem: BaseException) -> None:
        if says_where(problem):
            raise problem
        graph = self._graph
        current, graph.origin = graph.origin, waited.origin
        graph.refuse(self.node, waited.record, problem, waited.data)
        graph.origin = current

    def drop(self, count: int = 1) -> None:
        self._graph.dropped += count

    def is_cached(self, store: str) -> bool:
        return self._graph.topology.stores[store].caching

    def changed(self, store: str) -> Changed:
        cached = self._graph.record_cache(self)
        if cached is not None:
            return cached
        drops = self.is_cached(store)

        def forward(_row: Hashable, record: Record, is_new: bool) -> None:
            if not drops or not is_new or record[1].new is not None:
                self.forward(record)

        return forward

    def store(self, name: str) -> Any:
        return self._graph.store(name)

    def table(self, node: str) -> Getter:
        return self._graph.table(node)

    def table_as_of(self, node: str) -> AsOfGetter | None:
        return self._graph.table_as_of(node)

    def subscriber(self, node: str) -> Subscriber:
        return self._graph.subscriber(node)

    def schedule(
        self, interval_ms: int, on_wall_clock: bool, call: Callable[[int], None], start_ms: int | None = None
    ) -> Callable[[], None]:
        graph, node = self._graph, self.node

        def punctuate(now: int) -> None:
            graph.origin = NO_ORIGIN
            try:
                call(now)
            except BaseException as problem:
                if says_where(problem):
                    raise
                graph.refuse_punctuation(node, now, problem)

        queue, now = (graph.by_wall_clock, graph.wall_clock) if on_wall_clock else (graph.by_stream_time, graph.stream_time)
        first = now + interval_ms if on_wall_clock else 0
        if start_ms is not None:
            first = first_from(start_ms, interval_ms, now)
        return queue.schedule(first, interval_ms, punctuate)

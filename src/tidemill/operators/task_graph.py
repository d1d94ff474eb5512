"""The nodes of one task, wired: a record goes in, what it causes comes out, depth first as in Kafka Streams.

Decides the order in which nodes see records (children in the order of their definition, each through before the next), the
task's stream time, when punctuators run (after the record that made them due, or when the wall clock is moved) and how an
error is named. Leaves what a node does to its operator, rows to ``Rows``, and commits, tasks and topics to whoever runs it.

    graph = TaskGraph(topology, TaskId(0, 0), rows=lambda store: ..., key_serde=..., value_serde=...)
    graph.read("KSTREAM-SOURCE-0000000000", origin, b"key", b"value", 1000, headers)  # bytes in
    graph.process("any node", record, origin)                                          # or decoded, at any node
    graph.advance_wall_clock(now_ms)
    graph.flush()                # at the end of a batch, before what was written is taken
    graph.take_produced()        # what reached sinks, as bytes, in order
    graph.take_handed_over()     # what goes to nodes outside of ``nodes``, decoded, in order
    graph.dropped                # grows with each dropped record

After a batch that did not count, the graph is thrown away and made anew: operators keep clocks in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from tidemill.errors import RecordError, SerdeError, TidemillError
from tidemill.ids import TaskId
from tidemill.operators import aggregates, foreign_key, processors, stateless, stream_join, table_groups, table_join, tables
from tidemill.operators.cogroup import CogroupMerge
from tidemill.operators.context import AsOfGetter, Context, Getter, Operator, Origin
from tidemill.operators.default_serdes import completed
from tidemill.operators.global_join import GlobalTableJoin
from tidemill.operators.punctuation import Punctuations
from tidemill.operators.record import Headers, Record
from tidemill.operators.rows import Rows
from tidemill.operators.session_windows import SessionAggregate
from tidemill.operators.sliding_windows import window_aggregate
from tidemill.operators.stores import store_of
from tidemill.operators.stream_table_join import StreamTableJoin
from tidemill.operators.suppress import Suppress
from tidemill.operators.versioned_tables import is_versioned_table
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, Serde, SinkNode, SourceNode, Topology

_OPERATORS: Mapping[type, Callable[[Any, Context], Operator]] = {
    op.Map: stateless.map_records,
    op.MapValues: stateless.map_values,
    op.FlatMap: stateless.flat_map,
    op.FlatMapValues: stateless.flat_map_values,
    op.Filter: stateless.filter_records,
    op.SelectKey: stateless.select_key,
    op.Peek: stateless.peek,
    op.Foreach: stateless.foreach,
    op.Print: stateless.print_records,
    op.PassThrough: stateless.pass_through,
    op.NullKeyFilter: stateless.null_key_filter,
    op.Branch: stateless.branch,
    op.Count: aggregates.count,
    op.Reduce: aggregates.reduce,
    op.Aggregate: aggregates.aggregate,
    op.TableSource: tables.TableSource,
    op.TableFilter: tables.table_filter,
    op.TableMapValues: tables.table_map_values,
    op.TableToStream: tables.TableToStream,
    op.TableSelect: table_groups.table_select,
    op.TableAggregate: table_groups.TableAggregate,
    op.TableReduce: table_groups.TableReduce,
    op.TableTransformValues: processors.TransformedTable,
    op.ProcessRecords: processors.ProcessorOperator,
    op.GlobalUpdate: processors.GlobalUpdate,
    op.WindowAggregate: window_aggregate,
    op.SessionAggregate: SessionAggregate,
    op.CogroupMerge: CogroupMerge,
    op.Suppress: Suppress,
    op.JoinWindowed: stream_join.JoinWindowed,
    op.StreamStreamJoin: stream_join.StreamStreamJoin,
    op.StreamSelfJoin: stream_join.StreamSelfJoin,
    op.StreamTableJoin: StreamTableJoin,
    op.GlobalTableJoin: GlobalTableJoin,
    op.TableTableJoin: table_join.TableTableJoin,
    op.TableJoinMerge: table_join.TableJoinMerge,
    op.ForeignKeySubscribe: foreign_key.ForeignKeySubscribe,
    op.ForeignKeyReceive: foreign_key.ForeignKeyReceive,
    op.ForeignKeyLookup: foreign_key.ForeignKeyLookup,
    op.ForeignKeyChange: foreign_key.ForeignKeyChange,
    op.ForeignKeyResolve: foreign_key.ForeignKeyResolve,
}
"""Which class runs which operation: the one table."""

NO_ORIGIN = Origin("", -1, None)
UNKNOWN_TIME = -1


def operator_of(operation: op.Operation, context: Context) -> Operator:
    """The operator of one node."""
    return _OPERATORS[type(operation)](operation, context)


class Produced(NamedTuple):
    """What a sink writes: ``topic`` as the node names it, or as its ``topic_extractor`` says. ``record`` is decoded."""

    sink: str
    topic: str
    key: bytes | None
    value: bytes | None
    record: Record


class HandedOver(NamedTuple):
    """A record for ``node``, which is not run here; of a table, ``record.value`` is a ``Change``."""

    node: str
    record: Record
    origin: Origin


class TaskGraph:
    """The operators of ``nodes`` (default: all) of one task, and their stores, made at their first use by ``rows(name)``.

    ``partition_times``: the highest timestamp so far of each (topic, partition), given to timestamp extractors.
    """

    def __init__(
        self,
        topology: Topology,
        task: TaskId,
        *,
        rows: Callable[[str], Rows],
        key_serde: Serde,
        value_serde: Serde,
        nodes: Collection[str] | None = None,
        wall_clock: int = 0,
        stream_time: int = UNKNOWN_TIME,
        emit_interval_ms: int = 1000,
    ) -> None:
        self.topology, self.task = topology, task
        self.origin, self.stream_time, self.wall_clock, self.dropped = NO_ORIGIN, stream_time, wall_clock, 0
        self.emit_interval_ms = emit_interval_ms
        self.partition_times: dict[tuple[str, int], int] = {}
        self.by_stream_time, self.by_wall_clock = Punctuations(), Punctuations()
        self.key_serde, self.value_serde = key_serde, value_serde
        self._rows, self._stores, self._operators = rows, dict[str, Any](), dict[str, Operator]()
        self._produced: list[Produced] = []
        self._handed_over: list[HandedOver] = []
        inside = topology.nodes.keys() if nodes is None else set(nodes)
        self._contexts = {name: NodeContext(self, name) for name in topology.nodes}
        self._entries: dict[str, Callable[[Record], None]] = {}
        self._decoders: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
        for name in topology.nodes:
            self._entries[name] = self._entry(name) if name in inside else self._exit(name)
        for name, context in self._contexts.items():
            if name in inside:
                context.wire(tuple((child, self._entries[child]) for child in topology.children(name)))
        self._inside = {name: NodeContext(self, name) for name in inside}
        for name, context in self._inside.items():
            context.wire(((name, self._entries[name]),))

    # --- records in ---

    def read(
        self, source: str, origin: Origin, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Handles a record of a source's topic: decodes it, asks the source's timestamp extractor, and processes it.

        A record whose extracted timestamp is negative is dropped. RecordError where bytes can't be read.
        """
        node = self.topology.nodes[source]
        assert isinstance(node, SourceNode)
        read_key, read_value = self._decoders[source]
        try:
            record = Record(read_key(key), read_value(value), timestamp, headers)
            if node.timestamp_extractor is not None:
                partition = origin.topic, origin.partition
                timestamp = node.timestamp_extractor(record, self.partition_times.get(partition, UNKNOWN_TIME))
                record = record.with_timestamp(timestamp)
        except Exception as problem:
            self.origin = origin
            raise self.failed(source, problem) from problem
        if timestamp < 0:
            if node.timestamp_extractor is None:
                self.origin = origin
                raise self.failed(source, ValueError(
                    f"the record's timestamp is {timestamp}, expected 0 or later: give the source a timestamp_extractor"
                ))
            self.dropped += 1
            return
        if node.timestamp_extractor is not None and timestamp > self.partition_times.get(partition, UNKNOWN_TIME):
            self.partition_times[partition] = timestamp
        if node.is_global:
            self.origin = origin
            self._inside[source].forward(record)
        else:
            self.process(source, record, origin)

    def process(self, node: str, record: Record, origin: Origin) -> None:
        """Hands a decoded record to ``node`` (a source passes it on) and runs what is due by stream time thereafter."""
        self.origin = origin
        if record.timestamp > self.stream_time:
            self.stream_time = record.timestamp
        self._inside[node].forward(record)
        self._punctuate_stream_time()

    def advance_stream_time(self, timestamp: int) -> None:
        """Says that the task has read a record of this timestamp which needs no node here."""
        self.stream_time = max(self.stream_time, timestamp)
        self._punctuate_stream_time()

    def advance_wall_clock(self, now: int) -> None:
        """Sets the wall clock and runs what is due by it."""
        self.wall_clock = now
        self.by_wall_clock.run(now)

    # --- what comes out ---

    def take_produced(self) -> list[Produced]:
        """What has reached sinks since the last call."""
        taken, self._produced = self._produced, []
        return taken

    def take_handed_over(self) -> list[HandedOver]:
        """What goes to nodes outside, since the last call."""
        taken, self._handed_over = self._handed_over, []
        return taken

    def flush(self) -> None:
        """The end of a batch: operators, then stores, write what they collected (``flush()`` of those that have it)."""
        for flushed in (*self._operators.values(), *self._stores.values()):
            flush = getattr(flushed, "flush", None)
            if flush is not None:
                flush()

    def close(self) -> None:
        """Closes the processors (``close()`` of those that have it)."""
        for operator in self._operators.values():
            close = getattr(operator, "close", None)
            if close is not None:
                close()

    # --- for contexts and whoever runs the graph ---

    def store(self, name: str) -> Any:
        """The store object of that name; ``restore`` on it brings changelog records in."""
        found = self._stores.get(name)
        if found is None:
            described = self.topology.stores[name]
            found = self._stores[name] = store_of(described, self._rows(name), self.key_serde, self.value_serde)
        return found

    def operator(self, node: str) -> Operator:
        """The operator of a node, made at its first use; also of nodes outside, whose rows may be looked up."""
        found = self._operators.get(node)
        if found is None:
            described = self.topology.nodes[node]
            assert isinstance(described, ProcessorNode)
            found = self._operators[node] = operator_of(described.operation, self._contexts[node])
        return found

    def table(self, node: str) -> Getter:
        """Looks up rows of the table that ``node`` makes."""
        getter: Getter = self.operator(node).get  # type: ignore[attr-defined]  # only operators of tables are asked
        return getter

    def table_as_of(self, node: str) -> AsOfGetter | None:
        """Looks up rows of the table that ``node`` makes as of a timestamp; None if no versioned store is behind it."""
        getter: AsOfGetter | None = getattr(self.operator(node), "get_as_of", None)
        return getter

    def failed(self, node: str, problem: Exception) -> RecordError:
        """What to raise for a problem in ``node``: says the node, and the record that was read."""
        what = str(problem) if isinstance(problem, SerdeError) else f"{type(problem).__name__}: {problem}"
        topic, partition, offset = self.origin
        return RecordError(
            f"the function of {node} failed: {what}", task=str(self.task), topic=topic or "a punctuator",
            partition=partition, offset=-1 if offset is None else offset,
        )

    def _entry(self, name: str) -> Callable[[Record], None]:
        node = self.topology.nodes[name]
        if isinstance(node, SourceNode):
            key, value = self._serdes(node)
            self._decoders[name] = key.deserialize, value.deserialize
            return self._contexts[name].forward
        if isinstance(node, SinkNode):
            return self._sink(node)
        return self.operator(name).process

    def _serdes(self, node: SourceNode | SinkNode) -> tuple[Serde, Serde]:
        key, value = self.key_serde, self.value_serde
        return (
            completed(node.key_serde, key, key_serde=key, value_serde=value),
            completed(node.value_serde, value, key_serde=key, value_serde=value),
        )

    def _sink(self, node: SinkNode) -> Callable[[Record], None]:
        name, topic, extractor = node.name, node.topic, node.topic_extractor
        key_serde, value_serde = self._serdes(node)
        write_key, write_value = key_serde.serialize, value_serde.serialize

        def produce(record: Record) -> None:
            key, value, _timestamp, _headers = record
            to = topic if extractor is None else extractor(key, value, record)
            self._produced.append(Produced(name, to, write_key(key), write_value(value), record))

        return produce

    def _exit(self, name: str) -> Callable[[Record], None]:
        def hand_over(record: Record) -> None:
            self._handed_over.append(HandedOver(name, record, self.origin))

        return hand_over

    def _punctuate_stream_time(self) -> None:
        due = self.by_stream_time.next_due
        if due is not None and due <= self.stream_time != UNKNOWN_TIME:
            self.by_stream_time.run(self.stream_time)


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
    def origin(self) -> Origin:
        return self._graph.origin

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
    def default_key_serde(self) -> Serde:
        return self._graph.key_serde

    @property
    def default_value_serde(self) -> Serde:
        return self._graph.value_serde

    def forward(self, record: Record, child: str | None = None) -> None:
        targets = self._targets if child is None else self._only(child)
        for name, process in targets:
            try:
                process(record)
            except Exception as problem:
                if _says_where(problem):
                    raise
                raise self._graph.failed(name, problem) from problem

    def _only(self, child: str) -> tuple[tuple[str, Callable[[Record], None]], ...]:
        found = self._by_name.get(child)
        if found is None:
            raise ValueError(f"{self.node} has no child {child!r}; its children are {', '.join(self._by_name) or 'none'}")
        return ((child, found),)

    def forward_as(self, origin: Origin, record: Record) -> None:
        graph = self._graph
        current, graph.origin = graph.origin, origin
        self.forward(record)
        graph.origin = current

    def drop(self, count: int = 1) -> None:
        self._graph.dropped += count

    def store(self, name: str) -> Any:
        return self._graph.store(name)

    def table(self, node: str) -> Getter:
        return self._graph.table(node)

    def table_as_of(self, node: str) -> AsOfGetter | None:
        return self._graph.table_as_of(node)

    def schedule(self, interval_ms: int, on_wall_clock: bool, call: Callable[[int], None]) -> Callable[[], None]:
        graph, node = self._graph, self.node

        def punctuate(now: int) -> None:
            graph.origin = NO_ORIGIN
            try:
                call(now)
            except Exception as problem:
                if _says_where(problem):
                    raise
                raise graph.failed(node, problem) from problem

        if on_wall_clock:
            return graph.by_wall_clock.schedule(graph.wall_clock + interval_ms, interval_ms, punctuate)
        return graph.by_stream_time.schedule(0, interval_ms, punctuate)


def _says_where(problem: Exception) -> bool:
    """Whether it is an error of the library itself: only what user functions and serdes raise has to be given a place."""
    return isinstance(problem, TidemillError) and not isinstance(problem, SerdeError)

"""The graph of one task's nodes: a record goes in, its results come out, depth first as in Kafka Streams.

Decides the order in which nodes see records (children in the order of their definition, each through before the next), the
task's stream time, when punctuators run (after the record that made them due, or when the wall clock is moved) and how an
error is named. Leaves what a node does to its operator (``operation_table``), whether processing continues after an error to
``exception_handlers``, rows to ``Rows``, and commits, tasks and topics to its caller.

    graph = TaskGraph(topology, TaskId(0, 0), rows=lambda store: ..., default_serdes=...)
    graph.read("KSTREAM-SOURCE-0000000000", origin, b"key", b"value", 1000, headers)  # bytes in
    graph.process("any node", record, origin)                                          # or decoded, at any node
    graph.advance_wall_clock(now_ms)
    graph.flush()                # at the end of a batch, before what was written is taken
    graph.take_produced()        # what reached sinks, as bytes, in order
    graph.take_handed_over()     # what goes to nodes outside of ``nodes``, the ``exits``, as bytes, in order
    graph.dropped                # grows with each dropped record
    graph.take_refused()         # records that exception handlers have skipped, which count as dropped

After a batch that was not committed the graph is discarded and created again: operators keep clocks in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from tidemill.config.values import KafkaExtractor
from tidemill.errors import RecordError, RetriableError, SerdeError, StopError
from tidemill.ids import TaskId, why_no_topic
from tidemill.operators.context import (
    BETWEEN_BATCHES,
    NO_ORIGIN,
    AsOfGetter,
    Changed,
    Getter,
    Operator,
    RecordMetadata,
    Subscriber,
)
from tidemill.operators.exception_handlers import FAILING, ErrorContext, ExceptionHandlers, HandlerFailedError, Refused
from tidemill.operators.function_failures import function_failure
from tidemill.operators.node_context import NodeContext
from tidemill.operators.operation_table import operator_of, record_caches, waits_for_changes
from tidemill.operators.punctuation import Punctuations
from tidemill.operators.record import (
    LATEST_TIME,
    UNKNOWN_TIME,
    Change,
    Headers,
    Record,
    SourceRecord,
    extracted_time,
    invalid_timestamp,
)
from tidemill.operators.record_cache import RecordCache, WaitingRecords
from tidemill.operators.rows import Rows
from tidemill.operators.stores import store_of
from tidemill.operators.wrapped import WrappedOperator
from tidemill.printable import repr_of, said_by
from tidemill.topology.functions import UserFunction
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import SinkNode, SourceNode, Topology, place_of_sink, processor_node
from tidemill.topology.partitioning import Partitioning
from tidemill.topology.values import Key, Value


class Produced(NamedTuple):
    """A record for a topic: ``topic`` as the sink names it, or as its ``topic_extractor`` says. ``record`` is decoded.

    ``partition``: the one that a value names which is an answer to a subscription; its bytes don't say it.
    """

    sink: str
    topic: str
    key: bytes | None
    value: bytes | None
    record: Record
    partition: int | None


_Sent = tuple[str, str, "bytes | None", "bytes | None", Record, "int | None"]
_produced_of: Callable[[_Sent], Produced] = partial(tuple.__new__, Produced)


class HandedOver(NamedTuple):
    """A record for ``node``, which is not run here, with its bytes as they were when it was forwarded: a function may change
    the value after that. ``record`` is decoded; of a table, its value is a ``Change``."""

    node: str
    key: bytes | None
    value: bytes | None
    record: Record


_MUCH = 1_000
"""Results from which on ``take_many`` gets them."""
_Reader = tuple[Callable[[bytes | None], Key], Callable[[bytes | None], Value], "UserFunction | None", bool]
"""What a source needs to read: key, value, timestamp extractor, and whether it is global."""


SourceBytesOf = Callable[[RecordMetadata], "tuple[bytes | None, bytes | None]"]
"""Gives key and value of a source record as they came."""


def no_source_bytes(_origin: RecordMetadata) -> tuple[None, None]:
    """Where they are not at hand."""
    return None, None


class TaskGraph:
    """The operators of ``nodes`` (default: all) of one task, and their stores, made at their first use by ``rows(name)``.

    ``exits``: the nodes outside that get records, with the serdes of these.
    ``caching``: the tables that have a record cache; None: ``topology`` is the whole one, which says it.
    ``emitted``: for each store, the close time up to which windows were emitted, as the task's commits say.
    """

    def __init__(
        self,
        topology: Topology,
        task: TaskId,
        *,
        rows: Callable[[str], Rows],
        default_serdes: KeyValueSerdes,
        nodes: Collection[str] | None = None,
        exits: Mapping[str, KeyValueSerdes] = MappingProxyType({}),
        wall_clock: int = 0,
        stream_time: int = UNKNOWN_TIME,
        emit_interval_ms: int = 0,
        emitted: Mapping[str, int] = MappingProxyType({}),
        handlers: ExceptionHandlers = FAILING,
        caching: Collection[str] | None = None,
    ) -> None:
        self.topology, self.task, self._handlers = topology, task, handlers
        self.origin, self.stream_time, self.wall_clock, self.dropped = NO_ORIGIN, stream_time, wall_clock, 0
        self.waited: tuple[bytes | None, bytes | None] | None = None
        """Key and value of the record that is handled, as an operator's store has them, if it had waited there."""
        self.latest_time = LATEST_TIME
        """The highest timestamp that the task has read, where the caller knows it. Stream time does not go beyond it: a processor
        above may have forwarded a record with a later timestamp."""
        self.emit_interval_ms, self.emitted = emit_interval_ms, emitted
        self.defers = False
        """Nothing that waits is forwarded, and no punctuator is called, in a batch that is not committed."""
        self.partition_times: dict[tuple[str, int], int] = {}
        """The highest timestamp so far of each (topic, partition), for timestamp extractors."""
        self._caching = record_caches(topology) if caching is None else caching
        self._caches: list[RecordCache | WaitingRecords] = []
        """In the order of the topology: what one forwards may come to the next."""
        self.by_stream_time, self.by_wall_clock = Punctuations(), Punctuations()
        self.default_serdes = default_serdes
        self._rows, self._stores, self._operators = rows, dict[str, Any](), dict[str, Operator]()
        self._produced: list[Produced] = []
        self.take_many: Callable[[list[Produced]], None] | None = None
        """Gets what has reached sinks as soon as it is much, if its caller needs no more order than its own: one record may close
        100,000 windows."""
        self.source_bytes: SourceBytesOf = no_source_bytes
        """For exception handlers. Of a batch, which it keeps in memory: its caller takes it away at the end."""
        self._handed_over: list[HandedOver] = []
        self._refused: list[Refused] = []
        inside = topology.nodes.keys() if nodes is None else set(nodes)
        self._contexts = {name: NodeContext(self, name) for name in topology.nodes}
        self._entries: dict[str, Callable[[Record], None]] = {}
        self._readers: dict[str, _Reader] = {}
        for name in topology.nodes:
            if name in inside:
                self._entries[name] = self._entry(name)
            elif name in exits:
                self._entries[name] = self._exit(name, exits[name])
        for name, context in self._contexts.items():
            if name in inside:
                context.wire(tuple((child, self._entries[child]) for child in topology.children(name)))
        self._enter: dict[str, Callable[[Record], None]] = {}
        for name in inside:
            self._enter[name] = self._gate(name, self._entries[name]).forward

    # --- records in ---

    def read(
        self, source: str, origin: RecordMetadata, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers = ()
    ) -> None:
        """Handles a record of a source's topic: decodes it, asks the source's timestamp extractor, and processes it.

        A record whose extracted timestamp is negative is dropped. RecordError where bytes can't be read, and for a negative
        timestamp that no extractor corrects.
        """
        read_key, read_value, extractor, is_global = self._readers[source]
        try:
            record = Record(read_key(key), read_value(value), timestamp, headers)
            if extractor is not None:
                partition = origin.topic, origin.partition
                partition_time = self.partition_times.get(partition, UNKNOWN_TIME)
                timestamp = extracted_time(extractor(SourceRecord.of(record, *origin), partition_time))
                record = record.with_timestamp(timestamp)
                if timestamp > partition_time:
                    self.partition_times[partition] = timestamp
            elif timestamp < 0:
                raise SerdeError(invalid_timestamp(timestamp))
        except BaseException as problem:
            self.origin = origin
            raise self.failed(source, problem) from problem
        if timestamp < 0:
            self.dropped += 1
        elif is_global:
            self.origin = origin
            self._enter[source](record)
        else:
            self.process(source, record, origin)

    def process(self, node: str, record: Record, origin: RecordMetadata, *, is_last: bool = True) -> None:
        """Hands a decoded record to ``node`` (a source passes it on), then runs the punctuators that are due by stream time.

        ``is_last``: False if the next record is of the same source record, as behind a flat map, or on its way to another node.
        Punctuators run between source records, so they wait for the last one.
        """
        self.origin = origin
        timestamp = record[2]
        if timestamp > self.stream_time:
            self.stream_time = min(timestamp, self.latest_time)
        self._enter[node](record)
        if is_last and self.by_stream_time.due and not self.defers:
            self._punctuate_stream_time()

    def advance_stream_time(self, timestamp: int) -> None:
        """Says that the task has read a record of this timestamp which needs no node here."""
        self.stream_time = max(self.stream_time, timestamp)
        if not self.defers:
            self._punctuate_stream_time()

    def advance_wall_clock(self, now: int) -> None:
        """Sets the wall clock and runs what is due by it."""
        self.wall_clock = now
        if not self.defers:
            self.by_wall_clock.run(now)

    # --- what comes out ---

    def take_produced(self) -> list[Produced]:
        """The records that have reached sinks since the last call."""
        taken, self._produced = self._produced, []
        return taken

    def take_handed_over(self) -> list[HandedOver]:
        """The records for nodes outside, since the last call."""
        taken, self._handed_over = self._handed_over, []
        return taken

    def take_refused(self) -> list[Refused]:
        """The records that exception handlers have skipped since the last call."""
        taken, self._refused = self._refused, []
        return taken

    def flush(self) -> None:
        """Ends a batch: record caches forward, then operators and stores that have a ``flush()`` write what they collected."""
        for _ in self.flush_caches():
            pass
        for flushed in (*self._operators.values(), *self._stores.values()):
            flush = getattr(flushed, "flush", None)
            if flush is not None:
                flush()
        self.origin = BETWEEN_BATCHES

    def flush_caches(self) -> Iterator[RecordMetadata]:
        """The first part of ``flush``: yields the source record of each change, or of what has waited for one, when it has been
        forwarded."""
        for cache in self._caches:
            yield from cache.flush()

    def close(self) -> None:
        """Closes the processors (``close()`` of those that have it): all of them, whichever fails; the last failure is raised."""
        problem: BaseException | None = None
        for operator in self._operators.values():
            close = getattr(operator, "close", None)
            if close is not None:
                try:
                    close()
                except (Exception, SystemExit) as failure:  # sys.exit() would end the worker, and with it the batch, each time
                    problem = failure
        if problem is not None:
            raise problem

    # --- for contexts and the caller ---

    def store(self, name: str) -> Any:
        """The store object of that name; ``restore`` on it brings changelog records in."""
        found = self._stores.get(name)
        if found is None:
            described = self.topology.stores[name]
            found = self._stores[name] = store_of(described, self._rows(name), self.default_serdes)
        return found

    def operator(self, node: str) -> Operator:
        """The operator of a node, made at its first use; also of nodes outside, whose rows may be looked up."""
        found = self._operators.get(node)
        if found is None:
            described = processor_node(self.topology, node)
            context = self._contexts[node]
            made: Operator
            made = operator_of(described.operation, context) if described.wrapped is None else WrappedOperator(described, context)
            found = self._operators[node] = made
        return found

    def record_cache(self, context: NodeContext) -> Changed | None:
        """The function to which the changes of a node's table go, if that has a record cache; else None."""
        if context.node not in self._caching:
            return None
        cache = RecordCache(context)
        self._caches.append(cache)
        return cache.put

    def table(self, node: str) -> Getter:
        """Looks up rows of the table that ``node`` makes."""
        getter: Getter = self.operator(node).get  # type: ignore[attr-defined]  # only operators of tables are asked
        return getter

    def table_as_of(self, node: str) -> AsOfGetter | None:
        """Looks up rows of the table that ``node`` makes as of a timestamp; None if no versioned store is behind it."""
        getter: AsOfGetter | None = self.operator(node).get_as_of  # type: ignore[attr-defined]  # all operators of tables say it
        return getter

    def subscriber(self, node: str) -> Subscriber:
        """The operator of ``node``, which subscribes the left rows of a foreign-key join."""
        return cast("Subscriber", self.operator(node))

    def refuse(
        self, node: str, record: Record, problem: BaseException, data: tuple[bytes | None, bytes | None] | None = None
    ) -> None:
        """Skips the record on which ``node`` has failed, if the exception handlers decide so; else raises. ``data``: key and
        value of one that had waited in it."""
        is_sink = isinstance(self.topology.nodes[node], SinkNode)
        self._judge(node, node, record, problem, record[2], in_sink=is_sink, data=data)

    def refuse_punctuation(self, node: str, now: int, problem: BaseException) -> None:
        """``refuse`` for a punctuator that was called with the time ``now``, by either clock."""
        self._judge(node, node, None, problem, now, in_sink=False)

    def _extractor_failed(self, sink: str, record: Record, problem: BaseException) -> None:
        """Like `refuse`, but the handler sees the nodes above: in Kafka Streams the error occurs where these forward, and for a
        source outside of all handlers."""
        nodes = self.topology.nodes
        above = [name for name in self.topology.parents[sink] if not isinstance(nodes[name], SourceNode)]
        if not above:
            raise self.failed(sink, problem) from problem
        self._judge(sink, " or ".join(above), record, problem, record[2], in_sink=False)

    def _judge(
        self, node: str, named: str, record: Record | None, problem: BaseException, timestamp: int, *, in_sink: bool,
        data: tuple[bytes | None, bytes | None] | None = None,
    ) -> None:  # fmt: skip
        topic, partition, offset = self.origin
        data = self.waited if data is None else data
        since = None if data is None else timestamp
        try:
            raw_key, raw_value = self.source_bytes(self.origin) if data is None else data
            context = ErrorContext(
                task=self.task, node=named, topic=topic, partition=partition, offset=offset, timestamp=timestamp,
                headers=() if record is None else record[3], source_raw_key=raw_key, source_raw_value=raw_value,
            )  # fmt: skip
            refused = self._handlers.judge(context, record, problem, in_sink=in_sink)
        except Exception as failure:
            raise self.failed(node, failure, since) from failure
        if refused is None:
            raise self.failed(node, problem, since) from problem
        self.dropped += 1
        self._refused.append(refused if data is None else replace(refused, has_waited=True))

    def failed(self, node: str, problem: BaseException, since: int | None = None) -> StopError:
        """The error to raise for a problem in ``node``: names the node, and the record that was read, if one was.
        ``since``: the timestamp of a record that had waited in an operator's store.

        Raises:
            RetriableError: ``problem`` is one.
        """
        if isinstance(problem, RetriableError):
            raise problem
        found = self.topology.nodes[node]
        place = place_of_sink(node, found.topic, found.written_at) if isinstance(found, SinkNode) else node
        what = f"{place}: {said_by(problem)}"
        if not isinstance(problem, (SerdeError, HandlerFailedError)):
            what = function_failure(place, problem)
        topic, partition, offset = self.origin
        if offset is None:
            where = "in a punctuator" if since is None else f"of a record that had waited since {since}"
            return StopError(f"task {self.task}, {where}: {what}")
        return RecordError(what, task=str(self.task), topic=topic, partition=partition, offset=offset)

    def _entry(self, name: str) -> Callable[[Record], None]:
        node = self.topology.nodes[name]
        if isinstance(node, SourceNode):
            key, value = self._serdes(node).settled
            extractor = node.timestamp_extractor
            assert not isinstance(extractor, KafkaExtractor), "Kafka Streams' own run in source steps"
            self._readers[name] = key.deserialize, value.deserialize, extractor, node.is_global
            return self._contexts[name].forward
        if isinstance(node, SinkNode):
            return self._sink(node)
        process = self.operator(name).process
        if not waits_for_changes(self.topology, node, self._caching):
            return process
        waiting = WaitingRecords(self._gate(name, process))
        self._caches.append(waiting)
        return waiting.put

    def _gate(self, name: str, process: Callable[[Record], None]) -> NodeContext:
        """Forwards to the node itself, so that errors in it are named too."""
        gate = NodeContext(self, name)
        gate.wire(((name, process),))
        return gate

    def _serdes(self, node: SourceNode | SinkNode) -> KeyValueSerdes:
        named = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
        return named.completed_by(self.default_serdes).otherwise(self.default_serdes)

    def _sink(self, node: SinkNode) -> Callable[[Record], None]:
        name, topic, extractor = node.name, node.topic, node.topic_extractor
        key_serde, value_serde = self._serdes(node).settled
        write_key, write_value = key_serde.serialize, value_serde.serialize
        is_answered = node.partitioner is None and node.partitioning is Partitioning.BY_SUBSCRIPTION

        def produce(record: Record) -> None:
            key, value, _timestamp, _headers = record
            to = topic
            if extractor is not None:
                try:
                    to = extractor(key, value, SourceRecord.of(record, *self.origin))
                    if why := why_no_topic(to):
                        raise ValueError(f"the topic extractor gave {repr_of(to)}, expected the name of a topic: {why}")
                except BaseException as problem:
                    self._extractor_failed(name, record, problem)
                    return
            partition = value.partition if is_answered else None
            self._produced.append(_produced_of((name, to, write_key(key), write_value(value), record, partition)))
            if len(self._produced) >= _MUCH and self.take_many is not None:
                self.take_many(self.take_produced())

        return produce

    def _exit(self, name: str, serdes: KeyValueSerdes) -> Callable[[Record], None]:
        key_serde, value_serde = serdes.settled
        write_key, write_value = key_serde.serialize, value_serde.serialize

        def hand_over(record: Record) -> None:
            value = record[1]
            try:
                written = write_key(record[0]), write_value(value.new if type(value) is Change else value)
            except SerdeError as problem:  # the handlers are asked, as about what a function of Columns fails on
                said = f"its function works on columns, and what goes to it can't be written: {said_by(problem)}"
                raise SerdeError(said) from problem
            self._handed_over.append(HandedOver(name, *written, record))

        return hand_over

    def _punctuate_stream_time(self) -> None:
        if self.stream_time != UNKNOWN_TIME:
            self.by_stream_time.run(self.stream_time)

"""Parts of the topology in a Python step: rows become records of a task's graph of operators, and what it makes rows again.

Decides the order in which a task's records enter its graph (that of their ``seq``, whatever the node), what a worker keeps of
a graph from batch to batch, and the bytes at its borders. Invariant: operators keep clocks and schedules in memory, so a
graph lives on only if the batch it ran last counted and its task has had no other owner since; otherwise another is made.
What operators do is ``tidemill.operators``'.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidemill.errors import RecordError, SerdeError, StopError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.operators.context import RecordMetadata
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers
from tidemill.operators.record import Change, Record
from tidemill.operators.task_graph import HandedOver, Produced, TaskGraph
from tidemill.steps.graph.global_state import GlobalState
from tidemill.steps.outputs import Destination, ToSink, ToTopic
from tidemill.steps.rows.decoded import DecodedRows, decoded_rows, source_bytes
from tidemill.steps.rows.merged import Merged
from tidemill.steps.rows.order import LAST_SEQUENCE
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.rows.task_rows import NO_STATE, TaskRows, opened
from tidemill.steps.state_step import StepState, StoreView, Written
from tidemill.steps.step_spec import GraphExit, GraphSpec, StepSpec, WindowJoin
from tidemill.steps.vector.join_records import BothSides, empty_records
from tidemill.steps.vector.retained_rows import ShownRows
from tidemill.steps.vector.window_join import JoinTask
from tidemill.task.batch import BatchRequest
from tidemill.task.partition_time import UNKNOWN_TIME, Times
from tidemill.topology.nodes import SinkNode
from tidemill.topology.partitioning import Partitioning

log = logging.getLogger("tidemill.operators")


TaskTimes = tuple[Mapping[TaskId, int], Mapping[TaskId, int]]
"""Stream times of tasks at a batch's begin and at its end, where they are known."""


@dataclass(slots=True)
class _Kept:
    """A task's graph, its stores' rows and the owner that it was made for."""

    epoch: str
    graph: TaskGraph | JoinTask
    rows: dict[str, TaskRows]


class KeptGraphs:
    """Operators of a worker's tasks, kept from batch to batch."""

    def __init__(self, handlers: ExceptionHandlers = FAILING) -> None:
        self.handlers = handlers
        self._kept: dict[tuple[int, TaskId], _Kept] = {}
        self._batch_id = 0
        self._running: Mapping[TaskId, str] = {}
        self.shared = GlobalState(handlers.of_global_stores)
        self.memory: dict[tuple[TaskId, str], ShownRows] = {}
        """Rows of a running task's store that vectorised nodes remember."""
        self.times: TaskTimes = {}, {}

    def begin(self, request: BatchRequest, running: Mapping[TaskId, str], times: TaskTimes) -> None:
        """Before a batch: drops what another batch has left that did not count, and tasks that are gone."""
        self.times = times
        if request.last_committed_batch != self._batch_id:
            for kept in list(self._kept):
                self._end(kept)
            self.memory.clear()
        for task, store in list(self.memory):
            if task not in running or running[task] != self._running.get(task):
                del self.memory[task, store]
        self._running = running
        self._batch_id = request.batch_id
        held = {run.task: run.epoch for run in request.tasks}
        for part, task in list(self._kept):
            epoch = running.get(task, held.get(task))
            if epoch is None or epoch != self._kept[part, task].epoch:
                self._end((part, task))

    def _end(self, which: tuple[int, TaskId]) -> None:
        """Closes a task's processors, which may let go of what they hold, but whose stores are not theirs any more."""
        kept = self._kept.pop(which)
        for rows in kept.rows.values():
            rows.begin(NO_STATE, Written())
        try:
            kept.graph.close()
        except Exception:
            log.exception(LogEvent("close-failed", task=which[1]))

    def of(self, spec: GraphSpec, task: TaskId, epoch: str, state: StepState, view: StoreView, now_ms: int) -> TaskGraph:
        """The task's graph, bound to the batch's state."""
        stream_time = self.times[0].get(task, UNKNOWN_TIME)

        def make(rows: Mapping[str, TaskRows]) -> TaskGraph:
            return _made(spec, task, rows, self.shared, now_ms, stream_time, self.handlers)

        graph = self._bound(spec, task, epoch, state, view, make)
        assert isinstance(graph, TaskGraph)
        graph.wall_clock = now_ms
        return graph

    def join_of(self, spec: GraphSpec, task: TaskId, epoch: str, state: StepState, view: StoreView) -> JoinTask:
        """The task's join, of a part that is nothing else; bound to the batch's state."""

        def make(rows: Mapping[str, TaskRows]) -> JoinTask:
            assert spec.window_join is not None
            return JoinTask(spec.window_join, rows, spec.emit_interval_ms)

        join = self._bound(spec, task, epoch, state, view, make)
        assert isinstance(join, JoinTask)
        return join

    def _bound(
        self, spec: GraphSpec, task: TaskId, epoch: str, state: StepState, view: StoreView,
        make: Callable[[Mapping[str, TaskRows]], TaskGraph | JoinTask],
    ) -> TaskGraph | JoinTask:  # fmt: skip
        kept = self._kept.get((spec.number, task))
        own = spec.topology.stores.keys() - spec.global_stores if kept is None else kept.rows.keys()
        rows = {n: TaskRows(n, logged=state.stores[n].changelog is not None) for n in own} if kept is None else kept.rows
        for name, of_store in rows.items():
            of_store.begin(view, state.written_to(task, name))
        if kept is None:
            kept = self._kept[spec.number, task] = _Kept(epoch, make(rows), rows)
        return kept.graph


def _made(
    spec: GraphSpec, task: TaskId, rows: Mapping[str, TaskRows], shared: GlobalState, now_ms: int, stream_time: int,
    handlers: ExceptionHandlers,
) -> TaskGraph:  # fmt: skip
    def rows_of(name: str) -> TaskRows:
        return shared.rows(name) if name in spec.global_stores else rows[name]

    return TaskGraph(
        spec.topology,
        task,
        rows=rows_of,
        key_serde=spec.key_serde,
        value_serde=spec.value_serde,
        nodes=spec.inside,
        wall_clock=now_ms,
        stream_time=stream_time,
        emit_interval_ms=spec.emit_interval_ms,
        handlers=handlers,
    )


def running_tasks(spec: StepSpec, request: BatchRequest) -> dict[TaskId, str]:
    """The tasks whose inputs the batch reads, each with its owner's epoch."""
    subtopology_of = _subtopologies(spec)
    epochs = {run.task: run.epoch for run in request.tasks}
    tasks = sorted({TaskId(subtopology_of[tp.topic], tp.partition) for tp in request.inputs if tp.topic in subtopology_of})
    return {task: epochs.get(task, "") for task in tasks}


def stream_times(spec: StepSpec, times: Times) -> dict[TaskId, int]:
    """The stream time of each task, where it is known: the highest time of its inputs."""
    subtopology_of = _subtopologies(spec)
    found: dict[TaskId, int] = {}
    for tp, time in times.items():
        if tp.topic in subtopology_of:
            task = TaskId(subtopology_of[tp.topic], tp.partition)
            found[task] = max(found.get(task, UNKNOWN_TIME), time.ms)
    return found


def _subtopologies(spec: StepSpec) -> dict[str, int]:
    """Of all topics that tasks read."""
    return {topic: origin.subtopology for origin in spec.sources.values() for topic in origin.topics}


@dataclass(slots=True)
class GraphOutput:
    """Results of a part: records to send by destination, records for columns by node, and rows that no serde could read."""

    _sent: dict[Destination, Records] = field(default_factory=dict)
    _by_sink: dict[tuple[str, str], Records] = field(default_factory=dict)
    """Those of ``_sent`` by sink and topic."""
    _handed_on: int = 0
    onward: dict[str, Records] = field(default_factory=dict)
    unreadable: list[pa.Table] = field(default_factory=list)

    def handed_on(self, node: str) -> Records:
        """The list for the next record that goes on to columns, which knows its place among those of all nodes: what one record
        has become on several ways may meet again."""
        records = self.onward.get(node)
        if records is None:
            records = self.onward[node] = replace(empty_records(), places=[])
        assert records.places is not None
        records.places.append(self._handed_on)
        self._handed_on += 1
        return records

    @property
    def sent(self) -> Iterable[tuple[Destination, Records]]:
        return self._sent.items()

    def of_sink(self, spec: GraphSpec, sink: str, topic: str) -> Records:
        """The list for the records of a sink for a topic: with those of other sinks, whose order among them counts, unless
        the sink has a choice left."""
        found = self._by_sink.get((sink, topic))
        if found is None:
            node = spec.topology.nodes[sink]
            assert isinstance(node, SinkNode)
            to: Destination = ToTopic(topic)
            if sink in spec.choosing_sinks:
                to = ToSink(sink, None if node.topic_extractor is None else topic)
            names_partitions = node.partitioner is None and node.partitioning is Partitioning.BY_SUBSCRIPTION
            new = Records([], [], [], [], [], [], [], partitions=[] if names_partitions else None)
            found = self._by_sink[sink, topic] = self._sent.setdefault(to, new)
        return found


def run_graph(
    spec: GraphSpec, tables: dict[int, pa.Table], state: StepState, kept: KeptGraphs, request: BatchRequest,
    running: Mapping[TaskId, str],
) -> GraphOutput:
    """Runs one part of all running tasks on the rows that have arrived for it; what is due by the wall clock runs last."""
    output = GraphOutput()
    arrived = []
    for tag, entry in spec.entries.items():
        table = tables.pop(tag, None)
        if table is not None:
            found, unreadable = decoded_rows(table, entry)
            arrived.append(found)
            if unreadable is not None:
                output.unreadable.append(unreadable)
    if spec.window_join is not None and kept.handlers.are_failing:  # which can't leave a single record out
        _run_joins(spec, spec.window_join, arrived, state, kept, running, request.now_ms, output)
        return output
    merged = Merged(arrived)
    if spec.is_global:
        _keep_global(kept.shared.graph(spec, request.now_ms), merged, state)
        return output
    for task, epoch in running.items():
        if task.subtopology != spec.subtopology:
            continue
        with _named(task), opened(state.readers.get(task)) as view:
            graph = kept.of(spec, task, epoch, state, view, request.now_ms)
            before = graph.dropped
            begins, ends = (times.get(task, UNKNOWN_TIME) for times in kept.times)
            graph.advance_stream_time(begins)  # to where the owner before this one had come
            _run_task(graph, spec, task, merged, output)
            graph.advance_stream_time(ends)  # records that came to no node here count as well
            graph.advance_wall_clock(request.now_ms)
            graph.flush()
            if spec.writes_alone:
                _put_all(output, spec, task, graph.take_produced())
            else:
                _put(output, spec, task, graph.take_produced(), graph.take_handed_over(), LAST_SEQUENCE, None)
            state.dropped += graph.dropped - before
            for refused in graph.take_refused():
                state.passed_over.add(refused, *source_bytes(arrived, refused.context.partition, refused.context.offset))
    return output


@contextmanager
def _named(task: TaskId) -> Iterator[None]:
    """Stored bytes can't be read while operators are made or flushed, when no record is being processed: the batch must not be
    tried again, since this would end in the same way."""
    try:
        yield
    except SerdeError as problem:
        raise StopError(f"task {task}: {problem}") from problem


def _run_joins(
    spec: GraphSpec, join: WindowJoin, arrived: Sequence[DecodedRows], state: StepState, kept: KeptGraphs,
    running: Mapping[TaskId, str], now_ms: int, output: GraphOutput,
) -> None:  # fmt: skip
    """Runs a part that is one join of two streams, which needs no graph."""
    both = BothSides(join, arrived)
    for task, epoch in running.items():
        if task.subtopology != spec.subtopology:
            continue
        with _named(task), opened(state.readers.get(task)) as view:
            given = both.of(task.partition)
            if given is None:
                continue
            made = given.joined_by(kept.join_of(spec, task, epoch, state, view), task, now_ms)
            state.dropped += made.dropped
            for name in join.targets:
                node = spec.topology.nodes[name]
                if isinstance(node, SinkNode):
                    assert node.key_serde is not None
                    held = output.of_sink(spec, name, node.topic)
                    given.forward(made, name, node.key_serde, task, held)
                else:
                    held, exit_ = output.onward.setdefault(name, empty_records()), spec.exits[name]
                    given.forward(made, name, exit_.key_serde, task, held)


def _run_task(graph: TaskGraph, spec: GraphSpec, task: TaskId, merged: Merged, output: GraphOutput) -> None:
    """Feeds a task's records to its graph, in their order."""
    partition = task.partition
    nodes, keys, values, timestamps = merged.nodes, merged.keys, merged.values, merged.timestamps
    headers, offsets, topics, sequences = merged.headers, merged.offsets, merged.topics, merged.sequences
    process, take_produced, take_handed_over = graph.process, graph.take_produced, graph.take_handed_over
    if spec.writes_alone:
        for at in merged.of(partition):
            record = Record(keys[at], values[at], timestamps[at], headers[at])
            process(nodes[at], record, RecordMetadata(topics[at], partition, offsets[at]))
        return
    for at in merged.of(partition):
        offset = offsets[at]
        record = Record(keys[at], values[at], timestamps[at], headers[at])
        process(nodes[at], record, RecordMetadata(topics[at], partition, offset))
        produced, handed_over = take_produced(), take_handed_over()
        if produced or handed_over:
            _put(output, spec, task, produced, handed_over, sequences[at], offset)


def _put_all(output: GraphOutput, spec: GraphSpec, task: TaskId, produced: Iterable[Produced]) -> None:
    """Results of a task in a batch, where only its own order counts."""
    grouped: dict[int, tuple[Records, list[Produced]]] = {}
    for made in produced:
        records = output.of_sink(spec, made[0], made[1])
        grouped.setdefault(id(records), (records, []))[1].append(made)
    for records, several in grouped.values():
        begin, count = len(records), len(several)
        records.parts += [task.partition] * count
        records.keys += [made[2] for made in several]
        records.values += [made[3] for made in several]
        records.timestamps += [made[4][2] for made in several]
        records.offsets += [-1] * count  # None means summed
        records.sequences += range(begin, begin + count)
        assert records.headers is not None
        records.headers += [made[4][3] or None for made in several]
        if records.partitions is not None:
            records.partitions += [ANY_PARTITION if made[5] is None else made[5] for made in several]


def _keep_global(graph: TaskGraph, merged: Merged, state: StepState) -> None:
    """Brings records of all partitions into the global stores."""
    before = graph.dropped
    for at in merged.all():
        partition = merged.parts[at]
        record = Record(merged.keys[at], merged.values[at], merged.timestamps[at], merged.headers[at])
        graph.process(merged.nodes[at], record, RecordMetadata(merged.topics[at], partition, merged.offsets[at]))
    graph.flush()
    state.dropped += graph.dropped - before
    for refused in graph.take_refused():  # without a letter: each thread of each instance would send one at each start
        state.passed_over.add(replace(refused, is_letter=False), None, None)


def _put(
    output: GraphOutput, spec: GraphSpec, task: TaskId, produced: Iterable[Produced], handed_over: Iterable[HandedOver],
    sequence: int, offset: int | None,
) -> None:
    partition = task.partition
    offset = -1 if offset is None else offset  # None means summed
    for made in produced:
        record = made.record
        records = output.of_sink(spec, made.sink, made.topic)
        if records.partitions is not None:
            records.partitions.append(ANY_PARTITION if made.partition is None else made.partition)
        _append(records, partition, made.key, made.value, record, offset, sequence)
    for given in handed_over:
        exit_ = spec.exits[given.node]
        held = output.handed_on(given.node)
        key, value = _bytes_for_columns(given, exit_, task, offset)
        _append(held, partition, key, value, given.record, offset, sequence)


def _append(
    records: Records, partition: int, key: bytes | None, value: bytes | None, record: Record, offset: int, sequence: int
) -> None:
    records.parts.append(partition)
    records.keys.append(key)
    records.values.append(value)
    records.timestamps.append(record[2])
    records.offsets.append(offset)
    records.sequences.append(sequence)
    assert records.headers is not None
    records.headers.append(record[3] or None)


def _bytes_for_columns(given: HandedOver, exit_: GraphExit, task: TaskId, offset: int) -> tuple[bytes | None, bytes | None]:
    key, value = given.record[0], given.record[1]
    if type(value) is Change:
        value = value.new
    try:
        return exit_.key_serde.serialize(key), exit_.value_serde.serialize(value)
    except SerdeError as problem:
        raise RecordError(
            f"what goes to {given.node}, whose function works on columns, can't be written: {problem}",
            task=str(task), topic=given.origin.topic, partition=task.partition, offset=offset,
        ) from problem  # fmt: skip

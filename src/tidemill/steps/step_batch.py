"""A batch in a Python step, and the run of the step's nodes on it: the vectorised ones, parents before children, then the graphs.

Decides where the records go that nodes forward: to nodes of this step, to sinks, to the layer of columns behind it. What a node
does with a batch is ``vector_step``'s and ``graph_step``'s; what becomes of the outputs is the last step's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidemill.errors import RecordError
from tidemill.forked import children_end
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.operation_table import Enters, entry_of, tables_of
from tidemill.steps.commit.passed_over import PassedOver
from tidemill.steps.commit.sinks import as_its_serdes_write
from tidemill.steps.gather import Gathered
from tidemill.steps.graph.graph_step import run_graph
from tidemill.steps.graph.kept_graphs import running_tasks, stream_times
from tidemill.steps.outputs import Outputs, ToNode, ToSink
from tidemill.steps.rows.decoded import DecodedRows, decoded_rows
from tidemill.steps.rows.intake import DeserializerEndedError
from tidemill.steps.rows.order import topic_index, topic_of
from tidemill.steps.rows.partition_stats import without_unreadable
from tidemill.steps.rows.records import Records, from_rows, in_order, naming
from tidemill.steps.step_context import StepContext, TaskStore
from tidemill.steps.step_spec import GraphExit, GraphSpec, NodeSpec, StepSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.vector_step import run_on_records, run_on_rows, takes_rows
from tidemill.task.batch import BatchRequest, Marker, PartitionStats, times_after
from tidemill.task.partition_time import Times


@dataclass(slots=True)
class StepBatch:
    """A batch in a step: the rows that have arrived, and the results of its nodes."""

    spec: StepSpec
    context: StepContext
    request: BatchRequest
    tables: dict[int, pa.Table]
    """Rows by tag, as long as nothing has taken them."""
    marker: Marker
    stores: Mapping[TaskId, TaskStore]
    state: StepState
    partition_stats: Mapping[TopicPartition, PartitionStats]
    """The marker's; timestamps of what this step can't read don't count."""
    times: Times
    """Partition times of the inputs at the batch's end."""
    outputs: Outputs = field(default_factory=Outputs)
    onward: list[list[tuple[GraphExit, Records]]] = field(default_factory=list)
    """Records for columns, by graph."""
    unreadable: list[pa.Table] = field(default_factory=list)
    """Rows whose bytes a graph's serdes can't read."""

    @classmethod
    def begin(
        cls, spec: StepSpec, context: StepContext, request: BatchRequest, gathered: Gathered, stores: Mapping[TaskId, TaskStore]
    ) -> StepBatch:
        """A batch whose marker has arrived, before any node has run."""
        marker = gathered.marker
        assert marker is not None
        return cls(
            spec=spec,
            context=context,
            request=request,
            tables=gathered.tables,
            marker=marker,
            stores=stores,
            state=StepState(stores, spec.stores, handlers=context.unreadable.handlers),
            partition_stats=marker.partition_stats,
            times=times_after(request.times, marker.partition_stats),
        )

    def found_unreadable(self, found: DecodedRows, unreadable: pa.Table) -> None:
        """Records of an input can't be read, which the source step has counted with their timestamps."""
        topics = found.entry.topics
        places = zip(unreadable.column("seq").to_pylist(), unreadable.column("part").to_pylist(), strict=True)
        partitions = {TopicPartition(topics[topic_index(seq)], part) for seq, part in places}
        readable = zip(map(TopicPartition, found.topics(), found.parts.tolist()), found.timestamps, strict=True)
        self.partition_stats = without_unreadable(self.partition_stats, partitions, readable)
        self.times = times_after(self.request.times, self.partition_stats)


@children_end()
def run_nodes(batch: StepBatch) -> None:
    """Runs all nodes of the step on the rows that wait for them. A child that a function has forked ends."""
    spec, tables = batch.spec, batch.tables
    waiting: dict[str, list[Records]] = {}
    tables_of_others = {table for node in spec.nodes.values() for table in tables_of(node.operation)}
    running, kept = running_tasks(spec, batch.request), batch.context.graphs
    arrived = [_arrived(batch, graph) for graph in spec.graphs]
    kept.begin(batch.request, running, (stream_times(spec, batch.request.times), stream_times(spec, batch.times)))
    batch.state.memory = kept.memory
    for tag, node in spec.nodes.items():
        table, inline = tables.pop(tag, None), waiting.pop(node.name, [])
        if table is None and not inline:
            continue
        with naming(node.name):
            made = _made(node, tag, table, inline, batch.state)
        if node.name in tables_of_others:
            batch.state.forwarded[node.name] = made
        _deliver(batch, node, made, waiting)
    _run_graphs(batch, arrived, running)


def _made(node: NodeSpec, tag: int, table: pa.Table | None, inline: list[Records], state: StepState) -> Records:
    if takes_rows(node):
        return run_on_rows(node, tag, table, inline, state)
    counts = entry_of(node.operation).enters is Enters.KEY_ONLY
    if counts:
        inline = [_without_null_values(records) for records in inline]
    if table is not None:
        value_serde = None if counts else node.value_serde
        inline.append(from_rows(table, node.key_serde, value_serde))
    return run_on_records(node, in_order(inline), state)


def _arrived(batch: StepBatch, graph: GraphSpec) -> list[DecodedRows]:
    """A part's rows, decoded, before any clock of the batch moves: what its serdes can't read is set aside, and moves none."""
    arrived = []
    for tag, entry in graph.entries.items():
        table = batch.tables.pop(tag, None)
        if table is None:
            continue
        node = entry.node.partition("|")[0]
        try:
            with naming(node):
                found, unreadable = decoded_rows(table, entry)
        except DeserializerEndedError as ended:
            [row] = table.select(["part", "off", "seq"]).slice(ended.at, 1).to_pylist()
            task, topic = TaskId(graph.subtopology, row["part"]), topic_of(entry.topics, row["seq"], row["off"])
            raise RecordError(
                f"{node}: {ended}", task=str(task), topic=topic, partition=task.partition, offset=row["off"]
            ) from ended
        arrived.append(found)
        if unreadable is not None and (batch.spec.last or not graph.is_global):  # the last step keeps global stores, too
            batch.unreadable.append(unreadable)
            batch.found_unreadable(found, unreadable)
    return arrived


def _without_null_values(records: Records) -> Records:
    """Records for a count, in the form of rows from the JVM: a record with a null value has no key."""
    if None not in records.values:
        return records
    sides = zip(records.keys, records.values, strict=True)
    return replace(records, keys=[None if value is None else key for key, value in sides])


def _run_graphs(batch: StepBatch, arrived: Sequence[Sequence[DecodedRows]], running: Mapping[TaskId, str]) -> None:
    if not batch.spec.graphs:
        return
    graphs = list(zip(batch.spec.graphs, arrived, strict=True))
    for graph, rows in graphs:
        if graph.is_global:
            _run_graph(batch, graph, rows, running)
    # Not before: where what their serdes need does not answer, the batch is lost, and their records must be read again.
    batch.context.graphs.shared.read(batch.marker.global_ends)
    for graph, rows in graphs:
        if not graph.is_global:
            _run_graph(batch, graph, rows, running)


def _run_graph(batch: StepBatch, graph: GraphSpec, arrived: Sequence[DecodedRows], running: Mapping[TaskId, str]) -> None:
    state = batch.state
    if graph.is_global and not batch.spec.last:
        # The last step keeps these stores, too, and reports their records that were dropped, skipped or unreadable.
        state = replace(state, passed_over=PassedOver())
        run_graph(graph, arrived, state, batch.context.graphs, batch.request, running)
        return
    made = run_graph(graph, arrived, state, batch.context.graphs, batch.request, running)
    for to, records in made.sent:
        batch.outputs.add(to, records)
    batch.onward.append([(graph.exits[node], records) for node, records in made.onward.items()])


def _deliver(batch: StepBatch, node: NodeSpec, records: Records, waiting: dict[str, list[Records]]) -> None:
    if not len(records):
        return
    for target in node.inline:
        sink = next((sink for sink in batch.spec.sinks.values() if sink.name == target), None)
        written = as_its_serdes_write(target, node, records, batch.state, target if sink is None else sink.place)
        if sink is None:
            waiting.setdefault(target, []).append(written)
        else:
            batch.outputs.add(ToSink(target), written)
    if node.tag is not None:
        batch.outputs.add(ToNode(node.name), records)

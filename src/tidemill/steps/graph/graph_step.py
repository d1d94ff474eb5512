"""Parts of the topology in a Python step: rows become records of a task's graph of operators.

Decides the order in which a task's records enter its graph (that of their ``seq``, whatever the node), and when the clocks of its
operators move. What operators do is ``tidemill.operators``', how long they are kept ``kept_graphs``', what becomes of their
results ``graph_output``'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from tidemill.errors import SerdeError, StopError
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.record import LATEST_TIME, UNKNOWN_TIME, Record
from tidemill.operators.task_graph import TaskGraph, no_source_bytes
from tidemill.steps.graph.graph_output import GraphOutput
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.rows.decoded import DecodedRows, SourceBytes
from tidemill.steps.rows.merged import Merged
from tidemill.steps.rows.order import LAST_SEQUENCE, flushed_sequence
from tidemill.steps.rows.task_rows import opened
from tidemill.steps.step_spec import GraphSpec, WindowJoin
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.join_records import BothSides
from tidemill.task.batch import BatchRequest
from tidemill.task.partition_time import PartitionTime
from tidemill.topology.nodes import SinkNode


def run_graph(
    spec: GraphSpec, arrived: Sequence[DecodedRows], state: StepState, kept: KeptGraphs, request: BatchRequest,
    running: Mapping[TaskId, str],
) -> GraphOutput:
    """Runs one part of all running tasks on the rows that have arrived for it; what is due by the wall clock runs last."""
    output = GraphOutput(spec)
    if spec.window_join is not None and kept.handlers.are_failing:  # which can't leave a single record out
        _run_joins(output, spec.window_join, arrived, state, kept, running, request.now_ms)
        return output
    merged, source_bytes = Merged(arrived), SourceBytes(arrived).of
    if spec.is_global:
        graph = kept.shared.graph(spec, request.now_ms)
        graph.source_bytes = source_bytes
        _keep_global(graph, merged, state)
        graph.source_bytes = no_source_bytes
        return output
    for task, owner in running.items():
        if task.subtopology != spec.subtopology:
            continue
        with _named(task), opened(state.readers.get(task)) as view:
            graph = kept.of(spec, task, owner, state, view, request.now_ms)
            before, graph.defers = graph.dropped, request.defers
            begins, ends = (times.get(task, PartitionTime()).ms for times in kept.times)
            graph.advance_stream_time(begins)  # to where the owner before this one had come
            graph.latest_time = LATEST_TIME if ends == UNKNOWN_TIME else max(begins, ends)
            graph.take_many = partial(output.put_all, task) if spec.writes_alone else None
            graph.source_bytes = source_bytes
            _run_task(graph, task, merged, output)
            graph.advance_stream_time(ends)  # records that came to no node here count as well
            graph.advance_wall_clock(request.now_ms)
            if not spec.writes_alone:
                _flush_caches(graph, task, output)
            graph.flush()
            if spec.writes_alone:
                output.put_all(task, graph.take_produced())
            graph.take_many, graph.source_bytes = None, no_source_bytes
            state.dropped += graph.dropped - before
            for refused in graph.take_refused():
                state.passed_over.add(refused)
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
    output: GraphOutput, join: WindowJoin, arrived: Sequence[DecodedRows], state: StepState, kept: KeptGraphs,
    running: Mapping[TaskId, str], now_ms: int,
) -> None:  # fmt: skip
    """Runs a part that is one join of two streams, which needs no graph."""
    spec, both = output.spec, BothSides(join, arrived)
    for task, owner in running.items():
        if task.subtopology != spec.subtopology:
            continue
        with _named(task), opened(state.readers.get(task)) as view:
            given = both.of(task.partition)
            if given is None:
                continue
            made = given.joined_by(kept.join_of(spec, task, owner, state, view), task, now_ms)
            state.dropped += made.dropped
            for name in join.targets:
                node = spec.topology.nodes[name]
                if isinstance(node, SinkNode):
                    assert node.key_serde is not None
                    given.forward(made, name, node.key_serde, task, output.of_sink(name, node.topic))
                else:
                    given.forward(made, name, spec.exits[name].key_serde, task, output.of_node(name))


def _run_task(graph: TaskGraph, task: TaskId, merged: Merged, output: GraphOutput) -> None:
    """Feeds a task's records to its graph, in their order."""
    partition = task.partition
    nodes, keys, values, timestamps = merged.nodes, merged.keys, merged.values, merged.timestamps
    headers, offsets, topics, sequences = merged.headers, merged.offsets, merged.topics, merged.sequences
    process, take_produced, take_handed_over, put = graph.process, graph.take_produced, graph.take_handed_over, output.put
    writes_alone = output.spec.writes_alone
    places = merged.of(partition)
    for at, following in zip_longest(places, places[1:]):
        offset, topic = offsets[at], topics[at]
        is_last = following is None or offset is None or offsets[following] != offset or topics[following] != topic
        record = Record(keys[at], values[at], timestamps[at], headers[at])
        process(nodes[at], record, RecordMetadata(topic, partition, offset), is_last=is_last)
        if writes_alone:
            continue
        produced, handed_over = take_produced(), take_handed_over()
        if produced or handed_over:
            put(task, produced, handed_over, sequences[at], offset)


def _flush_caches(graph: TaskGraph, task: TaskId, output: GraphOutput) -> None:
    """Takes the results of punctuators, then what caches forward, with the source record of each change."""
    output.put(task, graph.take_produced(), graph.take_handed_over(), LAST_SEQUENCE, None)
    topics = next((entry.topics for entry in output.spec.entries.values()), ())
    for at, (topic, _partition, offset) in enumerate(graph.flush_caches()):
        place = flushed_sequence(at, topics.index(topic) if topic in topics else 0)
        output.put(task, graph.take_produced(), graph.take_handed_over(), place, offset)


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
        state.passed_over.add(replace(refused, letters=()))

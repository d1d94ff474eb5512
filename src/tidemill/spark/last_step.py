"""The Python steps of a plan: gather the batch, run the step's nodes, hand on or, in the last step, commit.

Decides the order of a commit (``task.commit``) and when a batch counts as lost; semantics of nodes are ``state_step``'s, and
everything outside the process is behind ``StepContext``. Invariant: nothing irrevocable happens before the batch is known to
be whole and to continue the last one, and no store is written before its Kafka transaction is committed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tidemill.errors import BatchLostError, FencedError, StateError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.spark.records import Records, from_rows, in_order, to_rows
from tidemill.spark.rows import CHUNK, MARKER, SUMMED_HEADER, UNREADABLE
from tidemill.spark.state_step import StepState, StoreReader, Written, run_node
from tidemill.spark.step_spec import NodeSpec, SinkSpec, StepSpec
from tidemill.spark.unreadable import Unreadable, unreadable_records
from tidemill.spark.writes import take_writes, writes_as_rows
from tidemill.task.batch import (
    BatchReport,
    BatchRequest,
    Marker,
    Membership,
    Outcome,
    Positions,
    StoresAt,
    TaskRun,
    marker_from_json,
    report_to_json,
)
from tidemill.task.commit import CommitStep
from tidemill.topology.nodes import Count

REPORT_SCHEMA = pa.schema([("report", pa.string())])


class TaskStore(StoreReader, Protocol):
    """One task's stores, as its owner has them open."""

    @property
    def at(self) -> StoresAt:
        """Where the stores stand; ``is_behind`` when that is not where the driver thinks they are."""

    def check(self, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        """Raises StateError for what could not be applied later (rule 14)."""

    def apply(self, writes: Mapping[str, Mapping[bytes, bytes | None]], changelog: Mapping[str, int]) -> None:
        """All writes and positions in one transaction, if the stores still are where ``at`` says (rule 15)."""


class Output(Protocol):
    """The thread's producer: one transaction a batch (or, at least once, one flush)."""

    def prepare(self) -> None:
        """Ends whatever a predecessor left open."""

    def begin(self) -> None: ...

    def produce(
        self,
        topic: str,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        partitions: Sequence[int] | None = None,
        headers: Sequence[Any] | None = None,
    ) -> None: ...

    def commit(self, offsets: Positions, membership: Membership) -> Mapping[TopicPartition, int]:
        """Commits and gives, for each partition written by number, the offset behind its last record.

        Raises:
            BatchLostError: aborted, or of unknown fate. FencedError: another producer or the group has moved on.
        """

    def abort(self) -> None: ...


class StepContext(Protocol):
    """What a step needs from outside; kept by the worker from batch to batch."""

    @property
    def output(self) -> Output: ...

    @property
    def continuity(self) -> dict[TopicPartition, int]:
        """Where the last commit of this worker ended, per input partition; empty after a loss."""

    @property
    def unreadable(self) -> Unreadable: ...

    def request(self) -> BatchRequest: ...

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, TaskStore]:
        """The stores of these tasks; those of all others are closed first."""

    def membership(self) -> Membership: ...

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        """The group's committed offsets, require-stable; a partition without any is absent."""

    def reached(self, step: CommitStep, batch_id: int) -> None: ...


@dataclass(slots=True)
class Gathered:
    """A batch's rows by tag."""

    tables: dict[int, pa.Table]
    marker: Marker | None
    chunks: int
    rows: int
    repeated: bool


def gather(batches: Iterable[pa.RecordBatch]) -> Gathered:
    held = [batch for batch in batches if batch.num_rows]
    if not held:
        return Gathered({}, None, 0, 0, False)
    table = pa.Table.from_batches(held).combine_chunks()
    nodes = table.column("node").to_numpy()
    tables: dict[int, pa.Table] = {}
    distinct = np.unique(nodes)
    for tag in distinct:
        tables[int(tag)] = table if len(distinct) == 1 else table.take(pa.array(np.flatnonzero(nodes == tag)))
    markers = tables.pop(MARKER, None)
    chunks = tables.pop(CHUNK, None)
    marker = None if markers is None else marker_from_json(markers.column("value")[0].as_py())
    return Gathered(
        tables,
        marker,
        0 if chunks is None else len(set(chunks.column("off").to_pylist())),
        0 if chunks is None else sum(chunks.column("ts").to_pylist()),
        (markers is not None and markers.num_rows > 1)
        or (chunks is not None and chunks.num_rows != len(set(chunks.column("off").to_pylist()))),
    )


def why_not_whole(gathered: Gathered, request: BatchRequest) -> str | None:
    """The reason why the batch must not be used, if there is one (rule 1)."""
    marker = gathered.marker
    if marker is None:
        return "the batch was cut short: its end-of-batch marker is missing"
    if gathered.repeated:
        return "the batch holds a control row twice"
    if marker.batch_id != request.batch_id:
        return f"the source step answered batch {marker.batch_id}, expected {request.batch_id}"
    if (marker.chunks, marker.rows) != (gathered.chunks, gathered.rows):
        return f"{gathered.rows} rows in {gathered.chunks} chunks arrived, the source sent {marker.rows} in {marker.chunks}"
    if dict(marker.starts) != dict(request.inputs):
        return "the source step did not start where it was told to"
    return None


@dataclass(slots=True)
class _Batch:
    """One run of a step."""

    spec: StepSpec
    context: StepContext
    request: BatchRequest
    gathered: Gathered
    state: StepState
    stores: Mapping[TaskId, TaskStore]
    pending: dict[str, list[Records]] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    skipped: int = 0
    note: str = ""
    out: int = 0
    _mark: float = field(default_factory=time.perf_counter)

    def reached(self, step: CommitStep) -> None:
        now = time.perf_counter()
        self.timings[step.value] = round((now - self._mark) * 1e3, 2)
        self._mark = now
        self.context.reached(step, self.request.batch_id)


def run_last_step(batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext) -> Iterator[pa.RecordBatch]:
    """Gathers, checks, runs and commits one batch; always one report row, unless the process dies."""
    report = _commit(batches, spec, context)
    yield pa.RecordBatch.from_arrays([pa.array([report_to_json(report)])], schema=REPORT_SCHEMA)


def _commit(batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext) -> BatchReport:
    started = time.perf_counter()
    request = context.request()
    context.reached(CommitStep.REQUEST, request.batch_id)
    gathered = gather(batches)
    problem = why_not_whole(gathered, request)
    if problem is not None:
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.LOST, message=problem)
    marker = gathered.marker
    assert marker is not None
    if marker.out_of_range:
        context.continuity.clear()
        return BatchReport(
            batch_id=request.batch_id, outcome=Outcome.LOST, message="offsets out of range", out_of_range=marker.out_of_range
        )
    stores = context.open_stores(request.tasks)
    batch = _Batch(spec, context, request, gathered, StepState(stores, spec.stores), stores)
    batch.timings["wait"] = round((time.perf_counter() - started) * 1e3, 2)
    batch.reached(CommitStep.GATHER)
    try:
        return _run_and_commit(batch, marker)
    except BatchLostError as lost:
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.LOST, message=str(lost), timings_ms=batch.timings)
    except FencedError as fenced:
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.FENCED, message=str(fenced), timings_ms=batch.timings)
    except StopError as stop:
        context.continuity.clear()
        context.output.abort()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.STOPPED, message=str(stop))


def _run_and_commit(batch: _Batch, marker: Marker) -> BatchReport:
    context, request = batch.context, batch.request
    behind = [store.at for store in batch.stores.values() if store.at.is_behind]
    if behind:
        context.continuity.clear()
        return BatchReport(
            batch_id=request.batch_id,
            outcome=Outcome.LOST,
            message="; ".join(f"task {at.task}: its stores are at {dict(at.changelog)}" for at in behind),
            stores=tuple(store.at for store in batch.stores.values()),
        )
    restored = _apply_restored(batch, marker)
    batch.reached(CommitStep.RESTORE)
    _check_continuity(context, request)
    batch.reached(CommitStep.CONTINUITY)
    take_writes(batch.gathered.tables, batch.state)
    _run_nodes(batch)
    batch.reached(CommitStep.RUN)
    offsets = {tp: end for tp, end in marker.ends.items() if end != marker.starts[tp]}
    wrote = any(batch.pending.values()) or any(w.rows for w in batch.state.written.values())
    if wrote or offsets:
        _commit_writes(batch, offsets, marker)
    context.continuity.update(marker.ends)
    for tp in context.continuity.keys() - marker.ends.keys():
        del context.continuity[tp]
    return BatchReport(
        batch_id=request.batch_id,
        outcome=Outcome.COMMITTED,
        message=batch.note,
        ends=marker.ends,
        changelog_ends=marker.changelog_ends,
        high_watermarks=marker.high_watermarks,
        stores=tuple(store.at for store in batch.stores.values()),
        records_in=marker.rows - restored,
        records_restored=restored,
        records_out=batch.out,
        dropped=batch.state.dropped,
        skipped=batch.skipped,
        timings_ms=batch.timings,
    )


def _commit_writes(batch: _Batch, offsets: Positions, marker: Marker) -> None:
    context = batch.context
    context.output.begin()
    _produce(batch)
    batch.reached(CommitStep.PRODUCE)
    writes = _writes_by_task(batch.state.written)
    for task, rows in writes.items():
        try:
            batch.stores[task].check(rows)
        except StateError as refused:
            context.output.abort()
            raise StopError(f"task {task}: {refused}") from refused
    batch.reached(CommitStep.ROOM)
    membership = context.membership()
    if not membership.may_commit or membership.incarnation != batch.request.incarnation:
        context.output.abort()
        raise FencedError("the group has moved on while the batch ran: its partitions may have another owner")
    batch.reached(CommitStep.MEMBERSHIP)
    logged = context.output.commit(offsets, membership)
    batch.reached(CommitStep.COMMIT)
    _apply(batch, writes, logged, marker.ends)
    batch.reached(CommitStep.APPLY)


def _check_continuity(context: StepContext, request: BatchRequest) -> None:
    unknown = [tp for tp in request.inputs if tp not in context.continuity]
    if unknown:
        context.continuity.update(context.committed(unknown))
    for tp, start in request.inputs.items():
        expected = context.continuity.get(tp, start)
        if start != expected:
            raise BatchLostError(f"{tp} was read from {start}, but the last commit ended at {expected}")


def _apply_restored(batch: _Batch, marker: Marker) -> int:
    """Changelog records go straight to their stores, with where the changelog was left."""
    ends: dict[TaskId, dict[str, int]] = {}
    writes: dict[TaskId, dict[str, dict[bytes, bytes | None]]] = {}
    restored = 0
    by_changelog = {s.changelog or s.source_topic: s for s in batch.spec.stores.values()}
    for tp, end in marker.changelog_ends.items():
        store = by_changelog[tp.topic]
        ends.setdefault(TaskId(store.subtopology, tp.partition), {})[store.name] = end
    for store in batch.spec.stores.values():
        table = batch.gathered.tables.pop(store.tag, None)
        if table is None:
            continue
        table = table.sort_by([("part", "ascending"), ("off", "ascending")])
        restored += table.num_rows
        columns = (table.column(c).to_pylist() for c in ("part", "key", "value", "ts"))
        for part, key, value, timestamp in zip(*columns, strict=True):
            if key is None:
                continue
            row = None if value is None else timestamp.to_bytes(8, "big", signed=True) + value if store.timestamped else value
            writes.setdefault(TaskId(store.subtopology, part), {}).setdefault(store.name, {})[key] = row
    for task, positions in ends.items():
        if task not in batch.stores:
            continue
        store_of_task, found = batch.stores[task], writes.get(task, {})
        known = store_of_task.at.changelog
        if found or any(known.get(name) != position for name, position in positions.items()):
            store_of_task.apply(found, positions)
    return restored


def _run_nodes(batch: _Batch) -> None:
    spec, tables = batch.spec, batch.gathered.tables
    bad = tables.pop(UNREADABLE, None)
    if bad is not None:
        first, aside = unreadable_records(bad, spec.sources, batch.context.unreadable)
        batch.skipped, batch.note = bad.num_rows, f"{bad.num_rows} records can't be read, the first: {first}"
        if aside is not None:
            topic, found = aside
            batch.pending.setdefault(topic, []).append(found)
    waiting: dict[str, list[Records]] = {}
    for tag, node in spec.nodes.items():
        table = tables.pop(tag, None)
        if table is not None:
            counts = isinstance(node.operation, Count)
            value_serde = None if counts else node.value_serde
            records = from_rows(table, node.key_serde, value_serde, mixed=spec.mixed and not counts)
            waiting.setdefault(node.name, []).append(records)
        if node.name in waiting:
            _deliver(batch, node, run_node(node, in_order(waiting.pop(node.name)), batch.state), waiting)
    if spec.last:
        for tag, sink in spec.sinks.items():
            table = tables.pop(tag, None)
            if table is not None:
                batch.pending.setdefault(sink.name, []).append(
                    from_rows(table, sink.key_serde, sink.value_serde, mixed=spec.mixed)
                )


def _deliver(batch: _Batch, node: NodeSpec, records: Records, waiting: dict[str, list[Records]]) -> None:
    if not len(records):
        return
    for target in node.inline:
        if any(sink.name == target for sink in batch.spec.sinks.values()):
            batch.pending.setdefault(target, []).append(records)
        else:
            waiting.setdefault(target, []).append(records)
    if node.tag is not None:
        batch.pending.setdefault(f"out:{node.name}", []).append(records)


def _produce(batch: _Batch) -> None:
    output = batch.context.output
    sinks = {sink.name: sink for sink in batch.spec.sinks.values()}
    by_topic: dict[str, list[Records]] = {}
    for name, held in batch.pending.items():
        sink = sinks.get(name)
        if sink is not None and sink.summed:
            for records in held:
                _produce_summed(output, sink, records)
                batch.out += len(records)
        else:
            by_topic.setdefault(name if sink is None else sink.topic, []).extend(held)
    for topic, held in by_topic.items():
        records = in_order(held)
        output.produce(topic, records.keys, records.values, records.timestamps, None, records.headers)
        batch.out += len(records)
    for (task, name), written in batch.state.written.items():
        store = batch.spec.stores[name]
        if store.changelog is None or not written.rows:
            continue
        keys = list(written.rows)
        rows = list(written.rows.values())
        values = [None if row is None else row[8:] for row in rows] if store.timestamped else rows
        timestamps = [written.timestamps[key] for key in keys]
        output.produce(store.changelog, keys, values, timestamps, [task.partition] * len(keys))


def _produce_summed(output: Output, sink: SinkSpec, records: Records) -> None:
    """Rows without an offset were summed in the JVM: the record says in a header that its value is their number."""
    values: list[bytes | None] = []
    headers: list[Any] = []
    for at in range(len(records)):
        if records.offsets[at] is None:
            count = 1 if records.counts is None else records.counts[at]
            values.append(count.to_bytes(8, "big", signed=True))
            headers.append(_SUMMED)
        else:
            values.append(records.values[at])
            headers.append(records.header(at))
    output.produce(sink.topic, records.keys, values, records.timestamps, None, headers)


_SUMMED = [(SUMMED_HEADER, b"")]


def _writes_by_task(written: Mapping[tuple[TaskId, str], Written]) -> dict[TaskId, dict[str, dict[bytes, bytes | None]]]:
    tasks: dict[TaskId, dict[str, dict[bytes, bytes | None]]] = {}
    for (task, store), found in written.items():
        tasks.setdefault(task, {})[store] = found.rows
    return tasks


def _apply(
    batch: _Batch,
    writes: Mapping[TaskId, Mapping[str, Mapping[bytes, bytes | None]]],
    logged: Mapping[TopicPartition, int],
    ends: Positions,
) -> None:
    """The batch counts already: a store that refuses it now is behind and catches up from its changelog (rule 15)."""
    for task, store in batch.stores.items():
        positions: dict[str, int] = {}
        for spec in batch.spec.stores.values():
            if spec.subtopology != task.subtopology:
                continue
            topic = spec.changelog or spec.source_topic
            if topic is None:
                continue
            where = logged if spec.changelog else ends
            end = where.get(TopicPartition(topic, task.partition))
            if end is not None:
                positions[spec.name] = end
        rows = writes.get(task, {})
        if not rows and not positions:
            continue
        store.apply(rows, positions)


def run_middle_step(batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext) -> Iterator[pa.RecordBatch]:
    """A Python step that is not the last: runs its nodes on what the stores hold and passes everything else on.

    Its writes travel to the last step as rows, and that one applies them.
    """
    request = context.request()
    stores = context.open_stores(request.tasks)
    mine = set(spec.nodes)
    kept: list[pa.RecordBatch] = []
    marker: list[pa.RecordBatch] = []
    for record_batch in batches:
        nodes = record_batch.column("node").to_numpy()
        passing = ~np.isin(nodes, [*mine, MARKER])
        if passing.any():
            yield record_batch if passing.all() else record_batch.take(pa.array(np.flatnonzero(passing)))
        if not passing.all():
            kept.append(record_batch.take(pa.array(np.flatnonzero(np.isin(nodes, list(mine))))))
            marker.append(record_batch.take(pa.array(np.flatnonzero(nodes == MARKER))))
    batch = _Batch(spec, context, request, gather(kept), StepState(stores, spec.stores), stores)
    _run_nodes(batch)
    for node in spec.nodes.values():
        for records in batch.pending.get(f"out:{node.name}", []):
            assert node.tag is not None
            yield to_rows(records, node.tag, node.out_key_serde, node.out_value_serde)
    yield from writes_as_rows(batch.state, spec.stores)
    # Only now: a worker that dies on the way must leave a batch that is seen to be cut short.
    yield from (rows for rows in marker if rows.num_rows)


__all__ = ["Gathered", "Output", "StepContext", "TaskStore", "gather", "run_last_step", "run_middle_step", "why_not_whole"]

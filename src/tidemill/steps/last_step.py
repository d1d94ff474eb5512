"""The Python steps of a plan: gather the batch, run the step's nodes, hand on or, in the last step, commit.

Decides the order of a commit (``task.commit``) and when a batch counts as lost; semantics of nodes are ``state_step``'s, and
everything outside the process is behind ``StepContext``. Invariant: nothing irrevocable happens before the batch is known to
be whole and to continue the last one, and no store is written before its Kafka transaction is committed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from tidemill.errors import BatchLostError, CommitRefusedError, FencedError, MisfitError, SerdeError, StateError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.operation_table import Enters, entry_of, tables_of
from tidemill.steps.commit.batch_file import taken_batch
from tidemill.steps.commit.produce import produce_batch
from tidemill.steps.commit.refused_records import pass_over_refused
from tidemill.steps.commit.restored import apply_restored
from tidemill.steps.commit.sinks import as_its_serdes_write
from tidemill.steps.commit.unreadable import as_unreadable, unreadable_records
from tidemill.steps.gather import Gathered, gather, why_not_whole
from tidemill.steps.graph.graph_step import run_graph, running_tasks, stream_times
from tidemill.steps.outputs import Outputs, ToDeadLetters, ToNode, ToSink
from tidemill.steps.rows.order import first_child
from tidemill.steps.rows.records import Records, from_rows, in_order, to_rows
from tidemill.steps.rows.schema import MARKER, OUTPUT, REFUSED, SCHEMA, UNREADABLE
from tidemill.steps.rows.writes import outputs_as_rows, take_outputs, take_writes, writes_as_rows
from tidemill.steps.state_step import StepState, Written
from tidemill.steps.step_context import StepContext, TaskStore
from tidemill.steps.step_spec import GraphExit, NodeSpec, StepSpec
from tidemill.steps.vector.vector_step import run_on_records, run_on_rows, takes_rows
from tidemill.task.batch import BatchReport, BatchRequest, Marker, Outcome, Positions, times_after
from tidemill.task.batch_id import BatchId, OffsetRange
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import Times


@dataclass(slots=True)
class _Batch:
    """One run of a step."""

    spec: StepSpec
    context: StepContext
    request: BatchRequest
    gathered: Gathered
    state: StepState
    stores: Mapping[TaskId, TaskStore]
    times: Times
    """Partition times of the inputs at the batch's end."""
    outputs: Outputs = field(default_factory=Outputs)
    onward: list[list[tuple[GraphExit, Records]]] = field(default_factory=list)
    """Of each part, the records that go on to columns."""
    unreadable: list[pa.Table] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    restored: Counter[tuple[TaskId, str]] = field(default_factory=Counter)
    skipped: int = 0
    note: str = ""
    out: int = 0
    _mark: float = field(default_factory=time.perf_counter)

    def reached(self, step: CommitStep) -> None:
        now = time.perf_counter()
        self.timings[step.value] = round((now - self._mark) * 1e3, 2)
        self._mark = now
        self.context.reached(step, self.request.batch_id)


def run_last_step(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> BatchReport:
    """Gathers, checks, runs and commits one batch; gives a report, unless the process dies."""
    report = _commit(request, batches, spec, context)
    # Where copies of the global stores may stand elsewhere now, all are read again.
    known = report.outcome is not Outcome.LOST or not spec.has_copies_above
    return replace(report, globals=context.graphs.shared.positions if known else {})


def _commit(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> BatchReport:
    started = time.perf_counter()
    context.reached(CommitStep.REQUEST, request.batch_id)
    try:
        gathered = gather(batches)
        problem = why_not_whole(gathered, request)
    except MisfitError as misfit:
        problem = str(misfit)
    if problem is not None:
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.LOST, message=problem, is_misfit=True)
    marker = gathered.marker
    assert marker is not None
    if marker.out_of_range:
        context.continuity.clear()
        return BatchReport(
            batch_id=request.batch_id,
            outcome=Outcome.LOST,
            message=f"offsets out of range: {', '.join(map(str, marker.out_of_range))}",
            out_of_range=marker.out_of_range,
            is_misfit=True,
        )
    problem = context.graphs.shared.begin(request)
    if problem is not None:
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.LOST, message=problem)
    # Only for a batch that is whole: stores that the request no longer has are closed by this (rule 12).
    stores = context.open_stores(request.tasks)
    state = StepState(stores, spec.stores, handlers=context.unreadable.handlers)
    batch = _Batch(spec, context, request, gathered, state, stores, times_after(request.times, marker.arrived))
    batch.timings["wait"] = round((time.perf_counter() - started) * 1e3, 2)
    batch.reached(CommitStep.GATHER)
    try:
        return _run_and_commit(batch, marker)
    except CommitRefusedError as refused:
        return BatchReport(
            batch_id=request.batch_id,
            outcome=Outcome.REFUSED,
            message=str(refused),
            changelog_ends=marker.changelog_ends,
            high_watermarks=marker.high_watermarks,
            stores=tuple(store.at for store in stores.values()),
            restored=_by_task(batch.restored),
            timings_ms=batch.timings,
        )
    except BatchLostError as lost:
        context.continuity.clear()
        context.output.abort()  # a store may have refused in the middle of the transaction
        at = tuple(store.at for store in stores.values())
        return BatchReport(
            batch_id=request.batch_id,
            outcome=Outcome.LOST,
            message=str(lost),
            stores=at,
            timings_ms=batch.timings,
            is_misfit=isinstance(lost, MisfitError),
        )
    except FencedError as fenced:  # the transaction is aborted already, here or by the broker
        context.continuity.clear()
        return BatchReport(batch_id=request.batch_id, outcome=Outcome.FENCED, message=str(fenced), timings_ms=batch.timings)
    except (StopError, SerdeError) as stop:  # bytes that can't be read don't become readable when they are read again
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
            is_misfit=True,
        )
    # Before the nodes run: they read the stores, and of a restored store its last records came in this very batch.
    batch.restored = apply_restored(batch.gathered.tables, batch.spec.stores.values(), marker.changelog_ends, batch.stores)
    batch.reached(CommitStep.RESTORE)
    _check_continuity(context, request)
    batch.reached(CommitStep.CONTINUITY)
    take_writes(batch.gathered.tables, batch.state)
    batch.outputs = take_outputs(batch.gathered.tables)
    _run_nodes(batch)
    batch.reached(CommitStep.RUN)
    _hand_over(batch, marker)
    batch.reached(CommitStep.HAND_OVER)
    offsets = {tp: end for tp, end in marker.ends.items() if end != marker.starts[tp]}
    passed_over = batch.state.passed_over
    # A batch that made nothing and read nothing needs no transaction. One that only wrote commits a position nevertheless, since
    # the group's refusal of it is what tells a member that was lost.
    wrote = batch.outputs or passed_over.letters.parts or any(w.rows or w.log for w in batch.state.written.values())
    if wrote or offsets:
        _commit_writes(batch, offsets or _any_position(request))
    # Partitions that are gone must not be remembered: when they come back another owner may have read on.
    context.continuity.update(marker.ends)
    for tp in context.continuity.keys() - marker.ends.keys():
        del context.continuity[tp]
    return BatchReport(
        batch_id=request.batch_id,
        outcome=Outcome.COMMITTED,
        message="; ".join(filter(None, [batch.note, passed_over.note])),
        ends=marker.ends,
        changelog_ends=marker.changelog_ends,
        high_watermarks=marker.high_watermarks,
        stores=tuple(store.at for store in batch.stores.values()),
        records_in=marker.rows - batch.restored.total(),
        records_restored=batch.restored.total(),
        restored=_by_task(batch.restored),
        records_out=batch.out,
        dropped=batch.state.dropped + batch.skipped,
        skipped=batch.skipped + passed_over.count,
        arrived=marker.arrived,
        is_full=marker.is_full,
        has_read_sources=marker.has_read_sources,
        source_ms=marker.source_ms,
        written=_keys_written(batch.state.written),
        functions=batch.state.functions,
        timings_ms=batch.timings,
    )


def _hand_over(batch: _Batch, marker: Marker) -> None:
    """Before the transaction: a crash in between makes the records come again, behind it they would be lost to the function."""
    for sink in batch.spec.batch_sinks:
        rows = taken_batch(sink, batch.outputs)
        if rows is not None:
            ends = {tp: end for tp, end in marker.ends.items() if tp.topic in sink.inputs and end != marker.starts[tp]}
            identity = BatchId({tp: OffsetRange(marker.starts[tp], end) for tp, end in ends.items()})
            batch.context.hand_over(sink.name, rows, identity)
            batch.out += rows.num_rows


def _commit_writes(batch: _Batch, offsets: Positions) -> None:
    """Sends and commits. Nothing is in the stores before the transaction is committed: a crash on the way leaves them where the
    committed offsets are, and what a crash after it keeps from them is in the changelog (rule 15)."""
    context = batch.context
    context.output.begin()
    batch.out += produce_batch(context.output, batch.spec, batch.outputs, batch.state, batch.request)
    batch.reached(CommitStep.PRODUCE)
    writes = _writes_by_task(batch.state.written)
    # Before the commit, which a full disk behind it would not undo: the batch would count without its stores (rule 14).
    for task, rows in writes.items():
        try:
            batch.stores[task].check(rows)
        except StateError as refused:
            context.output.abort()
            raise StopError(f"task {task}: {refused}") from refused
    batch.reached(CommitStep.ROOM)
    # As late as can be (rule 5). A member that has come back since the batch began has another incarnation: its partitions may
    # have had another owner meanwhile, whatever the generation says.
    membership = context.membership()
    if not membership.may_commit or membership.incarnation != batch.request.incarnation:
        context.output.abort()
        raise FencedError("the group has moved on while the batch ran: its partitions may have another owner")
    batch.reached(CommitStep.MEMBERSHIP)
    logged = context.output.commit(offsets, batch.times, membership)
    batch.reached(CommitStep.COMMIT)
    _apply(batch, writes, logged, offsets)
    batch.reached(CommitStep.APPLY)


def _any_position(request: BatchRequest) -> Positions:
    """Of one input, as it is: what punctuators alone have made is committed in the member's name as well, since the group refuses
    only offsets to a member that it has lost."""
    return {tp: request.inputs[tp] for tp in sorted(request.inputs)[:1]}


def _check_continuity(context: StepContext, request: BatchRequest) -> None:
    # Only a new worker asks the group. From then on its own last commit is newer: the driver may have lost a report (rule 2).
    unknown = [tp for tp in request.inputs if tp not in context.continuity]
    if unknown:
        context.continuity.update(context.committed(unknown))
    for tp, start in request.inputs.items():
        expected = context.continuity.get(tp, start)
        if start != expected:
            raise MisfitError(f"{tp} was read from {start}, but the last commit ended at {expected}")


def _by_task(restored: Mapping[tuple[TaskId, str], int]) -> dict[TaskId, dict[str, int]]:
    found: dict[TaskId, dict[str, int]] = {}
    for (task, store), count in restored.items():
        found.setdefault(task, {})[store] = count
    return found


def _keys_written(written: Mapping[tuple[TaskId, str], Written]) -> dict[TaskId, dict[str, int]]:
    found: dict[TaskId, dict[str, int]] = {}
    for (task, store), what in written.items():
        if what.rows:
            found.setdefault(task, {})[store] = len(what.rows)
    return found


def _run_nodes(batch: _Batch) -> None:
    spec, tables = batch.spec, batch.gathered.tables
    waiting: dict[str, list[Records]] = {}
    tables_of_others = {table for node in spec.nodes.values() for table in tables_of(node.operation)}
    running, kept = running_tasks(spec, batch.request), batch.context.graphs
    kept.begin(batch.request, running, (stream_times(spec, batch.request.times), stream_times(spec, batch.times)))
    batch.state.memory = kept.memory
    for tag, node in spec.nodes.items():
        table, inline = tables.pop(tag, None), waiting.pop(node.name, [])
        if table is None and not inline:
            continue
        if takes_rows(node):
            made = run_on_rows(node, tag, table, inline, batch.state)
        else:
            if table is not None:
                counts = entry_of(node.operation).enters is Enters.KEY_ONLY
                value_serde = None if counts else node.value_serde
                inline.append(from_rows(table, node.key_serde, value_serde))
            made = run_on_records(node, in_order(inline), batch.state)
        if node.name in tables_of_others:
            batch.state.forwarded[node.name] = made
        _deliver(batch, node, made, waiting)
    _run_graphs(batch, running)
    aside = batch.context.unreadable.handlers.dead_letter_topic
    if not spec.last and aside is not None:
        batch.outputs.add(ToDeadLetters(aside), batch.state.passed_over.letters)
    if spec.last:
        _set_unreadable_aside(batch)
        refused = tables.pop(REFUSED, None)
        if refused is not None:
            pass_over_refused(refused, spec.sources, batch.request, batch.state)
        for tag, sink in spec.sinks.items():
            table = tables.pop(tag, None)
            if table is not None:
                batch.outputs.add(ToSink(sink.name), from_rows(table, sink.key_serde, sink.value_serde))


def _run_graphs(batch: _Batch, running: Mapping[TaskId, str]) -> None:
    if not batch.spec.graphs:
        return
    kept = batch.context.graphs
    if batch.gathered.marker is not None:
        kept.shared.read(batch.gathered.marker.global_ends)
    for graph in batch.spec.graphs:
        dropped = batch.state.dropped
        made = run_graph(graph, batch.gathered.tables, batch.state, kept, batch.request, running)
        if graph.is_global and not batch.spec.last:  # the last step tells what it drops and can't read
            batch.state.dropped = dropped
            continue
        batch.unreadable += made.unreadable
        for to, records in made.sent:
            batch.outputs.add(to, records)
        batch.onward.append([(graph.exits[node], records) for node, records in made.onward.items()])


def _set_unreadable_aside(batch: _Batch) -> None:
    bad = batch.gathered.tables.pop(UNREADABLE, None)
    found = [*batch.unreadable, *([] if bad is None else [bad])]
    if not found:
        return
    rows = pa.concat_tables(found)
    first, aside = unreadable_records(rows, batch.spec.sources, batch.context.unreadable)
    batch.skipped, batch.note = rows.num_rows, f"{rows.num_rows} records can't be read, the first: {first}"
    if aside is not None:
        batch.outputs.add(*aside)


def _deliver(batch: _Batch, node: NodeSpec, records: Records, waiting: dict[str, list[Records]]) -> None:
    if not len(records):
        return
    for target in node.inline:
        if any(sink.name == target for sink in batch.spec.sinks.values()):
            batch.outputs.add(ToSink(target), as_its_serdes_write(target, node, records, batch.state))
        else:
            waiting.setdefault(target, []).append(records)
    if node.tag is not None:
        batch.outputs.add(ToNode(node.name), records)


def _writes_by_task(written: Mapping[tuple[TaskId, str], Written]) -> dict[TaskId, dict[str, dict[bytes, bytes | None]]]:
    tasks: dict[TaskId, dict[str, dict[bytes, bytes | None]]] = {}
    for (task, store), found in written.items():
        tasks.setdefault(task, {})[store] = found.rows
    return tasks


def _apply(
    batch: _Batch,
    writes: Mapping[TaskId, Mapping[str, Mapping[bytes, bytes | None]]],
    logged: Mapping[TopicPartition, int],
    offsets: Positions,
) -> None:
    """The batch counts already: a store that refuses it now is behind and catches up from its changelog (rule 15). Of a source
    topic that serves as changelog a store is where the group has committed, never where reading only begins."""
    for task, store in batch.stores.items():
        positions: dict[str, int] = {}
        for spec in batch.spec.stores.values():
            if spec.subtopology != task.subtopology:
                continue
            topic = spec.changelog or spec.source_topic
            if topic is None:
                continue
            where = logged if spec.changelog else offsets
            end = where.get(TopicPartition(topic, task.partition))
            if end is not None:
                positions[spec.name] = end
        rows = writes.get(task, {})
        if not rows and not positions:
            continue
        store.apply(rows, positions)


def run_middle_step(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> Iterator[pa.RecordBatch]:
    """A Python step that is not the last: runs its nodes on what the stores hold and passes everything else on.

    Its writes, and what it sends, travel to the last step as rows, and that one applies and sends them.
    """
    stores = context.open_stores(request.tasks)
    mine = {*spec.nodes, *(tag for graph in spec.graphs for tag in graph.entries)}
    not_mine_alone = list(spec.global_tags)
    problem = context.graphs.shared.begin(request) if not_mine_alone else None
    kept: list[pa.RecordBatch] = []
    marker: list[pa.RecordBatch] = []
    for arrived in batches:
        # Catalyst knows of some columns that they are never null; the rows that the step makes are of its own schema.
        record_batch = pa.RecordBatch.from_arrays(arrived.columns, schema=SCHEMA)
        nodes = record_batch.column("node").to_numpy()
        wanted = (nodes >= 0) | (nodes == OUTPUT) if spec.ranks else np.isin(nodes, list(mine))
        passing = ~wanted & (nodes != MARKER)
        if not spec.ranks:
            passing |= np.isin(nodes, not_mine_alone)
        if passing.any():
            yield record_batch if passing.all() else record_batch.take(pa.array(np.flatnonzero(passing)))
        if not passing.all() or not_mine_alone:
            kept.append(record_batch.take(pa.array(np.flatnonzero(wanted))))
            marker.append(record_batch.take(pa.array(np.flatnonzero(nodes == MARKER))))
    if problem is not None or not any(rows.num_rows for rows in marker):
        return  # cut short: nothing here must run, and the last step will see it
    state = StepState(stores, spec.stores, handlers=context.unreadable.handlers)
    gathered = gather([*kept, *marker])
    assert gathered.marker is not None
    if spec.ranks:
        for tag in gathered.tables.keys() - (mine - set(not_mine_alone)):
            yield from gathered.tables[tag].to_batches()
    times = times_after(request.times, gathered.marker.arrived)
    batch = _Batch(spec, context, request, gathered, state, stores, times)
    _run_nodes(batch)
    yield from _onward(batch)
    # Only now: a worker that dies on the way must leave a batch that is seen to be cut short.
    yield from (rows for rows in marker if rows.num_rows)


def _onward(batch: _Batch) -> Iterator[pa.RecordBatch]:
    """Rows that a middle step hands on."""
    number = first_child(batch.spec.number)
    for node in batch.spec.nodes.values():
        for records in batch.outputs.take(ToNode(node.name)):
            assert node.tag is not None
            yield _with_clock(to_rows(records, node.tag, node.out_key_serde, node.out_value_serde, number), batch.request.now_ms)
            number += len(records)
    for of_part in batch.onward:
        begin = number
        for to, records in of_part:
            first = number if records.places is None else begin
            yield _with_clock(to_rows(records, to.tag, to.key_serde, to.value_serde, first), batch.request.now_ms)
            number += len(records)
    for rows in batch.unreadable:
        yield from as_unreadable(rows).to_batches()
    yield from outputs_as_rows(batch.outputs, batch.spec.number)
    yield from writes_as_rows(batch.state, batch.spec.stores, batch.spec.number)


def _with_clock(rows: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Rows for functions of Columns, in which ``current_timestamp()`` is the batch's wall clock (``clock``)."""
    at = SCHEMA.get_field_index("wall")
    return rows.set_column(at, SCHEMA.field(at), pa.repeat(pa.scalar(now_ms, SCHEMA.field(at).type), rows.num_rows))

"""The last Python step of a plan: gathers the batch, checks it, runs the step's nodes and commits.

Decides the order of a commit (``task.commit``) and when a batch counts as lost; nodes are ``step_batch``'s, and everything
outside the process is behind ``StepContext``. Invariant: nothing irrevocable happens before the batch is known to be whole and
to continue the last one, and no store is written before its Kafka transaction is committed.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from tidemill.deadline import Deadline
from tidemill.errors import (
    BatchLostError,
    CommitRefusedError,
    FencedError,
    MisfitError,
    RetriableError,
    SerdeError,
    StateDiskError,
    StateError,
    StopError,
    record_of,
)
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.segments import emitted_in
from tidemill.steps.commit.batch_file import taken_batch
from tidemill.steps.commit.produce import produce_changelogs, produce_results
from tidemill.steps.commit.refused_records import pass_over_refused
from tidemill.steps.commit.restored import apply_restored
from tidemill.steps.commit.sinks import from_columns
from tidemill.steps.commit.unreadable import unreadable_records
from tidemill.steps.gather import gather, why_not_whole
from tidemill.steps.graph.kept_graphs import inputs_of_tasks
from tidemill.steps.outputs import ToSink
from tidemill.steps.rows.schema import REFUSED, UNREADABLE
from tidemill.steps.rows.writes import take_outputs, take_writes
from tidemill.steps.step_batch import StepBatch, run_nodes
from tidemill.steps.step_context import StepContext
from tidemill.steps.step_spec import StepSpec
from tidemill.steps.step_state import StepState
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Outcome, Positions, StorePositions
from tidemill.task.batch_id import BatchId, OffsetRange
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import keeping

_Value = TypeVar("_Value")


@dataclass(slots=True)
class _Progress:
    """A batch in the last step, and what is counted for its report."""

    batch: StepBatch
    restored: Counter[tuple[TaskId, str]] = field(default_factory=Counter)
    """Changelog records by task and store."""
    unreadable: int = 0
    note: str = ""
    sent: int = 0
    """Records of sinks, and those that functions of ``foreach_batch`` have got."""
    timings: dict[str, float] = field(default_factory=dict)
    _mark: float = field(default_factory=time.perf_counter)

    @property
    def stores_at(self) -> tuple[StorePositions, ...]:
        return tuple(store.at for store in self.batch.stores.values())

    def reached(self, step: CommitStep) -> None:
        now = time.perf_counter()
        self.timings[step.value] = round((now - self._mark) * 1e3, 2)
        self._mark = now
        self.batch.context.reached(step, self.batch.request.batch_id)


def run_last_step(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> BatchReport:
    """Gathers, checks, runs and commits one batch; returns its report in any case, unless the process dies."""
    report = _run_if_whole(request, batches, spec, context)
    # Copies of the global stores in other steps may have other positions after a lost batch: all copies are read again then.
    known = report.outcome is not Outcome.LOST or not spec.has_copies_above
    return replace(report, globals=context.graphs.shared.positions if known else {})


def _run_if_whole(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> BatchReport:
    """Runs and commits the batch if all of it has arrived; else the report says what is missing."""
    started = time.perf_counter()
    context.reached(CommitStep.REQUEST, request.batch_id)
    try:
        gathered = gather(batches)
        problem = why_not_whole(gathered, request)
    except MisfitError as misfit:
        problem = str(misfit)
    if problem is not None:
        return _lost_report(request, context, problem, is_misfit=True)
    marker = gathered.marker
    assert marker is not None
    if marker.out_of_range:
        problem = f"offsets out of range: {', '.join(map(str, marker.out_of_range))}"
        lost = _lost_report(request, context, problem, is_misfit=True)
        return replace(lost, out_of_range=marker.out_of_range, truncated=marker.truncated)
    problem = context.graphs.shared.begin(request)
    if problem is not None:
        return _lost_report(request, context, problem, is_misfit=False)
    try:
        # Only for a batch that is whole: stores that the request no longer has are closed by this (rule 12).
        stores = context.open_stores(request.tasks)
    except BatchLostError as lost:  # another worker still has one open, or one was corrupt: the next batch opens it
        return _lost_report(request, context, str(lost), is_misfit=False)
    except (StopError, StateDiskError) as stop:
        return _stopped_report(request, context, stop)
    progress = _Progress(StepBatch.begin(spec, context, request, gathered, stores))
    progress.timings["wait"] = round((time.perf_counter() - started) * 1e3, 2)
    progress.reached(CommitStep.GATHER)
    return _run_to_report(progress)


def _run_to_report(progress: _Progress) -> BatchReport:
    """Runs and commits a batch that is whole. An error on the way becomes the outcome in the report."""
    request, context = progress.batch.request, progress.batch.context
    try:
        return _run_and_commit(progress)
    except CommitRefusedError as refused:
        return _not_committed(progress, Outcome.REFUSED, str(refused))
    except (BatchLostError, RetriableError) as lost:
        context.output.abort()  # a store may have refused in the middle of the transaction
        report = _lost_report(request, context, str(lost), is_misfit=isinstance(lost, MisfitError))
        return replace(report, stores=progress.stores_at, timings_ms=progress.timings)
    except FencedError as fenced:  # the transaction is aborted already, here or by the broker
        context.continuity.clear()
        return BatchReport(
            batch_id=request.batch_id, outcome=Outcome.FENCED, message=str(fenced), timings_ms=progress.timings
        )
    except (StopError, SerdeError, StateDiskError) as stop:  # reading the bytes again, or asking the disk again, mends nothing
        context.output.abort()
        return _stopped_report(request, context, stop)


def _lost_report(request: BatchRequest, context: StepContext, message: str, *, is_misfit: bool) -> BatchReport:
    """Nothing of the batch counts, and what the worker knows of its last commit is no longer taken for granted."""
    context.continuity.clear()
    return BatchReport(batch_id=request.batch_id, outcome=Outcome.LOST, message=message, is_misfit=is_misfit)


def _stopped_report(request: BatchRequest, context: StepContext, stop: Exception) -> BatchReport:
    """Nothing of the batch counts, and none after it would."""
    context.continuity.clear()
    return BatchReport(batch_id=request.batch_id, outcome=Outcome.STOPPED, message=str(stop), record=record_of(stop))


def _run_and_commit(progress: _Progress) -> BatchReport:
    """Raises what keeps the batch from being committed."""
    batch = progress.batch
    context, request, marker = batch.context, batch.request, batch.marker
    behind = [at for at in progress.stores_at if at.is_behind]
    if behind:
        raise MisfitError("; ".join(f"task {at.task}: its stores are at {dict(at.changelog)}" for at in behind))
    # Before the nodes run: they read the stores, and of a restored store its last records came in this very batch.
    progress.restored = apply_restored(batch.tables, batch.spec.stores.values(), marker.changelog_ends, batch.stores)
    progress.reached(CommitStep.RESTORE)
    _check_continuity(context, request)
    progress.reached(CommitStep.CONTINUITY)
    take_writes(batch.tables, batch.state)
    batch.outputs = take_outputs(batch.tables)
    run_nodes(batch)
    _set_unreadable_aside(progress)
    _take_rows_of_sinks(batch)
    progress.reached(CommitStep.RUN)
    offsets = {tp: end for tp, end in marker.ends.items() if end != marker.starts[tp]}
    if request.defers and offsets:  # else the record to be tried has not come yet
        return _not_committed(progress, Outcome.TRIED, "a function fails on what an operator or a punctuator forwards")
    _call_foreach_batch(progress)
    progress.reached(CommitStep.FOREACH_BATCH)
    emitted = _emitted_until(batch)
    if emitted:
        for task, inputs in inputs_of_tasks(batch.spec, request.inputs).items():
            batch.times = keeping(batch.times, inputs, emitted.get(task, {}))
    # A batch that has neither read nor written anything needs no transaction. One that has only written commits a position all
    # the same: the group checks whether the member is still one of its own only when offsets are sent.
    if offsets or _has_written(batch):
        _commit_writes(progress, offsets or _any_position(request))
    # Partitions that are gone must not be remembered: when they come back another owner may have read on.
    context.continuity.update(marker.ends)
    for tp in context.continuity.keys() - marker.ends.keys():
        del context.continuity[tp]
    return _committed_report(progress, emitted)


def _not_committed(progress: _Progress, outcome: Outcome, message: str) -> BatchReport:
    """What was restored and what standbys have followed counts all the same."""
    marker = progress.batch.marker
    return BatchReport(
        batch_id=progress.batch.request.batch_id,
        outcome=outcome,
        message=message,
        changelog_ends=marker.changelog_ends,
        high_watermarks=marker.high_watermarks,
        stores=progress.stores_at,
        restored=_by_task(progress.restored),
        timings_ms=progress.timings,
    )


def _committed_report(progress: _Progress, emitted: Mapping[TaskId, Mapping[str, int]]) -> BatchReport:
    batch, marker, state = progress.batch, progress.batch.marker, progress.batch.state
    return BatchReport(
        batch_id=batch.request.batch_id,
        outcome=Outcome.COMMITTED,
        message="; ".join(filter(None, [progress.note, state.passed_over.note])),
        ends=marker.ends,
        changelog_ends=marker.changelog_ends,
        high_watermarks=marker.high_watermarks,
        stores=progress.stores_at,
        records_in=marker.rows - progress.restored.total(),
        records_restored=progress.restored.total(),
        restored=_by_task(progress.restored),
        records_out=progress.sent,
        dropped=state.dropped + progress.unreadable,
        skipped=progress.unreadable + state.passed_over.count,
        partition_stats=batch.partition_stats,
        is_full=marker.is_full,
        has_read_sources=marker.has_read_sources,
        source_ms=marker.source_ms,
        emitted=emitted,
        written=_by_task({at: len(written.rows) for at, written in state.written.items() if written.rows}),
        functions=state.functions,
        timings_ms=progress.timings,
    )


def _check_continuity(context: StepContext, request: BatchRequest) -> None:
    # Only a new worker asks the group. From then on its own last commit is newer: the driver may have lost a report (rule 2).
    unknown = [tp for tp in request.inputs if tp not in context.continuity]
    if unknown:
        context.continuity.update(context.committed(unknown))
    for tp, start in request.inputs.items():
        expected = context.continuity.get(tp, start)
        if start != expected:
            raise MisfitError(f"{tp} was read from {start}, but the last commit ended at {expected}")


def _set_unreadable_aside(progress: _Progress) -> None:
    batch = progress.batch
    bad = batch.tables.pop(UNREADABLE, None)
    found = [*batch.unreadable, *([] if bad is None else [bad])]
    if not found:
        return
    rows = pa.concat_tables(found)
    first, letters = unreadable_records(rows, batch.spec.sources, batch.context.unreadable)
    progress.unreadable, progress.note = rows.num_rows, f"{rows.num_rows} records can't be read, the first: {first}"
    letters.hand_over(batch.outputs)


def _take_rows_of_sinks(batch: StepBatch) -> None:
    """Takes the rows that the JVM has passed to sinks, and the records that exception handlers have excluded."""
    refused = batch.tables.pop(REFUSED, None)
    if refused is not None:
        pass_over_refused(refused, batch.spec.sources, batch.request, batch.state)
    for tag, sink in batch.spec.sinks.items():
        table = batch.tables.pop(tag, None)
        if table is not None:
            batch.outputs.add(ToSink(sink.name), from_columns(sink, table, batch.state))


def _call_foreach_batch(progress: _Progress) -> None:
    """Called before the transaction: after a crash in between, the function gets the records again. If it were called after the
    transaction, a crash in between would keep them from it."""
    batch, marker = progress.batch, progress.batch.marker
    for sink in batch.spec.batch_sinks:
        rows = taken_batch(sink, batch.outputs)
        if rows is not None:
            ends = {tp: end for tp, end in marker.ends.items() if tp.topic in sink.inputs and end != marker.starts[tp]}
            offsets = BatchId({tp: OffsetRange(marker.starts[tp], end) for tp, end in ends.items()})
            batch.context.call_foreach_batch(batch.request.batch_id, sink.name, rows, offsets)
            progress.sent += rows.num_rows


def _has_written(batch: StepBatch) -> bool:
    return bool(batch.outputs or batch.state.passed_over.letters) or _has_changed(batch.state)


def _has_changed(state: StepState) -> bool:
    """Rows of a store, or records of its changelog."""
    return any(written.rows or written.log for written in state.written.values())


def _emitted_until(batch: StepBatch) -> dict[TaskId, dict[str, int]]:
    """The close times up to which windows were emitted (EmitStrategy.ON_WINDOW_CLOSE). They are committed, as no changelog has
    them."""
    kept = {name: spec.kept for name, spec in batch.spec.stores.items()}
    closed = {
        (task, store): emitted_in(written.rows)
        for (task, store), written in batch.state.written.items()
        if (described := kept[store]) is not None and described.time_ordered
    }
    return _by_task({at: time for at, time in closed.items() if time >= 0})


def _commit_writes(progress: _Progress, offsets: Positions) -> None:
    """Sends and commits, then writes to the stores. A crash before the commit leaves the stores where the committed offsets are;
    changes that a crash after it keeps from the stores are in the changelog (rule 15)."""
    batch, context = progress.batch, progress.batch.context
    context.output.begin()
    progress.sent += produce_results(context.output, batch.spec, batch.outputs, batch.state, batch.request)
    if _has_changed(batch.state) and not context.output.is_transactional:
        context.output.flush()  # after a crash a store must not say that its results are out when they are not
    produce_changelogs(context.output, batch.spec, batch.state.written, batch.request.now_ms, _confirming(progress))
    progress.reached(CommitStep.PRODUCE)
    writes = _by_task({at: written.rows for at, written in batch.state.written.items()})
    # Before the commit: a disk that turns out to be full after it would leave a committed batch without its stores (rule 14).
    for task, rows in writes.items():
        try:
            batch.stores[task].check(rows)
        except StateError as refused:
            context.output.abort()
            raise StopError(f"task {task}: {refused}") from refused
    progress.reached(CommitStep.ROOM)
    membership = _require_member(progress)  # as late as can be (rule 5)
    progress.reached(CommitStep.MEMBERSHIP)
    logged = context.output.commit(offsets, batch.times, membership)
    progress.reached(CommitStep.COMMIT)
    # The batch counts already: a store that refuses it now is behind and catches up from its changelog (rule 15).
    for task, store in batch.stores.items():
        rows, positions = writes.get(task, {}), _changelog_positions(batch, task, logged, offsets)
        if rows or positions:
            store.apply(rows, positions)
    progress.reached(CommitStep.APPLY)


def _require_member(progress: _Progress) -> CommittingMember:
    """A member that has come back since the batch began has another incarnation: its partitions may have had another owner
    meanwhile, whatever the generation says."""
    context = progress.batch.context
    membership = context.membership()
    if not membership.may_commit or membership.incarnation != progress.batch.request.incarnation:
        context.output.abort()
        raise FencedError("the group has moved on while the batch ran: its partitions may have another owner")
    return membership


def _confirming(progress: _Progress) -> Callable[[], None]:
    """To be called before each write to a changelog: where no broker fences, the rows of an owner that was frozen must not follow
    the next owner's. It asks the group, and again when the answer holds no longer, which counts from the question on: the process
    can be frozen between the answer and what is done on it."""
    until = Deadline(math.inf if progress.batch.context.output.is_transactional else -math.inf)

    def confirm() -> None:
        nonlocal until
        while until.is_over:
            asked_s = time.monotonic()
            until = Deadline(asked_s + _require_member(progress).confirmed_for_s)

    return confirm


def _any_position(request: BatchRequest) -> Positions:
    """The unchanged position of one input, for a batch that has only written: punctuators ran, and nothing was read."""
    return {tp: request.inputs[tp] for tp in sorted(request.inputs)[:1]}


def _changelog_positions(
    batch: StepBatch, task: TaskId, logged: Mapping[TopicPartition, int], offsets: Positions
) -> dict[str, int]:
    """Positions of a task's stores after the commit. If a source topic serves as changelog, it is the group's committed
    offset, never the position at which reading begins. A store that lacks records of another owner stays where it is, so that
    they are restored when it is opened again (rule 15)."""
    positions: dict[str, int] = {}
    output, known = batch.context.output, batch.stores[task].at.changelog
    for store in batch.spec.stores.values():
        topic = store.changelog or store.source_topic
        if store.subtopology != task.subtopology or topic is None:
            continue
        tp = TopicPartition(topic, task.partition)
        end = (logged if store.changelog else offsets).get(tp)
        if end is None:
            continue
        if store.changelog and not output.continues(tp, known.get(store.name, 0)):
            continue
        positions[store.name] = end
    return positions


def _by_task(found: Mapping[tuple[TaskId, str], _Value]) -> dict[TaskId, dict[str, _Value]]:
    """The values, nested by task and store."""
    tasks: dict[TaskId, dict[str, _Value]] = {}
    for (task, store), value in found.items():
        tasks.setdefault(task, {})[store] = value
    return tasks

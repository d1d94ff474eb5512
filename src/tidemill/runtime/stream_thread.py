"""A stream thread: one group member, one static plan, one loop.

Acts on what the pure machines decide: ``task.lifecycle`` what a batch reads, the group's events what is owned. The loop is the
only place where tasks change; the membership thread only posts events, so a batch is never interrupted by a rebalance.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from tidemill.assignment.model import LATEST_OFFSET
from tidemill.config import StreamsConfig
from tidemill.config_values import OffsetReset, ProcessingGuarantee
from tidemill.errors import (
    BatchLostError,
    CommitRefusedError,
    RejoinError,
    RetriableError,
    StopError,
    TidemillError,
)
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka import group_protocol
from tidemill.kafka.admin import Admin
from tidemill.kafka.group import GroupMember
from tidemill.kafka.group_metadata import OffsetAndMetadata
from tidemill.kafka.group_protocol import Assigned, Failed, GroupEvent, Lost, RevokeAll
from tidemill.membership.assignor_error import AssignorError
from tidemill.membership.wire import SubscriptionInfo, WireTaskId, decode_assignment, encode_subscription
from tidemill.runtime.leading import Leader
from tidemill.runtime.thread_metrics import ThreadMetrics
from tidemill.spark.engine import BatchEngine
from tidemill.state.directory import StateDirectory
from tidemill.task import lifecycle
from tidemill.task.batch import BatchReport, BatchRequest, Membership, Outcome, Positions
from tidemill.task.lifecycle import ActiveTask, Bounds, Phase

log = logging.getLogger("tidemill.thread")

_IDLE_WAIT_MS = 100
_NO_TASKS_WAIT_S = 0.1
_RETRY_PAUSE_S = 0.2
_UNSTABLE_LIMIT_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """What a thread must know of each sub-topology: its changelogs by store, and which inputs are repartition topics."""

    changelogs: Mapping[int, Mapping[str, str]]
    has_stores: frozenset[int]
    internal_topics: frozenset[str]
    source_changelogs: frozenset[str]
    topics: tuple[str, ...]
    offset_resets: Mapping[str, OffsetReset]


class StreamThread(threading.Thread):
    """``on_change`` is called, on this thread, when its tasks or their phases have changed and when it ends; ``fence`` ends
    what a predecessor under the thread's transactional id has left open."""

    def __init__(
        self,
        *,
        name: str,
        number: int,
        config: StreamsConfig,
        process_id: ProcessId,
        facts: TaskFacts,
        admin: Admin,
        leader: Leader,
        directory: StateDirectory,
        make_member: Callable[[group_protocol.GroupProtocol], GroupMember],
        make_engine: Callable[[StreamThread], BatchEngine],
        fence: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.number = number
        self._config, self._process_id, self._facts = config, process_id, facts
        self._admin, self._leader, self._directory = admin, leader, directory
        self._make_engine, self._fence, self._on_change = make_engine, fence, on_change
        self._member = make_member(_Protocol(self))
        self._engine: BatchEngine | None = None
        self._tasks: dict[TaskId, ActiveTask] = {}
        self._request: BatchRequest | None = None
        self._batch_id = 0
        self._incarnation = 0
        self._unique = 0
        self._uncommitted: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._stop_wanted = threading.Event()
        self._is_assigned = False
        self._restoring_from: dict[TaskId, Mapping[str, int]] = {}
        self.error: TidemillError | None = None
        self.metrics = ThreadMetrics()

    # --- what others ask -------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[TaskId, ActiveTask]:
        return dict(self._tasks)

    @property
    def is_running(self) -> bool:
        """Assigned, and every task past restoring."""
        return self._is_assigned and all(task.phase is Phase.RUNNING for task in self._tasks.values())

    @property
    def committed_positions(self) -> dict[TopicPartition, int]:
        """Up to where inputs are processed *and* committed."""
        return {
            tp: position
            for task in self._tasks.values()
            if task.phase is Phase.RUNNING
            for tp, position in task.positions.items()
            if tp not in self._uncommitted
        }

    @property
    def engine(self) -> BatchEngine | None:
        return self._engine

    def stop(self) -> None:
        self._stop_wanted.set()

    # --- ControlDesk: asked by the workers, on the control channel's threads ----------------------------------------

    def current_request(self) -> BatchRequest:
        request = self._request
        if request is None:
            raise BatchLostError("no batch is under way")
        return request

    def membership(self) -> Membership:
        now = self._member.membership
        return Membership(
            generation=now.generation,
            member_id=now.member_id,
            instance_id=now.group_instance_id,
            incarnation=now.incarnation,
            may_commit=now.is_member,
        )

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {tp: found.offset for tp, found in self._member.committed(partitions).items()}

    def worker_joined(self, step: str, pid: int) -> None:
        if self._engine is not None:
            self._engine.worker_joined(step, pid)

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            self._fence()
            self._member.start()
            self._engine = self._make_engine(self)
            while not self._stop_wanted.is_set():
                self._member.alive()
                self._take_events(wait_s=0 if self._tasks else _NO_TASKS_WAIT_S)
                if self._tasks:
                    self._fetch_bounds()
                    self._run_batch(_IDLE_WAIT_MS)
            self._finish()
        except TidemillError as error:
            self.error = error
            log.error("event=thread-ends thread=%s error=%r", self.name, str(error))
        except Exception as error:
            self.error = StopError(f"{type(error).__name__}: {error}")
            log.exception("event=thread-crashed thread=%s", self.name)
        finally:
            self._member.close()
            self._tasks = {}
            self._on_change()

    def _finish(self) -> None:
        """A clean end: what was processed is committed, the stores are closed and synced."""
        self._commit_offsets()
        if self._tasks:
            self._release(list(self._tasks))

    # --- the group's events ----------------------------------------------------------------------------------------

    def _take_events(self, wait_s: float) -> None:
        try:
            event = self._member.events.get(timeout=wait_s) if wait_s else self._member.events.get_nowait()
            while True:
                self._take(event)
                event = self._member.events.get_nowait()
        except queue.Empty:
            return

    def _take(self, event: GroupEvent) -> None:
        if isinstance(event, Assigned):
            self._assigned(event)
        elif isinstance(event, Lost):
            log.warning("event=membership-lost thread=%s reason=%r tasks=%s", self.name, event.reason, _text(self._tasks))
            self._incarnation = event.incarnation
            self._uncommitted = {}
            self._is_assigned = False
            self._release(list(self._tasks))
        elif isinstance(event, RevokeAll):
            self._commit_offsets()
            self._release(list(self._tasks))
            self._member.revoked_all()
        elif isinstance(event, Failed):
            if event.fatal:
                raise event.error
            log.warning("event=group-problem thread=%s problem=%r", self.name, str(event.error))

    def _assigned(self, event: Assigned) -> None:
        info = decode_assignment(event.user_data)
        if info.error_code:
            code = AssignorError(info.error_code)
            raise StopError(f"the group's leader refused to assign tasks: {code.sentence}")
        inputs: dict[TaskId, list[TopicPartition]] = {}
        for task, partition in zip(info.active_tasks, event.partitions, strict=True):
            inputs.setdefault(TaskId(task.subtopology, task.partition), []).append(partition)
        revoked = [task for task in self._tasks if task not in inputs]
        if revoked:
            self._commit_offsets()
            self._release(revoked)
        self._incarnation = event.incarnation
        for task, partitions in inputs.items():
            if task not in self._tasks:
                self._tasks[task] = self._new_task(task, partitions)
        log.info(
            "event=assigned thread=%s generation=%d tasks=%s revoked=%s",
            self.name, event.generation, _text(self._tasks), _text(revoked),
        )  # fmt: skip
        self._is_assigned = True
        if revoked:
            self._member.request_rejoin("revoked tasks are committed, closed and released")
        elif info.next_rebalance_ms == 0:
            self._member.request_rejoin("the leader asked for a follow-up rebalance")
        self._on_change()

    def _new_task(self, task: TaskId, partitions: Sequence[TopicPartition]) -> ActiveTask:
        changelogs = self._facts.changelogs.get(task.subtopology, {})
        return ActiveTask(
            task=task,
            directory=str(self._directory.task_path(task)) if task.subtopology in self._facts.has_stores else "",
            epoch=str(uuid4()),
            inputs=tuple(sorted(partitions)),
            changelogs={store: TopicPartition(topic, task.partition) for store, topic in changelogs.items()},
        )

    def _release(self, tasks: Sequence[TaskId]) -> None:
        """Gives tasks up: a batch without them makes the worker close their stores, and its report is the proof (rule 12)."""
        kept = {name: task for name, task in self._tasks.items() if name not in tasks}
        for name in tasks:
            self._restoring_from.pop(name, None)
        if tasks and self._engine is not None and self._engine.worker_pids and not self._run_batch(0, with_tasks=kept):
            self._engine.kill_workers()  # no acknowledgement: their death is as good
        self._tasks = kept
        self._on_change()

    # --- batches ---------------------------------------------------------------------------------------------------

    def _run_batch(self, wait_ms: int, with_tasks: Mapping[TaskId, ActiveTask] | None = None) -> bool:
        """One micro-batch; whether it was committed. ``with_tasks``: only keep these tasks open, read nothing."""
        assert self._engine is not None
        self._batch_id += 1
        idle = with_tasks is not None
        tasks = with_tasks if with_tasks is not None else self._tasks
        request = lifecycle.request(
            tasks,
            batch_id=self._batch_id,
            internal=self._facts.internal_topics,
            max_records=self._config.batch_max_records,
            max_restore_records=self._config.batch_max_records,
            wait_ms=wait_ms if any(task.phase is Phase.RUNNING for task in tasks.values()) else 0,
            now_ms=int(time.time() * 1000),
            incarnation=self._incarnation,
        )
        self._request = replace(request, inputs={}, changelogs={}) if idle else request
        started = time.monotonic()
        try:
            report = self._engine.run()
        except BatchLostError as lost:
            self._batch_lost(str(lost))
            return False
        finally:
            self._request = None
        self.metrics.batch(report, time.monotonic() - started)
        if not idle:
            self._take_report(report)
        return report.outcome is Outcome.COMMITTED

    def _take_report(self, report: BatchReport) -> None:
        for at in report.stores:
            if at.note:
                log.warning("event=state-note task=%s note=%r", at.task, at.note)
        if report.outcome is Outcome.STOPPED:
            raise StopError(report.message)
        if report.skipped:
            log.warning("event=records-skipped thread=%s count=%d reason=%r", self.name, report.skipped, report.message)
        if report.outcome is Outcome.FENCED:
            log.warning("event=fenced thread=%s reason=%r", self.name, report.message)
            self._forget(report)
            self._member.request_rejoin("a commit was refused")
            return
        if report.out_of_range:
            self._out_of_range(report.out_of_range)
        before = {task: held.phase for task, held in self._tasks.items()}
        self._tasks = lifecycle.reported(self._tasks, report)
        if report.outcome is Outcome.LOST:
            log.warning("event=batch-lost thread=%s reason=%r", self.name, report.message)
            self._uncommitted = {}
            time.sleep(_RETRY_PAUSE_S)
        elif self._config.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            self._uncommitted.update(report.ends)
            if time.monotonic() - self._committed_at >= self._config.commit_interval_ms / 1e3:
                self._commit_offsets()
        self._tell_transitions(before)

    def _tell_transitions(self, before: Mapping[TaskId, Phase]) -> None:
        changed = [t for t, held in self._tasks.items() if before.get(t) is not held.phase]
        for task in changed:
            held = self._tasks[task]
            log.info("event=task-%s task=%s thread=%s stores=%s", held.phase.value, task, self.name, dict(held.stores or {}))
            if held.phase is Phase.RESTORING:
                self._restoring_from[task] = dict(held.stores or {})
            elif held.phase is Phase.RUNNING and task in self._restoring_from:
                self._tell_restored(held, self._restoring_from.pop(task))
        if changed:
            self._on_change()

    def _tell_restored(self, task: ActiveTask, before: Mapping[str, int]) -> None:
        """Offsets, so transaction markers and compacted records count too."""
        after = task.stores or {}
        for store, partition in task.changelogs.items():
            begin, end = before.get(store, 0), after.get(store, 0)
            log.info(
                "event=restored task=%s store=%s changelog=%s offsets=%d from=%d to=%d",
                task.task, store, partition, end - begin, begin, end,
            )  # fmt: skip

    def _batch_lost(self, reason: str) -> None:
        log.warning("event=batch-lost thread=%s reason=%r", self.name, reason)
        self._uncommitted = {}
        self._tasks = lifecycle.lost(self._tasks)
        self._fence()  # the dead worker may have left a transaction open, which would hold the offsets back
        time.sleep(_RETRY_PAUSE_S)

    def _forget(self, report: BatchReport) -> None:
        """After a refused commit: nothing of the batch counts, and what is owned is only known after the next assignment."""
        self._uncommitted = {}
        self._tasks = lifecycle.lost(lifecycle.reported(self._tasks, report))

    def _out_of_range(self, partitions: Sequence[TopicPartition]) -> None:
        for tp in partitions:
            policy = self._facts.offset_resets.get(tp.topic, self._config.auto_offset_reset)
            if tp.topic in self._facts.internal_topics or policy is OffsetReset.NONE:
                raise StopError(
                    f"{tp}: the committed offset is out of range: records were deleted before they were processed, or the topic "
                    "was made anew. Reset the application (tidemill reset), or set auto.offset.reset for a source topic"
                )
            log.warning("event=offset-out-of-range partition=%s policy=%s", tp, policy.value)
        self._reset_offsets(partitions)

    def _reset_offsets(self, partitions: Sequence[TopicPartition]) -> None:
        """Commits where the policy says that reading goes on, so that every later start agrees."""
        try:
            found = self._start_offsets(partitions)
            self._member.commit({tp: OffsetAndMetadata(offset) for tp, offset in found.items()})
        except (RetriableError, BatchLostError) as problem:  # the next batch finds the same and comes here again
            log.warning("event=offsets-not-reset thread=%s problem=%r", self.name, str(problem))

    # --- offsets ---------------------------------------------------------------------------------------------------

    def _fetch_bounds(self) -> None:
        waiting = {name: task for name, task in self._tasks.items() if task.needs_bounds}
        if not waiting:
            return
        inputs = [tp for task in waiting.values() for tp in task.inputs]
        changelogs = [tp for task in waiting.values() for tp in task.changelogs.values()]
        try:
            committed = self._stable_offsets(inputs)
            missing = [tp for tp in inputs if tp not in committed]
            starts = {**committed, **self._start_offsets(missing)}
            own = [tp for tp in changelogs if tp.topic not in self._facts.source_changelogs]
            ends = self._admin.end_offsets(own)
            ends.update({tp: starts[tp] for tp in changelogs if tp.topic in self._facts.source_changelogs})
            begins = self._admin.beginning_offsets(changelogs)
        except RetriableError as problem:
            log.warning("event=offsets-not-fetched thread=%s problem=%r", self.name, str(problem))
            time.sleep(_RETRY_PAUSE_S)
            return
        self._tasks = lifecycle.bounds_fetched(
            self._tasks,
            {
                name: Bounds(
                    inputs={tp: starts[tp] for tp in task.inputs},
                    changelog_begins={tp: begins[tp] for tp in task.changelogs.values()},
                    changelog_ends={tp: ends[tp] for tp in task.changelogs.values()},
                )
                for name, task in waiting.items()
            },
        )

    def _stable_offsets(self, inputs: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed offsets, require-stable. If an own transaction stands in the way, it is ended by fencing (rule 6)."""
        try:
            found = self._member.committed(inputs, timeout_ms=_UNSTABLE_LIMIT_MS)
        except RetriableError:
            self._fence()
            found = self._member.committed(inputs)
        return {tp: at.offset for tp, at in found.items()}

    def _start_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        latest = [tp for tp in partitions if self._reset_of(tp) is OffsetReset.LATEST]
        none = [tp for tp in partitions if self._reset_of(tp) is OffsetReset.NONE]
        if none:
            raise StopError(
                f"{none[0]} has no committed offset and auto.offset.reset is none: commit one, or set earliest or latest"
            )
        found = dict(self._admin.beginning_offsets([tp for tp in partitions if tp not in latest]))
        found.update(self._admin.end_offsets(latest))
        return found

    def _reset_of(self, tp: TopicPartition) -> OffsetReset:
        if tp.topic in self._facts.internal_topics:
            return OffsetReset.EARLIEST
        return self._facts.offset_resets.get(tp.topic, self._config.auto_offset_reset)

    def _commit_offsets(self) -> None:
        """At least once only: the outputs are acknowledged and the stores written, now the group may know it."""
        self._committed_at = time.monotonic()
        if not self._uncommitted:
            return
        try:
            self._member.commit({tp: OffsetAndMetadata(at) for tp, at in self._uncommitted.items()})
        except (RejoinError, CommitRefusedError, RetriableError, BatchLostError) as problem:
            log.warning("event=commit-refused thread=%s problem=%r", self.name, str(problem))
            return
        self._uncommitted = {}

    # --- what the group asks ---------------------------------------------------------------------------------------

    def subscription(self) -> bytes:
        self._unique = (self._unique + 1) % 128
        sums: dict[WireTaskId, int] = {name: LATEST_OFFSET for name, task in self._tasks.items() if task.changelogs}
        return encode_subscription(
            SubscriptionInfo(
                process_id=self._process_id,
                user_endpoint=self._config.application_server or None,
                task_offset_sums=sums,
                unique_field=self._unique,
                client_tags=dict(self._config.client_tags),
            )
        )

    def lead(
        self, counts: Mapping[str, int], members: Mapping[str, group_protocol.MemberSubscription]
    ) -> group_protocol.GroupAssignment:
        return self._leader.assign(f"{self.name}-consumer", counts, members)

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        return lifecycle.partitions(self._tasks.values())

    @property
    def source_topics(self) -> tuple[str, ...]:
        return self._facts.topics


class _Protocol:
    """The stream thread as its group member asks it; on the member's own threads, reading snapshots only."""

    def __init__(self, thread: StreamThread) -> None:
        self._thread = thread

    @property
    def topics(self) -> Sequence[str]:
        return self._thread.source_topics

    def user_data(self) -> bytes:
        return self._thread.subscription()

    def owned_partitions(self) -> Sequence[TopicPartition]:
        return self._thread.owned

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, group_protocol.MemberSubscription]
    ) -> group_protocol.GroupAssignment:
        return self._thread.lead(partition_counts, members)


def _text(tasks: Sequence[TaskId] | Mapping[TaskId, ActiveTask]) -> str:
    return "[" + ", ".join(map(str, sorted(tasks))) + "]"


__all__ = ["StreamThread", "TaskFacts"]

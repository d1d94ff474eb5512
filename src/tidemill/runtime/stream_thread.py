"""A stream thread: one group member, one static plan, one loop.

Acts on what the pure machines decide: ``task.lifecycle`` and ``task.standby`` what a batch reads, the group's events what is
owned. The loop is the only place where tasks change; the membership thread only posts events, so a batch is never interrupted
by a rebalance.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from tidemill.config import StreamsConfig
from tidemill.config_values import ProcessingGuarantee
from tidemill.errors import BatchLostError, NoExecutorError, ShutdownRequestedError, StopError, TidemillError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka import group_protocol
from tidemill.kafka.admin import Admin
from tidemill.kafka.group import GroupMember
from tidemill.membership import member_state as machine
from tidemill.runtime.first_join import FirstJoin
from tidemill.runtime.global_topics import GlobalTopics
from tidemill.runtime.group_side import GroupSide
from tidemill.runtime.held_tasks import HeldTasks, text
from tidemill.runtime.leading import Leader
from tidemill.runtime.local_state import LocalState
from tidemill.runtime.micro_batches import MicroBatches
from tidemill.runtime.offsets import StartOffsets, TaskFacts
from tidemill.runtime.own_commits import OwnCommits
from tidemill.runtime.rebalance_watch import RebalanceWatch
from tidemill.runtime.restore_listeners import RestoreListeners
from tidemill.runtime.restore_watch import RestoreWatch
from tidemill.runtime.task_offsets import TaskOffsets
from tidemill.runtime.thread_metrics import ThreadMetrics, metrics_window
from tidemill.runtime.uncaught import StreamThreadExceptionResponse
from tidemill.runtime.worker_desk import WorkerDesk
from tidemill.spark.engine import BatchEngine
from tidemill.task.batch import BatchReport, BatchRequest, Outcome
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.progress import CopyProgress
from tidemill.task.standby import StandbyTask

log = logging.getLogger("tidemill.thread")

_NO_TASKS_WAIT_S = 0.1
_RETRY_PAUSE_S = 0.2
_TELLING_LIMIT_S = 30.0
"""So long a failed thread stays a member to have all instances shut down."""


class StreamThread(threading.Thread):
    """``on_change`` is called, on this thread, when its tasks or their phases have changed and when it ends; ``on_failure`` says
    what becomes of the instance; ``fence`` ends what a predecessor under the thread's transactional id has left open. While
    ``is_paused`` nothing is processed, but what is restored or stands by goes on."""

    def __init__(
        self,
        *,
        name: str,
        number: int,
        config: StreamsConfig,
        facts: TaskFacts,
        admin: Admin,
        leader: Leader,
        identity: machine.MemberConfig,
        local: LocalState,
        make_member: Callable[[group_protocol.GroupProtocol], GroupMember],
        make_engine: Callable[[StreamThread], BatchEngine],
        fence: Callable[[], None],
        first_join: FirstJoin,
        global_topics: GlobalTopics,
        on_change: Callable[[], None],
        on_failure: Callable[[TidemillError], StreamThreadExceptionResponse],
        is_paused: Callable[[], bool],
        listeners: RestoreListeners,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.number = number
        self._config, self._facts, self._local, self._first_join = config, facts, local, first_join
        self._make_engine, self._fence, self._on_change, self._on_failure = make_engine, fence, on_change, on_failure
        self.metrics = ThreadMetrics(metrics_window(config))
        self._restoring = RestoreWatch(name, listeners, metrics=self.metrics)
        self._rebalance = RebalanceWatch(name)
        self._held = HeldTasks(name, facts, local, self._restoring)
        self._group = GroupSide(name, facts.topics, identity, leader, self._offset_sums)
        self._member = make_member(self._group)
        self._group.membership = lambda: self._member.membership
        self._member.on_heartbeat = self.metrics.heartbeat
        self._batches = MicroBatches(
            name, config, facts, held=self._held, group=self._group, global_topics=global_topics, metrics=self.metrics,
            on_change=on_change, is_paused=is_paused,
        )  # fmt: skip
        self.desk = WorkerDesk(self._batches, self._group, self._member)
        self._commits = OwnCommits(name, self._member, config.commit_interval_ms)
        start_offsets = StartOffsets(facts, config.auto_offset_reset, self._member, admin, self._fence_own)
        self._offsets = TaskOffsets(name, self._held, start_offsets)
        self._globals = global_topics
        self._stop_wanted, self._shutdown_wanted = threading.Event(), threading.Event()
        self._leave_group: bool | None = None
        self._is_assigned = False
        self._is_ended = False
        self._fatal: StopError | None = None
        self.error: TidemillError | None = None
        self.response: StreamThreadExceptionResponse | None = None
        """What is to be done about ``error``; set when the thread has nothing more to do itself."""

    # --- what others ask -------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[TaskId, ActiveTask]:
        """The active ones."""
        return dict(self._held.active)

    @property
    def standbys(self) -> Mapping[TaskId, StandbyTask]:
        """Copies that follow their changelogs, warm-ups included."""
        return dict(self._held.standby)

    @property
    def copies(self) -> tuple[CopyProgress, ...]:
        """How far restoring tasks and standbys are."""
        return self._restoring.copies

    @property
    def is_running(self) -> bool:
        """Assigned, and every active task past restoring."""
        return not self.why_waiting

    @property
    def why_waiting(self) -> str:
        """What it lacks to be running; empty if it does."""
        if self.error is not None:
            return "it has failed"
        if not self._is_assigned:
            return "not assigned by the group"
        if not self._globals.are_read:
            return "the global stores not read yet"
        waiting = [name for name, task in self._held.active.items() if task.phase is not Phase.RUNNING]
        return f"{text(waiting)} not running yet" if waiting else ""

    @property
    def committed_positions(self) -> dict[TopicPartition, int]:
        """Up to where inputs are processed *and* committed."""
        return {
            tp: position
            for task in self._held.active.values()
            if task.phase is Phase.RUNNING
            for tp, position in task.positions.items()
            if tp not in self._commits.waiting
        }

    @property
    def engine(self) -> BatchEngine | None:
        return self._batches.engine

    def stop(self, leave_group: bool | None = None) -> None:
        """In order, after the batch under way. ``leave_group`` None: as ``leave.group.on.close`` says."""
        self._leave_group = leave_group
        self._stop_wanted.set()

    def shut_down_application(self) -> None:
        """Tells the group with the next join that all instances shall end; this one too."""
        self._shutdown_wanted.set()

    def end_workers(self) -> None:
        """For a thread that has ended: its workers would wait a minute for batches that never come."""
        self._batches.end_workers()

    def _offset_sums(self) -> tuple[Mapping[TaskId, int], frozenset[TaskId]]:
        """What a join tells; it begins with this."""
        self._rebalance.joins()
        return self._held.offset_sums()

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        response = None
        try:
            self._begin()
            self._loop()
        except TidemillError as error:
            log.error("event=thread-ends thread=%s error=%r", self.name, str(error))
            response = self._failed(error)
        except Exception as error:
            log.exception("event=thread-crashed thread=%s", self.name)
            response = self._failed(StopError(f"{type(error).__name__}: {error}"))
        finally:
            self._first_join.ready()  # nobody waits for a thread that has ended
            self._held.end()
            self._member.close(leave=self._leave_group)
            if self.error is not None:
                self._batches.end_workers()  # whatever they are doing: nobody asks them again
            self._local.ended(self.name)
            self.response = response
            self._on_change()

    def _begin(self) -> None:
        fencing = threading.Thread(target=self._fence_own, name=f"{self.name}-fence", daemon=True)
        fencing.start()  # takes as long as building the plan does
        is_at_once = self._first_join.is_at_once()
        if is_at_once:
            self._member.start()
        self._batches.engine = self._make_engine(self)
        fencing.join()
        if not is_at_once:
            self._execute(self._batches.none())
            self._first_join.ready()
            self._first_join.wait_for_others(self._stop_wanted.is_set)
            self._member.start()

    def _loop(self) -> None:
        while not self._is_ended:
            if self._stop_wanted.is_set():
                self._act(self._group.step(machine.CloseRequested()))
            elif self._shutdown_wanted.is_set():
                self._act(self._group.step(machine.ApplicationShutdownRequested()))
            self._member.alive()
            has_work = bool(self._held) and not self._batches.are_pausing
            self._take_events(wait_s=0 if has_work else _NO_TASKS_WAIT_S)
            self._act(self._group.step(machine.TimePassed()))
            if self._held and not self._is_ended:
                if self._offsets.fetch_bounds():
                    self._on_change()
                self._offsets.look_at_standbys()
                if self._batches.are_without_inputs:
                    self._commits.commit()  # the worker forgets where it was, and finds it in what is committed
                if not self._batches.are_pausing:
                    self._run_batch()
        if self._fatal is not None:
            raise self._fatal

    def _failed(self, error: TidemillError) -> StreamThreadExceptionResponse:
        self.error = error
        response = self._on_failure(error)
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._tell_the_group()
        return response

    def _tell_the_group(self) -> None:
        """A member tells what it wants when it joins, so it stays one until the leader has answered, without doing anything."""
        deadline = time.monotonic() + _TELLING_LIMIT_S
        try:
            self._act(self._group.step(machine.ApplicationShutdownRequested()))
            while not self._is_ended and time.monotonic() < deadline:
                self._member.alive()
                self._take_events(wait_s=_NO_TASKS_WAIT_S)
                self._act(self._group.step(machine.TimePassed()))
        except Exception:
            log.exception("event=shutdown-not-told thread=%s", self.name)

    # --- the group's events, and what the member's machine makes of them -----------------------------------------------

    def _take_events(self, wait_s: float) -> None:
        try:
            event = self._member.events.get(timeout=wait_s) if wait_s else self._member.events.get_nowait()
            while True:
                self._take(event)
                event = self._member.events.get_nowait()
        except queue.Empty:
            return

    def _take(self, event: group_protocol.GroupEvent) -> None:
        if isinstance(event, group_protocol.Assigned):
            self._act(
                self._group.step(
                    machine.Assigned(
                        generation=event.generation,
                        member_id=event.member_id,
                        incarnation=event.incarnation,
                        partitions=event.partitions,
                        user_data=event.user_data,
                    )
                )
            )
            log.info(
                "event=assigned thread=%s generation=%d tasks=%s standbys=%s",
                self.name, event.generation, text(self._held.active), text(self._held.standby),
            )  # fmt: skip
            self._rebalance.assigned(event.generation, self._held.active)
            self.metrics.assigned()
            if not self._group.is_joining:
                self._local.settled(self.name)
            self._is_assigned = True
            self._on_change()
        elif isinstance(event, group_protocol.Lost):
            log.warning("event=membership-lost thread=%s reason=%r %s", self.name, event.reason, self._held)
            self.metrics.lost_membership()
            self._is_assigned = False
            self._act(self._group.step(machine.MembershipLost(reason=event.reason, incarnation=event.incarnation)))
        elif isinstance(event, group_protocol.RevokeAll):
            log.info("event=revoking-all thread=%s reason=%r %s", self.name, event.reason, self._held)
            self._is_assigned = False
            self._act(self._group.step(machine.RevokeAllRequested(reason=event.reason)))
            self._on_change()
        elif event.fatal:
            raise event.error
        else:
            log.warning("event=group-problem thread=%s problem=%r", self.name, str(event.error))

    def _act(self, instructions: Sequence[machine.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, machine.AdoptMembership):
                self._batches.incarnation = instruction.incarnation
            elif isinstance(instruction, machine.RevokeTasks):
                self._commits.commit()
                self._held.demote(instruction.becomes_standby)
                self._release(instruction.tasks, "revoked", stays_open=instruction.becomes_standby)
            elif isinstance(instruction, machine.GiveUpTasks):
                self._commits.forget()
                self._release(instruction.tasks, instruction.reason)
            elif isinstance(instruction, machine.CloseStandbys):
                self._release(instruction.tasks, "not assigned any more")
            elif isinstance(instruction, machine.AssignTasks):
                self._held.take_up(instruction)
            elif isinstance(instruction, machine.RejoinNow):
                log.info("event=rejoining thread=%s cause=%r", self.name, instruction.reason)
                self._member.request_rejoin(instruction.reason)
            elif isinstance(instruction, machine.ConfirmRevoked):
                self._member.revoked_all()
            elif isinstance(instruction, machine.ReportFatal):
                self._fatal = StopError(f"the group's leader refused to assign tasks: {instruction.reason}")
            elif isinstance(instruction, machine.ShutDownApplication):
                self._fatal = ShutdownRequestedError(instruction.reason)
            elif isinstance(instruction, machine.LeaveGroup):
                self._commits.commit()
                self._is_ended = True

    def _release(self, tasks: Collection[TaskId], cause: str, stays_open: Collection[TaskId] = ()) -> None:
        """Gives tasks up: a batch without them makes the worker close their stores, and its report is the proof (rule 12).
        Those that stay open are to come back in another role at once."""
        closed = frozenset(tasks).difference(stays_open)
        if closed and self._batches.has_workers and (self.error is not None or not self._close_stores(closed)):
            self._batches.end_workers()  # no acknowledgement: their death is as good
        self._held.drop(closed, cause)
        self._rebalance.gone(self._held.active)
        self._on_change()
        self._act(self._group.step(machine.TasksReleased(tasks=frozenset(tasks))))

    # --- batches ---------------------------------------------------------------------------------------------------

    def _run_batch(self) -> None:
        """One micro-batch of everything that is held."""
        request = self._batches.next()
        read = self._batches.read_by(request)
        report = self._execute(request)
        if report is not None:
            self._take_report(report, read)

    def _close_stores(self, tasks: Collection[TaskId]) -> bool:
        """Whether the worker has answered a batch without them."""
        report = self._execute(self._batches.without(tasks))
        return report is not None and report.outcome is Outcome.COMMITTED

    def _execute(self, request: BatchRequest) -> BatchReport | None:
        """None if the batch is lost, or did not begin."""
        try:
            return self._batches.run(request)
        except NoExecutorError as waiting:
            log.debug("event=batch-waits thread=%s reason=%r", self.name, str(waiting))
            return None
        except BatchLostError as lost:
            self._batch_lost(str(lost))
            return None

    def _take_report(self, report: BatchReport, read: Collection[TaskId]) -> None:
        """``read``: the tasks whose inputs the batch has read."""
        self._batches.adapt_size(report)
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
            self._offsets.reset(self._globals.without(report.out_of_range))
        has_changed = self._held.reported(report)
        if report.outcome is Outcome.COMMITTED:
            self._batches.failures = 0
            cost = self._rebalance.ran(read)
            if cost is not None:
                self.metrics.rebalance(cost)
        if report.outcome is Outcome.LOST:
            log.warning("event=batch-lost thread=%s reason=%r", self.name, report.message)
            self._commits.forget()
            time.sleep(_RETRY_PAUSE_S)
        elif self._config.processing_guarantee is ProcessingGuarantee.AT_LEAST_ONCE:
            self._commits.processed(report.ends)
        if has_changed:
            self._on_change()

    def _batch_lost(self, reason: str) -> None:
        log.warning("event=batch-lost thread=%s reason=%r failures=%d", self.name, reason, self._batches.failures)
        self._commits.forget()
        self._held.lost(reason)
        if self._config.num_standby_replicas and self._batches.has_lost_its_place():
            self._member.request_rejoin("the executor with its stores is gone: copies elsewhere may take over")
        self._fence_own()  # the dead worker may have left a transaction open, which would hold the offsets back
        time.sleep(_RETRY_PAUSE_S)

    def _fence_own(self) -> None:
        """Ends what this thread's producer has left open; the worker makes another one then."""
        self._fence()
        self._batches.fences += 1

    def _forget(self, report: BatchReport) -> None:
        """After a refused commit: nothing of the batch counts, and what is owned is only known after the next assignment."""
        self._commits.forget()
        self._held.reported(report)
        self._held.lost(report.message)

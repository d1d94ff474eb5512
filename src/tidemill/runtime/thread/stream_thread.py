"""A stream thread: one group member, one static plan, one loop.

Decides the order: events of the group are carried out (``task_changes``), then a batch is run (``batch_runner``), until the
member has left. Tasks change only on this thread; the membership thread only posts events, so a rebalance never interrupts a
batch. Also decides how a thread starts and ends.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tidemill.assignment.task_load import TaskLoad
from tidemill.config.slices import ThreadConfig
from tidemill.config.values import ProcessingGuarantee
from tidemill.deadline import Deadline
from tidemill.errors import StopError, TidemillError
from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent, as_text
from tidemill.membership import member_state as machine
from tidemill.membership.topology_metadata import TopologyMetadata
from tidemill.printable import said_by
from tidemill.runtime.group.first_join import FirstJoin
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.runtime.observe.start_phases import StartPhase
from tidemill.runtime.thread.driver_service import DriverService
from tidemill.runtime.thread.foreach_batch import ForeachBatchCalls
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.runtime.thread.thread_parts import ThreadParts
from tidemill.runtime.thread.uncaught_exception import StreamThreadExceptionResponse
from tidemill.spark.engine import BatchEngine
from tidemill.spark.plan.batch_sinks import BatchFunction
from tidemill.start_trace import span
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.task.lost_batches import LostInARow
from tidemill.task.progress import CopyProgress
from tidemill.task.promotion import Promotions
from tidemill.task.standby import StandbyTask
from tidemill.task.tasks import ThreadEnded

log = logging.getLogger("tidemill.thread")

_LONGEST_WAIT_S = 0.1
"""Longest wait for an event of the group where there is no batch to run: a request to stop is seen after it."""
_REPLACED_AFTER_S = 1.0
"""Pause of a thread whose predecessor had no plan: such a thread fails within milliseconds."""
_SHUTDOWN_LIMIT_S = 30.0
"""Seconds for which a failed thread stays a member, so that the leader can shut down all instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCallbacks:
    """Callbacks of an instance for its stream threads; called on these."""

    on_change: Callable[[], None]
    """A thread's tasks or their phases have changed, or it has ended."""
    on_failure: Callable[[TidemillError], StreamThreadExceptionResponse]
    """A thread has failed; the result is the response of the uncaught exception handler."""
    is_cut_short: Callable[[], bool]
    """True if the instance ends, and Spark with it, though threads were still at work: ``close()`` waited no longer."""
    on_join: Callable[[], None]
    """A thread is about to join the running group."""
    is_paused: Callable[[], bool]
    """True while the instance is paused: nothing is processed, restored or followed (KIP-834)."""
    listeners: RestoreListeners


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTopics:
    """What a thread needs to read more topics: facts about them, functions of ``foreach_batch`` by node, and an engine whose plan
    reads them."""

    task_topology: TaskTopology
    metadata: TopologyMetadata
    batch_functions: Mapping[str, BatchFunction]
    make_engine: Callable[[StreamThread], BatchEngine]


class StreamThread(threading.Thread):
    """``make_engine`` is called on the thread itself, since it takes seconds."""

    def __init__(
        self,
        *,
        name: str,
        number: int,
        config: ThreadConfig,
        parts: ThreadParts,
        make_engine: Callable[[StreamThread], BatchEngine],
        first_join: FirstJoin,
        instance: InstanceCallbacks,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.number = number
        self.hurry = parts.hurry
        self.metrics = parts.observers.metrics
        self._make_engine, self._first_join, self._instance = make_engine, first_join, instance
        self._registry, self._local, self._loads, self._globals = parts.registry, parts.local, parts.loads, parts.global_topics
        self._group, self._member, self._leaving = parts.group, parts.group.member, parts.leaving
        self._batches, self._commits, self._offsets = parts.batches, parts.commits, parts.offsets
        self._held = parts.held
        self._runner, self._changes, self._restoring = parts.runner, parts.changes, parts.observers.restoring
        self._has_transactions = config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        self._standby_replicas = config.num_standby_replicas if config.promote_when_caught_up else None
        """None: probing rebalances promote warm-ups."""
        self._promotions = Promotions()
        self._stop_wanted, self._shutdown_wanted = threading.Event(), threading.Event()
        self._foreach_batch: ForeachBatchCalls | None = None
        self._has_plan = False
        self._pause_s = 0.0
        self._leave_group: bool | None = None
        self._drain_wanted = self._drains = False
        self._topics_wanted: ThreadTopics | None = None
        self.error: TidemillError | None = None
        self.response: StreamThreadExceptionResponse | None = None
        """Response to ``error``; set when the thread has nothing more to do itself."""

    # --- what others ask -------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> Mapping[TaskId, ActiveTask]:
        """The active ones."""
        return dict(self._registry.now.active)

    @property
    def standbys(self) -> Mapping[TaskId, StandbyTask]:
        """Copies that follow their changelogs, warm-ups included."""
        return dict(self._registry.now.standby)

    @property
    def loads(self) -> Mapping[TaskId, TaskLoad]:
        """Measured so far; empty unless ``tidemill.task.weights`` is on."""
        return self._loads.loads()

    @property
    def copies(self) -> tuple[CopyProgress, ...]:
        """Progress of restoring tasks and standbys."""
        return self._restoring.copies

    @property
    def member(self) -> machine.MemberState:
        """The group member's state: its assignment, and the tasks that it holds."""
        return self._registry.now.member

    @property
    def is_paused(self) -> bool:
        """With its instance."""
        return self._batches.are_paused

    @property
    def is_running(self) -> bool:
        """Assigned, every active task past restoring, and what its tasks need of global stores read."""
        return not self.why_waiting

    @property
    def why_waiting(self) -> str:
        """Reason why it is not running; empty if it is."""
        if self.error is not None:
            return "it has failed"
        if not self._changes.is_assigned:
            return "not assigned by the group"
        if self._registry.now and not self._globals.are_read:  # without a task it runs no batch, and reads them when it has one
            return "the global stores not read yet"
        waiting = [name for name, task in self._registry.now.active.items() if task.phase is not Phase.RUNNING]
        return f"{as_text(sorted(waiting))} not running yet" if waiting else ""

    @property
    def start_phase(self) -> StartPhase | None:
        """The phase of its start; None once its tasks run, or after a failure."""
        if self.error is not None or self.is_running:
            return None
        if not self._has_plan:
            return StartPhase.PLAN
        return StartPhase.RESTORE if self._changes.is_assigned else StartPhase.JOIN

    @property
    def joining_since_s(self) -> float | None:
        """Since when (time.monotonic) the group owes it the answer to a join; None if it waits for none."""
        return self._member.joining_since_s

    @property
    def applied(self) -> threading.Event:
        """Set once its stores have all that is committed by now."""
        return self._runner.applied

    @property
    def committed_positions(self) -> dict[TopicPartition, int]:
        """Up to where inputs are processed *and* committed."""
        tasks = list(self._registry.now.active.values())
        if not self._has_transactions:
            return self._commits.committed_of(tasks)
        return {tp: at for task in tasks if task.phase is Phase.RUNNING for tp, at in task.positions.items()}

    @property
    def lost_in_a_row(self) -> LostInARow:
        """The batches that were lost since the last committed one."""
        return self._runner.lost_in_a_row

    @property
    def engine(self) -> BatchEngine | None:
        return self._runner.engine

    def stop(self, leave_group: bool | None = None, within_s: float | None = None) -> None:
        """In order, after the batch under way. ``leave_group`` None: as ``leave.group.on.close`` says. ``within_s``: how long it
        is waited for."""
        self._leave_group = leave_group
        if within_s is not None:
            self._leaving.hurry(within_s)
        self._stop_wanted.set()
        self._runner.look()
        self.hurry()

    def is_given_up(self) -> bool:
        """True if it is to end before it has begun, as it has no tasks yet, or before the workers of its plan have."""
        return self._stop_wanted.is_set() and not (self._has_plan and self._runner.has_workers)

    def waits_for(self, caller: threading.Thread) -> bool:
        """True for the thread itself, and for the one that calls a function of ``foreach_batch`` for its batch."""
        return caller is self or (self._foreach_batch is not None and self._foreach_batch.caller is caller)

    def expect_rebalance(self) -> None:
        """Another thread of the instance is about to join or leave."""
        self._member.expect_rebalance()

    def drain(self, wanted: bool = True) -> None:
        """Starts or cancels a drain: tasks move as others catch up with them, while the thread continues."""
        if wanted is not self._drain_wanted:  # asked over and over, and each hurry is a micro-batch of its own
            self._drain_wanted = wanted
            self.hurry()

    def read(self, topics: ThreadTopics) -> None:
        """Reads more topics, once the group has assigned them: from the next batch on the plan can."""
        self._topics_wanted = topics
        self.hurry()

    def shut_down_application(self) -> None:
        """Tells the group with the next join that all instances shall end; this one too."""
        self._shutdown_wanted.set()
        self.hurry()

    def continue_from(self, failed: StreamThread) -> None:
        """Takes the place of one that has failed: with smaller batches if a batch has ended it, after a pause if its plan
        could not be made. Called before the start."""
        self._batches.continue_from(failed._batches)
        self._pause_s = 0.0 if failed._has_plan else _REPLACED_AFTER_S

    def removed(self) -> None:
        """It has ended, and is not replaced: nothing in Spark is kept for it."""
        self._runner.removed()

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        response = None
        try:
            self._begin()
            self._loop()
        except TidemillError as error:
            if self._instance.is_cut_short():
                reason = "the instance was closed before its batch was over: what is not committed will be processed again"
                log.warning(LogEvent("thread-cut-short", thread=self.name, reason=reason))
            else:
                log.error(LogEvent("thread-ends", thread=self.name, error=error))
            response = self._failed(error)
        except BaseException as error:  # also sys.exit(), which would end only this thread, without a report
            log.exception(LogEvent("thread-crashed", thread=self.name))
            response = self._failed(StopError(f"{type(error).__name__}: {said_by(error)}"))
        finally:
            self._close()
            self.response = response
            self._instance.on_change()

    def driver_service(self, foreach_batch: ForeachBatchCalls) -> DriverService:
        """The service for its workers; ``foreach_batch`` calls the user's functions on batches."""
        self._foreach_batch = foreach_batch
        return DriverService(self._runner, self._group, foreach_batch, has_transactions=self._has_transactions)

    def _begin(self) -> None:
        self._stop_wanted.wait(self._pause_s)
        fencing = threading.Thread(target=self._fence, name=f"{self.name}-fence", daemon=True)
        fencing.start()  # done before committed offsets are asked for, which what it ends would hold back
        with span("group looked at"):
            is_at_once = self._first_join.is_at_once()
        if is_at_once:
            self._member.start()
        self._runner.begin(self._make_engine(self))
        if not is_at_once and not self.is_given_up():
            # The first batch starts workers and compiles the plan, which takes seconds: before the join, others have the tasks.
            self._runner.run_empty()
            self._first_join.ready(self.name)
            with span("other threads waited for"):
                self._first_join.wait_for_others(self._stop_wanted.is_set)
            if not self._stop_wanted.is_set():  # else the group would gather, twice, for one that is about to end
                self._instance.on_join()
                self._member.start()
        self._has_plan = True
        self._instance.on_change()
        with span("fence waited for"):
            fencing.join()

    def _fence(self) -> None:
        with span("predecessor's producer fenced"):
            self._batches.fence()

    def _loop(self) -> None:
        while not self._changes.are_over:
            self._handle_requests()
            may_work = not self.is_given_up()
            has_work = may_work and bool(self._registry.now) and self._batches.are_needed
            if not has_work:
                self._runner.rest()
            self._take_group_events(wait_s=0 if has_work else _LONGEST_WAIT_S)
            if may_work and self._registry.now and not self._changes.are_over:
                self._run_once()
        if self._changes.fatal is not None:
            raise self._changes.fatal

    def _handle_requests(self) -> None:
        """Handles requests of other threads since the last round: stop, shutdown of the application, drain, more topics."""
        if self._stop_wanted.is_set():
            self.hurry()  # nor does the next batch wait for records
        has_tasks = bool(self._registry.now.active) and not self.is_given_up()  # else they wait here, too
        if self._stop_wanted.is_set() and self._leaving.may_begin(self._leave_group, has_tasks=has_tasks):
            if has_tasks and self._leaving.has_gathered and self._batches.are_needed:
                self._runner.run()  # what has come in since the last batch need not wait until others have taken over
            self._changes.step(machine.CloseRequested())
        elif self._shutdown_wanted.is_set():
            self._changes.step(machine.ApplicationShutdownRequested())
        if self._drain_wanted is not self._drains:
            self._drains = self._drain_wanted
            self._changes.step(machine.DrainRequested(is_wanted=self._drains))
        topics = self._topics_wanted
        if topics is not None and not self._stop_wanted.is_set() and self._runner.change(partial(topics.make_engine, self)):
            self._has_topics(topics)

    def _has_topics(self, topics: ThreadTopics) -> None:
        """The plan can read these topics: the next join subscribes to them."""
        if self._topics_wanted is topics:  # else there are more by now
            self._topics_wanted = None
        if self._foreach_batch is not None:
            self._foreach_batch.reads(topics.batch_functions)
        self._offsets.reads(topics.task_topology)
        self._group.reads(topics.task_topology.topics, topics.metadata)
        self._changes.step(machine.TopicsAdded(topology=topics.metadata.by_number))

    def _run_once(self) -> None:
        """One round of work: fetches offsets, requests rebalances, runs a batch."""
        if self._offsets.fetch_bounds():
            self._instance.on_change()
        self._offsets.refresh_standbys()
        self._request_promotions()
        self._measure_loads()
        if self._batches.are_paused:
            self._commits.commit()  # the worker forgets where it was, and finds it in what is committed
            self._restoring.rest()
        if self._batches.are_needed:
            self._runner.run()
        self._held.look()

    def _request_promotions(self) -> None:
        if self._standby_replicas is None:
            return
        now = self._registry.now
        copies = {name: copy.epoch for name, copy in now.standby.items()}
        caught_up = {name for name, copy in now.standby.items() if copy.lag == 0}
        self._promotions, ready = self._promotions.ask(now.member, copies, caught_up, self._standby_replicas)
        if ready:
            log.info(LogEvent("promotion-asked", thread=self.name, tasks=sorted(ready)))
            self._member.request_rejoin(f"warm-ups have caught up: {as_text(sorted(ready))}")

    def _measure_loads(self) -> None:
        if self._loads.measure():
            log.info(LogEvent("loads-changed", thread=self.name))
            self._member.request_rejoin("the load of this member's tasks has changed")

    def _take_group_events(self, wait_s: float) -> None:
        self._member.alive()
        self._changes.take_events(wait_s)
        self._changes.step(machine.TimePassed())

    def _failed(self, error: TidemillError) -> StreamThreadExceptionResponse:
        self.error = error
        self._runner.fail()
        response = self._instance.on_failure(error)
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._send_shutdown()
        return response

    def _close(self) -> None:
        """In this order. A part that fails, as where the JVM is gone, keeps none of the others open."""
        for close in (
            lambda: self._first_join.ready(self.name),  # the others must not wait for a thread that has ended
            lambda: self._member.close(leave=self._leave_group),
            self._runner.close,
            # Whatever the workers of a thread that has failed are doing: they get no further request.
            self._runner.end_workers if self.error is not None else lambda: None,
            lambda: self._registry.handle(ThreadEnded(reason="the thread ends")),
            self._local.ended,
        ):
            try:
                close()
            except Exception:
                log.exception(LogEvent("close-failed", what=self.name))

    def _send_shutdown(self) -> None:
        """A member says what it wants in its join, so it stays one until the leader has answered, without doing anything."""
        deadline = Deadline.after(_SHUTDOWN_LIMIT_S)
        try:
            self._changes.step(machine.ApplicationShutdownRequested())
            while not (self._changes.are_over or deadline.is_over):
                self._take_group_events(wait_s=_LONGEST_WAIT_S)
        except Exception:
            log.exception(LogEvent("shutdown-not-sent", thread=self.name))

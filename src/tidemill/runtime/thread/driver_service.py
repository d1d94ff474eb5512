"""Requests of a stream thread's workers to their driver: the batch under way, the membership for a commit, committed offsets.

Decides only whether a commit, or a call of the user's function on a batch, may still be made; all else is forwarded.
Asked on the control channel's threads, while the stream thread waits for the batch, or gives its engine up: the runner's engine
is read once for each request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidemill.control.messages import StepFailed
from tidemill.control.worker_process import WorkerProcess
from tidemill.ids import TopicPartition
from tidemill.runtime.thread.batch_runner import BatchRunner
from tidemill.runtime.thread.foreach_batch import ForeachBatchCalls
from tidemill.runtime.thread.micro_batches import Batch
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Positions, SourceProgress
from tidemill.task.batch_id import BatchId


class DriverService:
    """Implements ``ControlHandler``. ``has_transactions``: the broker fences a producer whose task has another owner."""

    def __init__(
        self, runner: BatchRunner, group: ThreadMembership, foreach_batch: ForeachBatchCalls, *, has_transactions: bool = True
    ) -> None:
        self._runner, self._group, self._foreach_batch = runner, group, foreach_batch
        self._has_transactions = has_transactions

    def next_request(self, run: int) -> BatchRequest | None:
        engine = self._runner.engine
        return None if engine is None else engine.next_request(run)

    def reported(self, run: int, report: BatchReport) -> None:
        if engine := self._runner.engine:
            engine.reported(run, report)

    def wait_served(self, run: int, batch_id: int) -> None:
        if engine := self._runner.engine:
            engine.wait_served(run, batch_id)

    def step_failed(self, failed: StepFailed) -> None:
        if engine := self._runner.engine:
            engine.step_failed(failed)

    def membership(self) -> CommittingMember:
        self._runner.begin_commit()
        confirmed_for_s = self._confirmed_for_s()
        now, batch = self._group.membership, self._runner.under_way
        return CommittingMember(
            generation=now.generation,
            member_id=now.member_id,
            instance_id=now.group_instance_id,
            incarnation=now.incarnation,
            may_commit=confirmed_for_s > 0 and batch is not None and self._may_commit(batch),
            confirmed_for_s=confirmed_for_s,
        )

    def _confirmed_for_s(self) -> float:
        return math.inf if self._has_transactions else self._group.confirmed_for_s()

    def _may_commit(self, batch: Batch) -> bool:
        return self._group.may_commit(batch.read, began_incarnation=batch.request.incarnation)

    def call_foreach_batch(self, batch_id: int, node: str, path: str, offsets: BatchId) -> str:
        """Not answered like ``membership``: the group may rebalance while the function runs, and refuse the commit."""

        def why_not() -> str:
            batch = self._runner.under_way
            if batch is None or batch.request.batch_id != batch_id:
                return "its batch is not under way any more"
            if not self._confirmed_for_s() or not self._may_commit(batch):
                return "the group has moved on while the batch ran: its partitions may have another owner"
            return ""

        return self._foreach_batch.call(node, path, offsets, why_not)

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None:
        self._runner.source_advanced(batch_id, progress)

    def has_run(self, batch_id: int) -> None:
        self._runner.has_run(batch_id)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {tp: found.offset for tp, found in self._group.member.committed(partitions).items()}

    def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> None:
        if engine := self._runner.engine:
            engine.worker_joined(run, step, worker)

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        if engine := self._runner.engine:
            engine.worker_left(step, worker)

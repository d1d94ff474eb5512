"""The service that answers the workers of test drivers; all drivers of a process share it, as they share the workers.

Decides whose run is under way: one driver's at a time. Another one's is ended, in order, before the next one's begins, so that
all are served by the same workers, one after the other.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from functools import cache

from tidemill.control.channel import ControlServer
from tidemill.control.messages import StepFailed
from tidemill.control.sockets import LocalListener
from tidemill.control.worker_process import WorkerProcess
from tidemill.deadline import Deadline
from tidemill.errors import NoSlotError, StopError
from tidemill.forked import leaves_to_parent
from tidemill.ids import TopicPartition
from tidemill.log_format import LogEvent
from tidemill.spark.engine import BatchEngine
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Positions, SourceProgress
from tidemill.task.batch_id import BatchId

log = logging.getLogger("tidemill.testing")

THREAD = "topology-test-driver"
SLOT_LIMIT_S = 240.0


class SharedDriverService:
    """Implements ``ControlHandler`` for the engine that is at work; no broker is behind it."""

    def __init__(self) -> None:
        self._engine: BatchEngine | None = None
        """The server's threads read it once each: a driver may be closed in between."""
        self._workers: dict[str, WorkerProcess] = {}

    def run(self, engine: BatchEngine, request: BatchRequest) -> BatchReport:
        """A batch of this engine, whose errors are raised. It waits for a task slot, as an instance does, up to a limit."""
        if self._engine is not engine:
            self.end_run()
            for step, worker in list(self._workers.items()):
                engine.worker_joined(0, step, worker)  # of an earlier run; this engine has none now
            self._engine = engine
        deadline = Deadline.after(SLOT_LIMIT_S)
        while True:
            try:
                return engine.run(request)
            except NoSlotError as waiting:
                if deadline.is_over:
                    raise
                log.warning(LogEvent("batch-waits", thread=THREAD, reason=waiting))

    def end_run(self) -> None:
        """Ends the run that is under way, which frees its task slot; the next batch starts another one."""
        if (engine := self._engine) is not None:
            engine.end_run()

    def close(self, engine: BatchEngine) -> None:
        engine.close()
        if self._engine is engine:
            self._engine = None

    def next_request(self, run: int) -> BatchRequest | None:
        return None if (engine := self._engine) is None else engine.next_request(run)

    def reported(self, run: int, report: BatchReport) -> None:
        if (engine := self._engine) is not None:
            engine.reported(run, report)

    def wait_served(self, run: int, batch_id: int) -> None:
        if (engine := self._engine) is not None:
            engine.wait_served(run, batch_id)

    def step_failed(self, failed: StepFailed) -> None:
        if (engine := self._engine) is not None:
            engine.step_failed(failed)

    def worker_joined(self, run: int, step: str, worker: WorkerProcess) -> None:
        if (engine := self._engine) is None or engine.worker_joined(run, step, worker):
            self._workers[step] = worker

    def worker_left(self, step: str, worker: WorkerProcess) -> None:
        if (engine := self._engine) is not None:
            engine.worker_left(step, worker)

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=1, member_id="driver", instance_id=None, incarnation=0, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        del partitions
        return {}

    def call_foreach_batch(self, batch_id: int, node: str, path: str, offsets: BatchId) -> str:
        del batch_id, node, path, offsets
        raise StopError("a test driver calls functions of foreach_batch itself, when the batch is over")

    def source_advanced(self, batch_id: int, progress: SourceProgress) -> None: ...

    def has_run(self, batch_id: int) -> None: ...


@cache
def _service_of(process: int) -> tuple[SharedDriverService, ControlServer]:
    listener = LocalListener()
    service, server = SharedDriverService(), ControlServer(listener=listener)
    leaves_to_parent(server)
    atexit.register(_close, listener, process)
    server.register(THREAD, service)
    return service, server


def _close(listener: LocalListener, process: int) -> None:
    """The socket's folder goes with its process, not with one that is forked from it. Workers end by themselves then."""
    if process == os.getpid():
        listener.close()


def shared_driver_service() -> tuple[SharedDriverService, ControlServer]:
    """The service of this process, and its server for workers; one that is forked from it has its own."""
    return _service_of(os.getpid())

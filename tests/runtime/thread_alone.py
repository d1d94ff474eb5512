"""A stream thread by itself: its batches end as a stand-in for the engine says; no broker, no Spark, no member."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import BatchLostError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.kafka.group.metadata import Membership
from tidemill.membership.member_state import AssignTasks, MemberConfig
from tidemill.runtime.instance.local_state import LocalState
from tidemill.runtime.instance.uncaught_exception import StreamThreadExceptionResponse
from tidemill.runtime.observe.restore_listeners import RestoreListeners
from tidemill.runtime.thread.global_topics import GlobalTopics
from tidemill.runtime.thread.start_offsets import TaskFacts
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.state.directory import StateDirectory
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, Taken
from tidemill.task.lifecycle import ActiveTask, Phase

KEPT, GIVEN = TaskId(0, 0), TaskId(0, 1)
NONE: frozenset[Any] = frozenset()
FACTS = TaskFacts(changelogs={}, has_stores=NONE, internal_topics=NONE, source_changelogs=NONE, topics=("in",), offset_resets={})


class Engine:
    """Its batches end as told, first as in ``script``: with a report, or by raising, after the source has taken something;
    ``asked`` is what they were."""

    def __init__(self, outcome: Outcome | None, script: Sequence[tuple[Taken, BatchReport | Exception]] = ()) -> None:
        self._outcome, self._script = outcome, list(script)
        self.patience: list[int] = []
        self.worker_pids = {"step-1": 1}
        self.was_killed = False
        self.asked: list[BatchRequest] = []
        self.thread: StreamThread | None = None

    def run(self, request: BatchRequest, patience: int = 1, *, has_backlog: bool = False) -> BatchReport:
        assert self.thread is not None
        self.asked.append(request)
        self.patience.append(patience)
        if self._script:
            taken, end = self._script.pop(0)
            self.thread.desk.taking(request.batch_id, taken)
            if isinstance(end, Exception):
                raise end
            return end
        if self._outcome is None:
            raise BatchLostError("the Spark task failed")
        return BatchReport(batch_id=1, outcome=self._outcome)

    def kill_workers(self) -> None:
        self.was_killed = True


def running(task: TaskId) -> ActiveTask:
    inputs = (TopicPartition("in", task.partition),)
    return ActiveTask(task=task, directory="d", epoch="e", inputs=inputs, changelogs={}, phase=Phase.RUNNING)


def thread_with(engine: Engine, tmp_path: Path) -> StreamThread:
    member: Any = SimpleNamespace(membership=Membership(), events=queue.SimpleQueue(), request_rejoin=lambda reason: None)
    unused: Any = None
    thread = StreamThread(
        name="thread",
        number=1,
        config=StreamsConfig.of({"application.id": "app", "bootstrap.servers": "none:1", "state.dir": str(tmp_path)}),
        facts=FACTS,
        admin=unused,
        leader=unused,
        identity=MemberConfig(process_id=ProcessId.parse("00000000-0000-0000-0000-000000000001")),
        local=LocalState(StateDirectory(tmp_path, "app"), unused, logged=(), reporter="thread"),
        make_member=lambda protocol: member,
        make_engine=unused,
        fence=lambda: None,
        first_join=unused,
        on_change=lambda: None,
        on_failure=lambda error: StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
        is_paused=lambda: False,
        listeners=RestoreListeners(),
        global_topics=GlobalTopics((), unused),
    )
    engine.thread = thread
    thread._batches.engine = engine  # type: ignore[assignment]
    thread._held.take_up(AssignTasks(active=dict.fromkeys((KEPT, GIVEN), ())))
    thread._held.active = {task: running(task) for task in (KEPT, GIVEN)}
    return thread

"""The operator graphs of a worker's tasks, kept from batch to batch.

Decides the lifetime of a graph: since operators have clocks and schedules in memory, it is reused only if the batch that it ran
last was committed and its task has had no other owner since; otherwise a new one is created. Its input is ``graph_step``'s.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers
from tidemill.operators.task_graph import TaskGraph
from tidemill.steps.graph.global_state import GlobalState
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import GraphSpec, StepSpec
from tidemill.steps.step_state import StepState, StoreView
from tidemill.steps.vector.retained_rows import ShownRows
from tidemill.steps.vector.window_join import JoinTask
from tidemill.task.batch import BatchRequest
from tidemill.task.partition_time import PartitionTime, Times, kept_by_processors
from tidemill.topology.key_value_serdes import KeyValueSerdes

log = logging.getLogger("tidemill.operators")

TaskTimes = tuple[Mapping[TaskId, PartitionTime], Mapping[TaskId, PartitionTime]]
"""Stream times of tasks at a batch's begin and at its end, where they are known, with what their processors keep."""


@dataclass(slots=True)
class _Kept:
    """A task's graph, its stores' rows and the owner that it was made for (``TaskRun.owner``)."""

    owner: str
    graph: TaskGraph | JoinTask
    rows: dict[str, TaskRows]


class KeptGraphs:
    """The graphs by part and task, with the state that vectorised nodes keep in memory."""

    def __init__(self, handlers: ExceptionHandlers = FAILING) -> None:
        self.handlers = handlers
        self._kept: dict[tuple[int, TaskId], _Kept] = {}
        self._batch_id = 0
        self._running: Mapping[TaskId, str] = {}
        self.shared = GlobalState(handlers.of_global_stores)
        self.memory: dict[tuple[TaskId, str], ShownRows] = {}
        """Rows of a running task's store that vectorised nodes remember."""
        self.times: TaskTimes = {}, {}

    def begin(self, request: BatchRequest, running: Mapping[TaskId, str], times: TaskTimes) -> None:
        """Before a batch: drops what another batch has left that did not count, and tasks that are gone."""
        self.times = times
        if request.last_committed_batch != self._batch_id:
            for kept in list(self._kept):
                self._end(kept)
            self.memory.clear()
        for task, store in list(self.memory):
            if task not in running or running[task] != self._running.get(task):
                del self.memory[task, store]
        self._running = running
        self._batch_id = request.batch_id
        held = {run.task: run.owner for run in request.tasks}
        for part, task in list(self._kept):
            if running.get(task, held.get(task)) != self._kept[part, task].owner:
                self._end((part, task))

    def _end(self, which: tuple[int, TaskId]) -> None:
        """Closes a task's processors; they can no longer use its stores."""
        kept = self._kept.pop(which)
        for rows in kept.rows.values():
            rows.release()
        try:
            kept.graph.close()
        except (Exception, SystemExit):
            log.exception(LogEvent("close-failed", task=which[1]))

    def of(self, spec: GraphSpec, task: TaskId, owner: str, state: StepState, view: StoreView, now_ms: int) -> TaskGraph:
        """The task's graph, bound to the batch's state."""
        time = self.times[0].get(task, PartitionTime())

        def make(rows: Mapping[str, TaskRows]) -> TaskGraph:
            return _made(spec, task, rows, self.shared, now_ms, time, self.handlers)

        graph = self._bound(spec, task, owner, state, view, make)
        assert isinstance(graph, TaskGraph)
        graph.wall_clock = now_ms
        return graph

    def join_of(self, spec: GraphSpec, task: TaskId, owner: str, state: StepState, view: StoreView) -> JoinTask:
        """The task's join, of a part that is nothing else; bound to the batch's state."""

        def make(rows: Mapping[str, TaskRows]) -> JoinTask:
            assert spec.window_join is not None
            return JoinTask(spec.window_join, rows, spec.emit_interval_ms)

        join = self._bound(spec, task, owner, state, view, make)
        assert isinstance(join, JoinTask)
        return join

    def _bound(
        self, spec: GraphSpec, task: TaskId, owner: str, state: StepState, view: StoreView,
        make: Callable[[Mapping[str, TaskRows]], TaskGraph | JoinTask],
    ) -> TaskGraph | JoinTask:  # fmt: skip
        kept = self._kept.get((spec.number, task))
        rows = _rows_of(spec, state) if kept is None else kept.rows
        for name, of_store in rows.items():
            of_store.begin(view, state.written_to(task, name))
        if kept is None:
            kept = self._kept[spec.number, task] = _Kept(owner, make(rows), rows)
        return kept.graph


def _rows_of(spec: GraphSpec, state: StepState) -> dict[str, TaskRows]:
    return {
        name: TaskRows(name, logged=state.stores[name].changelog is not None, logs_last=store.caching)
        for name, store in spec.topology.stores.items()
        if name not in spec.global_stores
    }


def _made(
    spec: GraphSpec, task: TaskId, rows: Mapping[str, TaskRows], shared: GlobalState, now_ms: int, time: PartitionTime,
    handlers: ExceptionHandlers,
) -> TaskGraph:  # fmt: skip
    def rows_of(name: str) -> TaskRows:
        return shared.rows(name) if name in spec.global_stores else rows[name]

    return TaskGraph(
        spec.topology,
        task,
        rows=rows_of,
        default_serdes=spec.default_serdes,
        nodes=spec.inside,
        caching=spec.caching,
        exits={name: KeyValueSerdes(key=given.key_serde, value=given.value_serde) for name, given in spec.exits.items()},
        wall_clock=now_ms,
        stream_time=time.ms,
        emit_interval_ms=spec.emit_interval_ms,
        emitted=kept_by_processors([time]),
        handlers=handlers,
    )


def running_tasks(spec: StepSpec, request: BatchRequest) -> dict[TaskId, str]:
    """The tasks whose inputs the batch reads, each with its owner."""
    owners = {run.task: run.owner for run in request.tasks}
    return {task: owners.get(task, "") for task in sorted(inputs_of_tasks(spec, request.inputs))}


def stream_times(spec: StepSpec, times: Times) -> dict[TaskId, PartitionTime]:
    """The stream time of each task, where it is known: the highest time of its inputs; with what its processors keep."""
    found = {task: [times[tp] for tp in inputs] for task, inputs in inputs_of_tasks(spec, times).items()}
    return {
        task: PartitionTime(max(time.ms for time in known), tuple(kept_by_processors(known).items()))
        for task, known in found.items()
    }


def inputs_of_tasks(spec: StepSpec, partitions: Iterable[TopicPartition]) -> dict[TaskId, list[TopicPartition]]:
    """Of these partitions those that tasks of the topology read, by task."""
    subtopology_of = _subtopologies(spec)
    found: dict[TaskId, list[TopicPartition]] = {}
    for tp in partitions:
        if tp.topic in subtopology_of:
            found.setdefault(TaskId(subtopology_of[tp.topic], tp.partition), []).append(tp)
    return found


def _subtopologies(spec: StepSpec) -> dict[str, int]:
    """Sub-topology of each source topic."""
    return {topic: origin.subtopology for origin in spec.sources.values() for topic in origin.topics}

"""The global stores of a worker: one copy in memory for all of its tasks, updated by the records of all partitions.

Decides whether the stores are at the position that the driver expects: a batch continues at that position, or reads from the
beginning after the stores were emptied. They belong to no transaction: records of global topics that are in the stores count
whatever the outcome of the batch, as for Kafka Streams' global thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers
from tidemill.operators.task_graph import TaskGraph
from tidemill.steps.rows.task_rows import NO_STATE, TaskRows
from tidemill.steps.step_spec import GraphSpec
from tidemill.steps.step_state import Written
from tidemill.task.batch import BatchRequest


class GlobalState:
    """Rows and positions of the global stores, and the operators that keep them."""

    def __init__(self, handlers: ExceptionHandlers = FAILING) -> None:
        self._handlers = handlers
        self.positions: dict[TopicPartition, int] = {}
        self._rows: dict[str, TaskRows] = {}
        self._graphs: dict[int, TaskGraph] = {}

    def begin(self, request: BatchRequest) -> str | None:
        """Before a batch; the reason why it can't be used, if there is one."""
        if request.reset_globals:
            self.positions = dict(request.globals)
            for rows in self._rows.values():  # emptied, not replaced: the operators of tasks that go on hold them
                rows.begin(NO_STATE, Written())
            self._graphs.clear()
        elsewhere = [tp for tp, at in request.globals.items() if self.positions.get(tp) != at]
        if elsewhere:
            return f"the global stores are not where {elsewhere[0]} was read from"
        return None

    def read(self, ends: Mapping[TopicPartition, int]) -> None:
        """The records up to there are in the stores."""
        self.positions.update(ends)

    def rows(self, store: str) -> TaskRows:
        found = self._rows.get(store)
        if found is None:
            found = self._rows[store] = TaskRows(store, logged=False)
            found.begin(NO_STATE, Written())
        return found

    def graph(self, spec: GraphSpec, now_ms: int) -> TaskGraph:
        """The operators that keep the stores of a global part."""
        found = self._graphs.get(spec.number)
        if found is None:
            found = self._graphs[spec.number] = TaskGraph(
                spec.topology,
                TaskId(spec.subtopology, 0),
                rows=self.rows,
                default_serdes=spec.default_serdes,
                nodes=spec.inside,
                wall_clock=now_ms,
                handlers=self._handlers,
            )
        found.wall_clock = now_ms
        return found

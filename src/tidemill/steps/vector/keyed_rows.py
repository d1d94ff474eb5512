"""A batch's rows with numbered keys, as the vectorised aggregates of windows and sessions take them: task by task.

Decides which rows a task aggregates: all but those with a null key, which count as dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemill.ids import TaskId
from tidemill.steps.rows.task_rows import TaskRows, opened
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.arrays import Longs, coded_keys, longs
from tidemill.topology.values import Serde


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    codes: Longs
    """For each row the index of its key in ``keys``; -1 for a null key."""
    keys: list[bytes]
    parts: Longs
    timestamps: Longs
    has_headers: bool

    @classmethod
    def of(cls, table: pa.Table, key_serde: Serde) -> KeyedRows:
        codes, keys = coded_keys(table, key_serde)
        has_headers = table.column("headers").null_count < table.num_rows
        return cls(
            codes=codes, keys=keys, parts=longs(table, "part"), timestamps=longs(table, "ts"), has_headers=has_headers
        )

    def of_tasks(self, subtopology: int, state: StepState) -> Iterator[tuple[TaskId, Longs]]:
        """Each task with the indexes of its rows, in their order."""
        for part in np.unique(self.parts).tolist():
            mine = np.flatnonzero((self.parts == part) & (self.codes >= 0))
            state.dropped += int(np.count_nonzero(self.parts == part)) - len(mine)
            yield TaskId(subtopology, part), mine


@contextmanager
def rows_of_store(task: TaskId, store: str, state: StepState) -> Iterator[TaskRows]:
    """A task's rows of ``store``, with the batch's own writes, from one snapshot."""
    rows = TaskRows(store, logged=state.stores[store].changelog is not None)
    with opened(state.readers.get(task)) as view:
        rows.begin(view, state.written_to(task, store))
        yield rows

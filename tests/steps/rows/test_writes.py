"""What a Python step before the last has written arrives in the last one as it was."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill import Serdes
from tidemill.ids import TaskId
from tidemill.steps.rows.schema import DROPPED_COUNT
from tidemill.steps.rows.writes import take_writes, writes_as_rows
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StepState

TASK = TaskId(0, 3)


@pytest.mark.parametrize("logs_headers", [True, False])
def test_deletions_keep_their_headers_where_the_store_logs_them(*, logs_headers: bool) -> None:
    stores = {
        "rows": StoreSpec(
            name="rows", tag=-11, subtopology=0, changelog="app-rows-changelog", timestamped=True, persistent=True, logged=True,
            logs_headers=logs_headers, key_serde=Serdes.string(), value_serde=Serdes.string(),
        )
    }  # fmt: skip
    first, last = StepState({}, stores), StepState({}, stores)
    own = [("h", b"x"), ("i", None)]
    first.put_many(TASK, "rows", [b"gone", b"kept"], [None, b"row"], [5, 7], [own, own])
    table = pa.Table.from_batches(list(writes_as_rows(first, stores, 0)))
    take_writes({table.column("node")[0].as_py(): table}, last)
    assert last.written == first.written
    written = last.written_to(TASK, "rows")
    assert written.headers == ({b"gone": own, b"kept": None} if logs_headers else {})


def test_counts_of_two_steps_are_two_rows_for_a_layer_that_merges_equal_ones() -> None:
    rows = [next(iter(writes_as_rows(StepState({}, {}, dropped=3), {}, step))) for step in (1, 2)]
    assert rows[0] != rows[1]
    last = StepState({}, {})
    take_writes({DROPPED_COUNT: pa.Table.from_batches(rows)}, last)
    assert last.dropped == 6

"""What a Python step before the last has written arrives in the last one as it was."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidemill import Serdes
from tidemill.ids import TaskId
from tidemill.steps.rows.schema import DROPPED_COUNT
from tidemill.steps.rows.writes import take_writes, writes_as_rows
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StepState

TASK = TaskId(0, 3)


def store_spec(*, logs_headers: bool) -> StoreSpec:
    return StoreSpec(
        name="rows", tag=-100, subtopology=0, changelog="app-rows-changelog", timestamped=True, persistent=True, logged=True,
        logs_headers=logs_headers, key_serde=Serdes.string(), value_serde=Serdes.string(),
    )  # fmt: skip


@pytest.mark.parametrize("logs_headers", [True, False])
def test_deletions_keep_their_headers_where_the_store_logs_them(*, logs_headers: bool) -> None:
    stores = {"rows": store_spec(logs_headers=logs_headers)}
    first, last = StepState({}, stores), StepState({}, stores)
    own = [("h", b"x"), ("i", None)]
    first.put_many(TASK, "rows", [b"gone", b"kept"], [None, b"row"], [5, 7], [own, own])
    table = pa.Table.from_batches(list(writes_as_rows(first, stores, 0)))
    take_writes({table.column("node")[0].as_py(): table}, last)
    assert last.written == first.written
    written = last.written_to(TASK, "rows")
    assert written.headers == ({b"gone": own, b"kept": None} if logs_headers else {})


def test_changelog_records_of_several_tasks_keep_their_order_through_rows_of_any_order() -> None:
    stores = {"rows": store_spec(logs_headers=True)}
    first, last = StepState({}, stores), StepState({}, stores)
    tasks = [TaskId(0, part) for part in (3, 1, 2)]
    log = [(b"k%d" % (at % 2), bytes(300_000), None if at == 4 else at, (("h", b"x"),)) for at in range(9)]
    for task in tasks:
        first.written_to(task, "rows").log += log
        first.put_many(task, "rows", [b"k0", b"k1"], [b"row", None], [8, 7], [None, [("h", b"x")]])
    table = pa.Table.from_batches(list(writes_as_rows(first, stores, 0)))
    assert table.num_rows > 2 * len(tasks), "a log is in several rows"
    mixed = table.take(list(range(table.num_rows))[::-1])
    take_writes({tag: mixed.filter(pc.equal(mixed.column("node"), tag)) for tag in set(mixed.column("node").to_pylist())}, last)
    assert last.written == first.written


def test_equal_changelog_records_are_rows_that_differ_for_a_layer_that_merges_equal_ones() -> None:
    stores = {"rows": store_spec(logs_headers=False)}
    state = StepState({}, stores)
    state.written_to(TASK, "rows").log += [(b"k", bytes(600_000), 5, ())] * 8
    [rows] = writes_as_rows(state, stores, 0)
    distinct = {tuple(row.items()) for row in rows.to_pylist()}
    assert len(distinct) == rows.num_rows > 1


def test_counts_of_two_steps_are_two_rows_for_a_layer_that_merges_equal_ones() -> None:
    rows = [next(iter(writes_as_rows(StepState({}, {}, dropped=3), {}, step))) for step in (1, 2)]
    assert rows[0] != rows[1]
    last = StepState({}, {})
    take_writes({DROPPED_COUNT: pa.Table.from_batches(rows)}, last)
    assert last.dropped == 6

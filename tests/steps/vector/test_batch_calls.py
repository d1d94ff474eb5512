"""What the calls of a node's functions took: counted in the step that calls them, told by the last one."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pyarrow as pa
import pytest

from tests.steps.vector.batch_nodes import LONG, node, rows, state_of
from tidemill import per_batch, per_record_async
from tidemill.errors import RecordError
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers, ExceptionResponse
from tidemill.steps.rows.schema import FUNCTION_CALLS
from tidemill.steps.rows.writes import take_writes, writes_as_rows
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.in_batches import map_values_in_batches
from tidemill.task.batch import FunctionCalls
from tidemill.topology.batch_operations import BatchFunction, MapValuesInBatches

GOING_ON = ExceptionHandlers(processing=ExceptionResponse.CONTINUE)


def calls_of(function: BatchFunction, values: list[Any]) -> FunctionCalls:
    state, operation = state_of(GOING_ON), MapValuesInBatches(function)
    map_values_in_batches(node(operation, LONG, LONG), operation, rows(LONG, values), state)
    return state.functions["score"]


def failing_on(bad: int) -> Any:
    def function(values: Any) -> Any:
        if (values == bad).any():
            raise ValueError("a bad one")
        return values

    return function


@pytest.mark.parametrize(("values", "bad", "expected"), [
    ([1, 2, None, 4], 9, (1, 3, 0)), ([1, 2, 3, 4], 4, (5, 4, 1)), ([None], 9, (0, 0, 0)), ([4], 4, (1, 1, 1)),
])  # fmt: skip
def test_calls_with_halves_of_a_batch_count_and_each_record_and_failure_counts_once(
    values: list[Any], bad: int, expected: tuple[int, int, int]
) -> None:
    found = calls_of(per_batch(failing_on(bad)), values)
    assert (found.calls, found.records, found.failures) == expected
    assert found.took_ms == found.calls_ms >= found.longest_ms >= 0
    assert (found.longest_ms > 0) is (found.calls > 0)
    assert (found.most_in_flight, found.timeouts) == (0, 0)


def test_async_calls_overlap_and_a_timeout_is_a_failure_too() -> None:
    waiting: list[int] = []
    goes_on = asyncio.Event()

    async def ask(value: int) -> int:
        waiting.append(value)
        if len(waiting) == 3:
            goes_on.set()
        await goes_on.wait()
        if value == 5:
            await asyncio.Event().wait()
        if value == 4:
            raise TimeoutError("of its own")
        return value

    found = calls_of(per_record_async(ask, max_in_flight=3, timeout=300), [1, 2, 3, 4, 5, None])
    assert (found.calls, found.records, found.failures, found.timeouts, found.most_in_flight) == (6, 6, 2, 1, 3)
    assert found.longest_ms > 250, "the call that was cancelled"
    assert found.calls_ms > found.longest_ms


def test_a_call_that_exits_is_a_failure_and_the_calls_after_it_come_back() -> None:
    async def ask(value: int) -> int:
        if value == 2:
            sys.exit("no more")
        return value

    function = per_record_async(ask, max_in_flight=1, timeout=300)
    for handlers in (FAILING, GOING_ON):
        operation, state = MapValuesInBatches(function), state_of(handlers)
        with pytest.raises(RecordError, match=r"in-1 at offset 101: the function of score failed: SystemExit: no more"):
            map_values_in_batches(node(operation, LONG, LONG), operation, rows(LONG, [1, 2, 3]), state)
        assert state.functions["score"].failures == 1
    assert calls_of(function, [1, 3]).failures == 0


def test_a_batch_function_that_exits_on_a_record_ends_the_thread_whatever_the_handler_says() -> None:
    def exiting(values: Any) -> Any:
        if (values == 2).any():
            sys.exit("no more")
        return values

    with pytest.raises(RecordError, match=r"in-1 at offset 101: the function of score failed: SystemExit: no more"):
        calls_of(per_batch(exiting), [1, 2, 3])


def test_what_an_earlier_step_has_called_reaches_the_last_one_with_its_rows() -> None:
    before, last = StepState({}, {}), StepState({}, {})
    one = FunctionCalls(calls=1, records=3, failures=0, calls_ms=2.5, longest_ms=2.5, took_ms=2.5)
    other = FunctionCalls(
        calls=2, records=2, failures=1, calls_ms=9.0, longest_ms=5.0, took_ms=5.0, most_in_flight=2, timeouts=1
    )  # fmt: skip
    before.functions, last.functions = {"one": one}, {"other": other}
    [row] = writes_as_rows(before, {}, 1)
    tables = {FUNCTION_CALLS: pa.Table.from_batches([row])}
    take_writes(tables, last)
    assert last.functions == {"one": one, "other": other}
    assert tables == {}
    assert list(writes_as_rows(StepState({}, {}), {}, 1)) == []

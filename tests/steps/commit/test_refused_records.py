"""Records that exception handlers pass over in steps that need no graph of operators."""

from __future__ import annotations

import pytest

from tests.steps.step_fixtures import COUNT_TAG, TASK, count_spec, counts_stores
from tidemill import Serdes
from tidemill.errors import RecordError, RetriableError
from tidemill.operators.exception_handlers import ExceptionHandlers, ExceptionResponse
from tidemill.steps.rows.records import Records
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.vector_step import run_on_records
from tidemill.topology.operations import Aggregate, Peek

STRING = Serdes.string()
ASIDE = ExceptionHandlers(processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead")


def records(*values: bytes) -> Records:
    count = len(values)
    return Records(
        parts=[0] * count, keys=[b"k"] * count, values=list(values), timestamps=list(range(count)),
        offsets=list(range(10, 10 + count)), sequences=list(range(count)), headers=[None] * count,
    )  # fmt: skip


def folding() -> Aggregate:
    return Aggregate(
        store="counts", initializer=lambda: "", aggregator=lambda key, value, total: total + str(10 // int(value))
    )


def test_an_aggregate_leaves_out_what_its_function_fails_on_and_keeps_what_it_had() -> None:
    node = count_spec(folding(), STRING).nodes[COUNT_TAG]
    state = StepState({TASK: counts_stores()}, count_spec(folding(), STRING).stores, handlers=ASIDE)
    made = run_on_records(node, records(b"5", b"0", b"2"), state)
    assert made.values == [b"25"]
    assert (state.dropped, state.passed_over.letters.by_topic["dead"].values) == (1, [b"0"])
    failing = StepState({TASK: counts_stores()}, count_spec(folding(), STRING).stores)
    with pytest.raises(RecordError, match="at offset 11: the function of COUNT failed: ZeroDivisionError"):
        run_on_records(node, records(b"5", b"0", b"2"), failing)


def test_a_record_that_peek_fails_on_does_not_go_on() -> None:
    seen: list[str] = []

    def look(key: str, value: str) -> None:
        seen.append(value)
        if value == "b":
            raise OSError("no disk")

    node = count_spec(Peek(look), STRING).nodes[COUNT_TAG]
    state = StepState({TASK: counts_stores()}, {}, handlers=ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    made = run_on_records(node, records(b"a", b"b", b"c"), state)
    assert (made.values, made.offsets, seen) == ([b"a", b"c"], [10, 12], ["a", "b", "c"])
    assert "OSError: no disk" in state.passed_over.note


@pytest.mark.parametrize("handlers", [ASIDE, ExceptionHandlers()])
def test_no_handler_is_asked_about_what_may_work_later(handlers: ExceptionHandlers) -> None:
    def add(key: str, value: str, total: str) -> str:
        raise RetriableError("the registry is away")

    operation = Aggregate(store="counts", initializer=lambda: "", aggregator=add)
    state = StepState({TASK: counts_stores()}, count_spec(operation, STRING).stores, handlers=handlers)
    with pytest.raises(RetriableError, match="the registry is away"):
        run_on_records(count_spec(operation, STRING).nodes[COUNT_TAG], records(b"5"), state)
    assert state.dropped == 0

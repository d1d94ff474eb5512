"""A serde that can't write what functions of Columns give to a Python step, or can't read what the step gives to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pyspark.sql import functions as F

from tests.steps.step_fixtures import COUNT_TAG, INPUT, TASK, Context, batch, count_spec, word
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import ColumnsResultError, RetriableError, SerdeError, StopError
from tidemill.operators.exception_handlers import ErrorContext, ExceptionResponse
from tidemill.operators.record import Record
from tidemill.steps.middle_step import run_middle_step
from tidemill.task.batch import BatchRequest, Outcome, TaskRun

STRING = Serdes.string()


class Words:
    """Serde of text, of which it takes neither "b" nor "B"."""

    name: ClassVar[str] = "words"
    sql_type: ClassVar[str] = "string"

    def __init__(self, problem: BaseException | None = None) -> None:
        self._problem = problem or ValueError("none of my words")

    def serialize(self, value: str | None) -> bytes | None:
        return self._checked(None if value is None else value.encode())

    def deserialize(self, data: bytes | None) -> str | None:
        checked = self._checked(data)
        return None if checked is None else checked.decode()

    def _checked(self, data: bytes | None) -> bytes | None:
        if data == b"B":
            raise self._problem
        return data


def counting(serde: Any) -> Any:
    spec = count_spec()
    return replace(spec, nodes={COUNT_TAG: replace(spec.nodes[COUNT_TAG], key_serde=serde)})


def handing_on(serde: Any) -> Any:
    """The count's records go to a layer of columns."""
    spec = count_spec()
    node = replace(spec.nodes[COUNT_TAG], out_key_serde=serde, inline=(), tag=8)
    return replace(spec, last=False, nodes={COUNT_TAG: node})


GIVEN = [word("a", 0), word("B", 1)]


def hands_on(serde: Any) -> None:
    request = BatchRequest(batch_id=1, inputs={INPUT: 0}, tasks=(TaskRun(task=TASK, directory="d", epoch="e"),))
    list(run_middle_step(request, batch(GIVEN, 0), handing_on(serde), Context()))


@pytest.mark.parametrize(
    ("problem", "said"),
    [(ValueError("mine"), "ValueError: mine"), (SerdeError("words: expected others"), "words: expected others")],
)
def test_the_node_is_named_and_the_record_is_found_as_one_on_which_a_function_of_columns_fails(
    problem: Exception, said: str
) -> None:
    with pytest.raises(ColumnsResultError, match=f"COUNT: the key can't be written: {said}"):
        Context().run(GIVEN, spec=counting(Words(problem)))
    with pytest.raises(ColumnsResultError, match=f"COUNT: the key, for functions of Columns, can't be read: {said}"):
        hands_on(Words(problem))


def test_a_serde_that_exits_ends_the_thread_with_the_node() -> None:
    said = "COUNT: the key can't be written: SystemExit: no codebook"
    report = Context().run(GIVEN, spec=counting(Words(SystemExit("no codebook"))))
    assert (report.outcome, report.message) == (Outcome.STOPPED, said)
    with pytest.raises(StopError, match="COUNT: the key, for functions of Columns, can't be read: SystemExit: no codebook"):
        hands_on(Words(SystemExit("no codebook")))


@pytest.mark.parametrize("problem", [OSError("the disk"), MemoryError("no room")])
def test_no_record_is_blamed_for_disks_and_memory(problem: Exception) -> None:
    with pytest.raises(type(problem), match=str(problem)):
        Context().run(GIVEN, spec=counting(Words(problem)))


def test_what_may_work_later_loses_the_batch() -> None:
    report = Context().run(GIVEN, spec=counting(Words(RetriableError("the registry"))))
    assert (report.outcome, report.message) == (Outcome.LOST, "the registry")


@pytest.mark.spark
def test_the_error_names_the_node_and_the_record(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    upper = builder.stream("in", key=STRING, value=STRING).map_values(F.upper)
    upper.to_table(key=STRING, value=Words(), store="words", name="keeps")
    driver = topology_test_driver(builder)
    topic = driver.create_input_topic("in", key=STRING, value=STRING)
    topic.pipe_input("k", "a")
    with pytest.raises(StopError, match=r"task 0_0, in-0 at offset 1: .*keeps: the value can't be written"):
        topic.pipe_input("k", "b")


@pytest.mark.spark
def test_without_functions_of_columns_error_and_handler_have_the_node_whose_serde_fails(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to_table(key=STRING, value=Words(), store="words", name="keeps")
    driver = topology_test_driver(builder)
    topic = driver.create_input_topic("in", key=STRING, value=STRING)
    said = "in-0 at offset 0: the serde of keeps failed: the value can't be written: .* Correct the serde,"
    with pytest.raises(StopError, match=said):
        topic.pipe_input("k", "B")
    driver = topology_test_driver(builder, {"processing.exception.handler": only_of_keeps})
    driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "B")
    assert driver.dropped == 1


def only_of_keeps(context: ErrorContext, _record: Record | None, _error: Exception) -> ExceptionResponse:
    return ExceptionResponse.CONTINUE if context.node == "keeps" else ExceptionResponse.FAIL

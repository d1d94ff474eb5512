"""What a sink's topic extractor or partitioner fails on: whom Kafka Streams 4.3 asks about it, through the steps of a worker.

Measured with the TopologyTestDriver of 4.3.0: such an error is met where the node above the sink forwards. So the processing
handler is asked, in the name of that node; a source forwards outside of all handlers; the production handler hears of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tests.operators.test_exception_handlers import SilentError
from tests.steps.commit.test_dead_letters import run_of
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import RetriableError
from tidemill.operators.exception_handlers import ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.operators.record import Record

STRING = Serdes.string()
Builds = Callable[..., StreamsBuilder]


def bad(value: str, answer: Any) -> Any:
    if value == "bad":
        raise ValueError("boom")
    return answer


def extracting(*, behind: str, give: Callable[[str], Any] = lambda value: bad(value, "out")) -> StreamsBuilder:
    builder, stream = _behind(behind)
    stream.to(lambda key, value, record: give(value), key=STRING, value=STRING, name="routes")
    return builder


def placing(*, behind: str, give: Callable[[str], Any] = lambda value: bad(value, 0)) -> StreamsBuilder:
    builder, stream = _behind(behind)
    stream.to("out", key=STRING, value=STRING, name="routes", partitioner=lambda topic, key, value, count: give(value))
    return builder


def _behind(node: str) -> tuple[StreamsBuilder, Any]:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING, name="reads")
    if node == "python":
        stream = stream.peek(lambda key, value: None, name="above")
    if node == "graph":
        stream = stream.map_values(per_record(lambda value: value, STRING), name="above")
    return builder, stream


RECORDS = [("in", key, value, at, ()) for at, (key, value) in enumerate([(b"a", b"1"), (b"b", b"bad"), (b"c", b"3")])]


class Asked:
    """A handler that says which errors it was asked about."""

    def __init__(self, response: ExceptionResponse) -> None:
        self.response = response
        self.contexts: list[ErrorContext] = []
        self.records: list[Record | None] = []

    def __call__(self, context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        self.contexts.append(context)
        self.records.append(record)
        return self.response


def sent(run: StepRun) -> list[tuple[str, bytes | None]]:
    return [(topic, value) for topic, _key, value, *_ in run.written]


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_the_processing_handler_is_asked_in_the_name_of_the_node_above(program: Builds, behind: str) -> None:
    asked, production = Asked(ExceptionResponse.CONTINUE), Asked(ExceptionResponse.CONTINUE)
    run = run_of(program(behind=behind), ExceptionHandlers(processing=asked, production=production))
    run.pipe(RECORDS)
    assert sent(run) == [("out", b"1"), ("out", b"3")]
    assert run.dropped == 1
    ((context,), (record,)) = asked.contexts, asked.records
    assert (context.node, context.topic, context.partition, context.offset) == ("above", "in", 0, 1)
    assert record is not None
    assert (record.key, record.value) == ("b", "bad")
    assert production.contexts == []


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_without_a_handler_the_error_names_the_record_that_was_read(program: Builds, behind: str) -> None:
    run = run_of(program(behind=behind), ExceptionHandlers())
    with pytest.raises(AssertionError, match=r"task 0_0, in-0 at offset 1: .*routes.*ValueError: boom"):
        run.pipe(RECORDS)


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_an_exception_without_a_text_is_asked_about_too(program: Builds, behind: str) -> None:
    def silent(value: str) -> object:
        raise SilentError

    asked = Asked(ExceptionResponse.CONTINUE)
    run = run_of(program(behind=behind, give=silent), ExceptionHandlers(processing=asked))
    run.pipe(RECORDS)
    assert [context.offset for context in asked.contexts] == [0, 1, 2]


@pytest.mark.parametrize("program", [extracting, placing])
def test_directly_behind_a_source_no_handler_is_asked(program: Builds) -> None:
    asked = Asked(ExceptionResponse.CONTINUE)
    run = run_of(program(behind="source"), ExceptionHandlers(processing=asked, production=asked))
    with pytest.raises(AssertionError, match=r"task 0_0, in-0 at offset 1: .*routes.*boom"):
        run.pipe(RECORDS)
    assert asked.contexts == []


@pytest.mark.parametrize("behind", ["python", "graph"])
@pytest.mark.parametrize(
    ("program", "given"),
    [(extracting, None), (extracting, ""), (extracting, 7), (extracting, "a b"), (placing, -1), (placing, "1"), (placing, 9)],
)
def test_a_wrong_answer_of_such_a_function_is_an_error_of_it(program: Builds, given: object, behind: str) -> None:
    good = "out" if program is extracting else 0
    made = program(behind=behind, give=lambda value: given if value == "bad" else good)
    run = run_of(made, ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    run.pipe(RECORDS)
    assert [value for _topic, value in sent(run)] == [b"1", b"3"]
    assert run.dropped == 1


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_a_dead_letter_of_such_a_record_goes_with_the_batch(program: Builds, behind: str) -> None:
    handlers = ExceptionHandlers(processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead")
    run = run_of(program(behind=behind), handlers)
    run.pipe(RECORDS)
    assert sorted(sent(run)) == [("dead", b"bad"), ("out", b"1"), ("out", b"3")]


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_no_handler_is_asked_about_what_may_work_later(program: Builds, behind: str) -> None:
    def away(value: str) -> object:
        raise RetriableError("the registry is away")

    asked = Asked(ExceptionResponse.CONTINUE)
    run = run_of(program(behind=behind, give=away), ExceptionHandlers(processing=asked, production=asked))
    with pytest.raises(AssertionError, match=r"^lost: the registry is away"):
        run.pipe(RECORDS)
    assert asked.contexts == []


@pytest.mark.parametrize("program", [extracting, placing])
@pytest.mark.parametrize("behind", ["python", "graph"])
def test_a_handler_that_fails_ends_the_thread_and_says_so(program: Builds, behind: str) -> None:
    def handler(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        raise KeyError("of the handler")

    run = run_of(program(behind=behind), ExceptionHandlers(processing=handler))
    with pytest.raises(AssertionError, match=r"task 0_0, in-0 at offset 1: .*KeyError: 'of the handler'"):
        run.pipe(RECORDS)


def test_a_repartition_topics_partitioner_is_asked_about_as_well() -> None:
    builder, stream = _behind("python")
    again = stream.repartition(
        name="again", key=STRING, value=STRING, partitioner=lambda topic, key, value, count: bad(value, 0)
    )
    again.to("out", key=STRING, value=STRING)
    asked = Asked(ExceptionResponse.CONTINUE)
    run = run_of(builder, ExceptionHandlers(processing=asked))
    run.pipe(RECORDS)
    assert [value for topic, value in sent(run) if topic == "out"] == [b"1", b"3"]
    assert [context.node for context in asked.contexts] == ["again-repartition-filter"]

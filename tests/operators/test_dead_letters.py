"""Records that exception handlers pass over, through the steps of a worker: what goes on, what is put aside, what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from step_harness import StepRun

from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers, ExceptionResponse
from tidemill.spark.graph_step import KeptGraphs
from tidemill.spark.unreadable import OnUnreadable, Unreadable

STRING, LONG = Serdes.string(), Serdes.long()
ASIDE = ExceptionHandlers(
    processing=ExceptionResponse.DEAD_LETTER, production=ExceptionResponse.DEAD_LETTER, dead_letter_topic="dead"
)


def run_of(builder: StreamsBuilder, handlers: ExceptionHandlers) -> StepRun:
    run = StepRun(builder.build())
    for worker in run._workers:
        worker.unreadable = Unreadable(
            handler=OnUnreadable.FAIL, topic=handlers.dead_letter_topic, expected={}, handlers=handlers
        )
        worker.graphs = KeptGraphs(handlers)
    return run


def number(value: str) -> int:
    return int(value)


def counting_numbers() -> StreamsBuilder:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=STRING, value=STRING).map_values(per_record(number, LONG))
    numbers.to("out", value=LONG)
    numbers.group_by(per_record(lambda k, v: str(v % 2), STRING), value=LONG).count(store="counts")
    return builder


def sent(*values: bytes) -> list[tuple[Any, ...]]:
    return [("in", b"k%d" % at, value, 100 + at, (("own", b"1"),)) for at, value in enumerate(values)]


def test_a_record_put_aside_is_the_sources_with_its_own_headers_and_those_of_the_error() -> None:
    run = run_of(counting_numbers(), ASIDE)
    run.pipe(sent(b"1", b"one", b"2"))
    by_topic: dict[str, list[Any]] = {}
    for topic, *rest in run.written:
        by_topic.setdefault(topic, []).append(rest)
    assert [row[1] for row in by_topic["out"]] == [LONG.serialize(1), LONG.serialize(2)]
    ((key, value, timestamp, headers, _batch),) = by_topic["dead"]
    assert (key, value, timestamp) == (b"k1", b"one", 101)
    said = dict(headers)
    assert said.pop("__streams.errors.stacktrace").endswith(b"ValueError: invalid literal for int() with base 10: 'one'\n")
    assert said == {
        "own": b"1",
        "__streams.errors.exception": b"builtins.ValueError",
        "__streams.errors.message": b"invalid literal for int() with base 10: 'one'",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"1",
    }
    assert run.dropped == 1


def test_what_is_passed_over_is_counted_and_said_in_the_report() -> None:
    handlers = ExceptionHandlers(processing=ExceptionResponse.CONTINUE)
    run = run_of(counting_numbers(), handlers)
    report = run._run(sent(b"one", b"two", b"3"), 0)
    assert report.skipped == 2
    assert "2 records were passed over, the first: task 0_0, in-0 at offset 0: KSTREAM-MAPVALUES" in report.message
    assert {topic for topic, *_ in run.written} == {"out", "app-counts-repartition"}


def test_without_a_handler_the_batch_stops_with_the_record() -> None:
    with pytest.raises(AssertionError, match=r"task 0_0, in-0 at offset 0: the function of KSTREAM-MAPVALUES"):
        run_of(counting_numbers(), FAILING).pipe(sent(b"one"))

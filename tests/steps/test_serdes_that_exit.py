"""Serdes that raise what is no Exception, as ``sys.exit()`` does: the error names the record, whoever reads it."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.operators.step_harness import StepRun
from tests.steps.vector.batch_nodes import node, rows, state_of
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import RecordError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.operators.record import Record
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.rows.records import from_rows
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.vector.record_calls import peek, print_all
from tidemill.topology.operations import Peek, Print

STRING = Serdes.string()


class Exits:
    """Serde of text that ends the process on the text "bad"."""

    name: ClassVar[str] = "exits"
    sql_type: ClassVar[str] = "string"

    def __init__(self, problem: type[BaseException] = SystemExit) -> None:
        self._problem = problem

    def serialize(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    def deserialize(self, data: bytes | None) -> str | None:
        if data == b"bad":
            raise self._problem("no codebook")
        return None if data is None else data.decode()


GIVEN = [("in", b"k", b"good", 0, ()), ("in", b"k", b"bad", 1, ())]


@pytest.mark.parametrize("problem", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("extractor", [None, lambda record, _before: record.timestamp])
@pytest.mark.parametrize("in_graph", [True, False])
def test_the_record_is_named(problem: type[BaseException], extractor: Any, in_graph: bool) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=Exits(problem), name="reads", timestamp_extractor=extractor)
    if in_graph:
        stream = stream.map_values(per_record(str.upper, STRING))
    stream.to("out", key=STRING, value=STRING)
    said = rf"in-0 at offset 1: reads: a deserializer raised {problem.__name__} \(no codebook\), which ends a stream thread"
    with pytest.raises((RecordError, AssertionError), match=said):
        StepRun(builder.build()).pipe(GIVEN)


@pytest.mark.parametrize(("operation", "run"), [(Peek(function=lambda *_: None), peek), (Print(label="p"), print_all)])
def test_between_nodes_the_record_is_named_too(operation: Any, run: Any) -> None:
    given = rows(STRING, ["good", "bad"])
    reads = node(operation, Exits(), Exits())
    with pytest.raises(RecordError, match="in-1 at offset 101: the function of score failed: SystemExit: no codebook"):
        run(reads, operation, from_rows(given, STRING, STRING), state_of())


def test_a_handler_gets_the_bytes_of_what_a_serde_can_not_read_between_nodes() -> None:
    class Refuses(Exits):
        def deserialize(self, data: bytes | None) -> str | None:
            raise ValueError("no codebook")

    asked: list[Record | None] = []

    def handler(_context: ErrorContext, record: Record | None, _error: Exception) -> ExceptionResponse:
        asked.append(record)
        return ExceptionResponse.CONTINUE

    operation, state = Peek(function=lambda *_: None), state_of(ExceptionHandlers(processing=handler))
    records = from_rows(rows(STRING, ["a"]), STRING, STRING)
    assert len(peek(node(operation, Refuses(), Refuses()), operation, records, state)) == 0
    assert [(record.key, record.value) for record in asked if record is not None] == [("k0", b"a")]


def test_a_sink_whose_serde_does_not_read_what_it_writes_says_so() -> None:
    """Its partitioner gets values, for which the bytes are read again."""
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING, name="reads").peek(lambda key, value: None, name="above")
    stream.to("out", key=STRING, value=Exits(), name="routes", partitioner=lambda topic, key, value, count: 0)
    sink = r"routes \(topic out; [^ ]*test_serdes_that_exit.py, line \d+\)"
    with pytest.raises(AssertionError, match=f"in-0 at offset 1: {sink}: the partitioner failed: SystemExit: no codebook"):
        StepRun(builder.build()).pipe(GIVEN)


def test_a_source_topic_that_serves_as_changelog_names_the_record_and_the_store() -> None:
    store = StoreSpec(
        name="rows", tag=7, subtopology=0, changelog=None, source_topic="in", timestamped=True, persistent=True, logged=False,
        key_serde=STRING, value_serde=Exits(),
    )  # fmt: skip
    given = [{"part": 2, "off": 30 + at, "ts": 5, "key": b"k", "value": value} for at, value in enumerate([b"good", b"bad"])]
    with pytest.raises(RecordError, match="task 0_2, in-2 at offset 31: store rows: a deserializer raised SystemExit"):
        restored_writes(pa.Table.from_pylist(given, schema=SCHEMA), store, {TaskId(0, 2): Any})

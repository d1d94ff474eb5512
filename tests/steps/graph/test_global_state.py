"""Global stores where operators run in a step before the last: a copy, which counts nothing and starts anew with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.operators.step_harness import APPLICATION, StepRun, Worker
from tidemill import Record, Serdes, Stores, StreamsBuilder
from tidemill.errors import RetriableError
from tidemill.ids import TopicPartition
from tidemill.operators.exception_handlers import ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.stages import stages
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.middle_step import run_middle_step
from tidemill.steps.source_step import source_rows
from tidemill.task.batch import BatchReport, BatchRequest, Outcome
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import GivenReader
from tidemill.topology.nodes import Topology

TEXT, LONG = Serdes.string(), Serdes.long()
EVENTS, ROWS = TopicPartition("events", 0), TopicPartition("rows", 0)


def program(below: Any = None) -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table("rows", key=TEXT, value=LONG)
    stream = builder.stream("events", key=TEXT, value=TEXT)
    joined = stream.left_join(table, lambda left, right: f"{left}{right}", selector=lambda key, value: key)
    (joined if below is None else joined.map_values(below)).to("out", key=TEXT, value=TEXT)
    return builder.build()


def two_steps(run: StepRun) -> StepRun:
    """The same with a step behind it, as a plan with functions of columns below has it."""
    [step] = run.compiled.steps
    kept = tuple(graph for graph in step.graphs if graph.is_global)
    run.compiled.steps = (replace(step, last=False), replace(step, number=2, graphs=kept, has_copies_above=True))
    run.workers = [Worker(run.stores, unreadable=_going_on()) for _ in range(2)]
    return run


def _going_on() -> Unreadable:
    return Unreadable(handler=ExceptionResponse.CONTINUE, topic=None, expected={0: "", 1: "", 2: ""})


def test_functions_of_columns_may_stand_below_a_join_with_a_global_table() -> None:
    plan = stages(program(below=lambda value: value))
    [join] = [part for part in plan.parts if not part.is_global]
    assert (plan.step_of_part(join), plan.last) == (1, 2)
    assert [[part.is_global for part in plan.parts_in(step)] for step in (1, 2)] == [[True, False], [True]]
    alone = stages(program())
    assert [part.is_global for part in alone.parts_in(alone.last)] == [True, False]
    assert alone.last == 1


def test_a_step_with_a_copy_joins_as_the_last_one_does_and_counts_nothing_twice() -> None:
    records = [
        ("rows", b"a", bytes(8), 1, ()), ("events", b"a", b"x", 2, ()), ("events", b"b", b"x", 3, ()),
        ("rows", None, bytes(8), 4, ()), ("rows", b"b", b"no long", 5, ()), ("rows", b"b", bytes(7) + b"\5", 6, ()),
        ("events", b"b", b"y", 7, ()), ("rows", b"a", None, 8, ()), ("events", b"a", b"z", 9, ()), ("events", b"a", None, 9, ()),
    ]  # fmt: skip
    for size in (1, 3, 10):
        one, two = StepRun(program()), two_steps(StepRun(program()))
        one.workers[0].unreadable = _going_on()
        reports: list[list[BatchReport]] = [[], []]
        for begin in range(0, len(records), size):
            for run, said in zip((one, two), reports, strict=True):
                said.append(run.run_at(records[begin : begin + size], 0))
        assert two.written == one.written
        assert len(one.written) == 4
        for counted in ("dropped", "skipped", "records_in", "globals"):
            assert [getattr(r, counted) for r in reports[1]] == [getattr(r, counted) for r in reports[0]], counted
        assert (sum(r.dropped for r in reports[0]), sum(r.skipped for r in reports[0])) == (3, 1)


class NeedsRegistry:
    """A serde whose registry is away at first."""

    name, sql_type, is_away = "registry", "string", True

    def serialize(self, value: str | None) -> bytes | None:
        return None if value is None else value.encode()

    def deserialize(self, data: bytes | None) -> str | None:
        if self.is_away:
            raise RetriableError("the registry is away")
        return None if data is None else data.decode()


def test_records_whose_registry_was_away_are_read_again_with_the_next_batch() -> None:
    registry = NeedsRegistry()
    builder = StreamsBuilder()
    table = builder.global_table("rows", key=TEXT, value=registry)
    stream = builder.stream("events", key=TEXT, value=TEXT)
    stream.left_join(table, lambda left, right: f"{left}{right}", selector=lambda key, value: key).to("out", key=TEXT, value=TEXT)
    run = StepRun(builder.build())
    row = ("rows", b"a", b"y", 1, ())
    lost = run.run_at([row], 0, expected=Outcome.LOST)
    assert (lost.message, lost.globals) == ("the registry is away", {ROWS: 0})
    registry.is_away = False
    run.positions[ROWS], run.follows = 0, 0
    run.pipe([row, ("events", b"a", b"x", 2, ())])
    assert [value for _, _, value, *_ in run.written] == [b"xy"]


class LooksUp:
    """Puts what the global store has of a record's key before its value."""

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.store("rows-store")

    def process(self, record: Any) -> None:
        self._context.forward(record.with_value(f"{self._store.get(record.key)}-{record.value}"))


def test_a_processor_reads_a_global_store_that_another_part_keeps() -> None:
    builder = StreamsBuilder()
    builder.global_table("rows", key=TEXT, value=LONG, store="rows-store")
    builder.stream("events", key=TEXT, value=TEXT).process_values(LooksUp, value=TEXT).to("out", key=TEXT)
    for run in (StepRun(builder.build()), two_steps(StepRun(builder.build()))):
        run.pipe([("rows", b"a", bytes(7) + b"\5", 1, ()), ("events", b"a", b"x", 2, ())])
        assert [value for _, _, value, *_ in run.written] == [b"ValueAndTimestamp(value=5, timestamp_ms=1)-x"]


def test_a_copy_that_is_not_where_the_driver_thinks_has_all_of_them_read_again() -> None:
    source = compile_topology(None, program(), APPLICATION).source
    run = two_steps(StepRun(program()))

    def batch(number: int, at: dict[TopicPartition, int], records: list[tuple[Any, ...]], *, anew: bool) -> BatchReport:
        request = BatchRequest(
            batch_id=number, inputs={EVENTS: at[EVENTS]}, globals={ROWS: at[ROWS]}, reset_globals=anew, tasks=(), now_ms=0,
            last_committed_batch=number - 1,
        )
        rows: Any = list(source_rows(GivenReader([RawRecord(*record) for record in records]), request, source))
        (above, last), (copying, counting) = run.compiled.steps, run.workers
        return run_last_step(request, list(run_middle_step(request, rows, above, copying)), last, counting)

    row, event = ("rows", b"a", bytes(8), 1, ()), ("events", b"a", b"x", 2, ())
    first = batch(1, {EVENTS: 0, ROWS: 0}, [row, event], anew=True)
    assert (first.outcome, first.globals) == (Outcome.COMMITTED, {ROWS: 1})
    run.workers[0] = Worker(run.stores)  # the process was replaced
    lost = batch(2, {EVENTS: 1, ROWS: 1}, [event], anew=False)
    assert (lost.outcome, lost.globals) == (Outcome.LOST, {})
    again = batch(3, {EVENTS: 1, ROWS: 0}, [row, event], anew=True)
    assert (again.outcome, again.globals) == (Outcome.COMMITTED, {ROWS: 1})
    assert [sent.value for sent in run.workers[-1].output.sent] == [b"x0"]


def test_tasks_that_go_on_read_the_copy_that_was_read_again() -> None:
    """A position of a global topic that is gone (retention, a topic that was created again) costs a batch before operators are
    bound to it, so that they are kept."""
    run = StepRun(program())
    source = run.compiled.source

    def batch(
        number: int, event: int, at: int, records: list[tuple[Any, ...]], *, anew: bool = False,
        gone: tuple[TopicPartition, ...] = (),
    ) -> BatchReport:  # fmt: skip
        request = BatchRequest(
            batch_id=number, inputs={EVENTS: event}, globals={ROWS: at}, reset_globals=anew, tasks=(), now_ms=0,
            last_committed_batch=min(number - 1, 1),
        )  # fmt: skip
        reader = GivenReader([RawRecord(*record) for record in records])
        reader.out_of_range = lambda: gone  # type: ignore[method-assign]
        rows: Any = list(source_rows(reader, request, source))
        return run_last_step(request, rows, run.compiled.steps[-1], run.workers[-1])

    event = ("events", b"a", b"x", 2, ())
    batch(1, 0, 0, [("rows", b"a", bytes(8), 1, ()), ("rows", b"b", bytes(8), 1, ()), event], anew=True)
    lost = batch(2, 1, 2, [], gone=(ROWS,))
    assert (lost.outcome, lost.out_of_range) == (Outcome.LOST, (ROWS,))
    records = [("rows", b"a", bytes(7) + b"\7", 1, ()), event, ("events", b"b", b"y", 3, ())]
    assert batch(3, 1, 0, records, anew=True).outcome is Outcome.COMMITTED
    assert [sent.value for sent in run.workers[-1].output.sent] == [b"x7", b"yNone"]


class _Upper:
    """Keeps the letters of each value; fails on what has none."""

    def init(self, context: Any) -> None:
        self._store = context.store("kept")

    def process(self, record: Any) -> None:
        if not record.value.isalpha():
            raise ValueError(f"no letters: {record.value}")
        self._store.put(record.key, record.value.upper())


def _fails_on_digits() -> Topology:
    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store("kept", key=TEXT, value=TEXT), "rows", _Upper)
    stream = builder.stream("events", key=TEXT, value=TEXT)
    stream.process_values(LooksUpKept, value=TEXT).to("out", key=TEXT)
    return builder.build()


class LooksUpKept(LooksUp):
    def init(self, context: Any) -> None:
        self._context, self._store = context, context.store("kept")


def _asked(handlers: ExceptionHandlers) -> StepRun:
    run = StepRun(_fails_on_digits())
    unreadable = replace(_going_on(), handlers=handlers)
    run.workers = [Worker(run.stores, unreadable=unreadable, graphs=KeptGraphs(handlers))]
    return run


def test_a_processor_of_a_global_store_that_fails_ends_the_thread_unless_its_handler_is_asked() -> None:
    """KIP-1270: also where a processing handler is set, as long as processing.exception.handler.global.enabled is not."""
    records = [("rows", b"a", b"x", 1, ()), ("rows", b"b", b"7", 2, ()), ("events", b"a", b"e", 3, ())]
    with pytest.raises(AssertionError, match=r"stopped: .*rows-0 at offset 1: .*no letters: 7"):
        _asked(ExceptionHandlers(processing=ExceptionResponse.CONTINUE)).pipe(records)
    asked: list[tuple[str, int | None, Any]] = []

    def handler(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        asked.append((context.topic, context.offset, None if record is None else record.value))
        return ExceptionResponse.DEAD_LETTER

    run = _asked(ExceptionHandlers(processing=handler, dead_letter_topic="dead", cover_global_stores=True))
    run.pipe(records)
    assert asked == [("rows", 1, "7")]
    assert [(topic, value) for topic, _, value, *_ in run.written] == [("out", b"X-e")]  # and no dead letter


def test_what_a_copy_skips_is_counted_once() -> None:
    handlers = ExceptionHandlers(processing=ExceptionResponse.CONTINUE, cover_global_stores=True)
    run = two_steps(_asked(handlers))
    run.workers = [replace(worker, graphs=KeptGraphs(handlers)) for worker in run.workers]
    report = run.run_at([("rows", b"a", b"x", 1, ()), ("rows", b"b", b"7", 2, ()), ("events", b"a", b"e", 3, ())], 0)
    assert (report.skipped, report.dropped) == (1, 1)
    assert [value for _, _, value, *_ in run.written] == [b"X-e"]


def test_a_record_of_a_global_topic_that_cannot_be_read_is_counted_and_gets_no_dead_letter() -> None:
    """Each thread of each instance would send one, at each start."""
    run = StepRun(program())
    expected = {0: "", 1: "", 2: ""}
    run.workers[0].unreadable = Unreadable(handler=ExceptionResponse.DEAD_LETTER, topic="dead", expected=expected)
    report = run.run_at([("rows", b"a", b"no long", 1, ()), ("events", b"a", b"x", 2, ())], 0)
    assert (report.skipped, report.dropped) == (1, 1)
    assert "rows-0 at offset 0" in report.message
    assert [topic for topic, *_ in run.written] == ["out"]

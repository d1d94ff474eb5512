"""What a worker keeps of its operators: they go on after a batch that counted, and are made anew after one that did not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.operators.step_harness import StepRun, Worker
from tidemill import (
    PunctuationType,
    Record,
    Serdes,
    SessionWindows,
    Stores,
    StreamsBuilder,
    TimeWindows,
    TopologyBuilder,
    per_record,
)
from tidemill.ids import TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.task.partition_time import PartitionTime, from_metadata

STRING = Serdes.string()
_CONTINUE = Unreadable(handler=ExceptionResponse.CONTINUE, topic=None, expected={0: ""})


class Clocked:
    """Says how many of these have been made and closed, and how many records each has seen."""

    made = closed = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.seen = 0

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self.seen += 1
        self._context.forward(record.with_value(f"{record.value}{self.seen}"))

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def run() -> StepRun:
    Clocked.made = Clocked.closed = 0
    builder = StreamsBuilder()
    builder.stream("in").process(Clocked).to("out")
    return StepRun(builder.build())


def pipe(run: StepRun, value: str) -> bytes | None:
    run.pipe([("in", b"k", value.encode(), 0, ())])
    return run.written[-1][2]


def test_operators_go_on_in_the_next_batch(run: StepRun) -> None:
    assert [pipe(run, "a"), pipe(run, "b")] == [b"a1", b"b2"]
    assert (Clocked.made, Clocked.closed) == (1, 0)


def test_operators_are_recreated_after_a_batch_that_did_not_count(run: StepRun) -> None:
    assert pipe(run, "a") == b"a1"
    run.follows = 0
    assert pipe(run, "b") == b"b1"
    assert (Clocked.made, Clocked.closed) == (2, 1)


@pytest.mark.parametrize("raised", [ValueError("no"), SystemExit(3)], ids=["fails", "exits"])
def test_a_processor_that_fails_to_close_keeps_no_other_one_open_and_no_batch_from_running(
    raised: BaseException, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Clocked):
        def close(self) -> None:
            raise raised

    monkeypatch.setattr(Clocked, "closed", 0)
    builder = StreamsBuilder()
    builder.stream("in").process(Failing).process(Clocked).to("out")
    run = StepRun(builder.build())
    assert pipe(run, "a") == b"a11"
    run.follows = 0
    assert pipe(run, "b") == b"b11"
    assert Clocked.closed == 1
    assert "event=close-failed task=0_0" in caplog.text


@pytest.mark.parametrize("other", [{"epoch": "another"}, {"demotions": 1}], ids=["opened again", "was a standby meanwhile"])
def test_operators_are_recreated_for_another_owner_of_the_task(run: StepRun, other: dict[str, Any]) -> None:
    """Also where the stores stay open: another one has written since what they hold, and what these keep in memory is older."""
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().process(Clocked).to("out", value=STRING)
    run = StepRun(builder.build())
    assert pipe(run, "a") == b"11"
    vars(run).update(other)
    assert pipe(run, "b") == b"21"
    assert (Clocked.made, Clocked.closed) == (2, 1)


class StreamTimes:
    """Forwards the stream time with each record, and when a punctuator is called by it."""

    def init(self, context: Any) -> None:
        self._context, self._at_first = context, context.current_stream_time_ms
        context.schedule(10_000, PunctuationType.STREAM_TIME, self._punctuate)

    def process(self, record: Any) -> None:
        self._context.forward(record.with_value(f"{self._at_first}, now {self._context.current_stream_time_ms}"))

    def _punctuate(self, now: int) -> None:
        self._context.forward(Record("k", f"called at {now}", now))


def stream_times_run() -> StepRun:
    builder = StreamsBuilder()
    builder.stream("in").process(StreamTimes).to("out")
    return StepRun(builder.build())


def said(run: StepRun, *times: int) -> list[bytes | None]:
    """What a batch of records of these times makes."""
    before = len(run.written)
    run.pipe([("in", b"k", b"", time, ()) for time in times])
    return [record[2] for record in run.written[before:]]


def test_operators_recreated_go_on_at_the_tasks_stream_time() -> None:
    run = stream_times_run()
    assert said(run, 5_000, 1_000) == [b"-1, now 5000", b"called at 5000", b"-1, now 5000"]
    run.follows = 0
    assert said(run, 2_000) == [b"called at 5000", b"5000, now 5000"]


def test_a_new_owner_goes_on_at_the_stream_time_that_was_committed_and_punctuates_without_a_record() -> None:
    run = stream_times_run()
    run.times = {TopicPartition("in", 0): PartitionTime(7_000)}
    assert said(run) == [b"called at 7000"]
    assert said(run, 9_999) == [b"7000, now 9999"]
    assert said(run, 10_000) == [b"7000, now 10000", b"called at 10000"]


def test_records_that_come_to_no_operator_move_the_stream_time_too() -> None:
    run = stream_times_run()
    assert said(run, 5_000) == [b"-1, now 5000", b"called at 5000"]
    run.times = {TopicPartition("in", 0): PartitionTime(12_000)}
    assert said(run) == [b"called at 12000"]
    assert said(run, 6_000) == [b"-1, now 12000"]


class Ticking:
    """Forwards each record, and every 10 ms of stream time one of its own, if it is told to."""

    def __init__(self, ticks: bool) -> None:
        self._ticks = ticks

    def init(self, context: Any) -> None:
        self._context = context
        if self._ticks:
            context.schedule(10, PunctuationType.STREAM_TIME, lambda now: context.forward(Record("k", f"at {now}", now)))

    def process(self, record: Any) -> None:
        self._context.forward(record)


@pytest.mark.parametrize("second", ["processed", "source"])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_records_that_meet_a_processors_only_in_a_sink_move_its_time_each(second: str, size: int) -> None:
    builder = TopologyBuilder().add_source("ticking", "a").add_source("source", "b")
    builder.add_processor("ticks", lambda: Ticking(True), "ticking")
    builder.add_processor("processed", lambda: Ticking(False), "source")
    builder.add_sink("sink", "out", "ticks", second)
    run = StepRun(builder.build())
    records = [(topic, b"k", b"%d" % at, at, ()) for topic, at in (("a", 0), ("b", 10), ("b", 20), ("a", 30))]
    for first in range(0, 4, size):
        run.pipe(records[first : first + size])
    values = [value for _, _, value, *_ in run.written]
    assert values == [b"0", b"at 0", b"10", b"at 10", b"20", b"at 20", b"30", b"at 30"]


def _in_one_step(run: StepRun) -> StepRun:
    return run


def _in_an_earlier_step(run: StepRun) -> StepRun:
    """With a step behind it, as a plan with functions of Columns below has it."""
    [step] = run.compiled.steps
    run.compiled.steps = (replace(step, last=False), replace(step, number=2, graphs=()))
    return run


@pytest.mark.parametrize("arranged", [_in_one_step, _in_an_earlier_step])
def test_records_that_the_parts_serdes_cannot_read_move_no_stream_time(arranged: Callable[[StepRun], StepRun]) -> None:
    """Kafka Streams' ``RecordQueue`` passes over them: neither punctuators nor the next owner hear of their times."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=Serdes.long()).process(StreamTimes).to("out", value=STRING)
    run = arranged(StepRun(builder.build()))
    run.workers = [Worker(run.stores, unreadable=_CONTINUE) for _ in run.compiled.steps]

    def said_of(*records: tuple[bytes, int]) -> list[bytes | None]:
        before = len(run.written)
        run.pipe([("in", b"k", value, time, ()) for value, time in records])
        return [record[2] for record in run.written[before:]]

    good, bad = bytes(8), b"bad"
    assert said_of((bad, 30_000)) == []
    assert run.times == {}
    assert said_of((good, 5_000), (bad, 40_000), (good, 4_000)) == [b"-1, now 5000", b"called at 5000", b"-1, now 5000"]
    assert run.times == {TopicPartition("in", 0): PartitionTime(5_000)}
    assert from_metadata(run.workers[-1].output.committed[TopicPartition("in", 0)]) == (PartitionTime(5_000), "")
    assert said_of((bad, 50_000), (good, 11_000)) == [b"-1, now 11000", b"called at 11000"]


@pytest.mark.parametrize("windows", [TimeWindows.of_size(1_000), SessionWindows.of_inactivity_gap(1_000)], ids=["time", "gap"])
def test_a_restored_store_goes_on_where_its_changelog_ended(windows: Any) -> None:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).count(store="c")
    counted.to_stream().map(per_record(lambda k, n: (k.key, str(n)), (STRING, STRING))).to("out")
    first = StepRun(builder.build())
    assert [pipe(first, "a"), pipe(first, "b")] == [b"1", b"2"]
    second = StepRun(builder.build())
    second.restore({topic: (key, value, timestamp) for topic, key, value, timestamp, *_ in first.logged})
    assert pipe(second, "c") == b"3"


def test_what_a_request_follows_is_the_last_batch_that_counted() -> None:
    from tidemill.task.batch import BatchRequest
    from tidemill.task.message_pack import pack, unpack

    request = replace(BatchRequest(batch_id=7, inputs={}), last_committed_batch=5)
    assert unpack(pack(request), BatchRequest) == request


@pytest.mark.parametrize("persistent", [True, False])
def test_stores_of_a_task_that_is_over_are_refused_in_close_and_not_empty_there(
    persistent: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    uses: tuple[Callable[[Any], object], ...] = (
        lambda store: store.get("k"),
        lambda store: list(store.all()),
        lambda store: list(store.range("a", "z")),
        lambda store: store.approximate_num_entries,
        lambda store: store.put("k", "lost"),
        lambda store: store.put_all([("k", "lost")]),
        lambda store: store.delete("k"),
    )

    class Keeps(Clocked):
        def init(self, context: Any) -> None:
            super().init(context)
            self.store = context.store("rows")

        def process(self, record: Any) -> None:
            self.store.put(record.key, record.value)
            super().process(record)

        def close(self) -> None:
            for use in uses:
                try:
                    heard.append(f"{use(self.store)}")
                except TypeError as error:
                    heard.append(str(error))
            self.store.get("k")

    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("rows", key=STRING, value=STRING, persistent=persistent))
    builder.stream("in", key=STRING, value=STRING).process(Keeps, "rows", key=STRING, value=STRING).to("out")
    run = StepRun(builder.build())
    assert pipe(run, "a") == b"a1"
    run.follows = 0
    assert pipe(run, "b") == b"b1"
    assert len(heard) == len(uses)
    assert all("a closed processor can't use its stores, in close or later" in each for each in heard), heard
    assert "event=close-failed task=0_0" in caplog.text

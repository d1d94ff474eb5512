"""What punctuators alone have made is committed as what records have made is: with offsets, in the name of the member."""

from __future__ import annotations

from typing import Any

from tests.operators.step_harness import StepRun
from tidemill import Serdes, StreamsBuilder, Suppressed, TimeWindows, per_record
from tidemill.dsl.stores import Stores
from tidemill.ids import TopicPartition
from tidemill.operators.processors import ProcessorContext, PunctuationType
from tidemill.operators.record import Record
from tidemill.testing.worker import KeptOutput

STRING = Serdes.string()


class _Ticks:
    """Forwards and keeps the time of each punctuation."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.store("ticks").put("last", str(now))
        self.context.forward(Record("tick", str(now), now))

    def process(self, record: Record) -> None: ...


class _RememberedOffsets(KeptOutput):
    offsets: Any = None

    def commit(self, offsets: Any, times: Any, membership: Any) -> Any:
        self.offsets = dict(offsets)
        return super().commit(offsets, times, membership)


def test_a_batch_of_punctuators_alone_commits_an_offset_as_it_is() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("ticks", key=STRING, value=STRING))
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.process(_Ticks, "ticks", name="ticking").to("out", key=STRING, value=STRING)
    run = StepRun(builder.build())
    output = run.workers[-1].output = _RememberedOffsets()
    run.pipe([("in", b"k", b"v", 5), ("in", b"k", b"v", 6)])
    assert output.offsets == {TopicPartition("in", 0): 2}
    output.offsets = None
    run.pipe([])
    assert output.offsets is None  # nothing was made: nothing is committed
    run.advance_wall_clock(20)
    assert [value for topic, _, value, *_ in run.written if topic == "out"] == [b"20"]
    assert output.offsets == {TopicPartition("in", 0): 2}


def test_a_window_that_the_wall_clock_lets_go_is_committed_once() -> None:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(TimeWindows.of_size(10))
    counts = windows.count(store="counts").suppress(Suppressed.until_wall_clock_limit(100, name="held"))
    counts.to_stream(per_record(lambda key, value: key.key, STRING)).to("out", key=STRING, value=Serdes.long())
    run = StepRun(builder.build())
    output = run.workers[-1].output = _RememberedOffsets()

    def results() -> list[int]:
        found = [int.from_bytes(value, "big") for topic, _, value, *_ in run.written if topic == "out" and value is not None]
        run.written.clear()
        return found

    run.pipe([("in", b"k", b"v", 5), ("in", b"k", b"v", 6)])
    run.advance_wall_clock(99)
    assert results() == []
    output.offsets = None
    run.advance_wall_clock(1)
    assert results() == [2]
    assert output.offsets == {TopicPartition("in", 0): 2}
    run.advance_wall_clock(1000)
    assert results() == []
    run.pipe([("in", b"k", b"v", 7)])  # the window is open by stream time
    run.advance_wall_clock(100)
    assert results() == [3]

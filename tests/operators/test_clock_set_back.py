"""A wall clock that is set back: what is looked for once a second is looked for on, not only when the clock is there again."""

from __future__ import annotations

from tests.operators.harness import Run, start
from tidemill import EmitStrategy, JoinWindows, Materialized, Serdes, StreamsBuilder, TimeWindows, per_record

HOUR_MS = 3_600_000
INTERVAL_MS = 1_000
TEXT = Serdes.string()


def _started(builder: StreamsBuilder) -> Run:
    return start(builder.build(), wall_clock=10 * HOUR_MS, emit_interval_ms=INTERVAL_MS)


def _sent(run: Run, topic: str, timestamp: int) -> int:
    """How many records come out."""
    before = len(run.written)
    run.pipe(0, topic, b"k", b"v", timestamp)
    return len(run.written) - before


def _is_looked_for_after(run: Run, topic: str, times: list[int]) -> None:
    """Each record closes what the one before it has opened."""
    assert _sent(run, topic, times[0]) == 0
    run.advance_wall_clock(0, INTERVAL_MS)
    assert _sent(run, topic, times[1]) == 1
    assert _sent(run, topic, times[2]) == 0, "within the second"
    run.advance_wall_clock(0, -HOUR_MS)
    assert _sent(run, topic, times[3]) == 2
    assert _sent(run, topic, times[4]) == 0, "within the second"


def test_closed_windows_are_emitted() -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    windows = grouped.windowed_by(TimeWindows.of_size(10)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    windows.count(store=Materialized(name="w", retention=HOUR_MS)).to_stream().to("out")
    _is_looked_for_after(_started(builder), "in", [5, 15, 25, 35, 45])


def test_records_that_met_no_other_are_joined() -> None:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=TEXT, value=TEXT) for topic in ("left", "right"))
    left.left_join(right, per_record(lambda a, b: f"{a}|{b}", TEXT), JoinWindows.of_time_difference(10)).to("out")
    _is_looked_for_after(_started(builder), "left", [5, 25, 45, 65, 85])

"""The vectors' programs of windows, sessions, emit on window close and cogroup."""

from __future__ import annotations

from typing import Any

from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.dsl.table import KTable
from tidemill.dsl.windowed import EmitStrategy
from tidemill.topology.windows import SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows

STRING, LONG = Serdes.string(), Serdes.long()
SECOND = 1000


def _text(value: str | None) -> str:
    """What Java's ``+`` makes of a string."""
    return "null" if value is None else value


def _concatenated(aggregate: str, value: str | None) -> str:
    return aggregate + _text(value)


def _restarted_when_long(aggregate: str, value: str | None) -> str | None:
    return value if len(aggregate) > 20 else aggregate + _text(value)


def _time_windowed(size: int) -> Any:
    return WindowedSerdes.time_windowed_serde_from(STRING, size)


def _to_out(table: KTable, key: Any, value: Any) -> None:
    table.to_stream().to("out", key=key, value=value)


def tumbling_count_no_grace(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND)
    _to_out(b.stream("in").group_by_key().windowed_by(windows).count(store="w"), _time_windowed(10 * SECOND), LONG)


def tumbling_count_grace(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND, grace=5 * SECOND)
    _to_out(b.stream("in").group_by_key().windowed_by(windows).count(store="w"), _time_windowed(10 * SECOND), LONG)


def hopping_reduce_grace(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND, advance=4 * SECOND, grace=2 * SECOND)
    _to_out(b.stream("in").group_by_key().windowed_by(windows).reduce(_concatenated), _time_windowed(10 * SECOND), STRING)


def hopping_sum_rekeyed(b: StreamsBuilder) -> None:
    def parity(key: str, value: int | None) -> str:
        return key if value is None else "even" if value % 2 == 0 else "odd"

    def add(_key: str, value: int | None, aggregate: int) -> int | None:
        return None if value is None or (aggregate + value) % 7 == 0 else aggregate + value

    windows = TimeWindows.of_size(9 * SECOND, advance=3 * SECOND, grace=3 * SECOND)
    (
        b.stream("in", key=STRING, value=LONG)
        .group_by(per_record(parity), key=STRING, value=LONG)
        .windowed_by(windows)
        .aggregate(lambda: 0, add, store="hop", value=LONG)
        .to_stream()
        .select_key(per_record(lambda key, _value: f"{key.key}@{key.start}-{key.end}"))
        .to("out", key=STRING, value=LONG)
    )


def sliding_count_grace(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference(5 * SECOND, grace=4 * SECOND)
    _to_out(b.stream("in").group_by_key().windowed_by(windows).count(store="w"), _time_windowed(5 * SECOND), LONG)


def sliding_reduce_no_grace(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference(5 * SECOND)
    _to_out(b.stream("in").group_by_key().windowed_by(windows).reduce(_concatenated), _time_windowed(5 * SECOND), STRING)


def session_count_grace(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(3 * SECOND, grace=4 * SECOND)
    counted = b.stream("in").group_by_key().windowed_by(windows).count(store="s")
    _to_out(counted, WindowedSerdes.session_windowed_serde_from(STRING), LONG)


def session_aggregate_merge_trace(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(3 * SECOND, grace=10 * SECOND)
    traced = (
        b.stream("in")
        .group_by_key()
        .windowed_by(windows)
        .aggregate(
            lambda: "i",
            lambda _key, value, aggregate: f"{aggregate}+{_text(value)}",
            lambda _key, first, second: f"({first}|{second})",
            value=STRING,
        )
    )
    _to_out(traced, WindowedSerdes.session_windowed_serde_from(STRING), STRING)


def session_reduce_no_grace_rekeyed(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(4 * SECOND)
    reduced = b.stream("in").group_by(per_record(lambda _key, value: value)).windowed_by(windows).reduce(_restarted_when_long)
    _to_out(reduced, WindowedSerdes.session_windowed_serde_from(STRING), STRING)


def unlimited_window_count(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by_key()
        .windowed_by(UnlimitedWindows.of(start=120_000))
        .count()
        .to_stream()
        .select_key(per_record(lambda key, _value: f"{key.key}@{key.start}"))
        .to("out", key=STRING, value=LONG)
    )


def window_of_windowed_updates(b: StreamsBuilder) -> None:
    first = TimeWindows.of_size(10 * SECOND, grace=5 * SECOND)
    second = TimeWindows.of_size(30 * SECOND, grace=5 * SECOND)
    updates = b.stream("in").group_by(per_record(lambda _key, value: value)).windowed_by(first).count().to_stream()
    counted = (
        updates.map(per_record(lambda key, value: (f"n{value}", key.key)))
        .group_by_key(key=STRING, value=STRING)
        .windowed_by(second)
        .count()
    )
    _to_out(counted, _time_windowed(30 * SECOND), LONG)


def emit_final_hopping(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND, advance=5 * SECOND)
    grouped = b.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _to_out(grouped.reduce(_concatenated), _time_windowed(10 * SECOND), STRING)


def emit_final_sliding(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference(5 * SECOND, grace=2 * SECOND)
    grouped = b.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _to_out(grouped.count(), _time_windowed(5 * SECOND), LONG)


def emit_final_session(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(3 * SECOND, grace=2 * SECOND)
    grouped = b.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _to_out(grouped.count(), WindowedSerdes.session_windowed_serde_from(STRING), LONG)


def emit_final_default_interval(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND, grace=3 * SECOND)
    grouped = b.stream("in").group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    _to_out(grouped.count(), _time_windowed(10 * SECOND), LONG)


def cogroup_tumbling(b: StreamsBuilder) -> None:
    first = b.stream("a").group_by_key()
    second = b.stream("b").group_by(per_record(lambda key, _value: key), name="gb")
    windows = TimeWindows.of_size(10 * SECOND, grace=2 * SECOND)
    aggregated = (
        first.cogroup(lambda _key, value, aggregate: aggregate + _text(value))
        .cogroup(second, lambda _key, value, aggregate: aggregate + ("_" if value is None else value[:1]))
        .windowed_by(windows)
        .aggregate(lambda: "", key=STRING, value=STRING)
    )
    _to_out(aggregated, _time_windowed(10 * SECOND), STRING)


def cogroup_session(b: StreamsBuilder) -> None:
    first, second = b.stream("a").group_by_key(), b.stream("b").group_by_key()
    windows = SessionWindows.of_inactivity_gap(3 * SECOND, grace=3 * SECOND)
    aggregated = (
        first.cogroup(lambda _key, value, aggregate: aggregate + _text(value))
        .cogroup(second, lambda _key, value, aggregate: f"{aggregate}({_text(value)})")
        .windowed_by(windows)
        .aggregate(lambda: "", lambda _key, first, second: first + second, key=STRING, value=STRING)
    )
    _to_out(aggregated, WindowedSerdes.session_windowed_serde_from(STRING), STRING)


def pipeline_enrich_window(b: StreamsBuilder) -> None:
    users = b.table("users")
    (
        b.stream("orders")
        .filter(per_record(lambda _key, value: value is not None and not value.startswith("-")))
        .select_key(per_record(lambda _key, value: value[: value.index("|")]))
        .left_join(users, lambda _order, user: "unknown" if user is None else user)
        .group_by(per_record(lambda _key, color: color))
        .windowed_by(TimeWindows.of_size(10 * SECOND, grace=5 * SECOND))
        .count(store="w")
        .to_stream()
        .to("by-color", key=_time_windowed(10 * SECOND), value=LONG)
    )

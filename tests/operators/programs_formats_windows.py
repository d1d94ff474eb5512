"""The programs whose changelogs of windows, sessions and suppress the vectors hold byte for byte, as of ``store_formats``."""

from __future__ import annotations

from typing import Any

from tests.operators.programs_windows import LONG, SECOND, STRING
from tidemill import Materialized, StreamsBuilder
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.dsl.stores import Stores
from tidemill.dsl.suppressed import Suppressed
from tidemill.dsl.table import KTable
from tidemill.dsl.windowed import EmitStrategy
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record
from tidemill.topology.windows import SessionWindows, SlidingWindows, TimeWindows


def _out(table: KTable, key: Any) -> None:
    table.to_stream().to("out", key=key, value=LONG)


def _time_windowed(size: int) -> Any:
    return WindowedSerdes.time_windowed_serde_from(STRING, size)


def timestamped_window_tumbling(b: StreamsBuilder) -> None:
    windows = TimeWindows.of_size(10 * SECOND, grace=5 * SECOND)
    _out(b.stream("in").group_by_key().windowed_by(windows).count(store="w"), _time_windowed(10 * SECOND))


def timestamped_window_sliding(b: StreamsBuilder) -> None:
    windows = SlidingWindows.of_time_difference(5 * SECOND, grace=5 * SECOND)
    _out(b.stream("in").group_by_key().windowed_by(windows).count(store="w"), _time_windowed(5 * SECOND))


def timestamped_window_emit_final(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10 * SECOND))
    _out(windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="w"), _time_windowed(10 * SECOND))


def session_count(b: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap(3 * SECOND, grace=30 * SECOND)
    _out(b.stream("in").group_by_key().windowed_by(windows).count(store="s"), WindowedSerdes.session_windowed_serde_from(STRING))


def suppress_window_close(b: StreamsBuilder) -> None:
    windowed = b.stream("in").group_by_key(key=STRING, value=STRING).windowed_by(TimeWindows.of_size(10 * SECOND))
    _out(windowed.count(store="w").suppress(Suppressed.until_window_closes(name="sup")), _time_windowed(10 * SECOND))


def suppress_time_limit(b: StreamsBuilder) -> None:
    b.table("in", store="t").suppress(Suppressed.until_time_limit(5 * SECOND, name="sup")).to_stream().to("out")


class KeepsValues:
    """Puts each value into the window that begins with its record."""

    def init(self, context: ProcessorContext) -> None:
        self.windows = context.store("w")

    def process(self, record: Record) -> None:
        self.windows.put(record.key, record.value, record.timestamp)


def window_plain(b: StreamsBuilder) -> None:
    b.add_state_store(Stores.window_store("w", 60 * SECOND, 10 * SECOND, key=STRING, value=STRING))
    b.stream("in").process(KeepsValues, "w").to("out")


def headers_format_window(b: StreamsBuilder) -> None:
    kept = Materialized(name="w", headers=True)
    windowed = b.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10 * SECOND))
    _out(windowed.count(store=kept), _time_windowed(10 * SECOND))


def headers_format_session(b: StreamsBuilder) -> None:
    kept = Materialized(name="s", headers=True)
    windowed = b.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(3 * SECOND, grace=30 * SECOND))
    _out(windowed.count(store=kept), WindowedSerdes.session_windowed_serde_from(STRING))

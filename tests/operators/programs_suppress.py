"""The vectors' programs of suppress."""

from __future__ import annotations

from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.dsl.suppressed import Suppressed
from tidemill.topology.windows import SessionWindows, SlidingWindows, TimeWindows

STRING, LONG = Serdes.string(), Serdes.long()
SECOND = 1000


def _restarted_when_long(aggregate: str, value: str | None) -> str | None:
    return value if len(aggregate) > 20 else aggregate + ("null" if value is None else value)


def suppress_close_hopping_rekeyed(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by(per_record(lambda _key, value: value), key=STRING, value=STRING)
        .windowed_by(TimeWindows.of_size(10 * SECOND, advance=5 * SECOND))
        .reduce(_restarted_when_long)
        .suppress(Suppressed.until_window_closes(name="final"))
        .to_stream()
        .to("out", key=WindowedSerdes.time_windowed_serde_from(STRING, 10 * SECOND), value=STRING)
    )


def suppress_close_session(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by_key(key=STRING, value=STRING)
        .windowed_by(SessionWindows.of_inactivity_gap(3 * SECOND, grace=2 * SECOND))
        .count()
        .suppress(Suppressed.until_window_closes())
        .to_stream()
        .to("out", key=WindowedSerdes.session_windowed_serde_from(STRING), value=LONG)
    )


def suppress_close_sliding(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by_key(key=STRING, value=STRING)
        .windowed_by(SlidingWindows.of_time_difference(5 * SECOND, grace=2 * SECOND))
        .count()
        .suppress(Suppressed.until_window_closes())
        .to_stream()
        .to("out", key=WindowedSerdes.time_windowed_serde_from(STRING, 5 * SECOND), value=LONG)
    )


def suppress_time_limit_table(b: StreamsBuilder) -> None:
    b.table("in").suppress(Suppressed.until_time_limit(6 * SECOND)).to_stream().to("out")


def suppress_time_limit_max_records(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by_key()
        .count()
        .suppress(Suppressed.until_time_limit(20 * SECOND, max_records=3))
        .to_stream()
        .to("out", key=STRING, value=LONG)
    )


def suppress_time_limit_windowed(b: StreamsBuilder) -> None:
    (
        b.stream("in")
        .group_by_key(key=STRING, value=STRING)
        .windowed_by(TimeWindows.of_size(10 * SECOND, grace=5 * SECOND))
        .count()
        .suppress(Suppressed.until_time_limit(4 * SECOND))
        .to_stream()
        .to("out", key=WindowedSerdes.time_windowed_serde_from(STRING, 10 * SECOND), value=LONG)
    )


def suppress_then_table_groupby(b: StreamsBuilder) -> None:
    (
        b.table("in")
        .suppress(Suppressed.until_time_limit(5 * SECOND))
        .group_by(per_record(lambda key, value: (value, key)))
        .count()
        .to_stream()
        .to("out", key=STRING, value=LONG)
    )

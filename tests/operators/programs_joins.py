"""The vectors' programs of joins."""

from __future__ import annotations

from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.joined import Joined, StreamJoined, TableJoined
from tidemill.dsl.materialized import Materialized
from tidemill.dsl.serdes_windowed import WindowedSerdes
from tidemill.topology.windows import JoinWindows, TimeWindows

STRING, LONG = Serdes.string(), Serdes.long()
SECOND = 1000


def _text(value: str | None) -> str:
    """What Java's ``+`` makes of a string."""
    return "null" if value is None else value


def _joined(left: str | None, right: str | None) -> str:
    return _text(left) + _text(right)


def _comma(left: str | None, right: str | None) -> str:
    return _text(left) + "," + _text(right)


def _slash(left: str | None, right: str | None) -> str:
    return _text(left) + "/" + _text(right)


def _before_bar(value: str | None) -> str | None:
    return None if value is None or value.startswith("-") else value[: value.index("|")]


def ss_inner(b: StreamsBuilder) -> None:
    b.stream("left").join(b.stream("right"), _joined, JoinWindows.of_time_difference(5 * SECOND)).to("out")


def ss_left(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference(5 * SECOND, grace=3 * SECOND)
    b.stream("left").left_join(b.stream("right"), _comma, windows).to("out")


def ss_outer_asymmetric_no_grace(b: StreamsBuilder) -> None:
    def joiner(key: str | None, left: str | None, right: str | None) -> str:
        return _text(key) + ":" + _comma(left, right)

    windows = JoinWindows.of_time_difference(4 * SECOND, before=2 * SECOND, after=6 * SECOND)
    names = StreamJoined(store_name="sj", name="sj-op")
    b.stream("left").outer_join(b.stream("right"), joiner, windows, joined=names).to("out")


def ss_left_only_after(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference(5 * SECOND, before=0, grace=SECOND)
    b.stream("left").left_join(b.stream("right"), _comma, windows).to("out")


def ss_self_join(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    stream.join(stream, _joined, JoinWindows.of_time_difference(4 * SECOND)).to("out")


def ss_self_join_optimized(b: StreamsBuilder) -> None:
    ss_self_join(b)


def ss_left_then_count(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference(4 * SECOND, grace=SECOND)
    hits = b.stream("left").left_join(b.stream("right"), lambda _left, right: "miss" if right is None else "hit", windows)
    hits.group_by(per_record(lambda _key, value: value)).count().to_stream().to("out", key=STRING, value=LONG)


def st_inner(b: StreamsBuilder) -> None:
    stream, table = b.stream("events"), b.table("users")
    stream.join(table, _slash).to("out")


def st_left_rekeyed(b: StreamsBuilder) -> None:
    stream = b.stream("events").select_key(per_record(lambda _key, value: _before_bar(value)))
    stream.left_join(b.table("users", store="users-store"), _slash, joined=Joined(name="enrich")).to("out")


def st_versioned_grace(b: StreamsBuilder) -> None:
    stream = b.stream("events")
    table = b.table("users", store=Materialized(name="v", history_retention=60 * SECOND))
    stream.join(table, _slash, joined=Joined(name="gj", grace=5 * SECOND)).to("out")


def st_join_own_count(b: StreamsBuilder) -> None:
    stream = b.stream("in")
    counts = stream.group_by_key().count()
    stream.join(counts, lambda value, count: f"{value}#{count}").to("out")


def global_inner(b: StreamsBuilder) -> None:
    table = b.global_table("ref")
    b.stream("in").join(table, _slash, selector=lambda _key, value: _before_bar(value)).to("out")


def global_left_materialized(b: StreamsBuilder) -> None:
    def joiner(key: str | None, left: str | None, right: str | None) -> str:
        return _text(key) + ":" + _slash(left, right)

    table = b.global_table("ref", store="ref-store")
    b.stream("in").left_join(table, joiner, selector=lambda _key, value: _before_bar(value)).to("out")


def tt_left(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right")
    left.left_join(right, _slash).to_stream().to("out")


def tt_three_way(b: StreamsBuilder) -> None:
    first, second, third = b.table("a"), b.table("b"), b.table("c")
    first.join(second, _joined).left_join(third, _joined).to_stream().to("out")


def tt_left_of_filtered(b: StreamsBuilder) -> None:
    left = b.table("left", key=STRING, value=LONG).filter(per_record(lambda _key, value: value > 3))
    right = b.table("right", key=STRING, value=LONG).map_values(per_record(lambda value: value * 100))
    joined = left.left_join(right, lambda left, right: left if right is None else left + right)
    joined.to_stream().to("out", key=STRING, value=LONG)


def tt_inner_then_groupby(b: StreamsBuilder) -> None:
    left, right = b.table("left"), b.table("right")
    by_length = left.join(right, _joined).group_by(per_record(lambda _key, value: (f"len{len(value)}", value)))
    by_length.count().to_stream().to("out", key=STRING, value=LONG)


def fk_left_materialized(b: StreamsBuilder) -> None:
    orders, users = b.table("orders", store="orders-store"), b.table("users", store="users-store")
    orders.left_join(
        users, _slash, foreign_key=_before_bar, joined=TableJoined(name="fk"), store="fk-result"
    ).to_stream().to("out")


def pipeline_enrich_window(b: StreamsBuilder) -> None:
    users = b.table("users")
    orders = b.stream("orders").filter(per_record(lambda _key, value: _before_bar(value) is not None))
    colors = orders.select_key(per_record(lambda _key, value: _before_bar(value))).left_join(
        users, lambda _order, user: "unknown" if user is None else user
    )
    windows = TimeWindows.of_size(10 * SECOND, grace=5 * SECOND)
    counts = colors.group_by(per_record(lambda _key, color: color)).windowed_by(windows).count(store="w")
    counts.to_stream().to("by-color", key=WindowedSerdes.time_windowed_serde_from(STRING, 10 * SECOND), value=LONG)


# --- store formats ----------------------------------------------------------------------------------------------------


def ss_join_inner(b: StreamsBuilder) -> None:
    ss_inner(b)


def ss_join_outer(b: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference(5 * SECOND, grace=SECOND)
    b.stream("left").outer_join(b.stream("right"), _comma, windows, joined=StreamJoined(store_name="oj")).to("out")


def fk_join_inner(b: StreamsBuilder) -> None:
    orders, users = b.table("orders", store="orders-store"), b.table("users", store="users-store")
    orders.join(
        users, _slash, foreign_key=_before_bar, joined=TableJoined(name="fk"), store="fk-result"
    ).to_stream().to("out")


def fk_join_left(b: StreamsBuilder) -> None:
    fk_left_materialized(b)


def stream_table_grace_buffer(b: StreamsBuilder) -> None:
    st_versioned_grace(b)

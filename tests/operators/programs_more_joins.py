"""Programs of joins that the vectors don't have; what Kafka Streams 4.3 gives for them is in ``more_joins.jsonl.gz``.

Made as the vectors were, by running the same programs, written in Java with kafka-streams 4.3.0, in its TopologyTestDriver on
random inputs: late records, jumps of time, null keys and values, headers, and the wall clock moved by steps.
"""

from __future__ import annotations

from typing import Any

from tests.operators.programs_joins import SECOND, STRING, _before_bar, _comma, _slash, _text
from tidemill import Joined, JoinWindows, Materialized, Stores, StreamJoined, StreamsBuilder, per_record
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable

_within = JoinWindows.of_time_difference
is_even = per_record(lambda _key, value: value is not None and len(value) % 2 == 0)
has_no_3 = per_record(lambda _key, value: "3" not in value)
has_no_5 = per_record(lambda _key, value: "5" not in value)
has_key = per_record(lambda key, _value: key is not None)
by_length = per_record(lambda _key, value: (str(len(value)), value))
as_text = per_record(lambda value: "null" if value is None else str(value), STRING)
rekeyed = per_record(lambda _key, value: _before_bar(value))


def _plus(left: str | None, right: str | None) -> str:
    return _text(left) + "+" + _text(right)


def _semicolon(left: str | None, right: str | None) -> str:
    return _text(left) + ";" + _text(right)


def _keyed(key: str | None, left: str | None, right: str | None) -> str:
    return _text(key) + ":" + _comma(left, right)


def _ending(end: str) -> Any:
    return per_record(lambda value: None if value is None else value + end)


def _versioned(name: str, seconds: int) -> Materialized:
    return Materialized(name=name, history_retention=seconds * SECOND)


def _out(result: KStream | KTable) -> None:
    (result.to_stream() if isinstance(result, KTable) else result).to("out")


# --- streams ----------------------------------------------------------------------------------------------------------


def ss_outer_grace(b: StreamsBuilder) -> None:
    _out(b.stream("l").outer_join(b.stream("r"), _comma, _within(4 * SECOND, grace=2 * SECOND)))


def ss_left_before_only(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.stream("r"), _comma, _within(5 * SECOND, after=0, grace=SECOND)))


def ss_inner_negative(b: StreamsBuilder) -> None:
    _out(b.stream("l").join(b.stream("r"), _comma, _within(5 * SECOND, before=-SECOND)))


def ss_outer_negative(b: StreamsBuilder) -> None:
    _out(b.stream("l").outer_join(b.stream("r"), _comma, _within(5 * SECOND, after=-SECOND)))


def ss_outer_zero(b: StreamsBuilder) -> None:
    _out(b.stream("l").outer_join(b.stream("r"), _comma, _within(0)))


def ss_left_long(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.stream("r"), _comma, _within(90 * SECOND, grace=60 * SECOND)))


def ss_outer_rekeyed(b: StreamsBuilder) -> None:
    left, right = b.stream("l").select_key(rekeyed), b.stream("r").select_key(rekeyed)
    _out(left.outer_join(right, _keyed, _within(4 * SECOND, grace=SECOND)))


def ss_self_left(b: StreamsBuilder) -> None:
    stream = b.stream("l")
    _out(stream.left_join(stream.filter(is_even), _comma, _within(3 * SECOND, grace=SECOND)))


def ss_self_asym_opt(b: StreamsBuilder) -> None:
    stream = b.stream("l")
    _out(stream.join(stream, _comma, _within(3 * SECOND, before=SECOND, after=6 * SECOND, grace=SECOND)))


def ss_three_way(b: StreamsBuilder) -> None:
    two = b.stream("l").left_join(b.stream("r"), _comma, _within(3 * SECOND, grace=SECOND))
    _out(two.outer_join(b.stream("c"), _semicolon, _within(6 * SECOND, grace=SECOND)))


def ss_in_memory(b: StreamsBuilder) -> None:
    this, other = (
        Stores.window_store(name, retention=10 * SECOND, window_size=8 * SECOND, retain_duplicates=True, persistent=False)
        for name in ("a", "b")
    )
    stores = StreamJoined(this_store=this, other_store=other)
    _out(b.stream("l").outer_join(b.stream("r"), _comma, _within(4 * SECOND, grace=2 * SECOND), joined=stores))


# --- a stream and a table ---------------------------------------------------------------------------------------------


def st_left(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.table("r"), _slash))


def st_filtered(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.table("r").filter(is_even).map_values(_ending("!")), _slash))


def st_inner_versioned(b: StreamsBuilder) -> None:
    _out(b.stream("l").join(b.table("r", store=_versioned("v", 60)), _slash))


def st_left_versioned_mapped(b: StreamsBuilder) -> None:
    table = b.table("r", store=_versioned("v", 20)).map_values(_ending("!")).filter(has_no_3)
    _out(b.stream("l").left_join(table, _slash))


def st_left_grace(b: StreamsBuilder) -> None:
    table, joined = b.table("r", store=_versioned("v", 60)), Joined(name="gj", grace=3 * SECOND)
    _out(b.stream("l").filter(has_key).left_join(table, _slash, joined=joined))


def st_grace_zero(b: StreamsBuilder) -> None:
    table = b.table("r", store=_versioned("v", 60))
    _out(b.stream("l").join(table, lambda key, left, right: key + _slash(left, right), joined=Joined(name="gj", grace=0)))


def st_grace_mapped(b: StreamsBuilder) -> None:
    table, joined = b.table("r", store=_versioned("v", 30)).filter(has_no_3), Joined(name="gj", grace=8 * SECOND)
    _out(b.stream("l").filter(has_key).left_join(table, _slash, joined=joined))


def st_to_table(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.stream("r").map_values(_ending("?")).to_table(), _slash))


def st_of_join(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.table("r").outer_join(b.table("c"), _plus), _slash))


def global_left_by_key(b: StreamsBuilder) -> None:
    _out(b.stream("l").left_join(b.global_table("r"), _slash, selector=lambda key, _value: key))


# --- tables -----------------------------------------------------------------------------------------------------------


def tt_inner(b: StreamsBuilder) -> None:
    _out(b.table("l").join(b.table("r"), _slash))


def tt_outer(b: StreamsBuilder) -> None:
    _out(b.table("l").outer_join(b.table("r"), _slash))


def tt_outer_materialized(b: StreamsBuilder) -> None:
    _out(b.table("l").outer_join(b.table("r"), _slash, store="j"))


def tt_null_joiner(b: StreamsBuilder) -> None:
    def joiner(left: str, right: str | None) -> str | None:
        return None if right is not None and "3" in right else _slash(left, right)

    _out(b.table("l").left_join(b.table("r"), joiner, store="j").filter(has_no_5))


def tt_self(b: StreamsBuilder) -> None:
    table = b.table("l")
    _out(table.join(table, _slash))


def tt_self_mapped(b: StreamsBuilder) -> None:
    table = b.table("l")
    _out(table.outer_join(table.filter(is_even), _slash))


def tt_versioned(b: StreamsBuilder) -> None:
    _out(b.table("l", store=_versioned("vl", 30)).left_join(b.table("r", store=_versioned("vr", 30)), _slash))


def tt_versioned_one(b: StreamsBuilder) -> None:
    _out(b.table("l", store=_versioned("vl", 30)).map_values(_ending("m")).outer_join(b.table("r"), _slash))


def tt_result_versioned(b: StreamsBuilder) -> None:
    result = b.table("l").outer_join(b.table("r"), _slash, store=_versioned("vj", 30))
    _out(result.group_by(by_length).count().to_stream().map_values(as_text))


def tt_three_outer(b: StreamsBuilder) -> None:
    _out(b.table("l").outer_join(b.table("r"), _slash).outer_join(b.table("c"), _plus))


def tt_three_right_nested(b: StreamsBuilder) -> None:
    _out(b.table("c").left_join(b.table("l").left_join(b.table("r"), _slash), _plus))


def tt_join_then_filter(b: StreamsBuilder) -> None:
    _out(b.table("l").outer_join(b.table("r"), _slash).filter(is_even, store="f"))


def tt_outer_groupby(b: StreamsBuilder) -> None:
    result = b.table("l").outer_join(b.table("r"), _slash)
    _out(result.group_by(by_length).reduce(lambda all_, one: all_ + one, lambda all_, one: all_.replace(one, "")))


def tt_counts(b: StreamsBuilder) -> None:
    def joiner(left: int | None, right: int | None) -> str:
        return "/".join("null" if count is None else str(count) for count in (left, right))

    left, right = b.stream("l").group_by_key().count(), b.stream("r").group_by_key().count()
    _out(left.outer_join(right, per_record(joiner, STRING)))


# --- tables by foreign key --------------------------------------------------------------------------------------------


def fk_inner(b: StreamsBuilder) -> None:
    _out(b.table("l").join(b.table("r"), _slash, foreign_key=_before_bar))


def fk_left(b: StreamsBuilder) -> None:
    _out(b.table("l").left_join(b.table("r"), _slash, foreign_key=_before_bar))


def fk_inner_mapped(b: StreamsBuilder) -> None:
    left = b.table("l").filter(has_no_5).map_values(_ending("m"))
    _out(left.join(b.table("r").filter(is_even), _slash, foreign_key=_before_bar, store="res"))


def fk_left_mapped(b: StreamsBuilder) -> None:
    left, right = b.table("l").map_values(_ending("m")), b.table("r").map_values(_ending("n"))
    _out(left.left_join(right, _slash, foreign_key=_before_bar).filter(is_even))


def fk_versioned(b: StreamsBuilder) -> None:
    left, right = b.table("l", store=_versioned("vl", 30)), b.table("r", store=_versioned("vr", 30))
    _out(left.left_join(right, _slash, foreign_key=_before_bar))


def fk_inner_versioned(b: StreamsBuilder) -> None:
    left, right = b.table("l", store=_versioned("vl", 30)), b.table("r", store=_versioned("vr", 30))
    _out(left.join(right, _slash, foreign_key=_before_bar))


def fk_self(b: StreamsBuilder) -> None:
    table = b.table("l")
    _out(table.left_join(table, _slash, foreign_key=_before_bar))


def fk_then_groupby(b: StreamsBuilder) -> None:
    result = b.table("l").join(b.table("r"), _slash, foreign_key=_before_bar)
    counts = result.group_by(per_record(lambda _key, value: (_before_bar(value), value))).count()
    counts.to_stream().map_values(as_text).to("out", key=STRING, value=STRING)


def fk_by_key(b: StreamsBuilder) -> None:
    def foreign_key(key: str, _value: str) -> str | None:
        return None if key == "k1" else key

    _out(b.table("l").join(b.table("r"), _slash, foreign_key=foreign_key))


def fk_then_join(b: StreamsBuilder) -> None:
    _out(b.table("l").left_join(b.table("r"), _slash, foreign_key=_before_bar).outer_join(b.table("c"), _plus))

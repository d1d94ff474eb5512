"""The vectors' programs of tables, of grouped tables and of versioned tables."""

from __future__ import annotations

from typing import Any

from tests.operators.programs_aggregates import java_remainder
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized

STRING, LONG = Serdes.string(), Serdes.long()


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``."""
    found = 0
    for unit in text.encode("utf-16-be")[1::2] if text.isascii() else _units(text):
        found = (31 * found + unit) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [data[at] << 8 | data[at + 1] for at in range(0, len(data), 2)]


def table_to_stream(b: StreamsBuilder) -> None:
    b.table("in").to_stream().to("out")


def table_materialized(b: StreamsBuilder) -> None:
    b.table("in", store="tbl").to_stream().to("out")


def table_filter_unmaterialized(b: StreamsBuilder) -> None:
    even = b.table("in", key=STRING, value=LONG).filter(per_record(lambda k, v: java_remainder(v, 2) == 0))
    even.to_stream().to("out", key=STRING, value=LONG)


def table_mapvalues_materialized(b: StreamsBuilder) -> None:
    def mapped(key: str, value: int) -> str | None:
        return None if java_remainder(value, 5) == 0 else f"{key}:{value}"

    source = b.table("in", key=STRING, value=LONG, store="src")
    source.map_values(per_record(mapped), store=Materialized(name="mapped", value=STRING)).to_stream().to("out")


def table_filternot_mapvalues_chain(b: StreamsBuilder) -> None:
    small = b.table("in", key=STRING, value=LONG).filter_not(per_record(lambda k, v: v > 6))
    tens = small.map_values(per_record(lambda v: v * 10, LONG)).filter(per_record(lambda k, v: v > 10))
    tens.map_values(per_record(lambda v: f"v{v}", STRING)).to_stream().to("out")


def table_groupby_count(b: StreamsBuilder) -> None:
    grouped = b.table("in").group_by(per_record(lambda k, v: (v, k)))
    grouped.count(store="c").to_stream().to("out", key=STRING, value=LONG)


def table_groupby_aggregate(b: StreamsBuilder) -> None:
    def parity(_key: str, value: int) -> tuple[str, int]:
        return ("even" if java_remainder(value, 2) == 0 else "odd"), value

    grouped = b.table("in", key=STRING, value=LONG).group_by(per_record(parity), key=STRING, value=LONG)
    sums = grouped.aggregate(
        lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a - v, store=Materialized(name="sums", value=LONG)
    )
    sums.to_stream().to("out", key=STRING, value=LONG)


def table_groupby_trace(b: StreamsBuilder) -> None:
    grouped = b.table("in").group_by(per_record(lambda k, v: (v[:1], f"{k}{len(v)}")), name="g")
    traces = grouped.aggregate(
        lambda: "", lambda k, v, a: ("~" if len(a) > 30 else a) + "+" + v, lambda k, v, a: a + "-" + v,
        store=Materialized(key=STRING, value=STRING),
    )
    traces.to_stream().to("out")


def table_groupby_reduce(b: StreamsBuilder) -> None:
    def group(_key: str, value: int) -> tuple[str, int]:
        return f"g{java_remainder(value, 3)}", value

    grouped = b.table("in", key=STRING, value=LONG).group_by(per_record(group), key=STRING, value=LONG)
    grouped.reduce(lambda a, b: a + b, lambda a, b: a - b).to_stream().to("out", key=STRING, value=LONG)


def stream_to_table_rekeyed(b: StreamsBuilder) -> None:
    rekeyed = b.stream("in").select_key(per_record(lambda k, v: k if v is None else v, STRING))
    longer = rekeyed.map_values(per_record(lambda k, v: None if v is None else f"{k}{len(v)}", STRING))
    longer.to_table(store="tt").to_stream().to("out")


def stream_to_table(b: StreamsBuilder) -> None:
    b.stream("in").to_table().map_values(per_record(lambda v: v + "!", STRING)).to_stream().to("out")


class _Lengths:
    """A transformer: the value's length behind the key."""

    def transform(self, key: str, value: Any) -> str | None:
        return None if value is None else f"{key}#{len(value)}"


def table_transform_values(b: StreamsBuilder) -> None:
    b.table("in", store="src").transform_values(_Lengths, store="tv").to_stream().to("out", value=STRING)


def table_versioned_count(b: StreamsBuilder) -> None:
    def group(key: str, value: str) -> tuple[str, str]:
        return f"{key[:1]}{java_remainder(java_hash(key), 2)}", value

    table = b.table("in", store=Materialized(name="v", history_retention=30_000))
    counts = table.group_by(per_record(group)).count()
    counts.map_values(per_record(lambda n: f"n{n}", STRING)).to_stream().to("out")


def table_versioned_filter(b: StreamsBuilder) -> None:
    kept = Materialized(name="v", history_retention=20_000)
    table = b.table("in", key=STRING, value=LONG, store=kept)
    table.filter(per_record(lambda k, v: java_remainder(v, 3) != 0)).to_stream().to("out", key=STRING, value=LONG)

"""The vectors' programs that keep nothing: stateless operators, timestamp extractors, headers, names."""

from __future__ import annotations

from typing import Any

from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.operators.processors import ProcessorContext
from tidemill.operators.record import Record

STRING, LONG, INTEGER = Serdes.string(), Serdes.long(), Serdes.integer()


def text(value: Any) -> str:
    """What Java's ``+`` makes of a value."""
    return "null" if value is None else str(value)


def words(value: str) -> list[str]:
    """Java's ``value.split(" ")``: without the empty strings at the end, unless there is nothing to split."""
    found = value.split(" ")
    while len(found) > 1 and found[-1] == "":
        found.pop()
    return [] if found == [""] and value else found


def map_swap(b: StreamsBuilder) -> None:
    b.stream("in").map(per_record(lambda k, v: (v, k), (STRING, STRING))).to("out")


def flatmap_words(b: StreamsBuilder) -> None:
    def lengths(_key: str, value: str) -> list[tuple[str, int]]:
        return [(word, len(word)) for word in words(value) if word]

    b.stream("in").flat_map(per_record(lengths)).to("out", key=STRING, value=INTEGER)


def flatmapvalues_filter_filternot(b: StreamsBuilder) -> None:
    split = b.stream("in").flat_map_values(per_record(words, STRING))
    split.filter(per_record(lambda k, v: v != "")).filter_not(per_record(lambda k, v: v.startswith("b"))).to("out")


def null_handling_stateless(b: StreamsBuilder) -> None:
    s = b.stream("in")
    s.filter(per_record(lambda k, v: v is None)).to("nulls")
    s.filter_not(per_record(lambda k, v: k is None)).map_values(per_record(lambda k, v: f"{k}={text(v)}", STRING)).to("keyed")
    upper = per_record(lambda v: None if v is None else v.upper(), STRING)
    s.peek(lambda k, v: None).map_values(upper).to("all")


def branch_without_default(b: StreamsBuilder) -> None:
    branches = (
        b.stream("in").split(name="b-")
        .branch(per_record(lambda k, v: v.startswith("red")), name="red")
        .branch(per_record(lambda k, v: v.startswith("blue")), name="blue")
        .no_default_branch()
    )
    branches["b-red"].map_values(per_record(lambda v: "1:" + v, STRING)).to("out")
    branches["b-blue"].map_values(per_record(lambda v: "2:" + v, STRING)).to("out")


def merge_three(b: StreamsBuilder) -> None:
    first, second, third = b.stream("a"), b.stream("b"), b.stream("c")
    first.merge(second).merge(third.map_values(per_record(lambda v: "c:" + text(v), STRING))).to("out")


def diamond_order(b: StreamsBuilder) -> None:
    s = b.stream("in")
    first = s.map_values(per_record(lambda v: "1" + text(v), STRING))
    second = s.flat_map_values(per_record(lambda v: ["2" + text(v), "3" + text(v)], STRING))
    second.merge(first).to("out")
    s.map_values(per_record(lambda v: "4" + text(v), STRING)).to("out")


def select_key_repartition(b: StreamsBuilder) -> None:
    rekeyed = b.stream("in").select_key(per_record(lambda k, v: v, STRING)).repartition(name="by-value")
    rekeyed.map_values(per_record(lambda k, v: f"{text(k)}/{text(v)}", STRING)).to("out")


def timestamp_extractor_value(b: StreamsBuilder) -> None:
    def extracted(record: Record, _partition_time: int) -> int:
        return int(record.value.split("|")[0])

    b.stream("in", timestamp_extractor=extracted).map_values(per_record(lambda v: v.split("|")[1], STRING)).to("out")


def timestamp_extractor_use_partition_time(b: StreamsBuilder) -> None:
    def extracted(record: Record, partition_time: int) -> int:
        found = int(record.value.split("|")[0])
        return partition_time if found < 0 else found

    b.stream("in", timestamp_extractor=extracted).to("out")


class _ReadsHeaders:
    """Tells the header ``h`` and adds one of its own."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        header = record.header("h")
        seen = "-" if header is None else header.decode()
        made = record.with_value(f"{text(record.value)}/{seen}")
        self.context.forward(made.with_headers((*record.headers, ("seen", b"\x01"))))


def headers_and_process(b: StreamsBuilder) -> None:
    s = b.stream("in")
    s.process(_ReadsHeaders).to("out", key=STRING, value=STRING)
    s.group_by_key().reduce(lambda a, b: b).to_stream().to("agg")


def named_operators(b: StreamsBuilder) -> None:
    filtered = b.stream("in", name="my-source").filter(per_record(lambda k, v: v is not None), name="my-filter")
    counts = filtered.group_by(per_record(lambda k, v: v, STRING), name="my-group").count(name="my-count", store="my-store")
    shown = counts.map_values(per_record(lambda n: f"n={n}", STRING), name="my-mv")
    shown.to_stream(name="my-ts").to("out", name="my-sink", value=STRING)

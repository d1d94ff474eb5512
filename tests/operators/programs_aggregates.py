"""The vectors' programs of aggregations by key."""

from __future__ import annotations

from tests.operators.programs_stateless import words
from tidemill import Serdes, StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.dsl.materialized import Materialized

STRING, LONG = Serdes.string(), Serdes.long()


def java_remainder(value: int, by: int) -> int:
    """Java's ``%``, which takes the sign of the first number."""
    return value % by if value >= 0 else -(-value % by)


def count_by_key(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=LONG)


def wordcount(b: StreamsBuilder) -> None:
    split = b.stream("in").flat_map_values(per_record(lambda v: words(v.lower()), STRING))
    split.group_by(per_record(lambda k, v: v, STRING)).count(store="counts").to_stream().to("out", value=LONG)


def reduce_concat(b: StreamsBuilder) -> None:
    def joined(a: str, b: str) -> str:
        return b if len(a) > 12 else a + "," + b

    b.stream("in").group_by_key().reduce(joined, store="r").to_stream().to("out")


def reduce_to_null(b: StreamsBuilder) -> None:
    def added(a: int, b: int) -> int | None:
        return None if java_remainder(a + b, 5) == 0 else a + b

    b.stream("in", key=STRING, value=LONG).group_by_key().reduce(added).to_stream().to("out")


def aggregate_sum(b: StreamsBuilder) -> None:
    grouped = b.stream("in", key=STRING, value=LONG).group_by_key()
    kept = Materialized(name="agg", key=STRING, value=LONG)
    grouped.aggregate(lambda: 100, lambda k, v, a: a + v, store=kept).to_stream().to("out", key=STRING, value=LONG)

"""Which programs ``ensure.explicit.internal.resource.naming`` refuses, and for which names, compared with Kafka Streams' answers.

The answers are those of Kafka Streams 4.3.1 (StreamsBuilder.build with a TopologyConfig), with the same programs in Java.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tidemill import (
    Joined,
    JoinWindows,
    Materialized,
    Serdes,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TimeWindows,
    Topology,
    TopologyBuilder,
)
from tidemill.config.slices import TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.runtime.instance.configured_topology import configured_topology
from tidemill.topology.internal_names import require_explicit_names

TEXT = Serdes.string()
WINDOWS = JoinWindows.of_time_difference(1)


def stream(b: StreamsBuilder, topic: str = "t") -> KStream:
    return b.stream(topic, key=TEXT, value=TEXT)


def rekeyed(b: StreamsBuilder) -> KStream:
    return stream(b).select_key(lambda key, value: value)


def named(b: StreamsBuilder, topic: str, store: str) -> KTable:
    return b.table(topic, key=TEXT, value=TEXT, store=store)


def versioned(b: StreamsBuilder) -> KTable:
    return b.table("u", key=TEXT, value=TEXT, store=Materialized(name="m", history_retention=300_000))


def first(left: Any, _right: Any) -> Any:
    return left


def swapped(_key: Any, value: Any) -> Any:
    return value, value


def of_value(value: Any) -> Any:
    return value


def no_log() -> Materialized:
    return Materialized(logged=False)


def stores(*names: str) -> set[str]:
    """Names of stores that have changelogs."""
    return {*names, *(f"{name}-changelog" for name in names)}


BY_VALUE = {"key": TEXT, "value": TEXT}
AGGREGATE = "KSTREAM-AGGREGATE-STATE-STORE-000000000"
JOIN_STORES = ("KSTREAM-JOINTHIS-0000000004-store", "KSTREAM-JOINOTHER-0000000005-store")
LEFT_STORES = (
    "KSTREAM-JOINTHIS-0000000004-store", "KSTREAM-OUTEROTHER-0000000005-store", "KSTREAM-OUTERSHARED-0000000004-store",
)
REKEYED = "KSTREAM-KEY-SELECT-0000000001-repartition"


def by_value(b: StreamsBuilder, name: str | None = None) -> Any:
    return stream(b).group_by(lambda key, value: value, name=name, **BY_VALUE)


def two_counts(b: StreamsBuilder) -> None:
    group = by_value(b, "g")
    group.count(store="c")
    group.reduce(first, store="d")


def two_joins(b: StreamsBuilder) -> None:
    records, table = rekeyed(b), named(b, "u", "m")
    records.join(table, first)
    records.left_join(table, first)


ANSWERS: dict[str, tuple[Callable[[StreamsBuilder], Any], set[str]]] = {
    "count": (lambda b: stream(b).group_by_key().count(), stores(f"{AGGREGATE}1")),
    "count, store named": (lambda b: stream(b).group_by_key().count(store="c"), set()),
    "count by another key": (lambda b: by_value(b).count(), stores(f"{AGGREGATE}2") | {f"{AGGREGATE}2-repartition"}),
    "count by another key, store named": (lambda b: by_value(b).count(store="c"), set()),
    "count by another key, group named": (lambda b: by_value(b, "g").count(), stores(f"{AGGREGATE}2")),
    "count by another key, both named": (lambda b: by_value(b, "g").count(store="c"), set()),
    "count, only its node named": (lambda b: stream(b).group_by_key().count(name="n"), stores(f"{AGGREGATE}1")),
    "count without changelog": (lambda b: stream(b).group_by_key().count(store=no_log()), {f"{AGGREGATE}2"}),
    "reduce": (lambda b: stream(b).group_by_key().reduce(first), stores("KSTREAM-REDUCE-STATE-STORE-0000000001")),
    "aggregate": (
        lambda b: stream(b).group_by_key().aggregate(lambda: "", lambda key, value, made: made), stores(f"{AGGREGATE}1"),
    ),
    "windowed count": (
        lambda b: stream(b).group_by_key().windowed_by(TimeWindows.of_size(10)).count(), stores(f"{AGGREGATE}1"),
    ),
    "session count": (
        lambda b: stream(b).group_by_key().windowed_by(SessionWindows.of_inactivity_gap(10)).count(), stores(f"{AGGREGATE}1"),
    ),
    "cogroup": (
        lambda b: stream(b).group_by_key().cogroup(lambda key, value, made: made).aggregate(lambda: ""),
        stores("COGROUPKSTREAM-AGGREGATE-STATE-STORE-0000000001"),
    ),
    "table, store named": (lambda b: named(b, "t", "m"), set()),
    "tables joined": (
        lambda b: b.table("t", **BY_VALUE).join(b.table("u", **BY_VALUE), first),
        stores("t-STATE-STORE-0000000000", "u-STATE-STORE-0000000003"),
    ),
    "tables joined, sources named": (lambda b: named(b, "t", "m").join(named(b, "u", "n"), first), set()),
    "tables joined, result kept without a name": (
        lambda b: named(b, "t", "m").join(named(b, "u", "n"), first, value=TEXT),
        stores("KTABLE-MERGE-STATE-STORE-0000000004"),
    ),
    "table filtered": (lambda b: named(b, "t", "m").filter(lambda key, value: key == key), set()),
    "table mapped, a store without a name": (lambda b: named(b, "t", "m").map_values(of_value, value=TEXT), set()),
    "global table": (lambda b: b.global_table("t", **BY_VALUE), {"t-STATE-STORE-0000000000"}),
    "global table, store named": (lambda b: b.global_table("t", store="m", **BY_VALUE), set()),
    "to_table, store named": (lambda b: stream(b).to_table(store="m"), set()),
    "to_table, rekeyed": (lambda b: rekeyed(b).to_table(store="m"), {"KSTREAM-TOTABLE-0000000002-repartition"}),
    "to_table, rekeyed, all named": (lambda b: rekeyed(b).to_table(store="m", name="x"), set()),
    "repartition": (lambda b: stream(b).repartition().to("o"), {"KSTREAM-REPARTITION-0000000001-repartition"}),
    "repartition, named": (lambda b: stream(b).repartition(name="r").to("o"), set()),
    "suppress": (
        lambda b: named(b, "t", "m").suppress(Suppressed.until_time_limit(1)),
        {"KTABLE-SUPPRESS-STATE-STORE-0000000003-changelog"},
    ),
    "suppress, named": (lambda b: named(b, "t", "m").suppress(Suppressed.until_time_limit(1, name="s")), set()),
    "suppress without changelog": (
        lambda b: named(b, "t", "m").suppress(Suppressed.until_time_limit(1, logged=False)), set(),
    ),
    "streams joined": (lambda b: stream(b).join(stream(b, "u"), first, WINDOWS), stores(*JOIN_STORES)),
    "streams joined, stores named": (
        lambda b: stream(b).join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(store_name="st")), set(),
    ),
    "streams joined, only nodes named": (
        lambda b: stream(b).join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(name="j")), stores(*JOIN_STORES),
    ),
    "streams joined without changelogs": (
        lambda b: stream(b).join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(logged=False)), set(JOIN_STORES),
    ),
    "streams left joined": (lambda b: stream(b).left_join(stream(b, "u"), first, WINDOWS), stores(*LEFT_STORES)),
    "streams left joined, stores named": (
        lambda b: stream(b).left_join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(store_name="st")), set(),
    ),
    "streams joined, one rekeyed": (
        lambda b: rekeyed(b).join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(store_name="st")), {REKEYED},
    ),
    "streams joined, one rekeyed, named": (
        lambda b: rekeyed(b).join(stream(b, "u"), first, WINDOWS, joined=StreamJoined(store_name="st", name="j")), set(),
    ),
    "stream joined with a table, rekeyed": (lambda b: rekeyed(b).join(named(b, "u", "m"), first), {REKEYED}),
    "stream joined with a table, rekeyed, named": (
        lambda b: rekeyed(b).join(named(b, "u", "m"), first, joined=Joined(name="j")), set(),
    ),
    "stream joined with a table and grace": (
        lambda b: stream(b).join(versioned(b), first, joined=Joined(grace=60_000)), stores("KSTREAM-JOIN-0000000003-Buffer"),
    ),
    "stream joined with a table and grace, named": (
        lambda b: stream(b).join(versioned(b), first, joined=Joined(name="j", grace=60_000)), set(),
    ),
    "table grouped, store named": (lambda b: named(b, "t", "m").group_by(swapped, **BY_VALUE).count(store="c"), set()),
    "table grouped, only the group named": (
        lambda b: named(b, "t", "m").group_by(swapped, name="g", **BY_VALUE).count(),
        stores("KTABLE-AGGREGATE-STATE-STORE-0000000003"),
    ),
    "foreign-key join, all named": (
        lambda b: named(b, "t", "m").join(
            named(b, "u", "n"), first, foreign_key=of_value, store="r", joined=TableJoined(name="f")
        ),
        set(),
    ),
    "two counts of one named group": (two_counts, set()),
    "two joins of one rekeyed stream": (two_joins, {REKEYED}),
    "stateless": (lambda b: stream(b).map_values(lambda value: value).filter(lambda key, value: key == key).to("o"), set()),
}

FOREIGN_KEY_NAMES = stores("KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008") | {
    "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic", "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic",
}
DIFFERENT: dict[str, tuple[Callable[[StreamsBuilder], Any], set[str], set[str]]] = {
    "a table that has no store": (lambda b: b.table("t", **BY_VALUE), stores("t-STATE-STORE-0000000000"), set()),
    "a stream made a table that has no store": (
        lambda b: stream(b).to_table(), stores("KSTREAM-TOTABLE-STATE-STORE-0000000002"), set(),
    ),
    "foreign-key join, its result named": (
        lambda b: named(b, "t", "m").join(named(b, "u", "n"), first, foreign_key=of_value, store="r"), set(), FOREIGN_KEY_NAMES,
    ),
    "foreign-key join, named, its result without a store": (
        lambda b: named(b, "t", "m").join(named(b, "u", "n"), first, foreign_key=of_value, joined=TableJoined(name="f")),
        stores("KTABLE-FK-JOIN-OUTPUT-STATE-STORE-0000000017"), set(),
    ),
}


def built(program: Callable[[StreamsBuilder], Any]) -> Topology:
    builder = StreamsBuilder()
    program(builder)
    return builder.build()


def complained_of(topology: Topology) -> set[str]:
    """The names that the error says to be generated."""
    try:
        require_explicit_names(topology)
    except TopologyError as error:
        return set(re.findall(r"(?:the store|its changelog|the repartition topic) ([^ ,:]+)", str(error)))
    return set()


@pytest.mark.parametrize("case", ANSWERS)
def test_generated_names_are_found_where_kafka_streams_finds_them(case: str) -> None:
    program, answer = ANSWERS[case]
    if case == "suppress":  # Kafka Streams leaves the buffer itself out
        answer = answer | {"KTABLE-SUPPRESS-STATE-STORE-0000000003"}
    assert complained_of(built(program)) == answer


@pytest.mark.parametrize("case", DIFFERENT)
def test_only_what_is_in_the_topology_counts_and_all_of_it(case: str) -> None:
    program, theirs, ours = DIFFERENT[case]
    assert theirs != ours
    assert complained_of(built(program)) == ours


def test_a_name_that_the_program_gives_is_not_a_generated_one_whatever_it_looks_like() -> None:
    """How an application keeps its state when it begins to name what it has: by the names that were generated."""
    kept = built(lambda b: by_value(b).count(store="KSTREAM-AGGREGATE-STATE-STORE-0000000002"))
    assert "KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition" in kept.repartition_topics
    require_explicit_names(kept)


def test_the_error_names_operators_and_a_way_out() -> None:
    with pytest.raises(TopologyError) as refused:
        require_explicit_names(built(lambda b: by_value(b).count()))
    assert str(refused.value) == (
        "ensure.explicit.internal.resource.naming=true, but 2 internal resources have a generated name, which changes with the"
        " operators before it: the store KSTREAM-AGGREGATE-STATE-STORE-0000000002 and its changelog"
        " KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog, of KSTREAM-AGGREGATE-0000000003: give store=;"
        " the repartition topic KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition, read by KSTREAM-AGGREGATE-0000000003:"
        " give group_by, repartition, to_table or the join a name="
    )


def test_the_setting_decides() -> None:
    needed = {"application.id": "app"}
    builder = StreamsBuilder()
    by_value(builder).count()
    assert configured_topology(builder, StreamsConfig.read_slice(TopologyConfig, needed)) == builder.build()
    strict = StreamsConfig.read_slice(TopologyConfig, {**needed, "ensure.explicit.internal.resource.naming": "true"})
    with pytest.raises(TopologyError, match="2 internal resources have a generated name"):
        configured_topology(builder, strict)
    with pytest.raises(TopologyError, match="2 internal resources have a generated name"):
        configured_topology(TopologyBuilder(builder.build()).build(), strict)

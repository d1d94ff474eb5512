"""Where a batch of an operator that runs record by record may be handled at once: never where that could be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import (
    EmitStrategy,
    Joined,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    UnlimitedWindows,
    of_columns,
    per_record,
)
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import entry_of
from tidemill.spark.plan.graph_parts import graph_parts
from tidemill.spark.plan.planned_topology import planned
from tidemill.spark.plan.shortcuts import has_shortcut, lookup_store
from tidemill.topology.join_operations import StreamTableJoin
from tidemill.topology.nodes import ProcessorNode, Topology

STRING, LONG, INTEGER = Serdes.string(), Serdes.long(), Serdes.integer()
HOPPING = TimeWindows.of_size(10_000, advance=4000)
SESSIONS = SessionWindows.of_inactivity_gap(700)
Make = Callable[[StreamsBuilder, Any], Any]


def _topology(make: Make, key: Any = STRING) -> Topology:
    builder = StreamsBuilder()
    make(builder, builder.stream("events", key=key, value=STRING)).to("out")
    return builder.build()


def _lookup_store(make: Make) -> str | None:
    topology = _topology(make)
    nodes = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    return lookup_store(topology, next(node for node in nodes if isinstance(node.operation, StreamTableJoin)))


def test_only_tables_as_they_come_from_their_topic_are_looked_up_at_once() -> None:
    def joiner(left: str, right: str) -> str:
        return left + right

    versioned = Materialized(name="v", history_retention=1000)
    assert _lookup_store(lambda b, s: s.join(b.table("users", store="t"), joiner)) == "t"
    assert _lookup_store(lambda b, s: s.join(b.table("users", store=versioned), joiner)) is None
    assert _lookup_store(lambda b, s: s.join(b.table("users", store=versioned), joiner, joined=Joined(grace=5))) is None
    assert _lookup_store(lambda b, s: s.join(s.group_by_key().count(), joiner)) is None
    assert _lookup_store(lambda b, s: s.join(b.stream("users").to_table(store="t"), joiner)) == "t"
    assert _lookup_store(lambda b, s: s.map_values(per_record(lambda v: v)).join(s.to_table(), joiner)) is None
    assert _lookup_store(lambda b, s: s.join(b.table("users").filter(per_record(lambda k, v: True)), joiner)) is None


def _windowed(windows: Any, *, emit: Any = None, reduced: bool = False, store: Any = None) -> Make:
    def make(_builder: StreamsBuilder, stream: Any) -> Any:
        cut = stream.group_by_key().windowed_by(windows)
        cut = cut if emit is None else cut.emit_strategy(emit)
        return (cut.reduce(max, store=store) if reduced else cut.count(store=store)).to_stream()

    return make


def _is_vectorised(make: Make, key: Any = STRING) -> bool:
    topology = _topology(make, key)
    windowed = [
        name for name, node in topology.nodes.items()
        if isinstance(node, ProcessorNode) and entry_of(node.operation).shortcut is not None
    ]
    assert len(windowed) == 1
    found = has_shortcut(topology, windowed[0])
    assert bool(graph_parts(topology).vectorised) is found
    return found


@pytest.mark.parametrize("windows", [TimeWindows.of_size(10), HOPPING, UnlimitedWindows.of(start=5)])
def test_counts_in_time_windows_are_made_at_once(windows: Any) -> None:
    assert _is_vectorised(_windowed(windows))


@pytest.mark.parametrize("reduced", [False, True])
def test_sessions_are_folded_at_once(reduced: bool) -> None:
    assert _is_vectorised(_windowed(SESSIONS, reduced=reduced))


@pytest.mark.parametrize(
    "make",
    [
        _windowed(HOPPING, emit=EmitStrategy.ON_WINDOW_CLOSE),
        _windowed(SESSIONS, emit=EmitStrategy.ON_WINDOW_CLOSE),
        _windowed(HOPPING, reduced=True),
        _windowed(SlidingWindows.of_time_difference(5)),
    ],
    ids=["final counts", "final sessions", "a reduce in windows", "sliding windows"],
)
def test_other_windows_are_left_to_the_operators(make: Make) -> None:
    assert not _is_vectorised(make)


def test_windows_whose_keys_nothing_says_how_to_write_are_left_to_the_operators() -> None:
    assert not _is_vectorised(_windowed(HOPPING), key=None)


def test_windows_whose_updates_something_counts_are_left_to_the_operators() -> None:
    def counted_again(builder: StreamsBuilder, stream: Any) -> Any:
        by_length = _windowed(HOPPING)(builder, stream).select_key(lambda k, v: v)
        return by_length.group_by_key(key=LONG, value=LONG).count().to_stream()

    topology = _topology(counted_again)
    assert not any(has_shortcut(topology, name) for name in topology.nodes)


UNCACHED = Materialized(name="st", caching=False)


@pytest.mark.parametrize("windows", [HOPPING, SESSIONS])
def test_windows_without_a_cache_are_left_to_the_operators(windows: Any) -> None:
    assert not _is_vectorised(_windowed(windows, store=UNCACHED))


@pytest.mark.parametrize("store", ["st", UNCACHED], ids=["cached", "uncached"])
@pytest.mark.parametrize(
    "aggregate",
    [
        lambda grouped, store: grouped.count(store=store),
        lambda grouped, store: grouped.reduce(max, store=store),
        lambda grouped, store: grouped.aggregate(str, lambda k, v, a: a + v, store=store, value=STRING),
    ],
    ids=["count", "reduce", "aggregate"],
)
def test_an_aggregate_without_a_cache_runs_record_by_record(aggregate: Any, store: Any) -> None:
    topology = _topology(lambda _, stream: aggregate(stream.group_by_key(), store).to_stream())
    assert bool(graph_parts(topology).parts) is (store is UNCACHED)


def test_a_merge_of_columns_without_a_cache_is_refused() -> None:
    merging = of_columns(lambda a, b: a + b)
    topology = _topology(lambda _, stream: stream.group_by_key().reduce(merging, store=UNCACHED).to_stream())
    with pytest.raises(TopologyError, match=r"KSTREAM-REDUCE-\d+ merges .* plain Python function"):
        planned(topology)

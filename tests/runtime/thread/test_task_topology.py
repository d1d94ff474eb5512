"""Which topologies have something to do although no record comes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Serdes,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    per_record,
)
from tidemill.operators.wrapped import wrapped_topology
from tidemill.runtime.thread.task_topology import task_topology
from tidemill.topology.nodes import Topology

TEXT = Serdes.string()
VERSIONED = Materialized(name="rows", history_retention=1_000)
first = per_record(lambda left, right: left, TEXT)


class Nothing:
    def process(self, record: Any) -> None: ...


class Wrapping:
    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        return partial(supplier)


def table(suppressed: Suppressed | None) -> Topology:
    builder = StreamsBuilder()
    made = builder.table("in", key=TEXT, value=TEXT, store="kept")
    (made if suppressed is None else made.suppress(suppressed)).to_stream().to("out")
    return builder.build()


def joined(joiner: Any, store: Materialized, grace: int | None) -> Topology:
    builder = StreamsBuilder()
    table = builder.table("table", key=TEXT, value=TEXT, store=store)
    builder.stream("in", key=TEXT, value=TEXT).left_join(table, joiner, joined=Joined(grace=grace)).to("out", value=TEXT)
    return builder.build()


def windowed(strategy: EmitStrategy) -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(TimeWindows.of_size(10))
    windows.emit_strategy(strategy).count()
    return builder.build()


def of_streams(outer: bool) -> Topology:
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=TEXT, value=TEXT) for topic in ("in", "other"))
    (left.left_join if outer else left.join)(right, first, JoinWindows.of_time_difference(5)).to("out")
    return builder.build()


def processor() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Nothing)
    return builder.build()


@pytest.mark.parametrize(
    ("topology", "punctuates"),
    [
        (table(None), False),
        (table(Suppressed.until_time_limit(1)), False),
        (table(Suppressed.until_wall_clock_limit(1)), True),
        (processor(), True),
        (wrapped_topology(table(None), Wrapping()), True),
    ],
)
def test_a_thread_looks_at_the_wall_clock_where_it_may_matter(topology: Topology, punctuates: bool) -> None:
    assert task_topology(topology, "app").punctuates is punctuates


@pytest.mark.parametrize(
    ("topology", "may_defer"),
    [
        (table(None), False),
        (table(Suppressed.until_time_limit(1)), True),
        (processor(), True),
        (joined(first, VERSIONED, 5), True),
        (joined(first, VERSIONED, None), False),
        (of_streams(outer=True), True),
        (of_streams(outer=False), False),
        (windowed(EmitStrategy.ON_WINDOW_CLOSE), True),
        (windowed(EmitStrategy.ON_WINDOW_UPDATE), False),
    ],
)
def test_operators_that_hold_records_may_defer_them(topology: Topology, may_defer: bool) -> None:
    assert task_topology(topology, "app").may_defer is may_defer

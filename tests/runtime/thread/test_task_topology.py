"""Which topologies have something to do although no record comes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tidemill import Serdes, StreamsBuilder, Suppressed
from tidemill.operators.wrapped import wrapped_topology
from tidemill.runtime.thread.task_topology import task_topology
from tidemill.topology.nodes import Topology

TEXT = Serdes.string()


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

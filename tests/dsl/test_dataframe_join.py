"""join_dataframe: what it records and refuses."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import TopologyError
from tidemill.topology.nodes import ProcessorNode
from tidemill.topology.spark_operations import DataFrameJoin


def recorded(**more: Any) -> tuple[StreamsBuilder, DataFrameJoin]:
    builder = StreamsBuilder()
    joined = builder.stream("in", key=Serdes.string()).join_dataframe(lambda session: session, **{"on": "id", **more})
    joined.to("out")
    [node] = [n for n in builder.build().nodes.values() if isinstance(n, ProcessorNode)]
    assert isinstance(node.operation, DataFrameJoin)
    return builder, node.operation


def test_it_is_a_processor_without_stores() -> None:
    assert "Processor: KSTREAM-JOIN-0000000001 (stores: [])" in recorded()[0].build().describe()
    assert "Processor: KSTREAM-LEFTJOIN-0000000001 (stores: [])" in recorded(how="left")[0].build().describe()


def test_a_joiner_may_take_the_key_and_an_interval_be_a_timedelta() -> None:
    _, join = recorded(joiner=lambda key, value, row: row, refresh_interval=timedelta(minutes=5), how="left")
    assert (join.takes_key, join.refresh_ms, join.left, join.on) == (True, 300_000, True, ("id",))
    _, join = recorded(on=["a", "b"], selector=lambda key, value: (key, value))
    assert (join.takes_key, join.refresh_ms, join.left, join.on) == (False, None, False, ("a", "b"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"on": ""}, "on is ''"),
        ({"on": ["a", "b"]}, "give selector"),
        ({"how": "outer"}, "how is 'outer', expected one of inner, left"),
        ({"refresh_interval": 10}, "refresh_interval is 10 ms, expected 1000 or more"),
        ({"joiner": lambda one: one}, r"can't be called with \(value, row\) or \(key, value, row\)"),
        ({"joiner": per_record(lambda value, row: row)}, "joined in the JVM"),
        ({"selector": lambda key: key}, "selector"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        recorded(**given)


def test_a_frame_must_be_one_or_make_one() -> None:
    with pytest.raises(TopologyError, match="expected a Spark DataFrame or a function"):
        StreamsBuilder().stream("in").join_dataframe([1, 2], on="id")

"""A foreign-key join needs bytes of its own: of foreign keys and of left values. Without a serde for them it says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.harness import TASK, MemoryRows
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import TopologyError
from tidemill.operators.task_graph import TaskGraph
from tidemill.topology.key_value_serdes import NO_SERDES

STRING = Serdes.string()


def _graph(serde: Any) -> TaskGraph:
    builder = StreamsBuilder()
    left = builder.table("l", key=STRING, value=STRING, store="l").map_values(per_record(lambda value: value, serde))
    right = builder.table("r", key=STRING, value=STRING, store="r")
    joined = left.join(right, lambda one, other: one + other, foreign_key=lambda value: value)
    joined.to_stream().to("out", key=STRING, value=STRING)
    return TaskGraph(builder.build(), TASK, rows=lambda _store: MemoryRows(), default_serdes=NO_SERDES)


def test_left_values_that_no_serde_writes_are_refused_with_what_to_do() -> None:
    with pytest.raises(TopologyError, match=r"the left table's values, and no serde is known .* per_record\(function, serde\)"):
        _graph(None)


def test_the_serde_of_the_function_that_makes_them_is_enough() -> None:
    assert _graph(STRING) is not None

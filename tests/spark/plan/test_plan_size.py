"""Programs that are too long for Spark: the error says how long they are, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tidemill import Serdes, StreamsBuilder, Topology, per_record
from tidemill.errors import TopologyError
from tidemill.spark.plan.plan_size import Chain, longest_chain, planning

STRING, LONG = Serdes.string(), Serdes.long()


def chain(*functions: Any) -> Topology:
    stream = (builder := StreamsBuilder()).stream("in", key=STRING, value=LONG)
    for number, function in enumerate(functions):
        stream = stream.map_values(function, name=f"f{number}")
    stream.to("out", key=STRING, value=LONG)
    return builder.build()


def more(v: Any) -> Any:
    return v + 1


IN_PYTHON = per_record(more, LONG)


@pytest.mark.parametrize(("topology", "longest"), [
    (chain(), Chain(0, "", "")),
    (chain(IN_PYTHON, IN_PYTHON), Chain(0, "", "")),
    (chain(more, more, more), Chain(3, "f0", "f2")),
    (chain(more, more, IN_PYTHON, more), Chain(2, "f0", "f1")),
])  # fmt: skip
def test_functions_of_columns_are_in_a_row_until_one_runs_in_python(topology: Topology, longest: Chain) -> None:
    assert longest_chain(topology) == longest


def test_nodes_that_only_forward_end_no_chain_and_repartition_topics_do() -> None:
    stream = (builder := StreamsBuilder()).stream("in", key=STRING, value=LONG)
    merged = stream.filter(lambda k, v: v > 1, name="one").merge(stream)
    again = merged.filter(lambda k, v: v > 2, name="two").repartition(name="again")
    again.filter(lambda k, v: v > 3, name="three").to("out")
    assert longest_chain(builder.build()) == Chain(2, "one", "two")


def fails_with(problem: Exception, functions: int) -> None:
    with planning(chain(*[more] * functions)):
        raise problem


def test_what_is_too_long_is_said_with_its_length_and_what_to_do() -> None:
    said = (
        r"has 60 functions of Columns in a row, from f0 to f59, which are more than Spark could plan \(RecursionError\): compute"
        r" several in one function, or wrap some next to each other in per_record"
    )
    with pytest.raises(TopologyError, match=said):
        fails_with(RecursionError("maximum recursion depth exceeded"), 60)


def test_a_short_program_is_not_to_blame() -> None:
    with pytest.raises(RecursionError):
        fails_with(RecursionError("maximum recursion depth exceeded"), 5)
    with pytest.raises(ValueError, match="another"):
        fails_with(ValueError("another error"), 60)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["OutOfMemoryError", "StackOverflowError"])
def test_what_the_jvm_ran_out_of_is_named(spark: SparkSession, kind: str) -> None:
    lang: Any = spark.sparkContext._jvm.java.lang  # type: ignore[union-attr]
    java: Callable[[str], Any] = getattr(lang, kind)
    with pytest.raises(TopologyError, match=rf"Spark could plan \(java.lang.{kind}\).* spark.sql.codegen.wholeStage=false"):
        fails_with(Py4JJavaError("An error occurred while calling o1.execute.\n", java("no more")), 60)
    with pytest.raises(Py4JJavaError, match=kind):
        fails_with(Py4JJavaError("An error occurred while calling o1.execute.\n", java("no more")), 5)

"""One physical plan for all threads: a copy runs its own Python functions in workers of its own, and leaves the first alone."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder
from tidemill.errors import StopError
from tidemill.spark.engine import BatchEngine
from tidemill.spark.plan.compile import Compiler
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.pinned_workers import pinning
from tidemill.spark.plan.python_steps import SharedPlan, copied, idle, map_in_arrow

pytestmark = pytest.mark.spark

TEXT, LONG = Serdes.string(), Serdes.long()
SAID = pa.schema([("said", pa.string())])
Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def saying(name: str) -> Step:
    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        before = [text for rows in batches if rows.schema.names == ["said"] for text in rows.column(0).to_pylist()]
        said = json.dumps([*before, name, os.environ["TIDEMILL_WORKER"]])
        yield pa.RecordBatch.from_arrays([pa.array([said])], ["said"])

    return step


def chain(spark: SparkSession, thread: str, first: str, second: str) -> Any:
    with pinning(spark, thread) as pin:
        pin("source")
        frame = map_in_arrow(spark.range(0, 1, 1, 1), saying(first), SAID)
        frame = frame.filter(F.length("said") > 0).select(F.upper("said").alias("said"))
        pin("step-1")
        frame = map_in_arrow(frame, saying(second), SAID)
    return frame._jdf.queryExecution().executedPlan()


def result(plan: Any) -> str:
    [row] = plan.execute().collect()
    return str(row.getUTF8String(0).toString())


def test_a_copy_runs_its_own_functions_in_its_own_workers(spark: SparkSession) -> None:
    plan = chain(spark, "one", "a", "b")

    def copy() -> Any:
        with pinning(spark, "two") as pin:
            return copied(spark, plan, {"source": saying("c"), "step-1": saying("d")}, pin)

    with ThreadPoolExecutor(max_workers=1) as another_thread:  # which has done nothing with the session yet
        other = another_thread.submit(copy).result()
    for of_plan, thread, first, second in ((plan, "one", "A", "b"), (other, "two", "C", "d"), (plan, "one", "A", "b")):
        said = json.loads(result(of_plan))
        assert said[1:] == [second, f"{thread}/step-1"]
        assert json.loads(said[0]) == [first, f"{thread.upper()}/SOURCE"]


def test_workers_import_from_where_the_driver_does_and_not_from_the_current_folder_before(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("/of the driver")

    def path(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        said = json.dumps([sys.path, getattr(sys.flags, "safe_path", True)])
        yield pa.RecordBatch.from_arrays([pa.array([said])], ["said"])

    with pinning(spark, "imports") as pin:
        pin("source")
        plan = map_in_arrow(spark.range(0, 1, 1, 1), path, SAID)._jdf.queryExecution().executedPlan()
    folders, is_safe = json.loads(result(plan))
    assert "/of the driver" in folders
    assert is_safe


def test_a_plan_that_is_no_chain_of_these_steps_is_not_copied(spark: SparkSession) -> None:
    plan = chain(spark, "one", "a", "b")
    with pinning(spark, "two") as pin, pytest.raises(StopError, match="a plan with 2 Python steps can't be copied for 1"):
        copied(spark, plan, {"source": saying("c")}, pin)
    union = spark.range(1).union(spark.range(1))._jdf.queryExecution().executedPlan()
    with pinning(spark, "two") as pin, pytest.raises(StopError, match="a plan that branches at Union"):
        copied(spark, union, {}, pin)


def test_the_plan_is_built_once_and_each_thread_has_a_copy() -> None:
    shared, built = SharedPlan(), []

    def build() -> str:
        built.append(1)
        return "plan"

    assert shared.of_thread(build, lambda plan: f"copy of {plan}") == "copy of plan"
    assert shared.of_thread(build, lambda plan: f"another copy of {plan}") == "another copy of plan"
    assert built == [1]


def test_a_plan_that_can_not_be_built_is_tried_again_by_the_next() -> None:
    shared = SharedPlan()

    def fail() -> str:
        raise StopError("no")

    with pytest.raises(StopError, match="no"):
        shared.of_thread(fail, lambda plan: plan)
    assert shared.of_thread(lambda: "plan", lambda plan: plan) == "plan"


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


def test_engines_of_one_topology_share_the_plan_of_its_compiling(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=TEXT, value=TEXT)
    lines.group_by(lambda _, line: F.lower(line)).count().to_stream().to("counts", value=LONG)
    compiled = compile_topology(spark, builder.build(), "sharing")
    monkeypatch.setattr(type(compiled), "frame", lambda *_, **__: pytest.fail("a second frame was built"))
    first = BatchEngine(spark, compiled, "first", no_rows, [no_rows], limit_s=60)
    second = BatchEngine(spark, compiled, "second", no_rows, [no_rows], limit_s=60)
    assert first.explained == second.explained
    first.close()
    assert set(compiled.lookups.plans) == {second}, "a refresh would build the plan of a thread that has ended"
    second.close()


def test_an_engine_whose_plan_can_not_be_built_leaves_no_thread_behind(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler may replace a thread that has no plan over and over."""
    builder = StreamsBuilder()
    builder.stream("lines", key=TEXT, value=TEXT).to("same")
    compiled = compile_topology(spark, builder.build(), "failing")

    def fail(*_: object, **__: object) -> None:
        raise StopError("no plan")

    monkeypatch.setattr(type(compiled), "shared_plan", fail)
    with pytest.raises(StopError, match="no plan"):
        BatchEngine(spark, compiled, "failing", no_rows, [no_rows], limit_s=60)
    assert "failing-run" not in {thread.name for thread in threading.enumerate()}


def test_plans_of_both_kinds_that_are_built_at_once_do_not_mix(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sums rows in a standing run would wait for their end for good."""
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=TEXT, value=TEXT)
    lines.group_by(lambda _, line: F.reverse(line)).count().to_stream().to("counts", value=LONG)
    compiled = compile_topology(spark, builder.build(), "both")
    first_is_in, second_is_in = threading.Event(), threading.Event()
    layer = Compiler._layer

    def slow(self: Compiler, *arguments: Any) -> Any:
        if first_is_in.is_set():
            second_is_in.set()
        first_is_in.set()
        second_is_in.wait(1)
        return layer(self, *arguments)

    def planned(sums: bool) -> str:
        frame = compiled.frame(spark.range(0, 1, 1, 1), idle, [idle] * len(compiled.steps), lambda _: None, sums=sums)
        return str(frame._jdf.queryExecution().executedPlan().toString())

    monkeypatch.setattr(Compiler, "_layer", slow)
    with ThreadPoolExecutor(2) as threads:
        summing = threads.submit(planned, True)
        assert first_is_in.wait(60)
        standing = threads.submit(planned, False)
    assert "HashAggregate" in summing.result()
    assert "HashAggregate" not in standing.result()

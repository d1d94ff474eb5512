"""A plan is built beside other threads, which work on plans of the application's own (``foreach_batch``, a refresh): they see
nothing of what is changed in PySpark meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill.spark.placement import OnDriverHost
from tidemill.spark.plan.clock import wall_clock, wall_clock_functions
from tidemill.spark.plan.pinned_workers import WORKER_KEY, own_workers, pinning
from tidemill.spark.plan.udf_calls import udf_calls

pytestmark = pytest.mark.spark

T = TypeVar("T")
Elsewhere = Callable[[Callable[[], T]], T]


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """Runs a function in another thread."""
    with ThreadPoolExecutor(max_workers=1) as another_thread:
        yield lambda function: another_thread.submit(function).result()


def worker_of(spark: SparkSession) -> list[str | None]:
    """What the worker of a Python function that is put into a plan now is called."""

    def named(_: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"name": [os.environ.get(WORKER_KEY)]})

    return [row.name for row in spark.range(0, 1, 1, 1).mapInPandas(named, "name string").collect()]


def test_a_worker_is_pinned_for_the_thread_that_pins(spark: SparkSession, elsewhere: Elsewhere) -> None:
    with pinning(spark, "one") as pin:
        pin("step-1")
        assert worker_of(spark) == ["one/step-1"]
        assert elsewhere(lambda: worker_of(spark)) == [None]
        with own_workers(spark):
            assert worker_of(spark) == ["one/step-1/udf"]
        assert worker_of(spark) == ["one/step-1"]
        with pinning(spark, "two") as other:
            other("source")
            assert worker_of(spark) == ["two/source"]
        assert worker_of(spark) == ["one/step-1"]
    assert worker_of(spark) == [None]
    with own_workers(spark):
        assert worker_of(spark) == [None]


def test_pinning_never_changes_the_environment_while_another_thread_reads_it(spark: SparkSession) -> None:
    with pinning(spark, "one"):
        pass
    environment = spark.sparkContext.environment
    before, names = dict(environment), iter(environment)
    with ThreadPoolExecutor(max_workers=1) as another_thread:
        first = another_thread.submit(next, names).result()
        with pinning(spark, "one") as pin:
            pin("step-1")
            environment["OF_THE_OWNER"] = "x"
            rest = another_thread.submit(list, names).result()
    assert [first, *rest] == list(before)
    assert environment.pop("OF_THE_OWNER") == "x"
    assert dict(environment) == before


def test_a_udf_of_another_thread_is_not_asked_about_rows_of_a_layer(spark: SparkSession, elsewhere: Elsewhere) -> None:
    louder = F.udf(str.upper)
    frame = spark.createDataFrame([("a", True)], "text string, asked boolean")

    def called() -> list[str]:
        return [row[0] for row in spark.createDataFrame([("b",)], "other string").select(louder("other")).collect()]

    with udf_calls(frame, F.col("asked")) as calls:
        assert elsewhere(called) == ["B"]
        assert calls == []
        assert [row[0] for row in frame.select(louder("text")).collect()] == ["A"]
        assert len(calls) == 1


def test_the_time_is_a_batch_s_for_the_thread_that_builds(spark: SparkSession, elsewhere: Elsewhere) -> None:
    def now() -> list[str]:
        names = ("current_timestamp", "now", "current_date", "curdate", "localtimestamp")
        return [str(getattr(F, name)()) for name in names]

    usual = now()
    with wall_clock_functions():
        assert str(F.current_timestamp()) == str(wall_clock())
        assert not set(now()) & set(usual)
        assert elsewhere(now) == usual
    assert now() == usual


def test_rows_that_the_application_has_cached_are_not_read_in_place_of_a_plan_s_leaf(spark: SparkSession) -> None:
    """They would be refused as what replays the first batch."""
    cached = [spark.range(0, 1, 1, 1).cache(), spark.range(1).cache()]
    try:
        assert "InMemory" in spark.range(0, 1, 1, 1)._jdf.queryExecution().executedPlan().toString()
        leaf = OnDriverHost(spark).root("thread")._jdf.queryExecution().executedPlan()
        assert "InMemory" not in leaf.toString()
    finally:
        for frame in cached:
            frame.unpersist()

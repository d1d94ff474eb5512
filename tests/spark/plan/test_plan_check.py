"""What a static plan may hold, and what a session must be (correctness.md, rules 4, 18, 19, 21)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.plan_harness import Program, Record
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import BatchLostError, ConfigError, StopError, TopologyError
from tidemill.runtime.worker import worker
from tidemill.runtime.worker.step_code import StepCode
from tidemill.spark.launch.session import adopt_session
from tidemill.spark.launch.session_checks import REQUIRED, check_settings
from tidemill.spark.plan import user_columns
from tidemill.spark.plan.plan_check import check_physical
from tidemill.spark.plan.user_columns import require_same_again

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STRING = Serdes.string()


def mapped(function: Callable[[Any], Column], value: Any = STRING) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).map_values(function).to("out", value=value)
    return builder


def flat_mapped(function: Callable[[Any], Column]) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).flat_map_values(function).to("out", value=STRING)
    return builder


# --- rule 18 -----------------------------------------------------------------------------------------------------------


def one_partition(spark: SparkSession) -> DataFrame:
    return spark.range(0, 10, 1, 1)


@pytest.mark.parametrize(
    ("what", "broken"),
    [
        ("exchange", lambda spark: one_partition(spark).repartition(2, "id").coalesce(1)),
        ("broadcast", lambda spark: one_partition(spark).join(F.broadcast(one_partition(spark)), "id")),
        ("cache", lambda spark: one_partition(spark).cache()),
        ("subquery", lambda spark: spark.sql("select id, (select max(id) from range(0, 5, 1, 1)) m from range(0, 3, 1, 1)")),
        ("partitions", lambda spark: spark.range(0, 10, 1, 2)),
    ],
)
def test_a_plan_that_would_replay_its_first_batch_is_refused(
    spark: SparkSession, what: str, broken: Callable[[SparkSession], DataFrame]
) -> None:
    frame = broken(spark)
    try:
        with pytest.raises(TopologyError):
            check_physical(frame)
    finally:
        frame.unpersist()


def test_grouping_the_single_partition_needs_no_exchange_and_is_accepted(spark: SparkSession) -> None:
    check_physical(one_partition(spark).groupBy((F.col("id") % 2).alias("k")).count())


# --- rule 19 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["rand()", "randn()", "uuid()", "monotonically_increasing_id()", "shuffle(array(1, 2))", "spark_partition_id()"]
)
def test_what_differs_when_a_batch_runs_again_is_refused_with_what_to_use_instead(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    with pytest.raises(TopologyError, match=r"test_plan_check.*derive the value from the record"):
        Program(spark, mapped(lambda v: F.expr(f"cast({text} as string)")).build(), tmp_path)


@pytest.mark.parametrize("called", [F.reflect, F.java_method, F.try_reflect])
def test_a_method_of_java_is_refused_with_what_to_use_instead(
    spark: SparkSession, tmp_path: Path, called: Callable[..., Column]
) -> None:
    with pytest.raises(TopologyError, match=r"test_plan_check.*calls a method of Java.*per_record"):
        Program(spark, mapped(lambda v: called(F.lit("java.util.UUID"), F.lit("fromString"), v)).build(), tmp_path)


def test_the_numbers_of_a_layers_own_rows_are_no_users_and_cost_no_walk_of_the_plan(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(expression: object) -> None:
        raise AssertionError(f"looked at {expression}")

    def twice(value: Column) -> Column:
        return F.array(value, value)

    with monkeypatch.context() as patched:
        patched.setattr(user_columns, "_check", never)
        Program(spark, flat_mapped(twice).build(), tmp_path)
    with pytest.raises(TopologyError, match="monotonically_increasing_id"):
        Program(spark, flat_mapped(lambda v: F.array(F.monotonically_increasing_id().cast("string"))).build(), tmp_path)


@pytest.mark.parametrize("text", ["current_timestamp()", "now()", "current_date()", "localtimestamp()"])
def test_a_clock_in_sql_text_would_stand_still_and_is_refused(spark: SparkSession, tmp_path: Path, text: str) -> None:
    with pytest.raises(TopologyError, match="computed once"):
        Program(spark, mapped(lambda v: F.expr(f"cast({text} as string)")).build(), tmp_path)


def test_a_subquery_in_an_expression_is_refused(spark: SparkSession) -> None:
    selected = spark.sql("select (select max(id) from range(0, 5, 1, 1)) m from range(0, 3, 1, 1)")
    with pytest.raises(TopologyError, match="subquery"):
        require_same_again(selected, selected._jdf.queryExecution().analyzed().expressions().apply(0))


def test_current_timestamp_is_the_batchs_wall_clock_and_another_one_in_the_next_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = mapped(lambda v: F.unix_millis(F.current_timestamp()), value=Serdes.long())
    program = Program(spark, builder.build(), tmp_path)
    for _ in range(3):  # the harness's clock says 1000, 2000, 3000
        program.pipe([("in", Record(b"k", b"v")), ("in", Record(b"k", b"w"))])
    seen = [int.from_bytes(record.value or b"", "big") for record in program.outputs["out"]]
    assert seen == [1000, 1000, 2000, 2000, 3000, 3000]


def test_current_time_is_the_batchs_wall_clock_too(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        both = mapped(lambda v: F.concat_ws(" ", F.second(F.current_time()), F.second(F.current_time(precision=0))))
        program = Program(spark, both.build(), tmp_path)
        for _ in range(2):
            program.pipe([("in", Record(b"k", b"v"))])
        assert [record.value for record in program.outputs["out"]] == [b"1 1", b"2 2"]
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")


def test_current_timestamp_behind_a_python_step_is_the_batchs_wall_clock_too(spark: SparkSession, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    in_python = builder.stream("in", key=STRING, value=STRING).map_values(per_record(lambda v: v, serde=STRING))
    in_python.map_values(lambda v: F.unix_millis(F.current_timestamp())).to("out", value=Serdes.long())
    program = Program(spark, builder.build(), tmp_path)
    for _ in range(2):
        program.pipe([("in", Record(b"k", b"v"))])
    assert [int.from_bytes(record.value or b"", "big") for record in program.outputs["out"]] == [1000, 2000]


# --- rules 4 and 21 ----------------------------------------------------------------------------------------------------


class Retried:
    @staticmethod
    def get() -> Retried:
        return Retried()

    def attemptNumber(self) -> int:  # noqa: N802, Spark's name
        return 1

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802, Spark's name
        return None


def code(address: str) -> StepCode:
    return StepCode.of(None, address=address, key=b"", thread="thread", step="source")


def test_a_step_refuses_to_run_in_a_task_that_spark_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []

    @contextmanager
    def leaving_on_failure(run: int) -> Iterator[None]:
        said.append(run)
        yield

    monkeypatch.setattr(worker, "TaskContext", Retried)
    monkeypatch.setattr(StepCode, "client", lambda code, run: SimpleNamespace(leaving_on_failure=leaving_on_failure))
    with pytest.raises(StopError, match=r"spark\.task\.maxFailures"):
        next(iter(worker.run_source(code("any"), [])))
    assert len(said) == 1


def test_a_batch_that_spark_runs_again_on_another_executor_is_lost_since_that_is_no_failure_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "TaskContext", Retried)
    with pytest.raises(BatchLostError, match="another executor"):
        next(iter(worker.run_source(code("tcp:127.0.0.1:1"), [])))


@pytest.mark.parametrize("name", REQUIRED)
def test_settings_that_contradict_exactly_once_are_refused_by_name(name: str) -> None:
    wrong = {"true": "false", "false": "true", "1": "4"}[REQUIRED[name]]
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        check_settings({name: wrong})
    check_settings({name: REQUIRED[name]})


def test_a_session_keeps_nothing_of_past_batches(spark: SparkSession) -> None:
    """Rule 22: what Spark keeps of each job would grow with every batch."""
    names = ("spark.ui.retainedJobs", "spark.ui.retainedStages", "spark.ui.retainedTasks", "spark.sql.ui.retainedExecutions")
    assert {name: int(spark.conf.get(name) or "1000000") <= 100 for name in names} == dict.fromkeys(names, True)


def test_a_session_without_a_slot_to_spare_is_refused(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    adopt_session(spark, slots - 1)
    with pytest.raises(ConfigError, match=f"local\\[{slots + 1}\\]"):
        adopt_session(spark, slots)


def test_slots_of_other_instances_in_the_same_session_are_not_free(spark: SparkSession) -> None:
    slots = spark.sparkContext.defaultParallelism
    adopt_session(spark, 1, slots - 2)
    with pytest.raises(ConfigError, match=rf"of which other instances .* have {slots - 1},.*local\[{slots + 1}\]"):
        adopt_session(spark, 1, slots - 1)


@pytest.mark.parametrize("partitions", ["200", "1"])
def test_slots_are_counted_whatever_spark_default_parallelism_says(spark: SparkSession, partitions: str) -> None:
    slots = spark.sparkContext.defaultParallelism
    conf = spark.sparkContext._jsc.sc().conf()
    conf.set("spark.default.parallelism", partitions)
    try:
        assert spark.sparkContext.defaultParallelism == int(partitions)
        adopt_session(spark, slots - 1)
        with pytest.raises(ConfigError, match=f"has {slots} task slots"):
            adopt_session(spark, slots)
    finally:
        conf.remove("spark.default.parallelism")


@pytest.mark.parametrize("master", ["local[4,3]", "local[*, 2]", " local[4,0]"])
def test_a_local_master_that_runs_failed_tasks_again_is_refused(master: str) -> None:
    with pytest.raises(ConfigError, match=r"spark.master is .*exactly-once needs 'local\[[4*]\]'"):
        check_settings({"spark.master": master})


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[4,1]", "local-cluster[2,1,1024]", "spark://h:7077"])
def test_other_masters_leave_that_to_the_setting(master: str) -> None:
    check_settings({"spark.master": master})

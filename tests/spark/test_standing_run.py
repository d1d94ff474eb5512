"""A standing run on a real Spark: one job for many micro-batches, of plans with one Python step and more, and what ends it."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.freezing import freeze
from tests.spark.plan_harness import APPLICATION, Program, Record
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import BatchLostError, FunctionFailedError, StopError
from tidemill.spark import engine as engines
from tidemill.spark.placement import OnDriverHost
from tidemill.spark.plan.compiled_topology import CompiledTopology
from tidemill.steps.standing import ARROW_ROWS, UNIX_SOCKETS, WorkerOutput, task_settings
from tidemill.task.batch import BatchRequest
from tidemill.testing.driver_service import THREAD

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

STRING, LONG = Serdes.string(), Serdes.long()


def one_step(builder: StreamsBuilder) -> None:
    words = builder.stream("in", key=STRING, value=STRING).flat_map_values(lambda line: F.split(line, " "))
    words.group_by(lambda _, word: word).count().to_stream().to("out", key=STRING, value=LONG)


def three_steps(builder: StreamsBuilder) -> None:
    """Functions of Columns between three counts of one sub-topology, each of which is a Python step of its own; the second and
    the third count the batches, since a count passes on the last result of a key and batch."""
    counted = builder.stream("in", key=STRING, value=STRING)
    for _ in range(3):
        counted = counted.group_by_key().count().to_stream().map_values(lambda n: n + 1)
    counted.to("out", key=STRING, value=LONG)


def dividing(builder: StreamsBuilder) -> None:
    numbers = builder.stream("in", key=STRING, value=LONG)
    numbers.map_values(lambda n: F.lit(10) % n).map_values(lambda n: n.cast("bigint")).to("out", key=STRING, value=LONG)


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    programs: list[Program] = []

    def make(define: Any) -> Program:
        builder = StreamsBuilder()
        define(builder)
        programs.append(Program(spark, builder.build(), tmp_path))
        return programs[-1]

    yield make
    for program in programs:
        program.engine.close()


def line(value: str, key: str | None = None) -> tuple[str, Record]:
    return "in", Record(None if key is None else key.encode(), value.encode())


def number(value: int) -> tuple[str, Record]:
    return "in", Record(b"k", LONG.serialize(value))


def last(program: Program) -> dict[str, int]:
    found = {}
    for record in program.outputs.get("out", ()):
        assert record.key is not None
        assert record.value is not None
        found[record.key.decode()] = LONG.deserialize(record.value)
    return found


def scheduler(spark: SparkSession) -> Any:
    """Asked itself: what Spark's status says comes later."""
    context = spark.sparkContext._jsc
    assert context is not None
    return context.sc().dagScheduler()


def jobs(spark: SparkSession) -> int:
    """How many there have been."""
    return int(scheduler(spark).numTotalJobs())


def jobs_alive(spark: SparkSession) -> int:
    return int(scheduler(spark).activeJobs().size())


def test_many_micro_batches_are_one_job(spark: SparkSession, made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a b")])
    before, workers = jobs(spark), program.engine.worker_pids
    for _ in range(20):
        program.pipe([line("a c a")])
    assert jobs(spark) == before
    assert program.engine.worker_pids == workers
    assert last(program) == {"a": 41, "b": 1, "c": 20}


@pytest.mark.parametrize("define", [one_step, three_steps])
def test_micro_batches_of_any_size_come_through_whole(made: Any, define: Any) -> None:
    program, sizes = made(define), random.Random(7)
    edges = [0, 1, 2, ARROW_ROWS - 2, ARROW_ROWS - 1, ARROW_ROWS, ARROW_ROWS + 1, 2 * ARROW_ROWS, 3_000]
    counted: dict[str, int] = {}
    for size in [*edges, *(sizes.randrange(300) for _ in range(30))]:
        words = [f"w{sizes.randrange(5)}" for _ in range(size)]
        for word in words if define is one_step else set(words):
            counted[word] = counted.get(word, 0) + 1
        program.pipe([line(word, word) for word in words])
    assert last(program) == (counted if define is one_step else {word: n + 1 for word, n in counted.items()})


def test_a_plan_with_three_python_steps_runs_its_batches_in_one_job(spark: SparkSession, made: Any) -> None:
    program = made(three_steps)
    assert len(program.compiled.steps) == 4, "the last one writes"
    program.pipe([line("x", "k")])
    before = jobs(spark)
    for _ in range(10):
        program.pipe([line("x", "k")])
    assert jobs(spark) == before
    assert last(program) == {"k": 12}


@pytest.fixture
def tcp_sockets(spark: SparkSession) -> Iterator[None]:
    """As in a session that does not set them: workers are connected by TCP's sockets."""
    conf = spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    conf.set(UNIX_SOCKETS, "false")
    yield
    conf.set(UNIX_SOCKETS, "true")


@pytest.mark.usefixtures("tcp_sockets")
def test_sockets_that_take_all_that_is_behind_a_batch_hang_no_plan_with_several_python_steps(
    spark: SparkSession, made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    program = made(three_steps)
    program.pipe([line("x", "k")])
    before = jobs(spark)
    for _ in range(3):
        program.pipe([line("x", "k")])
    assert jobs(spark) == before + 3
    assert last(program) == {"k": 5}
    assert f"remedy='a Spark session with {UNIX_SOCKETS}=true'" in caplog.text


@pytest.mark.usefixtures("tcp_sockets")
def test_a_plan_with_one_python_step_stands_on_any_sockets(spark: SparkSession, made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a b")])
    before = jobs(spark)
    for _ in range(3):
        program.pipe([line("a")])
    assert jobs(spark) == before
    assert last(program) == {"a": 4, "b": 1}


def test_a_batch_with_a_backlog_behind_it_is_a_job_of_its_own_on_the_same_workers(spark: SparkSession, made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a b a")])
    workers, standing = program.engine.worker_pids, jobs(spark)
    run = program.engine.run

    def behind(request: BatchRequest, patience: int = 1) -> Any:
        return run(request, patience, has_backlog=True)

    program.engine.run = behind
    program.pipe([line("a b a")])
    program.pipe([line("a")])
    program.engine.run = run
    program.pipe([line("b")])
    assert jobs(spark) == standing + 4 + 1, "two batches for each of the two lines, since words are counted behind a topic"
    assert program.engine.worker_pids == workers
    assert last(program) == {"a": 5, "b": 3}


def test_the_plan_for_a_backlog_is_built_while_a_batch_before_it_runs(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program, built = made(one_step), []
    planned = CompiledTopology._planned

    def counted(self: CompiledTopology, root: Any, sums: bool) -> Any:
        built.append(sums)
        return planned(self, root, sums)

    monkeypatch.setattr(CompiledTopology, "_planned", counted)
    program.pipe([line("a b a")])
    program.engine.expect_backlog()
    assert until(lambda: True in program.engine._plans)
    program.engine.expect_backlog()
    program.engine.run = partial(program.engine.run, has_backlog=True)
    program.pipe([line("a b a")])
    assert built == [True], "it is built once"
    assert last(program) == {"a": 4, "b": 2}


def test_a_function_that_raises_ends_the_run_and_the_next_batch_has_another(made: Any) -> None:
    program = made(dividing)
    program.pipe([number(3)])
    with pytest.raises(FunctionFailedError, match="zero"):
        program.pipe([number(0)])
    program.restart()
    program.pipe([number(4)])
    assert last(program) == {"k": 2}


@pytest.mark.parametrize("step", ["source", "step-1"])
@pytest.mark.parametrize("define", [one_step, three_steps])
def test_a_worker_that_dies_between_two_batches_costs_none(made: Any, define: Any, step: str) -> None:
    program = made(define)
    program.pipe([line("a", "a")])
    pid = program.engine.worker_pids[step]
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: program.engine._run.is_ending), "the channel tells of it"
    program.pipe([line("a", "a")])
    assert program.engine.worker_pids[step] != pid
    assert last(program) == ({"a": 2} if define is one_step else {"a": 3})


def test_the_last_step_that_dies_with_a_batch_under_way_is_noticed_though_the_source_waits(made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a")])
    pid = program.engine.worker_pids["step-1"]
    freeze(pid)  # so it does not see the batch before it dies
    with ThreadPoolExecutor(1) as beside:
        batch = beside.submit(program.pipe, [line("a")])
        assert until(lambda: program.engine._run._under_way is not None and program.engine._run._request is None)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(BatchLostError, match="died"):
            batch.result()


def test_an_old_run_is_followed_by_another_without_a_loss(
    spark: SparkSession, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_LONGEST_RUN_S", 0.0)
    program = made(one_step)
    before = jobs(spark)
    for _ in range(5):
        program.pipe([line("a")])
    assert jobs(spark) == before + 10
    assert last(program) == {"a": 5}


class Crowded(OnDriverHost):
    """Another thread has the slot, too."""

    def is_settled(self, thread: str) -> bool:
        return False


def test_a_thread_that_shares_its_slot_leaves_it_after_each_batch(spark: SparkSession, made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a")])
    before, alone = jobs(spark), program.engine._placement
    program.engine._placement = Crowded(spark)
    program.pipe([line("a")])
    assert jobs(spark) == before + 2
    assert not program.engine._run
    program.engine._placement = alone
    program.pipe([line("a")])
    assert jobs(spark) == before + 3
    assert last(program) == {"a": 3}


def test_an_engine_that_is_closed_leaves_no_job_behind(spark: SparkSession, made: Any) -> None:
    program = made(one_step)
    program.pipe([line("a")])
    alive = jobs_alive(spark)
    program.engine.close()
    assert jobs_alive(spark) == alive - 1


def test_settings_of_the_session_are_local_properties_of_the_job(spark: SparkSession, made: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        program = made(one_step)
        program.pipe([line("a")])
        properties = scheduler(spark).activeJobs().head().properties()
        assert properties.getProperty("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert properties.getProperty("spark.job.description") == f"{APPLICATION}: micro-batches of {THREAD}"
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


def test_a_run_takes_what_is_set_and_small_arrow_batches_only_while_it_stands() -> None:
    rows = "spark.sql.execution.arrow.maxRecordsPerBatch"
    own = {"spark.sql.ansi.enabled": "false", rows: "7", "spark.app.name": "a"}
    standing, single = task_settings(own, is_standing=True), task_settings(own, is_standing=False)
    assert standing["spark.sql.ansi.enabled"] == single["spark.sql.ansi.enabled"] == "false"
    assert (standing[rows], single[rows]) == (str(ARROW_ROWS), "7")
    assert "spark.app.name" not in standing
    assert task_settings({}, is_standing=False)[rows] is None, "as Spark has it, whatever the run before had"


def test_a_pyspark_whose_worker_is_built_in_another_way_is_told_in_a_sentence() -> None:
    with pytest.raises(StopError, match="does not find the stream that PySpark's worker writes to"):
        WorkerOutput().flush()

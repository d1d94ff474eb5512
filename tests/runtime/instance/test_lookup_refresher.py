"""Static sides are read again when they are due, and a failed refresh leaves them as they are."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.waiting import until
from tidemill.runtime.instance.lookup_refresher import LookupRefresher
from tidemill.spark.plan.lookups import Lookups
from tidemill.topology.spark_operations import DataFrameJoin


@dataclass
class Sides:
    joins: dict[str, DataFrameJoin]
    problems: list[BaseException] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def refresh(self, names: tuple[str, ...]) -> None:
        self.asked.append(names)
        if len(self.asked) == 3:
            self.enough.set()
        if self.problems:
            raise self.problems.pop()


def test_only_what_is_due_is_read_and_a_failure_does_not_end_it() -> None:
    often, never = (DataFrameJoin(frame=None, on=("id",), refresh_ms=ms) for ms in (1, None))
    problems = [RuntimeError("the table is away"), SystemExit("the table is away")]
    sides: Any = Sides({"often": often, "never": never}, problems)
    refresher = LookupRefresher(sides)
    refresher.start()
    assert sides.enough.wait(30)
    refresher.close()
    assert set(sides.asked) == {("often",)}


def test_without_an_interval_nothing_runs() -> None:
    sides: Any = Sides({"never": DataFrameJoin(frame=None, on=("id",))})
    refresher = LookupRefresher(sides)
    refresher.start()
    assert not refresher._thread.is_alive()
    refresher.close()


def test_a_function_that_closes_its_instance_while_it_is_read_does_not_wait_for_itself() -> None:
    closed = threading.Event()
    sides: Any = Sides({"often": DataFrameJoin(frame=None, on=("id",), refresh_ms=1)})
    refresher = LookupRefresher(sides)

    def refresh(names: tuple[str, ...]) -> None:
        refresher.close()
        closed.set()

    sides.refresh = refresh
    refresher.start()
    assert closed.wait(30)
    refresher.close()
    assert not refresher._thread.is_alive()


def test_a_session_that_was_stopped_ends_the_refreshes_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    stopped: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))  # as PySpark leaves it
    lookups = Lookups({"often": DataFrameJoin(frame=lambda session: session.range(1), on=("id",), refresh_ms=1)}, stopped)
    refresher = LookupRefresher(lookups)
    refresher.start()
    refresher._thread.join(60)
    assert not refresher._thread.is_alive()
    [said] = [record.getMessage() for record in caplog.records if record.name == "tidemill.join-dataframe"]
    assert said.startswith("event=refresh-ended nodes=[often] ")
    assert "the Spark session was stopped (spark.stop()) while the instance ran" in said


class Rebuilt:
    def __init__(self) -> None:
        self.times = 0

    def rebuild(self) -> None:
        self.times += 1


def test_a_thread_that_is_added_while_plans_are_gone_through_keeps_none_of_them_old() -> None:
    lookups, plans, added = Lookups({}, None), [Rebuilt(), Rebuilt()], Rebuilt()
    adding = threading.Thread(target=lambda: lookups.follow(added))

    class AddedTo(weakref.WeakSet[Any]):
        """Another thread adds to it while it is gone through, if it can."""

        def __iter__(self) -> Iterator[Any]:
            walk = super().__iter__()
            yield next(walk)
            adding.start()
            adding.join(0.2)
            yield from walk

    lookups.plans = AddedTo(plans)
    lookups.refresh()
    adding.join()
    assert [plan.times for plan in plans] == [1, 1]
    assert added in lookups.plans


def raising_in_python(spark: SparkSession) -> DataFrame:
    return spark.range(1).withColumn("at", F.udf(lambda number: [][number], "long")("id"))


def without_a_driver(spark: SparkSession) -> DataFrame:
    address = "jdbc:none://host/db?password=hush"
    return spark.read.format("jdbc").option("url", address).option("dbtable", "lines\n'of' it").load()


def naming_its_address(_spark: SparkSession) -> DataFrame:
    raise ConnectionError("no way to\nhttps://me:hush@host/")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (without_a_driver, "'java.sql.SQLException: No suitable driver'"),
        (lambda spark: spark.table("nowhere"), '"[TABLE_OR_VIEW_NOT_FOUND] The table or view `nowhere` '),
        (lambda spark: spark.range(2).selectExpr("id", "1 div id as part"), "'[DIVIDE_BY_ZERO] Division by zero. "),
        (raising_in_python, "'a function of Columns failed: IndexError: list index out of range'"),
        (naming_its_address, '"often: the DataFrame of join_dataframe can\'t be had: ConnectionError: no way to https://(hidden)@host/'),
    ],
)
def test_why_a_refresh_has_failed_is_one_line_without_stack_query_and_password(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, frame: Callable[[SparkSession], DataFrame], problem: str
) -> None:
    lookups = Lookups({"often": DataFrameJoin(frame=frame, on=("id",), refresh_ms=1)}, spark)
    refresher = LookupRefresher(lookups)
    refresher.start()
    until(lambda: "event=refresh-failed" in caplog.text, 60)
    refresher.close()
    said = next(record.getMessage() for record in caplog.records if record.name == "tidemill.join-dataframe")
    assert said.startswith(f"event=refresh-failed nodes=[often] problem={problem}")
    assert not any(unwanted in said for unwanted in ("\\n", "\\tat", "== SQL", "hush"))

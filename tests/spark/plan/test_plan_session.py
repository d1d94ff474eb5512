"""Plans are made in a session of their own, so what the owner's code changes in its session meanwhile changes no plan, and the
other way round."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import RDD
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemill import BatchId, Serdes, StreamsBuilder
from tidemill.errors import ConfigError
from tidemill.spark.launch.session import adopt_session
from tidemill.spark.plan_session import plan_session
from tidemill.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

TEXT, LONG = Serdes.string(), Serdes.long()
CHANGED = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.ansi.enabled": "false",
}


@pytest.fixture
def owners(spark: SparkSession) -> SparkSession:
    """A session whose settings are the test's alone."""
    return plan_session(spark)


def test_neither_session_changes_the_other(owners: SparkSession) -> None:
    owners.conf.set("spark.sql.adaptive.enabled", "true")
    owners.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    to_frame = RDD.toDF
    plans = plan_session(owners)
    assert RDD.toDF is to_frame
    owners.conf.set("spark.sql.session.timeZone", "UTC")
    names = ("spark.sql.adaptive.enabled", "spark.sql.session.timeZone")
    assert [plans.conf.get(name) for name in names] == ["false", "Asia/Tokyo"]
    adopt_session(owners, 1)
    assert [owners.conf.get(name) for name in names] == ["true", "UTC"]


def test_of_two_that_are_made_at_once_neither_stays_the_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    to_frame, first_makes, second_makes = RDD.toDF, threading.Event(), threading.Event()
    monkeypatch.setattr(RDD, "toDF", to_frame)

    class Making:
        """A session whose making, as PySpark's, ends with its own ``toDF``."""

        def __init__(self, _context: object, name: str) -> None:
            self.conf = SimpleNamespace(set=lambda _name, _value: None)
            if name == "second":
                second_makes.set()
                first.join()
            RDD.toDF = lambda *_given: name
            if name == "first":
                first_makes.set()
                second_makes.wait(0.5)  # it waits for this one

    monkeypatch.setattr("tidemill.spark.plan_session.SparkSession", Making)

    def thread(name: str) -> threading.Thread:
        given: Any = SimpleNamespace(sparkContext=None, _jsparkSession=SimpleNamespace(cloneSession=lambda: name))
        return threading.Thread(target=plan_session, args=(given,))

    first, second = thread("first"), thread("second")
    first.start()
    assert first_makes.wait(30)
    second.start()
    second.join()
    assert RDD.toDF is to_frame


def test_a_plan_that_is_built_again_has_the_settings_of_the_start(owners: SparkSession) -> None:
    """With those of the owner it would hold an exchange, or give null where it has raised."""
    given: list[SparkSession] = []

    def names(session: SparkSession) -> DataFrame:
        given.append(session)
        return session.sql("SELECT id, text FROM names")

    def label(value: Column, row: Column) -> Column:
        return F.concat_ws(":", value.cast("bigint"), row["text"])

    owners.sql("SELECT 1 AS id, 'one' AS text").createOrReplaceTempView("names")
    builder = StreamsBuilder()
    joined = builder.stream("in", key=LONG, value=TEXT).join_dataframe(names, label, on="id")
    joined.to("out", key=LONG, value=TEXT)
    with TopologyTestDriver(builder, session=owners) as driver:
        source = driver.create_input_topic("in", LONG, TEXT)
        for name, value in CHANGED.items():
            owners.conf.set(name, value)
        owners.sql("SELECT stack(2, 1, 'uno', 2, 'due') AS (id, text)").createOrReplaceTempView("names")
        driver.refresh_dataframes()
        source.pipe_input(1, "10")
        source.pipe_input(2, "20")
        out = driver.create_output_topic("out", LONG, TEXT)
        assert out.read_key_values() == [(1, "10:uno"), (2, "20:due")]
        with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
            source.pipe_input(1, "no number")
    assert given == [owners, owners]


def test_what_the_application_sets_of_sql_holds_whosever_the_session_is(owners: SparkSession) -> None:
    """Else a test computes other results than the instance with the same settings."""
    settings = {
        "spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false",
        "spark.sql.warehouse.dir": "/nowhere", "spark.executor.memory": "1g", "spark.sql.adaptive.enabled": "true",
    }  # fmt: skip
    before = owners.conf.get("spark.sql.session.timeZone")
    builder = StreamsBuilder()
    stream = builder.stream("in", key=LONG, value=TEXT)
    stream.map_values(lambda text: F.hour(F.timestamp_millis(text.cast("bigint"))).cast("string")).to("out", key=LONG, value=TEXT)
    with TopologyTestDriver(builder, settings, session=owners) as driver:
        driver.create_input_topic("in", LONG, TEXT).pipe_values(["0", "no number"])
        assert driver.create_output_topic("out", LONG, TEXT).read_values() == ["9", None]
    assert owners.conf.get("spark.sql.session.timeZone") == before
    assert plan_session(owners, settings).conf.get("spark.sql.adaptive.enabled") == "false"


def test_a_setting_that_spark_refuses_is_named(owners: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"spark.sql.session.timeZone is 'Mars', which Spark refuses: .*TIME_?ZONE"):
        plan_session(owners, {"spark.sql.session.timeZone": "Mars"})


def test_a_setting_that_a_session_started_with_and_spark_refuses_is_named(owners: SparkSession) -> None:
    """Spark looks at it when the session's state is made: then its own sentence is the cause of a cause."""
    jvm = owners.sparkContext._jvm
    assert jvm is not None
    wrong = {"spark.sql.session.timeZone": "Mars"}
    unread = jvm.org.apache.spark.sql.classic.SparkSession(owners.sparkContext._jsc.sc(), wrong)
    session: Any = SimpleNamespace(sparkContext=owners.sparkContext, _jsparkSession=unread)
    with pytest.raises(ConfigError, match=r"spark.sql.session.timeZone is 'Mars', which Spark refuses: .*TIME_?ZONE"):
        plan_session(session, {"spark.sql.ansi.enabled": "true", **wrong})


def test_rows_are_not_compressed_on_their_way_to_a_worker(owners: SparkSession) -> None:
    """Those of a column that is null, compressed with lz4, no worker can read."""
    owners.conf.set("spark.sql.execution.arrow.compression.codec", "lz4")
    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=TEXT).map_values(F.upper).to("out", key=LONG, value=TEXT)
    with TopologyTestDriver(builder, session=owners) as driver:
        driver.create_input_topic("in", LONG, TEXT).pipe_input(1, "a")
        assert driver.create_output_topic("out", LONG, TEXT).read_key_values() == [(1, "A")]


def test_workers_that_wait_for_records_are_not_ended_as_idle(owners: SparkSession) -> None:
    owners.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "1")
    owners.conf.set("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "true")
    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=TEXT).map_values(F.upper).to("out", key=LONG, value=TEXT)
    with TopologyTestDriver(builder, session=owners) as driver:
        source, out = driver.create_input_topic("in", LONG, TEXT), driver.create_output_topic("out", LONG, TEXT)
        source.pipe_input(1, "a")
        time.sleep(3)  # longer than such a worker would live
        source.pipe_input(1, "b")
        assert out.read_key_values() == [(1, "A"), (1, "B")]


def test_foreach_batch_gets_the_times_of_the_topic_whatever_parser_its_session_has(owners: SparkSession) -> None:
    """The legacy parser takes microseconds for milliseconds: two minutes more."""
    event, given = Serdes.json("at timestamp"), []

    def take(frame: DataFrame, _batch: BatchId) -> None:
        assert frame.sparkSession is owners
        given.extend(frame.select("key", "value.at", "topic", "offset").collect())

    builder = StreamsBuilder()
    builder.stream("in", key=LONG, value=event).foreach_batch(take)
    at = datetime(2020, 1, 1, 10, 0, 0, 123_456, tzinfo=timezone.utc)
    with TopologyTestDriver(builder, session=owners) as driver:
        source = driver.create_input_topic("in", LONG, event)
        owners.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
        source.pipe_input(1, {"at": at})
        owners.conf.set("spark.sql.legacy.timeParserPolicy", "CORRECTED")
        source.pipe_input(2, {"at": at})
    assert [(row.key, row.at.timestamp(), row.topic, row.offset) for row in given] == [
        (1, at.timestamp(), "in", 0),
        (2, at.timestamp(), "in", 1),
    ]


def _unpersisted(session: SparkSession) -> None:
    """As the owner's code does that clears up."""
    for rdd in dict(session.sparkContext._jsc.getPersistentRDDs()).values():
        rdd.unpersist(True)


def _deleted_from_disk(session: SparkSession) -> None:
    """As on machines that delete what is old in the temporary folder."""
    for block in Path(session.sparkContext.getConf().get("spark.local.dir") or "").rglob("rdd_*"):
        block.unlink()


@pytest.mark.parametrize("lost", [_unpersisted, _deleted_from_disk])
def test_static_sides_that_are_lost_are_read_again(owners: SparkSession, lost: Callable[[SparkSession], None]) -> None:
    def names(session: SparkSession) -> DataFrame:
        return session.sql("SELECT 1 AS id, 'one' AS text")

    builder = StreamsBuilder()
    joined = builder.stream("in", key=LONG, value=TEXT).join_dataframe(names, lambda value, row: row["text"], on="id")
    joined.to("out", key=LONG, value=TEXT)
    with TopologyTestDriver(builder, session=owners) as driver:
        source, out = driver.create_input_topic("in", LONG, TEXT), driver.create_output_topic("out", LONG, TEXT)
        source.pipe_input(1, "a")
        lost(owners)
        driver._engine.rebuild()  # as for a thread that is added, or a backlog
        source.pipe_input(1, "b")
        assert out.read_key_values() == [(1, "one"), (1, "one")]

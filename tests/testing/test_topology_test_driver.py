"""TopologyTestDriver: what a user's test does, on the real plan."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.operators.own_windows import Days, october
from tests.state.test_lmdb import in_a_fork
from tidemill import (
    Aggregators,
    BatchId,
    EmitStrategy,
    ExceptionResponse,
    JoinWindows,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    SchemaRegistry,
    Serdes,
    SessionWindows,
    SourceRecord,
    StreamJoined,
    StreamsBuilder,
    TimeWindows,
    TopologyBuilder,
    Windowed,
    WindowedSerdes,
    of_columns,
    per_record,
)
from tidemill.config.values import KafkaExtractor
from tidemill.errors import StopError, TopologyError
from tidemill.spark.run import Run
from tidemill.testing import TestRecord, TopologyTestDriver
from tidemill.topology.nodes import SourceNode

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()


@pytest.fixture(scope="module")
def tidemill_session(spark: SparkSession) -> SparkSession:
    """The run's own session, since a process can have one."""
    return spark


def wordcount() -> StreamsBuilder:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=TEXT, value=TEXT)
    words = lines.flat_map_values(lambda line: F.split(F.lower(line), " "))
    words.group_by(lambda _, word: word).count(store="counts").to_stream().to("counts", key=TEXT, value=LONG)
    return builder


def test_records_go_in_and_results_stores_and_internal_topics_can_be_read(topology_test_driver: Any) -> None:
    driver = topology_test_driver(wordcount(), {"bootstrap.servers": "dummy config"})
    lines = driver.create_input_topic("lines", TEXT, TEXT, start=100, advance=timedelta(milliseconds=10))
    counts = driver.create_output_topic("counts", TEXT, LONG)
    assert list(driver.store("counts").all()) == []
    lines.pipe_value("a b a")
    lines.pipe_value("b")
    assert counts.read_record() == TestRecord("a", 2, 100)
    assert counts.read_key_values() == [("b", 1), ("b", 2)]
    assert counts.is_empty
    assert driver.store("counts").get("b") == (2, 110)
    assert dict(driver.store("counts").all()) == {"a": (2, 100), "b": (2, 110)}
    assert "topology-test-driver-counts-repartition" in driver.produced_topics
    with pytest.raises(TopologyError, match="3 were read before"):
        counts.read_value()


def test_what_is_written_to_a_topic_that_is_read_is_read(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    work = builder.stream(["work", "again"], key=TEXT, value=LONG)
    known = builder.global_table("known", key=TEXT, value=LONG)
    tried = work.map_values(lambda left: left - 1)
    tried.filter(lambda _, left: left > 0).to(lambda _key, _left, _record: "again")
    tried.filter(lambda _, left: left == 0).to("known")
    work.join(known, per_record(lambda left, done: f"{left} {done}", TEXT), selector=lambda key, _: key).to("late")
    driver = topology_test_driver(builder)
    inputs = driver.create_input_topic("work", TEXT, LONG)
    inputs.pipe_records([TestRecord("a", 3), TestRecord("b", 1), TestRecord("a", 1)])
    assert driver.create_output_topic("again", TEXT, LONG).read_key_values() == [("a", 2), ("a", 1)]
    assert driver.create_output_topic("known", TEXT, LONG).read_key_values() == [("a", 0), ("b", 0), ("a", 0)]
    assert driver.create_output_topic("late", TEXT, TEXT).read_key_values() == [("a", "1 0")]
    assert set(driver.sink_topics) >= {"known", "late"}


def test_a_batch_may_hold_many_records(topology_test_driver: Any) -> None:
    driver = topology_test_driver(wordcount())
    lines = driver.create_input_topic("lines", TEXT, TEXT)
    lines.pipe_records([TestRecord(None, "a"), TestRecord(None, "a b")], batch=None)
    assert driver.create_output_topic("counts", TEXT, LONG).read_key_values_to_dict() == {"a": 2, "b": 1}


class Ticker:
    """Counts records and says how many at each tick of the wall clock."""

    def init(self, context: ProcessorContext) -> None:
        self.seen = 0
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", self.seen, now)))

    def process(self, record: Record) -> None:
        self.seen += 1


def test_the_wall_clock_moves_when_it_is_told_to(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Ticker, key=TEXT, value=LONG).to("out", key=TEXT, value=LONG)
    driver = topology_test_driver(builder, start_ms=5_000)
    source, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, LONG)
    source.pipe_input("k", "v")
    driver.advance_wall_clock_time(999)
    assert out.is_empty
    driver.advance_wall_clock_time(timedelta(milliseconds=1))
    assert out.read_record() == TestRecord("tick", 1, 6_000)


def test_the_wall_clock_begins_at_a_datetime_too(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process(Ticker, key=TEXT, value=LONG).to("out", key=TEXT, value=LONG)
    with pytest.raises(TopologyError, match="TopologyTestDriver: start_ms: 2026-01-01 00:00:00 has no time zone"):
        topology_test_driver(builder, start_ms=datetime(2026, 1, 1))
    driver = topology_test_driver(builder, start_ms=datetime(2026, 1, 1, tzinfo=timezone.utc))
    driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
    driver.advance_wall_clock_time(1_000)
    assert driver.create_output_topic("out", TEXT, LONG).read_record() == TestRecord("tick", 1, 1_767_225_601_000)


def test_records_without_a_timestamp_have_the_wall_clocks_time_as_their_topic_was_created(topology_test_driver: Any) -> None:
    """As of Kafka Streams' driver: the topic's time begins there, and the clock's later moves do not change it."""
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out")
    driver = topology_test_driver(builder, start_ms=5_000)
    early = driver.create_input_topic("in", TEXT, TEXT)
    driver.advance_wall_clock_time(1_000)
    late, own = (driver.create_input_topic("in", TEXT, TEXT, start=start) for start in (None, 0))
    for source in (early, late, own):
        source.pipe_input("k", "v")
    early.pipe_records([TestRecord("k", "v", 7)])
    assert [record.timestamp for record in driver.create_output_topic("out", TEXT, TEXT).read_records()] == [5_000, 6_000, 0, 7]


def test_punctuators_are_due_from_the_time_at_which_the_driver_begins(topology_test_driver: Any) -> None:
    """Also where the clock moves before a record comes, and in every sub-topology."""
    builder = StreamsBuilder()
    for name in ("a", "b"):
        builder.stream(name, key=TEXT, value=TEXT).process(Ticker, key=TEXT, value=LONG).to(f"{name}-out", key=TEXT, value=LONG)
    driver = topology_test_driver(builder, start_ms=5_000)
    outs = [driver.create_output_topic(f"{name}-out", TEXT, LONG) for name in ("a", "b")]
    times = {}
    for by in (500, 900, 100, 2_000, 500):
        driver.advance_wall_clock_time(by)
        times[driver.wall_clock_ms] = [[record.timestamp for record in out.read_records()] for out in outs]
    assert times == {5_500: [[], []], 6_400: [[6_400]] * 2, 6_500: [[], []], 8_500: [[8_500]] * 2, 9_000: [[9_000]] * 2}


class StreamTicker:
    """Says the stream time at each tick of it."""

    def init(self, context: ProcessorContext) -> None:
        context.schedule(1_000, PunctuationType.STREAM_TIME, lambda now: context.forward(Record("tick", now, now)))

    def process(self, record: Record) -> None: ...


def test_a_record_that_a_filter_of_columns_drops_moves_stream_time(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    kept = builder.stream("in", key=TEXT, value=LONG).filter(lambda _, value: value > 0)
    kept.process(StreamTicker).to("ticks", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    source, ticks = driver.create_input_topic("in", TEXT, LONG), driver.create_output_topic("ticks", TEXT, LONG)
    source.pipe_records([TestRecord("a", 1, 500), TestRecord("a", 0, 1_200)])
    assert ticks.read_key_values() == [("tick", 500), ("tick", 1_200)]


class Later:
    """Forwards records as of a minute later."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record.with_timestamp(record.timestamp + 60_000))


def test_behind_a_function_of_columns_forwarded_times_move_no_stream_time(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    later = builder.stream("in", key=TEXT, value=LONG).process(Later, key=TEXT, value=LONG)
    later.map_values(lambda value: value + 1).process(StreamTicker).to("ticks", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    source, ticks = driver.create_input_topic("in", TEXT, LONG), driver.create_output_topic("ticks", TEXT, LONG)
    source.pipe_records([TestRecord("a", 1, 500), TestRecord("a", 0, 700), TestRecord("a", 0, 1_200)])
    assert ticks.read_key_values() == [("tick", 500), ("tick", 1_200)]  # TopologyTestDriver of Kafka Streams 4.3.1


class BothTickers(StreamTicker):
    """Ticks by the wall clock, too."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", -1, now)))


def test_no_handler_is_asked_about_a_function_of_columns_that_fails_on_what_a_punctuator_forwards(
    topology_test_driver: Any,
) -> None:
    builder = StreamsBuilder()
    ticks = builder.stream("in", key=TEXT, value=LONG).process(BothTickers, key=TEXT, value=LONG)
    ticks.map_values(lambda now: F.assert_true(now.between(0, 500)).cast("bigint")).to("out", value=LONG)
    driver = topology_test_driver(builder, {"processing.exception.handler": "continue"})
    source = driver.create_input_topic("in", TEXT, LONG)
    source.pipe_input("a", 1, 500)
    with pytest.raises(StopError, match="a punctuator or a store forwards"):
        driver.advance_wall_clock_time(1_000)
    with pytest.raises(StopError, match=r"what a punctuator or a store forwards"):
        source.pipe_input("a", 1, 1_000)


def test_windows_are_read_from_topics_and_stores(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT)
    counted = grouped.windowed_by(TimeWindows.of_size(10)).count(store="windows")
    key = WindowedSerdes.time_windowed_serde_from(TEXT, 10)
    counted.to_stream().to("out", key=key, value=LONG)
    driver = topology_test_driver(builder)
    source, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", key, LONG)
    for at in (1, 2, 11):
        source.pipe_input("k", "v", at)
    assert out.read_key_values() == [(Windowed("k", 0, 10), 1), (Windowed("k", 0, 10), 2), (Windowed("k", 10, 20), 1)]
    source.pipe_input("k", "late", 3)
    assert driver.dropped == 1


def test_closed_windows_and_unmatched_records_are_sent_while_the_wall_clock_stands(topology_test_driver: Any) -> None:
    """The clock of a test stands unless the test moves it: a look once in a second would be the first record's only."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    windows = grouped.windowed_by(TimeWindows.of_size(10, grace=10)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    windows.to_stream(per_record(lambda window, count: f"{window.key} from {window.start}")).to("windows", key=TEXT, value=LONG)
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(5)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
    sessions.to_stream(per_record(lambda session, count: f"{session.key} to {session.end}")).to("sessions", key=TEXT, value=LONG)
    left, right = builder.stream("left", key=TEXT, value=TEXT), builder.stream("right", key=TEXT, value=TEXT)
    joined = left.left_join(right, per_record(lambda one, other: f"{one}+{other}", TEXT), JoinWindows.of_time_difference(5))
    joined.to("joined", key=TEXT, value=TEXT)

    driver = topology_test_driver(builder)
    source, one = driver.create_input_topic("in", TEXT, TEXT), driver.create_input_topic("left", TEXT, TEXT)
    for at in (1, 2, 11, 9, 21, 8, 31):
        source.pipe_input("k", "v", at)
    for at in (1, 2, 12):
        one.pipe_input("k", f"at {at}", at)

    def sent(topic: str, value: Any) -> Any:
        return driver.create_output_topic(topic, TEXT, value).read_key_values()

    assert sent("windows", LONG) == [("k from 0", 3), ("k from 10", 1)]
    assert sent("sessions", LONG) == [("k to 2", 2), ("k to 11", 2), ("k to 21", 1)]
    assert sent("joined", TEXT) == [("k", "at 1+None"), ("k", "at 2+None")]


def test_windowed_keys_without_a_serde_of_their_own_reach_both_kinds_of_functions(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    users = builder.stream("in", key=TEXT, value=TEXT).map(lambda _, user: (user, user)).group_by_key()
    counts = users.windowed_by(TimeWindows.of_size(10)).count().filter(lambda _, count: count > 1).to_stream()
    by_columns = counts.map(lambda window, count: (F.concat_ws("@", window["key"], window["start"]), count))
    by_columns.to("columns", key=TEXT, value=LONG)
    named = per_record(lambda window, count: f"{window.key}@{window.start}", TEXT)
    counts.filter(lambda _, count: count.isNotNull()).select_key(named).to("python", value=LONG)

    driver = topology_test_driver(builder)
    source = driver.create_input_topic("in", TEXT, TEXT)
    for at in (1, 2, 11, 12):
        source.pipe_input("k", "ada", at)
    for topic in ("columns", "python"):
        found = dict(driver.create_output_topic(topic, TEXT, LONG).read_key_values())
        assert {user: count for user, count in found.items() if count is not None} == {"ada@0": 2, "ada@10": 2}


@pytest.mark.skipif(pyspark.__version__ < "4.3", reason="sketches of PySpark 4.2 (Python 3.10) need Java 17 or 21")
def test_a_sketch_of_distinct_values_is_estimated_in_the_jvm(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT)
    sketches = grouped.aggregate(*Aggregators.approx_count_distinct(), store="sketches")
    sketches.to_stream().map_values(F.hll_sketch_estimate).to("out", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    source, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, LONG)
    source.pipe_records([TestRecord("k", f"v{n % 70}") for n in range(200)], batch=None)
    assert out.read_records()[-1].value == pytest.approx(70, abs=3)


def test_foreach_batch_gets_data_frames_of_what_columns_operators_and_python_functions_send(topology_test_driver: Any) -> None:
    seen: dict[str, list[tuple[Any, ...]]] = {"columns": [], "counts": [], "python": []}

    def taking(name: str) -> Any:
        def take(frame: DataFrame, batch_id: BatchId) -> None:
            rows = frame.collect()
            assert frame.columns == ["key", "value", "timestamp", "headers", "topic", "partition", "offset"]
            seen[name] += [(row.key, row.value, row.topic, row.partition, row.offset, str(batch_id)) for row in rows]

        return take

    builder = StreamsBuilder()
    words = builder.stream("in", key=TEXT, value=TEXT)
    words.map_values(lambda word: F.struct(F.upper(word).alias("big"), F.length(word).alias("size"))).foreach_batch(
        taking("columns")
    )
    words.group_by_key().count(store="counts").to_stream().foreach_batch(taking("counts"))
    words.map_values(per_record(len, LONG)).filter(per_record(lambda _, size: size > 1)).foreach_batch(
        taking("python")
    )
    driver = topology_test_driver(builder)
    source = driver.create_input_topic("in", TEXT, TEXT)
    source.pipe_records([TestRecord("k", "ab", 7), TestRecord("k", "c", 8)], batch=None)
    assert [(key, value.big, value.size, *rest) for key, value, *rest in seen["columns"]] == [
        ("k", "AB", 2, "in", 0, 0, "in-0:0-2"), ("k", "C", 1, "in", 0, 1, "in-0:0-2"),
    ]  # fmt: skip
    assert seen["counts"][-1][:2] == ("k", 2)
    assert seen["python"] == [("k", 2, "in", 0, 0, "in-0:0-2")]


class Tagging:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        assert self.context.record_metadata is not None
        self.context.forward(record.with_value(f"{record.value} of {self.context.record_metadata.topic}"))


def test_the_topic_of_a_record_is_known_where_streams_of_several_sources_meet(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    upper = [builder.stream(topics, key=TEXT, value=TEXT).map_values(F.upper) for topics in ("a", ["b", "c"])]
    merged = upper[0].merge(upper[1])
    merged.to(lambda key, value, record: f"{record.topic}-{record.partition}-{record.offset}", key=TEXT, value=TEXT)
    merged.process(Tagging, key=TEXT, value=TEXT).map_values(lambda v: F.concat(v, F.lit("!"))).to("tagged")
    merged.filter(per_record(lambda k, v: 1 // len(v) >= 0))
    driver = topology_test_driver(builder)
    for topic in ("c", "a", "b", "a"):
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", topic)
    tagged = [value for _, value in driver.create_output_topic("tagged", TEXT, TEXT).read_key_values()]
    assert tagged == ["C of c!", "A of a!", "B of b!", "A of a!"]
    assert set(driver.produced_topics) == {"tagged", "c-0-0", "a-0-0", "b-0-0", "a-0-1"}
    with pytest.raises(StopError, match="b-0 at offset 1"):
        driver.create_input_topic("b", TEXT, TEXT).pipe_input("k", "")


def test_an_extractor_sees_where_the_record_is_from(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()

    def by_topic(record: SourceRecord, partition_time: int) -> int:
        assert record.partition == 0
        assert record.offset is not None
        return record.timestamp + (1000 if record.topic == "late" else 0) + record.offset

    builder.stream(["now", "late"], key=TEXT, value=TEXT, timestamp_extractor=by_topic).to("out")
    driver = topology_test_driver(builder)
    for topic in ("now", "late", "late"):
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", "v", 5)
    assert [record.timestamp for record in driver.create_output_topic("out", TEXT, TEXT).read_records()] == [5, 1005, 1006]


def test_a_default_extractor_gives_the_times_of_sources_without_one(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).filter(lambda key, value: value != "").to("out")
    driver = topology_test_driver(builder, {"default.timestamp.extractor": "LogAndSkipOnInvalidTimestamp"})
    driver.create_input_topic("in", TEXT, TEXT).pipe_records([TestRecord("k", "a", 7), TestRecord("k", "b", -1)], batch=None)
    assert [(r.value, r.timestamp) for r in driver.create_output_topic("out", TEXT, TEXT).read_records()] == [("a", 7)]
    assert driver.dropped == 1


def test_a_source_takes_the_names_of_kafka_streams_extractors_whatever_the_default_is(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    names = {"skip": "org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp",
             "clock": "WallclockTimestampExtractor", "fail": "FailOnInvalidTimestamp"}  # fmt: skip
    for topic, name in names.items():
        builder.stream(topic, key=TEXT, value=TEXT, timestamp_extractor=name).to("out")
    with pytest.raises(TopologyError, match="table: timestamp_extractor: 'Wallclock' is none of Kafka Streams' extractors"):
        builder.table("rows", key=TEXT, value=TEXT, timestamp_extractor="Wallclock")
    driver = topology_test_driver(builder, {"default.timestamp.extractor": _always_5})
    for topic in names:
        source = driver.create_input_topic(topic, TEXT, TEXT)
        source.pipe_input("k", topic, 7)
        if topic == "fail":
            with pytest.raises(StopError, match=r"fail-0 at offset 1: .*timestamp is -1, expected 0 or later"):
                source.pipe_input("k", "below", -1)
        else:
            source.pipe_input("k", "below", -1)
    found = [(r.value, r.timestamp) for r in driver.create_output_topic("out", TEXT, TEXT).read_records()]
    assert [at for at in found if at[0] != "clock" and at[1] < 1_000] == [("skip", 7), ("fail", 7)]
    assert [value for value, timestamp in found if timestamp > 1_000_000_000_000] == ["clock", "below"]


def _always_5(record: SourceRecord, partition_time: int) -> int:
    return 5


def test_a_source_of_a_topology_takes_the_names_of_kafka_streams_extractors() -> None:
    made = TopologyBuilder()
    made.add_source("clock", "in", key=TEXT, value=TEXT, timestamp_extractor="WallclockTimestampExtractor")
    made.add_sink("out", "out", "clock")
    source = made.build().nodes["clock"]
    assert isinstance(source, SourceNode)
    assert source.timestamp_extractor is KafkaExtractor.WALL_CLOCK


def test_without_a_cache_each_update_of_a_batch_is_forwarded(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    grouped.count(store=Materialized(name="each", caching=False)).to_stream().map_values(lambda n: n * 10).to("each")
    sessions = grouped.windowed_by(SessionWindows.of_inactivity_gap(10))
    by_length = sessions.count(store=Materialized(name="visits", caching=False)).to_stream().filter(lambda k, n: n.isNotNull())
    by_length.map(lambda k, n: (k["key"], n)).to("visits", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    driver.create_input_topic("in", TEXT, TEXT).pipe_records([TestRecord("k", "a", at) for at in (1, 2, 30)], batch=None)

    def found(topic: str) -> list[Any]:
        return [record.value for record in driver.create_output_topic(topic, TEXT, LONG).read_records()]

    assert (found("each"), found("visits")) == ([10, 20, 30], [1, 2, 1])


def test_a_stream_is_joined_with_a_data_frame_as_of_its_last_refresh(topology_test_driver: Any) -> None:
    rows = [("ada", "Ada", 1), ("ada", "Lovelace", 2), ("bob", "Bob", 3)]

    def people(session: SparkSession) -> DataFrame:
        return session.createDataFrame(rows, "id string, name string, rank int")

    builder = StreamsBuilder()
    words = builder.stream("in", key=TEXT, value=TEXT).filter(lambda _, word: word != "skip")
    words.join_dataframe(people, lambda word, row: F.concat_ws(" ", row["name"], word), on="id").to("inner", value=TEXT)
    left = words.join_dataframe(
        people, lambda key, word, row: F.concat_ws("/", key, word, row["name"]),
        on=["name", "rank"], selector=lambda key, _: (F.initcap(key), F.lit(3)), how="left",
    )  # fmt: skip
    left.filter(lambda _, text: F.length(text) > 3).to("left", value=TEXT)
    driver = topology_test_driver(builder)
    source = driver.create_input_topic("in", TEXT, TEXT)
    inner, outer = (driver.create_output_topic(topic, TEXT, TEXT) for topic in ("inner", "left"))
    keys = ["ada", "bob", "bob", "eve", None]
    source.pipe_records([TestRecord(key, "skip" if at == 2 else "hi", at) for at, key in enumerate(keys)], batch=None)
    assert inner.read_key_values() == [("ada", "Ada hi"), ("ada", "Lovelace hi"), ("bob", "Bob hi")]
    assert outer.read_key_values() == [("ada", "ada/hi"), ("bob", "bob/hi/Bob"), ("eve", "eve/hi")]
    rows[:] = [("eve", "Eve", 3)]
    source.pipe_input("eve", "before")
    driver.refresh_dataframes()
    source.pipe_input("eve", "after")
    source.pipe_input("ada", "after")
    assert inner.read_key_values() == [("eve", "Eve after")]
    assert outer.read_key_values() == [("eve", "eve/before"), ("eve", "eve/after/Eve"), ("ada", "ada/after")]


def test_a_data_frame_that_does_not_fit_is_refused(topology_test_driver: Any) -> None:
    def refused(on: str, kind: str) -> str:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=TEXT, value=TEXT)
        stream.join_dataframe(lambda session: session.createDataFrame([], f"id {kind}, name string"), on=on).to("out")
        with pytest.raises(TopologyError) as refusal:
            topology_test_driver(builder)
        return str(refusal.value)

    assert "no column 'key'; it has id, name" in refused("key", "string")
    assert "records are looked up by a string, but the DataFrame's column id is a bigint" in refused("id", "bigint")


def test_functions_of_columns_see_where_a_window_of_ones_own_ends(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=TEXT, value=TEXT).group_by_key().windowed_by(Days()).count(store="days").to_stream()
    counted.select_key(lambda day, _: F.concat_ws(" ", day["key"], day["start"], day["end"])).to("columns", key=TEXT, value=LONG)
    counted.select_key(per_record(lambda day, _: f"{day.key} {day.start} {day.end}", TEXT)).to("python", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    times = [october(25, 0), october(25, 23), october(24, 23), october(26, 1)]
    driver.create_input_topic("in", TEXT, TEXT).pipe_records([TestRecord("a", "x", time) for time in times], batch=None)
    long_day, next_day = f"a {october(25, 0)} {october(26, 0)}", f"a {october(26, 0)} {october(27, 0)}"
    expected = [(long_day, 2), (next_day, 1)]
    assert driver.create_output_topic("columns", TEXT, LONG).read_key_values() == expected
    assert driver.create_output_topic("python", TEXT, LONG).read_key_values() == expected


@pytest.mark.parametrize("looked_up", [False, True])
def test_a_table_forwards_the_last_change_of_a_row_unless_each_is_looked_up(topology_test_driver: Any, looked_up: bool) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT, store="rows")
    if looked_up:
        events = builder.stream("events", key=TEXT, value=TEXT)
        events.join(table, per_record(lambda event, row: f"{event} {row}", TEXT)).to("joined")
    table.to_stream().to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder)
    rows = [TestRecord("a", "1", 5), TestRecord("b", "2", 6), TestRecord("a", "3", 7)]
    driver.create_input_topic("in", TEXT, TEXT).pipe_records(rows, batch=None)
    every = [("a", "1"), ("b", "2"), ("a", "3")]
    assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == (every if looked_up else every[1:])


def test_what_is_counted_in_columns_behind_python_values_is_each_change(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT, store="rows")
    table.group_by(per_record(lambda key, value: (value, key), (TEXT, TEXT))).count(store="groups")
    table.to_stream().map_values(F.upper).group_by_key().count(store="changes").to_stream().to("counts", value=LONG)
    driver = topology_test_driver(builder)
    rows = [TestRecord("a", "1", 5), TestRecord("b", "2", 6), TestRecord("a", "3", 7)]
    driver.create_input_topic("in", TEXT, TEXT).pipe_records(rows, batch=None)
    assert sorted(driver.create_output_topic("counts", TEXT, LONG).read_key_values()) == [("a", 2), ("b", 1)]


def test_a_reduce_of_columns_makes_what_one_of_python_values_makes(topology_test_driver: Any) -> None:
    scores = Serdes.json("best bigint, words string")

    def program(reduces: Any) -> StreamsBuilder:
        builder = StreamsBuilder()
        texts = builder.stream("in", key=TEXT, value=TEXT)
        texts.filter(lambda _, text: text.isNotNull()).to("copy", key=TEXT, value=TEXT)
        texts.group_by_key().reduce(reduces(F.concat, lambda a, b: a + b), store="text").to_stream().to("text")
        numbers = texts.map_values(lambda text: F.length(text).cast("bigint")).group_by_key(key=TEXT, value=LONG)
        numbers.reduce(reduces(lambda a, b: a + b, lambda a, b: a + b), store="sum").to_stream().to("sum")
        rows = texts.map_values(lambda text: F.struct(F.length(text).cast("bigint").alias("best"), text.alias("words")))
        best = rows.filter(lambda _, row: row["words"].isNotNull()).group_by(lambda _, row: row["best"], key=LONG, value=scores)
        best.reduce(
            reduces(
                lambda a, b: F.struct(F.greatest(a.best, b.best).alias("best"), F.concat(a.words, b.words).alias("words")),
                lambda a, b: {"best": max(a["best"], b["best"]), "words": a["words"] + b["words"]},
            ),
            store="best",
        )
        return builder

    def run(reduces: Any, size: int | None) -> tuple[Any, ...]:
        driver = topology_test_driver(program(reduces), {"default.key.serde": "string", "default.value.serde": "string"})
        texts = [None if n % 11 == 5 else "x" * (n % 4 + 1) + str(n) for n in range(40)]
        records = [TestRecord(None if n % 13 == 7 else f"k{n * n % 5}", text, 1_000 - n * 7 % 50) for n, text in enumerate(texts)]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(records, batch=size)
        copies = driver.create_output_topic("copy", TEXT, TEXT).read_key_values()
        last = driver.create_output_topic("text", TEXT, TEXT).read_key_values_to_dict()
        sums = driver.create_output_topic("sum", TEXT, LONG).read_key_values_to_dict()
        return copies, last, sums, *(dict(driver.store(name).all()) for name in ("text", "sum", "best")), driver.dropped

    expected = run(lambda _, python: python, None)
    assert run(lambda columns, _: of_columns(columns), None) == expected
    assert run(lambda columns, _: of_columns(columns), 7)[:6] == expected[:6]


def test_what_is_filtered_out_before_a_flat_map_stays_out(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    lines = builder.stream("in", key=TEXT, value=TEXT).filter(lambda _, line: F.length(line) > 1)
    lines.flat_map_values(lambda line: F.split(line, " ")).to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder)
    driver.create_input_topic("in", TEXT, TEXT).pipe_records([TestRecord("k", "a"), TestRecord("k", "b c")], batch=None)
    assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == [("k", "b"), ("k", "c")]


def test_a_function_of_foreach_batch_that_fails_stops(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).foreach_batch(lambda frame, batch_id: 1 / 0, name="each")
    driver = topology_test_driver(builder)
    with pytest.raises(StopError, match="the function of each failed on the batch in-0:0-1: ZeroDivisionError"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")


def test_what_an_instance_would_stop_for_is_raised(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=LONG).to("out", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    with pytest.raises(StopError, match="in-0 at offset 0"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "no long")


def test_a_negative_timestamp_is_what_an_instance_stops_for(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder)
    with pytest.raises(StopError, match=r"in-0 at offset 0: .*the record's timestamp is -1, expected 0 or later"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v", -1)


def test_configuration_holds(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {"default.key.serde": TEXT, "default.value.serde": "long", "deserialization.exception.handler": "continue"}
    driver = topology_test_driver(builder, config)
    driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "no long")
    driver.create_input_topic("in", TEXT, LONG).pipe_input("k", 5)
    assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("k", 5)]
    assert driver.skipped == 1


def test_a_function_decides_about_records_that_a_serde_cannot_read(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=LONG, name="longs").to("out")

    def handler(context: Any, record: Any, error: Exception) -> ExceptionResponse:
        at = (context.node, str(context.task), context.topic, context.offset, context.headers, type(error).__name__)
        expected = ("longs", "0_0", "in", context.offset, (("h", b"1"),), "SerdeError")
        return ExceptionResponse.CONTINUE if at == expected and record.value == b"skip" else ExceptionResponse.FAIL

    driver = topology_test_driver(builder, {"deserialization.exception.handler": handler})
    records = driver.create_input_topic("in", TEXT, TEXT)
    records.pipe_input("k", "skip", headers=[("h", b"1")])
    driver.create_input_topic("in", TEXT, LONG).pipe_input("k", 5)
    assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("k", 5)]
    with pytest.raises(StopError, match=r"in-0 at offset 2: .*the value can't be read: .*has answered FAIL"):
        records.pipe_input("k", "fail", headers=[("h", b"1")])


def numbers_of_text() -> StreamsBuilder:
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=TEXT, value=TEXT).map_values(lambda text: text.cast("bigint"))
    numbers.group_by_key(key=TEXT, value=LONG).count(store="counts")
    numbers.to("out", key=TEXT, value=LONG)
    return builder


GIVEN = [TestRecord("k", text, 1) for text in ("1", "x", "3", "4", "y", "6")]


def test_the_handler_decides_about_records_on_which_functions_of_columns_raise(topology_test_driver: Any) -> None:
    config = {"processing.exception.handler": "dead-letter", "errors.dead.letter.queue.topic.name": "letters"}
    driver = topology_test_driver(numbers_of_text(), config)
    driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=None)
    assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("k", n) for n in (1, 3, 4, 6)]
    assert driver.create_output_topic("letters", TEXT, TEXT).read_key_values() == [("k", "x"), ("k", "y")]
    assert (driver.store("counts").get("k"), driver.dropped) == ((4, 1), 2)


def test_the_error_of_a_function_of_columns_has_the_operator_and_the_record(topology_test_driver: Any) -> None:
    driver = topology_test_driver(numbers_of_text())
    with pytest.raises(StopError, match=r"in-0 at offset 1: a function of Columns, of KSTREAM-MAPVALUES-\d+, failed: .*'x'"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(GIVEN, batch=None)
    assert driver.create_output_topic("out", TEXT, LONG).read_key_values() == [("k", 1)]


def test_the_error_of_a_reduce_of_columns_has_the_operator(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    highest = (1 << 63) - 1
    sums = builder.stream("in", key=TEXT, value=LONG).group_by_key().reduce(of_columns(lambda sum_, v: sum_ + v), store="sums")
    sums.to_stream().to("out", key=TEXT, value=LONG)
    driver = topology_test_driver(builder)
    with pytest.raises(StopError, match=r"in-0 at offset \d: a function of Columns, of KSTREAM-REDUCE-\d+, failed: .*overflow"):
        driver.create_input_topic("in", TEXT, LONG).pipe_records([TestRecord("k", highest, 1)] * 2, batch=None)


def test_the_error_of_a_tables_function_of_columns_has_the_operator(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", key=TEXT, value=TEXT)
    table.map_values(lambda text: text.cast("bigint"), store="numbers", name="to-numbers").to_stream().to("out", value=LONG)
    driver = topology_test_driver(builder)
    with pytest.raises(StopError, match=r"in-0 at offset 0: a function of Columns, of to-numbers, failed: .*'x'"):
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "x")


def test_sources_by_a_pattern_read_the_topics_that_are_named(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*"), key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder, topics=["in-a", "in-b", "other"])
    for topic in ("in-a", "in-b"):
        driver.create_input_topic(topic, TEXT, TEXT).pipe_input("k", topic)
    assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == [("k", "in-a"), ("k", "in-b")]
    with pytest.raises(TopologyError, match="reads no topic 'other'; it reads in-a, in-b "):
        driver.create_input_topic("other", TEXT, TEXT)


def test_names_that_the_topology_does_not_have_are_refused_with_those_that_it_has(topology_test_driver: Any) -> None:
    driver = topology_test_driver(wordcount())
    with pytest.raises(TopologyError, match=r"reads no topic 'nope'; it reads .*lines"):
        driver.create_input_topic("nope", TEXT, TEXT)
    with pytest.raises(TopologyError, match="no store 'nope'; its stores are counts"):
        driver.store("nope")


def test_records_without_a_key_are_not_put_into_a_dict_as_in_kafka_streams(topology_test_driver: Any) -> None:
    """readKeyValuesToMap throws an IllegalStateException."""
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder)
    out = driver.create_output_topic("out", TEXT, TEXT)
    driver.create_input_topic("in", TEXT, TEXT).pipe_key_values([("a", "1"), (None, "2")])
    with pytest.raises(TopologyError, match="the topic out has a record without a key, and can be no dict; use read_key_values"):
        out.read_key_values_to_dict()
    assert out.read_key_values() == [("a", "1"), (None, "2")]


def test_a_deleted_key_is_read_as_none_as_in_kafka_streams_and_stores_are_only_read(topology_test_driver: Any) -> None:
    """readKeyValuesToMap tells a tombstone from nothing; a write to a store would be lost."""
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT, store="rows").to_stream().to("out", key=TEXT, value=TEXT)
    builder.global_table("everywhere", key=TEXT, value=TEXT, store="global")
    driver = topology_test_driver(builder)
    rows, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, TEXT)
    rows.pipe_key_values([("a", "1"), ("b", "2"), ("a", None)])
    assert out.read_key_values_to_dict() == {"a": None, "b": "2"}
    assert out.read_key_values_to_dict() == {}
    rows.pipe_values(["dropped, since it has no key"])
    rows.pipe_key_values([("b", "3"), ("b", "4")])
    assert out.read_values() == ["3", "4"]
    for name in ("rows", "global"):
        with pytest.raises(TypeError, match=f"the store {name} can't be written by a test: pipe the records"):
            driver.store(name).put("a", "5", 0)
    assert driver.store("rows").get("a") is None


def test_a_store_that_a_test_holds_shows_the_records_piped_since(topology_test_driver: Any) -> None:
    """As in Kafka Streams. Sessions and windows expire by the newest time in the store: one read before hides newer ones."""
    builder = StreamsBuilder()
    rows = builder.stream("in", key=TEXT, value=TEXT)
    rows.group_by_key().windowed_by(SessionWindows.of_inactivity_gap(10, grace=5)).count(store="sessions")
    rows.group_by_key().windowed_by(TimeWindows.of_size(10)).count(store="windows")
    builder.global_table("everywhere", key=TEXT, value=TEXT, store="global")
    driver = topology_test_driver(builder)
    sessions, windows, everywhere = driver.store("sessions"), driver.store("windows"), driver.store("global")
    source, of_global = driver.create_input_topic("in", TEXT, TEXT), driver.create_input_topic("everywhere", TEXT, TEXT)
    assert (list(sessions.fetch("k")), list(windows.all()), everywhere.get("g")) == ([], [], None)
    for at in (100_000, 200_000):
        source.pipe_input("k", "v", at)
        of_global.pipe_input("g", str(at))
        assert list(sessions.fetch("k"))[-1] == (Windowed("k", at, at), 1)
        assert list(windows.all())[-1][0] == Windowed("k", at, at + 10)
        assert everywhere.get("g")[0] == str(at)


def test_a_read_that_a_store_does_not_have_is_answered_with_what_to_write(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    rows = builder.stream("in", key=TEXT, value=TEXT).group_by_key()
    rows.windowed_by(TimeWindows.of_size(10)).count(store="windows")
    rows.count(store="counts")
    driver = topology_test_driver(builder)
    windows, at = driver.store("windows"), datetime(2026, 1, 1, tzinfo=timezone.utc)
    for call, said in (
        (lambda: windows.fetchAll(0, 10), "WindowAccess has no fetchAll: write fetch_all$"),
        (lambda: windows.get("k"), "WindowAccess has no get; it has all, fetch, fetch_all, "),
        (lambda: driver.store("counts").reverseAll(), r"has no reverseAll: write all\(reverse=True\)$"),
        (lambda: windows.fetch("k", at), r"are ms since the epoch: write int\(value\.timestamp\(\) \* 1000\) of a datetime$"),
        (lambda: windows.fetch_range("k", at, at), "times of records and stores are ms since the epoch"),
    ):
        with pytest.raises((AttributeError, TypeError), match=said):
            call()
    assert driver.store("counts").approximate_num_entries == 0


def test_nothing_is_left_of_a_closed_driver(spark: SparkSession) -> None:
    with TopologyTestDriver(wordcount(), session=spark) as driver:
        driver.create_input_topic("lines", TEXT, TEXT).pipe_value("a")
        folder = Path(driver._folder)
        assert folder.is_dir()
    assert not folder.exists()


def test_a_closed_driver_says_so_and_what_was_written_can_still_be_read(spark: SparkSession) -> None:
    """Its stores are gone: a read of one would find nothing."""
    builder = StreamsBuilder()
    builder.table("in", key=TEXT, value=TEXT, store="rows").to_stream().to("out")
    with TopologyTestDriver(builder, session=spark) as driver:
        source, rows = driver.create_input_topic("in", TEXT, TEXT), driver.store("rows")
        source.pipe_input("k", "v")
    for use in (lambda: source.pipe_input("k", "w"), lambda: rows.get("k"), lambda: driver.advance_wall_clock_time(1)):
        with pytest.raises(StopError, match="this driver is closed, and its stores are gone: make another driver"):
            use()
    assert driver.create_output_topic("out", TEXT, TEXT).read_key_values() == [("k", "v")]
    driver.close()


def test_an_interrupted_driver_is_refused_and_the_next_one_begins_afresh(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Ctrl-C in a cell of a notebook, while a batch is under way."""

    def interrupted(_: Run, limit_s: float) -> None:
        raise KeyboardInterrupt

    topology = wordcount().build()
    with TopologyTestDriver(topology, session=spark) as driver:
        lines = driver.create_input_topic("lines", Serdes.string(), Serdes.string())
        lines.pipe_input("", "a")
        with monkeypatch.context() as patched:
            patched.setattr(Run, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                lines.pipe_input("", "b")
        with pytest.raises(StopError, match="a call of this driver was interrupted"):
            lines.pipe_input("", "c")
    with TopologyTestDriver(topology, session=spark) as driver:
        driver.create_input_topic("lines", Serdes.string(), Serdes.string()).pipe_input("", "b")
        assert [(word, count) for word, (count, _) in driver.store("counts").all()] == [("b", 1)]


def test_a_driver_stays_its_parents_in_a_forked_process_that_ends(spark: SparkSession) -> None:
    with TopologyTestDriver(wordcount(), session=spark) as driver:
        lines, counts = driver.create_input_topic("lines", TEXT, TEXT), driver.create_output_topic("counts", TEXT, LONG)
        lines.pipe_value("a")

        def child() -> None:
            with pytest.raises(StopError, match="from which this one was forked"):
                lines.pipe_value("a")
            driver.close()
            driver._remove_folder()  # as at the end of the process

        assert in_a_fork(child) == 0
        lines.pipe_value("a")
        assert counts.read_key_values() == [("a", 1), ("a", 2)]


class _Marks:
    """Wraps what it is asked for; each processor appends the name of its node to the value."""

    def wrap_processor_supplier(self, name: str, supplier: Any) -> Any:
        return lambda: _Marked(name, supplier())


class _Marked:
    def __init__(self, name: str, inner: Any) -> None:
        self.name, self.inner = name, inner

    def init(self, context: ProcessorContext) -> None:
        if hasattr(self.inner, "init"):
            self.inner.init(context)

    def process(self, record: Record) -> None:
        self.inner.process(record.with_value(f"{record.value} {self.name}"))


class _Echo:
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record) -> None:
        self.context.forward(record)


def test_wrapped_processors_run_between_functions_of_columns(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    records = builder.stream("in", key=TEXT, value=TEXT).map_values(F.upper, name="columns")
    records = records.process_values(_Echo, name="mine").map_values(per_record(str.strip, TEXT), name="stripped")
    records.map_values(lambda value: F.concat(value, F.lit(".")), name="dot").group_by_key().reduce(
        lambda old, new: f"{old},{new}", store="joined", name="reduced"
    ).to_stream().to("out", key=TEXT, value=TEXT)
    driver = topology_test_driver(builder, {"processor.wrapper.class": _Marks})
    values, out = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("out", TEXT, TEXT)
    values.pipe_input("k", "a")
    values.pipe_input("k", "b")
    assert out.read_key_values() == [
        ("k", "A mine stripped. reduced"), ("k", "A mine stripped. reduced,B mine stripped. reduced"),
    ]


def test_avro_needs_no_registry_but_that_of_the_test(topology_test_driver: Any) -> None:
    fields = '{"name": "item", "type": "string"}, {"name": "pieces", "type": "long"}'
    schema = f'{{"type": "record", "name": "Order", "fields": [{fields}]}}'
    orders, builder = SchemaRegistry("mock://driver").avro(schema), StreamsBuilder()
    stream = builder.stream("orders", key=Serdes.string(), value=orders)
    stream.filter(lambda k, order: order["pieces"] > 1).peek(lambda k, order: None).to("large")
    driver = topology_test_driver(builder)
    driver.create_input_topic("orders", Serdes.string(), orders).pipe_values([{"item": "tea", "pieces": n} for n in (1, 2)])
    assert driver.create_output_topic("large", Serdes.string(), orders).read_values() == [{"item": "tea", "pieces": 2}]


@pytest.mark.parametrize("key", [1, "a", {"x": [1]}])
def test_functions_of_columns_get_windowed_keys_of_json_as_they_get_json_by_itself(topology_test_driver: Any, key: Any) -> None:
    builder, json = StreamsBuilder(), Serdes.json()
    counts = builder.stream("in", key=json, value=json).group_by_key().windowed_by(TimeWindows.of_size(10)).count().to_stream()
    windowed = WindowedSerdes.time_windowed_serde_from(json, 10)
    counts.map_values(lambda count: count + 1).to("windowed", key=windowed, value=LONG)
    counts.map(lambda window, count: (window.key, count)).to("plain", key=json, value=LONG)
    table = builder.table("table", key=windowed, value=json)
    stream = builder.stream("stream", key=windowed, value=json)
    stream.join(table, per_record(lambda left, right: [left, right], json)).to("joined")
    driver = topology_test_driver(builder)
    driver.create_input_topic("in", json, json).pipe_input(key, 1, timestamp=5)
    assert driver.create_output_topic("windowed", windowed, LONG).read_key_values() == [(Windowed(key, 0, 10), 2)]
    assert driver.create_output_topic("plain", json, LONG).read_key_values() == [(key, 1)]
    for topic in ("table", "stream"):
        driver.create_input_topic(topic, windowed, json).pipe_input(Windowed(key, 0, 10), topic, timestamp=5)
    joined = driver.create_output_topic("joined", windowed, json).read_key_values()
    assert joined == [(Windowed(key, 0, 10), ["stream", "table"])]


def test_a_batch_of_many_is_joined_behind_two_repartition_topics_as_one_by_one(topology_test_driver: Any) -> None:
    """What it sends to both topics is taken by time: read one topic after the other, it would be too late for the windows."""

    def joined(batch: int | None) -> list[Any]:
        builder = StreamsBuilder()
        moved = builder.stream("in", key=TEXT, value=TEXT).select_key(per_record(lambda key, value: value[:1], TEXT))
        counts = moved.group_by_key(name="counted", key=TEXT, value=TEXT).count(store="counts").to_stream()
        windows = JoinWindows.of_time_difference(100)
        both = StreamJoined(key=TEXT, value=TEXT, other_value=Serdes.long(), name="join")
        moved.join(counts, per_record(lambda value, count: f"{value} {count}", TEXT), windows, joined=both).to("out")
        driver = topology_test_driver(builder, {"statestore.cache.max.bytes": "0"})
        records = [TestRecord("k", f"{at % 2}-{at}", at * 1_000) for at in range(1, 200)]
        driver.create_input_topic("in", TEXT, TEXT).pipe_records(records[:5] if batch else records, batch=batch)
        return list(driver.create_output_topic("out", TEXT, TEXT).read_key_values())

    of_all = joined(None)
    assert joined(1) == of_all[:5] == [("1", "1-1 1"), ("0", "0-2 1"), ("1", "1-3 2"), ("0", "0-4 2"), ("1", "1-5 3")]
    assert len(of_all) == 199


class Noting(Processor):
    """Notes in a file what is called: it runs in a worker."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def process(self, record: Record) -> None:
        self._note(f"process {record.value}")

    def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        with self.file.open("a") as file:
            file.write(f"{what}\n")


def test_close_closes_the_processors_once_also_where_another_driver_came_after(spark: SparkSession, tmp_path: Path) -> None:
    def driver(name: str) -> TopologyTestDriver:
        builder, file = StreamsBuilder(), tmp_path / name
        builder.stream("in", key=TEXT, value=TEXT).process(lambda: Noting(file))
        made = TopologyTestDriver(builder, session=spark)
        made.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        return made

    first = driver("first")
    with driver("second"):
        first.close()
        first.close()
    driver("unclosed")
    for name in ("first", "second"):
        assert (tmp_path / name).read_text().splitlines() == ["process v", "close"]
    assert (tmp_path / "unclosed").read_text().splitlines() == ["process v"]

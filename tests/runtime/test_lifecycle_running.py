"""The life of running instances: failed threads, threads added and removed, pauses, sessions that are used again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place
from tests.waiting import until
from tidemill import Record, Serdes, Stores, StreamsBuilder, per_record
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import ConfigError, RecordError, RetriableError, ShutdownRequestedError, TidemillError
from tidemill.kafka.admin.groups import describe_group
from tidemill.kafka.group.member import GroupMember
from tidemill.runtime.instance.application import KafkaStreams, State, StreamThreadExceptionResponse
from tidemill.runtime.thread.batch_runner import BatchRunner

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

STRING = Serdes.string()


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("lifecycle"))


def passing_on(place: Place, fails_while: Path | None = None) -> StreamsBuilder:
    """Each value once; while the file is there, a function that fails."""
    flag = str(fails_while)

    def same(value: str) -> str:
        if value == "bad" and Path(flag).exists():
            raise ValueError("this one is bad")
        return value

    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=STRING, value=STRING).map_values(per_record(same)).to(place.topic("out"), value=STRING)
    return builder


def values(place: Place, count: int) -> Counter[bytes]:
    """What has come out; a moment longer than it takes ``count`` records, so that one too many is seen."""
    return Counter(message.value() for message in [*place.received("out", count)])


def test_a_failed_thread_is_replaced_and_goes_on_exactly_where_the_last_commit_ended(place: Place, tmp_path: Path) -> None:
    place.create("in", "out", partitions=2)
    flag = tmp_path / "flag"
    flag.touch()
    told: list[TidemillError] = []

    def handler(error: TidemillError) -> StreamThreadExceptionResponse:
        told.append(error)
        flag.unlink()
        return StreamThreadExceptionResponse.REPLACE_THREAD

    streams = place.application(passing_on(place, flag))
    streams.set_uncaught_exception_handler(handler)
    with streams:
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
        first = streams.threads[0]
        place.send("in", [(None, b"a"), (None, b"bad"), (None, b"b")])
        place.send("in", [(None, b"c")], partition=1)
        assert values(place, 4) == {b"a": 1, b"bad": 1, b"b": 1, b"c": 1}
        assert "this one is bad" in str(told[0])
        assert f"{place.topic('in')}-0 at offset 1" in str(told[0])
        assert streams.threads[0] is not first
        assert streams.threads[0].name == first.name
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING


def test_no_thread_is_replaced_that_has_failed_on_a_record_of_a_global_topic(place: Place) -> None:
    """The next one would read it again, from the beginning of the topic: it would fail for ever."""
    place.create("in", "rates", "out")
    place.send("rates", [(b"eur", b"bad")])

    class Fails:
        def process(self, record: Record) -> None:
            raise ValueError("this one is bad")

    builder = StreamsBuilder()
    builder.add_global_store(Stores.key_value_store("rates", key=STRING, value=STRING, logged=False), place.topic("rates"), Fails)
    builder.stream(place.topic("in"), key=STRING, value=STRING).to(place.topic("out"))
    told: list[TidemillError] = []

    def handler(error: TidemillError) -> StreamThreadExceptionResponse:
        told.append(error)
        return StreamThreadExceptionResponse.REPLACE_THREAD

    streams = place.application(builder)
    streams.set_uncaught_exception_handler(handler)
    with streams:
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.ERROR
        [error] = told
        assert isinstance(error, RecordError)
        assert (error.topic, error.partition, error.offset) == (place.topic("rates"), 0, 0)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_what_precedes_a_record_that_fails_each_thread_gets_through(place: Place, tmp_path: Path, guarantee: str) -> None:
    place.create("in", "out")
    flag = tmp_path / "flag"
    flag.touch()
    good = [b"%d" % number for number in range(20)]
    place.send("in", [(None, value) for value in (*good, b"bad", b"last")])
    streams = place.application(passing_on(place, flag), **{"processing.guarantee": guarantee})
    streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.REPLACE_THREAD)
    with streams:
        assert values(place, len(good)) == Counter(good)
        flag.unlink()
        assert values(place, len(good) + 2) == Counter([*good, b"bad", b"last"])


def test_one_instance_shuts_all_of_the_application_down(place: Place, tmp_path: Path) -> None:
    place.create("in", "out", partitions=2)
    flag = tmp_path / "flag"
    flag.touch()
    one = place.application(passing_on(place, flag))
    other = place.application(passing_on(place, flag), **{"state.dir": str(tmp_path / "other")})
    for streams in (one, other):
        streams.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION)
    with one, other:
        assert until(lambda: all(s.state is State.RUNNING and s.threads[0].tasks for s in (one, other)))
        place.send("in", [(None, b"bad")])
        assert one.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
        assert other.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    errors = [one.error, other.error]
    assert sum("this one is bad" in str(error) for error in errors) == 1
    assert sum(isinstance(error, ShutdownRequestedError) for error in errors) == 1


def test_an_instance_whose_threads_would_find_no_slot_in_a_shared_session_is_refused(place: Place, tmp_path: Path) -> None:
    place.create("in", "out", partitions=2)
    slots = place.spark.sparkContext.defaultParallelism
    first = place.application(passing_on(place), **{"num.stream.threads": slots - 1})
    second = place.application(passing_on(place), **{"state.dir": str(tmp_path / "second")})
    with first:
        assert first.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
        taken = rf"has {slots} task slots, of which other instances .* have {slots - 1}, .*close one"
        with pytest.raises(ConfigError, match=taken):
            second.start()
        first.remove_stream_thread()
        second = place.application(passing_on(place), **{"state.dir": str(tmp_path / "second")})
        with second:
            assert second.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
            with pytest.raises(ConfigError, match="2 task slots for this instance, but 2 stream threads"):
                second.add_stream_thread()
        assert first.add_stream_thread()


def test_a_paused_instance_processes_nothing_and_keeps_its_tasks_and_threads_come_and_go(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[GroupMember] = []
    monkeypatch.setattr(GroupMember, "expect_rebalance", lambda self: told.append(self))  # noqa: PLW0108  # list.append takes no self
    place.create("in", "out", partitions=2)
    streams = place.application(passing_on(place))
    streams.pause()
    with streams:
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
        place.send("in", [(None, b"a")])
        assert place.received("out", 1, limit_s=3) == []
        assert streams.is_paused()
        assert streams.state is State.RUNNING
        streams.resume()
        assert values(place, 1) == {b"a": 1}
        name = streams.add_stream_thread()
        assert until(lambda: streams.threads[0]._member in told), "its next heartbeat is not waited for"
        assert name == streams.threads[0].name[:-1] + "2"
        assert until(lambda: [len(thread.tasks) for thread in streams.threads] == [1, 1])
        place.send("in", [(None, b"b")])
        place.send("in", [(None, b"c")], partition=1)
        assert values(place, 3) == {b"a": 1, b"b": 1, b"c": 1}
        assert streams.remove_stream_thread() == name
        assert until(lambda: [len(thread.tasks) for thread in streams.threads] == [2])
        place.send("in", [(None, b"d")], partition=1)
        assert values(place, 4) == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
        assert streams.close(leave_group=False)
    group = describe_group({"bootstrap_servers": place.bootstrap_servers}, place.name, limit_s=60)
    assert group is not None
    assert len(group.members) == 1, "it stays one until its session ends"


def test_a_thread_that_is_removed_before_it_has_joined_does_not_join(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its workers may take long to start, and the instance be closed before: the group would gather for one that is gone."""
    joined: list[GroupMember] = []
    start, starts, goes_on = GroupMember.start, threading.Event(), threading.Event()

    def join(member: GroupMember) -> None:
        joined.append(member)
        start(member)

    def run_empty(_runner: BatchRunner) -> None:
        starts.set()
        assert goes_on.wait(LIMIT_S)

    monkeypatch.setattr(GroupMember, "start", join)
    monkeypatch.setattr(BatchRunner, "run_empty", run_empty)
    place.create("in", "out")
    with place.running(passing_on(place)) as streams:
        added = streams.add_stream_thread()
        assert starts.wait(LIMIT_S)
        with pytest.raises(RetriableError, match="has not ended within 0 s"):
            streams.remove_stream_thread(timeout=0)
        goes_on.set()
        assert until(lambda: added not in [thread.name for thread in streams.threads])
        assert joined == [streams.threads[0]._member]


def test_a_second_session_in_one_process_is_refused_with_what_to_do(place: Place) -> None:
    place.create("in", "out")
    streams = KafkaStreams(
        passing_on(place),
        {
            "application.id": place.name,
            "bootstrap.servers": place.bootstrap_servers,
            "state.dir": str(place.folder),
        },
    )
    with pytest.raises(ConfigError, match=r"this process has a SparkSession already .* session=spark"):
        streams.start()


NOTEBOOK = """
    import sys
    from tidemill import KafkaStreams, Serdes, StreamsBuilder
    from tidemill.runtime.instance.application import State

    name, servers, folder = sys.argv[1:]
    config = {"application.id": name, "bootstrap.servers": servers, "state.dir": folder}

    def wordcount():
        builder = StreamsBuilder()
        words = builder.stream(name + "-in", key=Serdes.string(), value=Serdes.string())
        words.group_by(lambda k, v: v).count(store="counts").to_stream().to(name + "-out", value=Serdes.long())
        return builder

    def look(session=None):
        streams = KafkaStreams(wordcount(), config, session=session).start()
        assert streams.wait(State.RUNNING, timeout=240) is State.RUNNING, streams.error
        import time
        deadline = time.monotonic() + 240
        while streams.store("counts").get("a") != 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        print(streams.state.value, streams.store("counts").get("a"))
        assert streams.close()
        print(streams.state.value)

    look()
    look()
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = spark.config("spark.task.maxFailures", "1").config("spark.python.worker.reuse", "true").getOrCreate()
    look(spark)
    look(spark)
    assert spark.range(3).count() == 3
    spark.stop()
    look()
"""


def test_a_notebook_starts_looks_stops_and_starts_again_with_sessions_of_both_kinds(place: Place, tmp_path: Path) -> None:
    place.create("in", "out")
    place.send("in", [(None, b"a"), (None, b"a")])
    script = tmp_path / "notebook.py"
    script.write_text(textwrap.dedent(NOTEBOOK))
    command = [sys.executable, str(script), place.name, place.bootstrap_servers, str(tmp_path / "state")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["RUNNING", "2", "NOT_RUNNING"] * 5


def clients_threads() -> set[int]:
    """The threads of all of librdkafka's clients in this process."""
    names = {int(task.name): (task / "comm").read_text() for task in Path("/proc/self/task").iterdir()}
    return {number for number, name in names.items() if name.startswith("rdk:")}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are named there on Linux only")
def test_when_close_returns_no_client_of_the_instance_is_alive(place: Place, tmp_path: Path) -> None:
    """One that is ended at the end of the program may use what OpenSSL has freed by then."""
    place.create("in", "out", partitions=2)
    gc.disable()
    try:
        before = clients_threads()
        with place.running(passing_on(place), **{"num.stream.threads": 2}):
            assert clients_threads() - before
        assert not clients_threads() - before
        with pytest.raises(TidemillError, match="not-there"):
            place.application(reading(place.topic("not-there"))).start()
        assert not clients_threads() - before
    finally:
        gc.enable()


def reading(topic: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream(topic, key=STRING, value=STRING).foreach(per_record(lambda key, value: None))
    return builder

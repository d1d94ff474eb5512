"""A thread's workers when they hang, and when Spark has more of them than it should (correctness.md, rules 20 and 21)."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place, reports_noted
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.kafka.data.fencing import transactional_id
from tidemill.kafka.data.producer import fence
from tidemill.runtime.instance.application import State
from tidemill.runtime.worker.worker import warm
from tidemill.spark.engine import start_workers

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

STRING = Serdes.string()
PATIENT = {"tidemill.batch.timeout.ms": 240_000}
"""Where workers are to stay the same: a thread waits so long for those that are started for it, however busy the machine is. Else
its first batch starts others, and Spark may take the ones or the others for a later run."""


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("workers"))


def test_a_batch_that_hangs_is_ended_by_killing_its_workers_and_runs_again(place: Place) -> None:
    place.create("in", "out")
    flag = place.folder / "hung"

    def hang_once(_key: str, value: str) -> None:
        if value == "hang" and not flag.exists():
            flag.touch()
            time.sleep(3600)

    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=STRING, value=STRING).peek(hang_once).to(place.topic("out"))
    with place.running(builder, **{"tidemill.batch.timeout.ms": 15_000}) as streams:
        place.send("in", [(b"k", b"before")])
        assert place.received("out", 1)
        [thread] = streams.threads
        assert thread.engine is not None
        before = dict(thread.engine.worker_pids)
        place.send("in", [(b"k", b"hang"), (b"k", b"after")])
        assert [m.value() for m in place.received("out", 3)] == [b"before", b"hang", b"after"]
        assert flag.exists()
        assert thread.engine.worker_pids["step-1"] != before["step-1"]
        assert until(lambda: not psutil.pid_exists(before["step-1"])), "Spark's daemon notices a little later"


def test_a_batch_that_finds_no_task_slot_waits_for_one_and_its_workers_live_on(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A job of the program's own has all of them when the thread needs a slot again."""
    place.create("in", "out")
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by_key().count(store="counts").to_stream().to(place.topic("out"))
    context, released, begun = place.spark.sparkContext, str(place.folder / "released"), place.folder / "begun"
    begun.mkdir()
    folder = str(begun)

    def hold(numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            Path(folder, str(number)).touch()
            while not Path(released).exists():
                time.sleep(0.05)
            yield number

    with place.running(builder, **PATIENT) as streams:
        [thread] = streams.threads
        place.send("in", [(b"k", b"v")])
        assert place.received("out", 1)
        assert thread.engine is not None
        workers = dict(thread.engine.worker_pids)
        slots = context.defaultParallelism
        hog = threading.Thread(target=lambda: context.parallelize(range(slots), slots).mapPartitions(hold).count())
        hog.start()
        assert until(lambda: len(list(begun.iterdir())) >= slots - 1), "the thread's run has the last one"
        thread.engine._run.end()
        thread.hurry()
        assert until(lambda: len(list(begun.iterdir())) == slots)
        place.send("in", [(b"k", b"v")])
        assert until(lambda: "no task slot is free" in caplog.text)
        assert streams.state is State.RUNNING
        Path(released).touch()
        hog.join(LIMIT_S)
        assert [int.from_bytes(m.value(), "big") for m in place.received("out", 2)] == [1, 2]
        assert thread.engine.worker_pids == workers
        assert thread.metrics.lost == 0


def test_a_batch_that_takes_too_long_is_tried_with_fewer_records_until_the_backlog_is_through(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many records as take three times the limit."""
    reports = reports_noted(monkeypatch)
    place.create("in", "out")

    def slow(value: str) -> str:
        time.sleep(0.02)
        return value

    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=STRING, value=STRING).map_values(per_record(slow, STRING)).to(place.topic("out"))
    with place.running(builder, **{"tidemill.batch.timeout.ms": 10_000}) as streams:
        place.send("in", [(b"k", b"0")])
        assert place.received("out", 1), "the workers have begun: batches take no longer than their records"
        streams.pause()
        place.send("in", [(b"k", str(number).encode()) for number in range(1, 1_500)])
        streams.resume()
        assert [m.value() for m in place.received("out", 1_500)] == [str(number).encode() for number in range(1_500)]
        [thread] = streams.threads
        assert thread.metrics.lost > 0
        assert max(report.records_in for report in reports) < 1_000


def test_a_record_that_ends_its_worker_each_time_stops_the_application_with_its_place(place: Place) -> None:
    place.create("in", "out", partitions=2)

    def die(value: str) -> str:
        if value == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=STRING, value=STRING).map_values(per_record(die, STRING)).to(place.topic("out"))
    with place.running(builder) as streams:
        for partition in (0, 1):  # batches of one record take from one and the other
            place.send("in", [(b"k", b"a"), (b"k", b"b"), (b"k", b"deadly"), (b"k", b"c")], partition=partition)
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
        assert sorted(m.value() for m in place.received("out", 4)) == [b"a", b"a", b"b", b"b"]
    assert "at offset 2: a batch of this record alone has ended its worker 5 times" in str(streams.error)


def test_a_second_worker_of_a_step_ends_the_first_and_no_batch_is_lost_for_long(place: Place) -> None:
    """Whatever runs under a thread's key while it is at work makes Spark start another worker for it."""
    place.create("in", "out")
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by_key().count(store="counts").to_stream().to(place.topic("out"))
    with place.running(builder, **PATIENT) as streams:
        [thread] = streams.threads
        place.send("in", [(b"k", b"v")])
        assert place.received("out", 1)
        assert thread.engine is not None
        first = dict(thread.engine.worker_pids)
        for _ in range(10):
            start_workers(place.spark, "app", thread.name, ["source", "step-1"], warm).join()
        for number in range(2, 12):
            place.send("in", [(b"k", b"v")])
            assert [int.from_bytes(m.value(), "big") for m in place.received("out", number)] == list(range(1, number + 1))
        assert until(lambda: all(psutil.pid_exists(pid) for pid in thread.engine.worker_pids.values()))
        replaced = {pid for step, pid in first.items() if thread.engine.worker_pids[step] != pid}
        assert until(lambda: not any(psutil.pid_exists(pid) for pid in replaced))
        settled = dict(thread.engine.worker_pids)
        batches = thread.metrics.batches
        assert until(lambda: thread.metrics.batches > batches + 20)
        assert thread.engine.worker_pids == settled


def test_a_fatal_error_of_the_producer_costs_a_batch_and_the_producer_but_not_the_worker(place: Place) -> None:
    """Rule 8; here another producer under the same id, as after a false alarm of the group's leader."""
    place.create("in", "out")
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by_key().count(store="counts").to_stream().to(place.topic("out"))
    with place.running(builder, **PATIENT) as streams:
        [thread] = streams.threads
        place.send("in", [(b"k", b"v")])
        assert place.received("out", 1)
        assert thread.engine is not None
        before, lost = thread.engine.worker_pids, thread.metrics.lost
        fence({"bootstrap.servers": place.bootstrap_servers}, transactional_id(place.name, str(streams.process_id), 1))
        place.send("in", [(b"k", b"v")])
        assert [int.from_bytes(m.value(), "big") for m in place.received("out", 2)] == [1, 2]
        assert thread.metrics.lost > lost
        assert thread.engine.worker_pids == before

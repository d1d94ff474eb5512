"""A thread's workers when they hang, and when Spark has more of them than it should (correctness.md, rules 20 and 21)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from local_application import Place, until
from pyspark.sql import SparkSession

from tidemill import Serdes, StreamsBuilder
from tidemill.kafka.broker import EmbeddedBroker
from tidemill.kafka.fencing import transactional_id
from tidemill.kafka.producer import fence
from tidemill.runtime.worker import warm
from tidemill.spark.engine import start_workers

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

STRING = Serdes.string()


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
        assert not psutil.pid_exists(before["step-1"])


def test_a_second_worker_of_a_step_ends_the_first_and_no_batch_is_lost_for_long(place: Place) -> None:
    """Whatever runs under a thread's key while it is at work makes Spark start another worker for it."""
    place.create("in", "out")
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by_key().count(store="counts").to_stream().to(place.topic("out"))
    with place.running(builder) as streams:
        [thread] = streams.threads
        place.send("in", [(b"k", b"v")])
        assert place.received("out", 1)
        assert thread.engine is not None
        first = dict(thread.engine.worker_pids)
        for _ in range(10):
            start_workers(place.spark, thread.name, ["source", "step-1"], warm).join()
        for number in range(2, 12):
            place.send("in", [(b"k", b"v")])
            assert [int.from_bytes(m.value(), "big") for m in place.received("out", number)] == list(range(1, number + 1))
        alive = {step: pid for step, pid in thread.engine.worker_pids.items() if psutil.pid_exists(pid)}
        assert alive == thread.engine.worker_pids
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
    with place.running(builder) as streams:
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

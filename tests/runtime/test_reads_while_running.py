"""State is read while batches run, while a second instance joins and when it dies; nothing that is read is uncommitted."""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.runtime.instance_process import LIMIT_S, InstanceProcess
from tests.runtime.wordcount_instance import wordcount
from tests.runtime.words import VOCABULARY, Counts, Feed, create_topics
from tests.waiting import until
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import InvalidStateStoreError, QueryError, StopError, StreamsNotStartedError, UnknownStoreError
from tidemill.membership.wire import HostInfo, host_of
from tidemill.query.position import Position
from tidemill.runtime.instance.application import KafkaStreams, State
from tidemill.topology.values import ValueAndTimestamp

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

APPLICATION = "reads"
STORE = "counts-store"
SESSION_TIMEOUT_MS = 15_000
SETTINGS: dict[str, object] = {
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 500,
    "tidemill.test.short.intervals": True,
    "probing.rebalance.interval.ms": 3_000,
    "num.standby.replicas": 1,
    "tidemill.http.listen": "127.0.0.1:0",
    "tidemill.http.timeout.ms": 120_000,
}


def http_get(host: HostInfo, target: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(host.host, host.port, timeout=150)
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def entries(host: HostInfo) -> dict[str, int]:
    """All rows of the store, wherever they are."""
    status, found = http_get(host, f"/stores/{STORE}?limit=10000")
    assert status == 200, found
    return {entry["key"]: entry["value"] for entry in found["entries"]}


@dataclass
class Asking:
    """Asks one instance for words again and again, on a thread of its own, for nothing older than it has ``seen``. ``wrong``:
    what was no answer, or a count that fell or that was never sent."""

    host: HostInfo
    feed: Feed
    answered: int = 0
    wrong: list[object] = field(default_factory=list)
    latest: dict[str, int] = field(default_factory=dict)
    seen: Position = field(default_factory=Position)

    def __enter__(self) -> Asking:
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            for word in VOCABULARY[::7]:
                bound = f"?position={self.seen}" if self.seen.offsets else ""
                status, found = http_get(self.host, f"/stores/{STORE}/{word}{bound}")
                self.answered += 1
                if "position" in found:
                    self.seen = self.seen.merged(Position.parse(found["position"]))
                count = found.get("value", 0)
                if status not in (200, 404) or not self.latest.get(word, 0) <= count <= self.feed.expected[word]:
                    self.wrong.append((word, status, found, self.latest.get(word, 0)))
                self.latest[word] = count
                if self._ends.wait(0.02):
                    return


@dataclass
class Running:
    streams: KafkaStreams
    second: InstanceProcess
    feed: Feed
    counts: Counts

    @property
    def host(self) -> HostInfo:
        found = host_of(self.streams.application_server)
        assert found is not None
        return found

    def settle(self) -> dict[str, int]:
        """Everything that was sent is counted and committed."""
        self.feed.stop()
        expected = {word: count for word, count in self.feed.expected.items() if count}
        assert self.counts.reach(sum(expected.values())), self.second.log_end() if self.second.log_file.exists() else "-"
        return expected

    def shared(self) -> bool:
        look = self.second.look()
        return look["state"] == "RUNNING" and any(task.startswith("1_") for task in look["tasks"]) and self.has_stores()

    def answers(self, expected: dict[str, int]) -> bool:
        """False while it says that a task which it was assigned can't be read yet; an answer leaves nothing out."""
        try:
            found = dict(self.streams.store(STORE).all())
        except InvalidStateStoreError:
            return False
        assert found == expected
        return True

    def has_stores(self) -> bool:
        held = [task for thread in self.streams.threads for task in thread.tasks if task.subtopology == 1]
        return self.streams.state is State.RUNNING and len(held) > 0


@pytest.fixture(scope="module")
def running(broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp(APPLICATION)
    create_topics(broker.bootstrap_servers, APPLICATION)
    config = {
        "application.id": APPLICATION, "bootstrap.servers": broker.bootstrap_servers, "state.dir": str(folder / "one"), **SETTINGS
    }  # fmt: skip
    streams = KafkaStreams(wordcount(f"{APPLICATION}-input", f"{APPLICATION}-output"), config, session=spark)
    second = InstanceProcess(folder / "two", broker.bootstrap_servers, APPLICATION, settings=SETTINGS)
    counts = Counts(broker.bootstrap_servers, APPLICATION)
    with pytest.raises(StreamsNotStartedError, match="CREATED: start it"):
        streams.store(STORE)
    try:
        streams.start()
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING, streams.error
        yield Running(streams, second, Feed(broker.bootstrap_servers, APPLICATION, seed=5), counts)
    finally:
        streams.close()
        second.end()
        counts.close()


def test_while_batches_run_counts_are_read_that_only_rise_and_were_committed(running: Running) -> None:
    streams, feed = running.streams, running.feed
    feed.send(50)
    feed.start()
    view = streams.store(STORE)
    seen: dict[str, int] = {}
    rises = 0
    deadline = time.monotonic() + LIMIT_S
    while rises < 1000 and time.monotonic() < deadline:
        found = {**dict(view.all()), VOCABULARY[0]: view.get(VOCABULARY[0]) or 0}
        assert all(seen.get(word, 0) <= count <= feed.expected[word] for word, count in found.items())
        rises += sum(seen.get(word, 0) < count for word, count in found.items())
        seen = found
        time.sleep(0.02)
    expected = running.settle()
    assert rises >= 1000
    assert until(lambda: dict(view.all()) == expected), "stores follow the broker's commit"
    assert {word: view.get(word) for word in expected} == expected
    assert view.approximate_num_entries == len(expected)
    assert [key for key, _ in view.range("word1", "word2")] == sorted(word for word in expected if "word1" <= word <= "word2")
    timestamped = view.timestamped.get(VOCABULARY[0])
    assert isinstance(timestamped, ValueAndTimestamp)
    assert abs(timestamped.timestamp_ms / 1e3 - time.time()) < 600


def test_what_is_asked_wrongly_is_said_and_the_instance_goes_on(running: Running) -> None:
    streams = running.streams
    with pytest.raises(UnknownStoreError, match="no store 'counts'; the topology's stores are counts-store"):
        streams.store("counts")
    with pytest.raises(UnknownStoreError):
        streams.query_metadata_for_key("counts", "word1")
    with pytest.raises(QueryError, match="there is no 99"):
        streams.store(STORE, partition=99)
    with pytest.raises(QueryError, match="string: can't write a value of type int"):
        streams.store(STORE).get(1)
    assert streams.store(STORE).get("a word that nobody has sent") is None
    garbage = ["/stores/counts/a", "/stores/counts-store?limit=x", "/%ff", "/stores/counts-store/x?keys=hex", "/" + "a" * 5000]
    for target in garbage:
        status, found = http_get(running.host, target)
        assert 400 <= status < 500
        assert found["error"]
    assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING


def test_one_instance_has_everything_and_is_at_the_end_of_its_changelogs(running: Running) -> None:
    streams = running.streams
    (client,) = streams.metadata_for_all_streams_clients()
    assert (str(client.host), client.state_store_names) == (streams.application_server, (STORE,))
    assert streams.query_metadata_for_key(STORE, "word1").active_host == running.host

    def lags() -> dict[int, int]:
        return {partition: lag.offset_lag for partition, lag in streams.all_local_store_partition_lags()[STORE].items()}

    assert until(lambda: lags() == {0: 0, 1: 0, 2: 0}), lags()
    assert entries(running.host) == dict(streams.store(STORE).all())


@pytest.mark.fault
def test_workers_that_are_killed_cost_no_read(running: Running) -> None:
    """The batch is lost and run again; until then the stores are at the batch before, which was committed."""
    streams, view = running.streams, running.streams.store(STORE)
    seen: dict[str, int] = {}
    running.feed.start()
    with Asking(running.host, running.feed) as asking:
        for _ in range(2):
            killed = _workers(streams)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + LIMIT_S
            risen = set()
            while (len(risen) < 20 or killed & _workers(streams)) and time.monotonic() < deadline:
                for word in VOCABULARY[:20]:
                    count = view.get(word) or 0
                    assert seen.get(word, 0) <= count <= running.feed.expected[word]
                    if word in seen and seen[word] < count and not killed & _workers(streams):
                        risen.add(word)
                    seen[word] = count
                time.sleep(0.01)
            assert len(risen) == 20
    assert asking.wrong == []
    expected = running.settle()
    assert until(lambda: dict(view.all()) == expected)


def _workers(streams: KafkaStreams) -> set[int]:
    return {pid for thread in streams.threads if thread.engine is not None for pid in thread.engine.worker_pids.values()}


def test_a_second_instances_joining_costs_no_read_and_its_keys_are_asked_there(running: Running) -> None:
    streams, second = running.streams, running.second
    second.start()
    running.feed.start()
    with Asking(running.host, running.feed) as asking:
        assert until(running.shared, 240), second.log_end()
        already = asking.answered
        assert until(lambda: asking.answered > already + 40)
    assert asking.wrong == []
    expected = running.settle()
    there = host_of(second.look()["server"])
    assert there is not None
    assert until(lambda: {client.host for client in streams.metadata_for_all_streams_clients()} == {running.host, there})
    where = {word: streams.query_metadata_for_key(STORE, word) for word in expected}
    theirs = [word for word in expected if where[word].active_host != running.host]
    assert 0 < len(theirs) < len(expected)
    assert where[theirs[0]].active_host == there
    with pytest.raises(InvalidStateStoreError, match=f"it is not here; it is assigned to {there.host}:{there.port}") as refused:
        streams.store(STORE).get(theirs[0])
    assert refused.value.hosts[0] == str(there)
    for host in (running.host, there):
        assert until(lambda host=host: entries(host) == expected), "stores follow the broker's commit"
        for word in sorted(expected)[::20]:
            assert http_get(host, f"/stores/{STORE}/{quote(word)}")[1]["value"] == expected[word]


@contextmanager
def _open_transaction(servers: str, partition: int) -> Iterator[None]:
    """Records behind the end of the store's changelog, as an owner leaves them that is killed while it commits."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "killed-while-it-commits"})
    producer.init_transactions(LIMIT_S)
    producer.begin_transaction()
    producer.produce(f"{APPLICATION}-{STORE}-changelog", b"\0" * 8, b"kafka", partition)
    assert producer.flush(LIMIT_S) == 0
    try:
        yield
    finally:
        producer.abort_transaction(LIMIT_S)


def test_when_the_owner_is_killed_its_standby_answers_before_the_group_knows(running: Running, broker: EmbeddedBroker) -> None:
    streams, expected = running.streams, dict(running.feed.expected)
    assert until(lambda: set(streams.all_local_store_partition_lags().get(STORE, ())) == {0, 1, 2})
    assert until(lambda: all(lag.offset_lag == 0 for lag in streams.all_local_store_partition_lags()[STORE].values()))
    where = {word: streams.query_metadata_for_key(STORE, word) for word in expected}
    theirs = next(word for word, found in where.items() if found.active_host != running.host)
    assert where[theirs].standby_hosts == (running.host,)
    # A lag of 0 may be a second old.
    assert until(lambda: dict(streams.store(STORE, allow_stale=True).all()) == expected)
    assert streams.store(STORE, allow_stale=True).get(theirs) == expected[theirs]
    with _open_transaction(broker.bootstrap_servers, where[theirs].partition):
        running.second.kill_tree()
        began = time.monotonic()
        for bound in ("", "?max_staleness_ms=5000", "?max_staleness=0"):
            status, found = http_get(running.host, f"/stores/{STORE}/{theirs}{bound}")
            assert (status, found["value"]) == (200, expected[theirs])
        assert time.monotonic() - began < SESSION_TIMEOUT_MS / 1e3
        assert streams.query_metadata_for_key(STORE, theirs).active_host != running.host
    with Asking(running.host, running.feed) as asking:
        assert until(lambda: asking.answered > 60)
    assert asking.wrong == []
    assert until(lambda: streams.query_metadata_for_key(STORE, theirs).active_host == running.host)
    assert until(lambda: running.answers(expected))


def test_a_closed_instance_is_not_asked_any_more(running: Running) -> None:
    host = running.host
    view = running.streams.store(STORE)
    assert running.streams.close()
    for ask in (lambda: running.streams.store(STORE), lambda: view.get("word1")):
        with pytest.raises(StopError, match="NOT_RUNNING"):
            ask()
    with pytest.raises(ConnectionRefusedError):
        http_get(host, "/stores")

"""State that was lost or broken, and changelogs that lost records: seen, said, and made again from the changelog while the other
tasks go on.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import SparkSession

from tests.runtime.local_application import LIMIT_S, Place
from tests.runtime.restore_notes import ListenerNotes
from tests.waiting import until
from tidemill import Serdes, StreamsBuilder
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.ids import TopicPartition
from tidemill.kafka.admin.client import Admin, TopicSpec
from tidemill.runtime.instance.application import State
from tidemill.runtime.observe.restore_listeners import StandbyUpdateListener, StateRestoreListener
from tidemill.task.lifecycle import Phase
from tidemill.task.progress import SuspendReason

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.fault, pytest.mark.timeout(900)]

KEYS = 3_000
"""Of each partition."""
PAGE = 4096
PROBING_S = 2


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("lost-state"))


class Counted:
    """Counts of keys: what was sent, by partition, and the latest that came out."""

    def __init__(self, place: Place, partitions: int) -> None:
        place.create("in", "counts", partitions=partitions)
        self.builder = StreamsBuilder()
        records = self.builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
        records.group_by_key().count(store="counts").to_stream().to(place.topic("counts"))
        self.changelog = f"{place.name}-counts-changelog"
        self.expected: Counter[bytes] = Counter()
        self._place, self._latest = place, dict[bytes, int]()
        self._reader = place.reader("counts")

    def send(self, partition: int, keys: range) -> None:
        """Each key once more."""
        names = [f"{partition}-{number}".encode() for number in keys]
        self.expected.update(names)
        self._place.send("in", [(name, b"v") for name in names], partition=partition)

    def is_exact(self, but: frozenset[int] = frozenset()) -> bool:
        """Of all partitions but these."""
        for message in self._reader.consume(10_000, 0.2):
            if message.error() is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self._latest[key] = int.from_bytes(value, "big")
        skipped = tuple(f"{partition}-".encode() for partition in but)
        found, expected = (
            {key: count for key, count in each.items() if not key.startswith(skipped)}
            for each in (self._latest, self.expected)
        )
        return found == expected


def task_file(place: Place, partition: int) -> Path:
    return place.folder / place.name / place.name / f"0_{partition}" / "data.mdb"


def truncated(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def overwritten(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: 2 * PAGE] + b"\xff" * (len(content) - 2 * PAGE))


def of_another_version(file: Path) -> None:
    with lmdb.open(str(file.parent), max_dbs=10) as environment:
        meta = environment.open_db(b"meta", create=False)
        with environment.begin(db=meta, write=True) as transaction:
            transaction.put(b"version", b"77")


def removed(file: Path) -> None:
    shutil.rmtree(file.parent)


def of_another_task(file: Path) -> None:
    shutil.rmtree(file.parent)
    shutil.copytree(file.parent.with_name(f"0_{SOUND}"), file.parent)


DAMAGE = {0: removed, 1: truncated, 2: overwritten, 3: of_another_version, 4: of_another_task}
SOUND = 5


def test_state_that_was_lost_or_broken_is_made_again_from_the_changelog_while_other_tasks_commit(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    counted = Counted(place, partitions=6)
    for partition in range(6):
        counted.send(partition, range(KEYS))
    with place.running(counted.builder):
        assert until(counted.is_exact)
    for partition, damage in DAMAGE.items():
        damage(task_file(place, partition))
    inputs = TopicPartition(place.topic("in"), SOUND)
    positions: list[int] = []
    counted.send(SOUND, range(KEYS))
    # The sound task has more batches to do than the others need: whoever stands still for a while, it works while they do.
    shares = {"tidemill.restore.max.records": 500, "tidemill.batch.max.records": KEYS // 100}
    streams = place.application(counted.builder, **shares)

    def keep_position(call: str) -> None:
        if call == "on_batch_restored":
            positions.append(streams.threads[0].committed_positions.get(inputs, 0))

    notes = ListenerNotes(StateRestoreListener, keep_position)
    streams.set_state_restore_listener(notes)
    with caplog.at_level(logging.INFO, "tidemill"), streams:
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING, streams.error
    with place.running(counted.builder):
        assert until(counted.is_exact)
    started = notes.by_partition("on_restore_start", "starting_offset")
    assert {partition: started[partition] for partition in DAMAGE} == dict.fromkeys(DAMAGE, 0)
    assert notes.by_partition("on_restore_end", "total_restored") == {**dict.fromkeys(DAMAGE, KEYS), SOUND: 0}
    assert notes.told["on_restore_suspended"] == []
    assert len(set(positions)) > 3, "the sound task has committed while the others were restored"
    said = {line.split("task=")[1][:3] for line in caplog.messages if "event=state-note" in line and "wiped" in line}
    assert said == {"0_1", "0_2", "0_3", "0_4"}
    assert f"expected that of task 0_4 of application {place.name}" in caplog.text


def test_a_page_that_kills_whoever_reads_it_is_found_and_the_task_restored(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    keys, victim = 60_000, 59_999
    counted = Counted(place, partitions=1)
    counted.send(0, range(keys))
    with place.running(counted.builder):
        assert until(counted.is_exact)
    file = task_file(place, 0)
    content = file.read_bytes()
    pages = {at // PAGE for at in occurrences(content, f"0-{victim}".encode())}
    assert pages
    assert min(pages) > 1
    for page in pages:
        content = content[: page * PAGE] + b"\xff" * PAGE + content[(page + 1) * PAGE :]
    file.write_bytes(content)
    with caplog.at_level(logging.INFO, "tidemill"), place.running(counted.builder):
        counted.send(0, range(victim - 100, keys))
        assert until(counted.is_exact)
    assert [line for line in caplog.messages if "event=state-note task=0_0" in line and "is corrupt" in line]
    assert [line for line in caplog.messages if "event=restored task=0_0" in line and "from=0 " in line]


def occurrences(content: bytes, wanted: bytes) -> Iterator[int]:
    at = content.find(wanted)
    while at >= 0:
        yield at
        at = content.find(wanted, at + 1)


def test_changelogs_that_lost_records_are_told_of_and_do_not_keep_a_group_probing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """KAFKA-14302: a copy can't catch up with records that are gone, and must count as caught up all the same."""
    emptied, cut = 0, 1
    counted = Counted(place, partitions=3)
    for partition in range(3):
        counted.send(partition, range(KEYS))
    with place.running(counted.builder):
        assert until(counted.is_exact)
    admin = Admin({"bootstrap.servers": place.bootstrap_servers})
    logs = [TopicPartition(counted.changelog, partition) for partition in (emptied, cut)]
    as_if_retained(place, counted.changelog)
    ends = admin.end_offsets(logs)
    admin.delete_records({logs[0]: ends[logs[0]], logs[1]: ends[logs[1]] // 2})
    settings = {
        "acceptable.recovery.lag": 0,
        "max.warmup.replicas": 4,
        "probing.rebalance.interval.ms": PROBING_S * 1_000,
        "tidemill.test.short.intervals": True,
    }
    standbys = ListenerNotes(StandbyUpdateListener)
    old = place.application(counted.builder, **settings)
    new = place.application(counted.builder, **{**settings, "state.dir": str(place.folder / "new")})
    new.set_standby_update_listener(standbys)
    with caplog.at_level(logging.INFO, "tidemill"), old:
        assert old.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING, old.error
        with new:
            assert until(lambda: sum(task.phase is Phase.RUNNING for task in new.threads[0].tasks.values()) > 0)
            assert until(lambda: is_at_rest(caplog)), caplog.messages[-20:]
            ended = standbys.by_partition("on_update_suspended", "reason")
            moved = {partition for partition, reason in ended.items() if reason is SuspendReason.PROMOTED}
            assert moved
            for partition in range(3):
                counted.send(partition, range(10))
            # A store stands before the marker of its last transaction, so an emptied changelog lacks what the store lacks.
            lost = frozenset({emptied, *({cut} & moved)})
            assert until(lambda: counted.is_exact(but=lost)), "what nobody had to read again has been kept"
    said = {line.split("task=")[1][:3] for line in caplog.messages if "event=changelog-cut" in line}
    followed = standbys.by_partition("on_update_start", "starting_offset")
    assert said == {f"0_{partition}" for partition in (emptied, *followed) if partition in (emptied, cut)}
    assert [line for line in caplog.messages if "event=state-note task=0_0" in line and "not part of their changelogs" in line]


def as_if_retained(place: Place, topic: str) -> None:
    """A topic that is only compacted refuses that records be deleted."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET)
    )
    client = AdminClient({"bootstrap.servers": place.bootstrap_servers})
    for changed in client.incremental_alter_configs([resource]).values():
        changed.result(LIMIT_S)


def finished(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The leader's line of each rebalance; members learn of it later."""
    return [line for line in caplog.messages if "Finished " in line and "assignment of tasks" in line]


def is_at_rest(caplog: pytest.LogCaptureFixture) -> bool:
    """There is nothing to probe for: for three intervals nobody does. On a busy machine a thread may give up tasks late, and the
    rebalance for that come behind one that had settled all."""
    rounds = len(finished(caplog))
    time.sleep(3 * PROBING_S)
    return "Finished stable" in "".join(finished(caplog)[-1:]) and len(finished(caplog)) == rounds


def test_a_changelog_that_was_recreated_empties_the_stores_and_says_so(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted(place, partitions=1)
    counted.send(0, range(KEYS))
    with place.running(counted.builder):
        assert until(counted.is_exact)
    admin = Admin({"bootstrap.servers": place.bootstrap_servers})
    admin.delete_topics([counted.changelog])
    assert until(lambda: admin.partitions([counted.changelog])[counted.changelog] is None)
    admin.create_topics([TopicSpec(name=counted.changelog, partitions=1, configs={"cleanup.policy": "compact"})])
    producer = Producer({"bootstrap.servers": place.bootstrap_servers, "log_level": 0})
    for _ in range(2 * KEYS):  # so that only its id tells that it is another one: the stores' position is one of it
        producer.produce(counted.changelog, (7).to_bytes(8, "big"), b"0-restored")
    assert producer.flush(LIMIT_S) == 0
    counted.expected.clear()
    expected = {"0-restored": 7, **{f"0-{number}": 1 for number in range(5)}}
    with caplog.at_level(logging.INFO, "tidemill"), place.running(counted.builder) as streams:
        counted.send(0, range(5))
        view = streams.store("counts")
        assert until(lambda: dict(view.all()) == expected), dict(view.all())
    notes = [line for line in caplog.messages if "event=state-note task=0_0" in line]
    assert [note for note in notes if "was created again: its topic id is" in note]

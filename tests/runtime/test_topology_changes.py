"""A program that was changed: refused where it does not fit what is there, and right again after a reset."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import Place
from tests.waiting import until
from tidemill import Serdes, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows
from tidemill.config.slices import TopicsConfig
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.errors import TopologyMismatchError
from tidemill.kafka.admin.client import Admin
from tidemill.runtime.instance.application import KafkaStreams
from tidemill.runtime.reset import Target, carry_out, plan_reset

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

STRING, LONG = Serdes.string(), Serdes.long()


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("changes"))


def counting(place: Place, *, filters: int = 0, store: str | None = None) -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    for _ in range(filters):
        words = words.filter(lambda k, v: v != "")
    words.group_by(lambda k, v: v).count(store=store).to_stream().to(place.topic("out"), value=LONG)
    return builder


def is_counted(place: Place, expected: dict[bytes, int]) -> bool:
    """In as many steps as it likes."""
    counted: dict[bytes, int] = {}
    with contextlib.closing(place.reader("out")) as reader:

        def look() -> bool:
            for message in reader.consume(100, 0.2):
                if message.error() is None:
                    counted[message.key()] = int.from_bytes(message.value(), "big")
            return counted == expected

        return until(look)


def reset(place: Place, streams: KafkaStreams, *, with_earlier: bool = False) -> None:
    admin, groups = Admin({"bootstrap.servers": place.bootstrap_servers}), {"bootstrap_servers": place.bootstrap_servers}
    topics, state_dir = streams.config.slice(TopicsConfig), Path(streams.config.state_dir)
    plan = plan_reset(streams.topology, topics, admin, groups, Target(), state_dir=state_dir, with_earlier=with_earlier)
    carry_out(plan, admin, groups)


def test_a_changed_program_is_refused_until_it_is_reset_and_counts_from_the_beginning_then(place: Place) -> None:
    place.create("in", "out", partitions=2)
    place.send("in", [(None, b"a"), (None, b"b"), (None, b"a")])
    with place.running(counting(place)):
        assert is_counted(place, {b"a": 2, b"b": 1})
    changed = place.application(counting(place, filters=1))
    with pytest.raises(TopologyMismatchError, match=r"generated names have moved.*tidemill reset .* --earlier-topics"):
        changed.start()
    reset(place, changed, with_earlier=True)
    with place.running(counting(place, filters=1)):
        place.send("in", [(None, b"a")], partition=1)
        assert is_counted(place, {b"a": 3, b"b": 1})


def test_a_store_of_another_kind_under_its_name_is_refused_with_both(place: Place) -> None:
    place.create("in", "out")
    place.send("in", [(None, b"a")])
    with place.running(counting(place, store="kept")):
        assert is_counted(place, {b"a": 1})
    builder = StreamsBuilder()
    words = builder.stream(place.topic("in"), key=STRING, value=STRING)
    words.group_by(lambda k, v: v).reduce(lambda old, new: new, store="kept").to_stream().to(place.topic("out"), value=STRING)
    refused = place.application(builder)
    with pytest.raises(TopologyMismatchError, match=r"kept is kept as \(.*value=long\) and is to be \(.*value=string\)"):
        refused.start()
    reset(place, refused)
    with place.running(builder):
        assert until(lambda: b"a" in {m.value() for m in place.received("out", 2)})


def test_windows_go_on_from_what_they_have_counted_when_their_retention_changes(place: Place) -> None:
    """Rows are found by their segment, whose length comes from the retention; those of a session, too."""
    place.create("in", "out", "sessions")

    def counting_windows(grace_ms: int) -> StreamsBuilder:
        builder = StreamsBuilder()
        records = builder.stream(place.topic("in"), key=STRING, value=STRING).group_by_key()
        minutes = records.windowed_by(TimeWindows.of_size(60_000, grace=grace_ms)).count(store="minutes")
        minutes.to_stream().select_key(lambda k, _: k.key).to(place.topic("out"), key=STRING, value=LONG)
        sessions = records.windowed_by(SessionWindows.of_inactivity_gap(60_000, grace=grace_ms)).count(store="sessions")
        grown = sessions.to_stream().filter(lambda _, count: count.isNotNull())  # the session that it was before is deleted
        grown.select_key(lambda k, _: k.key).to(place.topic("sessions"), key=STRING, value=LONG)
        return builder

    for ran, grace_ms in enumerate((0, 3_600_000, 86_400_000, 0), 1):
        with place.running(counting_windows(grace_ms)):
            place.send("in", [(b"a", b"x")], timestamp_ms=1_700_000_000_000 // 60_000 * 60_000 + ran)
            for topic in ("out", "sessions"):
                counts = [int.from_bytes(m.value(), "big") for m in place.received(topic, ran)]
                assert counts == list(range(1, ran + 1)), topic


def test_windows_do_not_go_on_from_the_counts_of_others(place: Place) -> None:
    """A store in which a row is found by its time says nothing of the windows that it was made for."""
    place.create("in", "out")

    def counting_in(windows: TimeWindows | SlidingWindows, store: str = "counts") -> StreamsBuilder:
        builder = StreamsBuilder()
        records = builder.stream(place.topic("in"), key=STRING, value=STRING).group_by_key()
        counts = records.windowed_by(windows).count(store=store).to_stream()
        counts.select_key(lambda k, _: k.key).to(place.topic("out"), key=STRING, value=LONG)
        return builder

    begins = 1_700_000_000_000 // 60_000 * 60_000
    with place.running(counting_in(TimeWindows.of_size(60_000))):
        place.send("in", [(b"a", b"x")], timestamp_ms=begins)
        assert len(place.received("out", 1)) == 1
    sliding = SlidingWindows.of_time_difference(60_000)
    for others in (sliding, TimeWindows.of_size(120_000), TimeWindows.of_size(60_000, advance=30_000)):
        with pytest.raises(TopologyMismatchError, match=r"counts is kept as \(.*windows_ms=60000/60000\) and is to be \("):
            place.application(counting_in(others)).start()
    with place.running(counting_in(sliding, store="sliding")):
        place.send("in", [(b"a", b"x")], timestamp_ms=begins)
        assert len(place.received("out", 2)) == 2
    with place.running(counting_in(TimeWindows.of_size(60_000, grace=60_000))):
        place.send("in", [(b"a", b"x")], timestamp_ms=begins)
        assert int.from_bytes(place.received("out", 3)[-1].value(), "big") == 2


def test_a_table_that_had_its_source_topic_as_changelog_gets_no_old_rows_back(place: Place) -> None:
    """Its own changelog, of the time before, has a row that was deleted since."""
    place.create("in", "out")

    def table() -> StreamsBuilder:
        builder = StreamsBuilder()
        builder.table(place.topic("in"), key=STRING, value=STRING, store="rows").to_stream().to(place.topic("out"))
        return builder

    optimized = {"topology.optimization": "all"}
    with place.running(table()):
        place.send("in", [(b"a", b"x"), (b"b", b"x")])
        assert len(place.received("out", 2)) == 2
    with place.running(table(), **optimized):
        place.send("in", [(b"b", None)])
        assert len(place.received("out", 3)) == 3
    with place.running(table()) as refused:
        assert until(lambda: refused.error is not None)
        assert "had the source topic" in str(refused.error)
    with place.running(table(), **optimized) as streams:
        assert until(lambda: dict(streams.store("rows").all()) == {"a": "x"})

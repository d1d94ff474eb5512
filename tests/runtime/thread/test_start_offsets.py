"""Where tasks begin without a committed offset, or with one that is gone: by the source's policy, else by the application's."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import pytest

from tidemill import Serdes, StreamsBuilder
from tidemill.config.values import OffsetReset, OffsetResetByDuration, offset_reset
from tidemill.errors import RetriableError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.group.metadata import OffsetAndMetadata
from tidemill.runtime.thread.start_offsets import StartOffsets
from tidemill.runtime.thread.task_topology import task_topology
from tidemill.task.lifecycle import ActiveTask, Bounds
from tidemill.task.partition_time import PartitionTime, metadata_of
from tidemill.task.standby import StandbyBounds, StandbyTask

STRING = Serdes.string()
HOUR_MS = 3_600_000


class Brokers:
    """A group and an admin client: partitions hold offsets 10 to 90, and 40 is the first of the last hour."""

    def __init__(self, committed: dict[TopicPartition, int]) -> None:
        self.offsets, self.made_known = committed, dict[TopicPartition, int]()
        self.asked_times: list[int] = []
        self.metadata = metadata_of(PartitionTime(1_000))

    def committed(self, partitions: Collection[TopicPartition], **_options: Any) -> dict[TopicPartition, Any]:
        return {tp: OffsetAndMetadata(self.offsets[tp], self.metadata) for tp in partitions if tp in self.offsets}

    def commit(self, offsets: dict[TopicPartition, Any]) -> None:
        assert offsets, "a request for nothing"
        self.made_known = {tp: at.offset for tp, at in offsets.items()}
        assert {at.metadata for at in offsets.values()} <= {self.metadata}, "the partition's time goes on"

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 90)

    def partitions(self, topics: Collection[str]) -> dict[str, int | None]:
        return dict.fromkeys(topics, 1)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {topic: f"id of {topic}" for topic in topics}

    def offsets_at(self, partitions: Collection[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        self.asked_times.append(timestamp_ms)
        return {tp: 40 for tp in partitions if tp.topic != "quiet"}


class WithoutChangelog(Brokers):
    """The admin client gives up on the ends of a topic that was deleted; ``there``: the brokers still have it."""

    def __init__(self, *, there: bool) -> None:
        super().__init__({at("words"): 20})
        self.there = there

    def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        raise RetriableError("fetching the end offsets: not done after 30 s")

    def describe_topics(self, topics: Collection[str]) -> dict[str, tuple[object, ...] | None]:
        return {topic: (object(),) if self.there else None for topic in topics}


@pytest.mark.parametrize("there", [False, True])
def test_a_changelog_that_is_missing_is_waited_for_no_longer_than_brokers_that_do_not_answer(there: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("words", key=STRING, value=STRING).group_by_key().count(store="counts")
    brokers: Any = WithoutChangelog(there=there)
    offsets = StartOffsets(task_topology(builder.build(), "app"), OffsetReset.EARLIEST, brokers, brokers, lambda: None)
    task: Any = ActiveTask(
        task=TaskId(0, 0), directory="", epoch="", inputs=(at("words"),), changelogs={"counts": at("app-counts-changelog")}
    )
    expected: tuple[type[Exception], str] = (StopError, r"app-counts-changelog is missing.* another version of .* was deleted")
    expected = (RetriableError, "not done after 30 s") if there else expected
    with pytest.raises(expected[0], match=expected[1]):
        offsets.bounds({TaskId(0, 0): task})


class WithoutInput(Brokers):
    """The input was created again with fewer partitions, or deleted; the admin client would ask for its offsets for 30 s."""

    def __init__(self, count: int | None) -> None:
        super().__init__({})
        self.count = count

    def partitions(self, topics: Collection[str]) -> dict[str, int | None]:
        return dict.fromkeys(topics, self.count)

    def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        raise AssertionError(f"asked for {partitions}")


@pytest.mark.parametrize(("count", "said"), [(0, "words-0 is not there: its topic has 0 partitions"), (None, "was deleted")])
def test_a_partition_that_is_gone_holds_up_no_assignment_without_it(count: int | None, said: str) -> None:
    with pytest.raises(RetriableError, match=said):
        starts(WithoutInput(count), "earliest", words=None)


def at(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def starts(brokers: Brokers, default: str, **policies: str | None) -> dict[str, int]:
    return {tp.topic: offset for tp, offset in bounds(brokers, default, **policies).inputs.items()}


def bounds(brokers: Brokers, default: str, **policies: str | None) -> Bounds:
    builder = StreamsBuilder()
    for topic, policy in policies.items():
        builder.stream(topic, key=STRING, value=STRING, offset_reset=policy).to("out")
    offsets: Any = StartOffsets(
        task_topology(builder.build(), "app"), offset_reset(default), brokers, brokers, lambda: None  # type: ignore[arg-type]
    )
    inputs = tuple(at(topic) for topic in policies)
    tasks = {TaskId(0, 0): ActiveTask(task=TaskId(0, 0), directory="", epoch="", inputs=inputs, changelogs={})}
    found: Bounds = offsets.bounds(tasks)[TaskId(0, 0)]
    return found


def test_each_source_begins_where_its_own_policy_says_and_the_others_where_the_applications_does() -> None:
    brokers = Brokers({at("known"): 55})
    hour = "by_duration:PT1H"
    found = starts(brokers, "latest", known="none", a="earliest", b="latest", c=None, d=hour, quiet=hour)
    assert found == {"known": 55, "a": 10, "b": 90, "c": 90, "d": 40, "quiet": 90}
    (asked,) = brokers.asked_times
    assert abs(time.time() * 1000 - HOUR_MS - asked) < 60_000


@pytest.mark.parametrize(("default", "own"), [("none", None), ("earliest", "none")])
def test_with_none_a_partition_without_a_committed_offset_stops_by_name(default: str, own: str | None) -> None:
    with pytest.raises(StopError, match=r"a-0 has no committed offset and auto\.offset\.reset is none: commit one"):
        starts(Brokers({}), default, a=own)


class HeldBack(Brokers):
    """An open transaction of the thread's own producer holds the committed offsets back."""

    is_fenced = False

    def committed(self, partitions: Collection[TopicPartition], **options: Any) -> dict[TopicPartition, Any]:
        if not self.is_fenced:
            raise RetriableError("the offsets are not stable")
        return super().committed(partitions, **options)

    def fence(self) -> None:
        self.is_fenced = True


def test_offsets_that_an_own_transaction_holds_back_are_read_when_it_was_fenced() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key=STRING, value=STRING).to("out")
    brokers: Any = HeldBack({at("a"): 55})
    offsets = StartOffsets(task_topology(builder.build(), "app"), OffsetReset.EARLIEST, brokers, brokers, brokers.fence)
    task = ActiveTask(task=TaskId(0, 0), directory="", epoch="", inputs=(at("a"),), changelogs={})
    assert offsets.bounds({task.task: task})[task.task].inputs == {at("a"): 55}


def test_partition_times_come_with_the_committed_offsets() -> None:
    assert bounds(Brokers({at("a"): 55}), "earliest", a=None, b=None).times == {at("a"): PartitionTime(1_000)}


def test_what_somebody_else_has_committed_with_an_offset_is_said_and_means_unknown(caplog: pytest.LogCaptureFixture) -> None:
    brokers = Brokers({at("a"): 55})
    brokers.metadata = "mirrored"
    assert bounds(brokers, "earliest", a=None).times == {at("a"): PartitionTime()}
    assert "event=partition-time-unreadable partition=a-0 metadata=mirrored" in caplog.text


def offsets_of(brokers: Brokers, policy: str) -> Any:
    builder = StreamsBuilder()
    builder.stream("a", key=STRING, value=STRING, offset_reset=policy).to("out")
    anything: Any = brokers
    return StartOffsets(task_topology(builder.build(), "app"), OffsetReset.EARLIEST, anything, anything, lambda: None)


@pytest.mark.parametrize(
    ("committed", "position", "policy", "said"),
    [
        (5, 5, "latest", "from=5 to=90 lost=85 policy=latest"),
        (5, 5, "earliest", "from=5 to=10 lost=5 policy=earliest"),
        (5, 5, "by_duration:PT1H", "from=5 to=40 lost=35 policy=by_duration:PT3600S"),
        (5, 8, "earliest", "from=8 to=10 lost=2 policy=earliest"),
        (5, 30, "earliest", "from=30 to=10 lost=0 policy=earliest"),
        (None, 7, "earliest", "from=7 to=10 lost=3 policy=earliest"),
        (400, 400, "earliest", "from=400 to=10 lost=unknown policy=earliest"),
    ],
    ids=["end", "begin", "duration", "ahead of its commit", "processed", "never committed", "created again"],
)
def test_an_offset_that_is_gone_is_replaced_by_the_policy_and_committed_and_what_is_lost_is_said(
    committed: int | None, position: int, policy: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers({} if committed is None else {at("a"): committed})
    brokers.metadata = "" if committed is None else brokers.metadata
    offsets_of(brokers, policy).reset({at("a"): position}, {})
    assert brokers.made_known == {at("a"): int(said.split()[1].removeprefix("to="))}
    assert f"event=offset-out-of-range partition=a-0 {said}" in caplog.text


@pytest.mark.parametrize("committed", [10, 20, 90], ids=["at its begin", "within", "at its end"])
def test_what_a_consumer_says_of_a_position_that_it_has_left_resets_nothing(
    committed: int, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers({at("a"): committed})
    offsets_of(brokers, "none").reset({at("a"): 5}, {})
    assert (brokers.made_known, caplog.text) == ({}, "")


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize("committed", [60, 400], ids=["grown again", "beyond its end"])
def test_a_truncated_topic_is_read_on_from_where_it_was_truncated_whatever_the_policy(
    policy: str, committed: int, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers({at("a"): committed})
    offsets_of(brokers, policy).reset({at("a"): committed}, {at("a"): 30})
    assert brokers.made_known == {at("a"): 30}
    assert f"event=log-truncated partition=a-0 from={committed} to=30 " in caplog.text
    assert "offset-out-of-range" not in caplog.text


def test_what_was_committed_before_the_place_where_a_topic_was_truncated_stays() -> None:
    brokers = Brokers({at("a"): 20})
    offsets_of(brokers, "earliest").reset({at("a"): 60}, {at("a"): 30})
    assert brokers.made_known == {}


def test_where_it_is_not_known_where_a_topic_was_truncated_the_policy_decides() -> None:
    brokers = Brokers({at("a"): 60})
    offsets_of(brokers, "earliest").reset({at("a"): 60}, {at("a"): -1})
    assert brokers.made_known == {at("a"): 10}


def test_with_none_a_truncated_topic_stops() -> None:
    brokers = Brokers({at("a"): 60})
    with pytest.raises(StopError, match=r"a-0: the committed offset is out of range: 60 is to be read next.*10 to 30\."):
        offsets_of(brokers, "none").reset({at("a"): 60}, {at("a"): 30})
    assert brokers.made_known == {}


def test_with_none_a_committed_offset_that_is_gone_stops() -> None:
    brokers = Brokers({at("a"): 5})
    with pytest.raises(StopError, match=r"a-0: the committed offset is out of range: 5 is to be read next.*10 to 90\.") as caught:
        offsets_of(brokers, "none").reset({at("a"): 5}, {})
    assert "or set auto.offset.reset to another value than none" in str(caught.value)
    assert brokers.made_known == {}


@pytest.mark.parametrize(
    ("committed", "said"),
    [
        (5, "the committed offset is out of range: 5 is to be read next.* or reset the application to compute its results again"),
        (
            None,
            "the position is out of range: 5 is to be read next.* no committed offset.* deleted and created again, .* Start "
            "again to go on without them from where the topic begins, or reset the application",
        ),
    ],
    ids=["committed", "its commits went with the topic"],
)
def test_records_of_a_repartition_topic_that_are_gone_stop_whatever_the_policy(committed: int | None, said: str) -> None:
    builder = StreamsBuilder()
    words = builder.stream("words", key=STRING, value=STRING)
    words.group_by(lambda key, value: value).count(store="counts")
    partition = at("app-counts-repartition")
    brokers: Any = Brokers({} if committed is None else {partition: committed})
    offsets = StartOffsets(task_topology(builder.build(), "app"), OffsetReset.EARLIEST, brokers, brokers, lambda: None)
    with pytest.raises(StopError, match=said):
        offsets.reset({partition: 5}, {})
    assert brokers.made_known == {}


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("PT1H", HOUR_MS), ("P1DT2H", 26 * HOUR_MS), ("PT0.5S", 500), ("P7D", 168 * HOUR_MS), ("PT90M", 90 * 60_000)],
)
def test_durations_are_iso_8601s(text: str, duration_ms: int) -> None:
    assert offset_reset(f"by_duration:{text}") == OffsetResetByDuration(duration_ms)


@pytest.mark.parametrize("text", ["by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1h", "first", ""])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="earliest, latest, none, or by_duration:"):
        offset_reset(text)


def source_changelog_bounds(committed: dict[TopicPartition, int], policy: str = "earliest") -> tuple[Bounds, StandbyBounds]:
    """Of an active task and of a standby whose table's source topic is its changelog."""
    builder = StreamsBuilder()
    builder.table("rows", key=STRING, value=STRING, store="rows")
    anything: Any = Brokers(committed)
    topology = task_topology(builder.build(optimization="all"), "app")
    offsets = StartOffsets(topology, offset_reset(policy), anything, anything, lambda: None)
    what: Any = {"task": TaskId(0, 0), "directory": "d", "epoch": "e", "changelogs": {"rows": at("rows")}}
    active, copy = ActiveTask(inputs=(at("rows"),), **what), StandbyTask(**what)
    return offsets.bounds({active.task: active})[active.task], offsets.standby_bounds({copy.task: copy})[copy.task]


@pytest.mark.parametrize(
    ("committed", "policy", "end", "start"),
    [
        ({at("rows"): 55}, "earliest", 55, 55),
        ({}, "earliest", 0, 10),
        ({}, "latest", 0, 90),
        ({at("rows"): 5}, "earliest", 5, 5),
        ({at("rows"): 400}, "earliest", 90, 400),
    ],
    ids=["committed", "not committed", "not committed, from the end", "committed before its begin", "created again, shorter"],
)
def test_a_source_topic_that_serves_as_changelog_ends_where_the_group_has_committed(
    committed: dict[TopicPartition, int], policy: str, end: int, start: int
) -> None:
    active, copy = source_changelog_bounds(committed, policy)
    rows = at("rows")
    assert (active.inputs, active.changelog_ends, active.limits) == ({rows: start}, {rows: end}, {rows: end})
    assert (copy.ends, copy.limits) == ({rows: 90}, {rows: end})
    assert active.topic_ids == copy.topic_ids == {"rows": "id of rows"}

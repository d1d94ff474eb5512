"""Which partition each kind of sink chooses, as Kafka Streams chooses it, through the steps of a worker and their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.step_harness import StepRun
from tidemill import (
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TableJoined,
    TimeWindows,
    TopologyBuilder,
    WindowedSerdes,
    per_record,
)
from tidemill.topology.partitioning import partition_of_key
from tidemill.topology.windows import Windowed

STRING, LONG = Serdes.string(), Serdes.long()
PARTITIONS = 5
SUBSCRIPTIONS, RESPONSES = (f"app-fk-subscription-{what}-topic" for what in ("registration", "response"))


def sent(topic: str, *keys: str, value: bytes | None = b"v") -> list[tuple[Any, ...]]:
    return [(topic, key.encode(), value, 1_000 * at, ()) for at, key in enumerate(keys)]


def placed(run: StepRun, topic: str) -> list[tuple[bytes | None, int | None]]:
    return [(key, to) for found, key, to in run.placed if found == topic]


# --- foreign-key joins ---


def joined_by_foreign_key(**given: Any) -> StepRun:
    builder = StreamsBuilder()
    orders, customers = (builder.table(name, key=STRING, value=STRING, store=name) for name in ("orders", "customers"))
    orders.join(
        customers, lambda order, customer: f"{order}/{customer}", foreign_key=lambda order: order.split("|")[0],
        joined=TableJoined(name="fk", **given),
    ).to_stream().to("out", key=STRING, value=STRING)
    return StepRun(builder.build(), partition=3, partitions=PARTITIONS)


def test_an_answer_goes_to_the_partition_that_its_subscription_came_from() -> None:
    run = joined_by_foreign_key()
    orders = [key for key in map(str, range(20)) if partition_of_key(key.encode(), PARTITIONS) != 3]
    run.pipe([*sent("customers", "ada", value=b"Ada"), *sent("orders", *orders, value=b"ada|1")])
    run.pipe(sent("customers", "ada", value=b"Lady Ada"))
    assert placed(run, SUBSCRIPTIONS) == [(b"ada", None)] * len(orders)  # the right table is looked up by the key's hash
    answers = placed(run, RESPONSES)
    assert len(answers) == 2 * len(orders)
    assert {to for _key, to in answers} == {3}
    assert {to for _key, to in placed(run, "out")} == {None}


def test_a_subscription_of_version_0_stays_one_and_its_answers_go_by_the_key() -> None:
    run = joined_by_foreign_key()
    old = b"\x00\x02" + bytes(16) + b"order"
    run.pipe(sent("customers", "ada", value=b"Ada"))
    run.pipe([(SUBSCRIPTIONS, b"ada", old, 5, ())])
    ((_topic, _key, value, *_),) = [row for row in run.logged if row[0].endswith("subscription-store-changelog")]
    assert value == old
    run.pipe(sent("customers", "ada", value=b"Lady Ada"))
    assert placed(run, RESPONSES) == [(b"order", None)] * 2


def test_the_partitioners_of_a_join_are_asked_for_keys_alone() -> None:
    asked: list[tuple[Any, ...]] = []

    def answers(topic: str, key: Any, value: Any, partitions: int) -> int:
        asked.append((topic, key, value, partitions))
        return 1

    def subscriptions(topic: str, key: Any, value: Any, partitions: int) -> int:
        asked.append((topic, key, value, partitions))
        return 2

    run = joined_by_foreign_key(partitioner=answers, other_partitioner=subscriptions)
    run.pipe([*sent("customers", "ada", value=b"Ada"), *sent("orders", "o1", value=b"ada|1")])
    assert placed(run, SUBSCRIPTIONS) == [(b"ada", 2)]
    assert placed(run, RESPONSES) == [(b"o1", 1)]
    assert asked == [(SUBSCRIPTIONS, "ada", None, PARTITIONS), (RESPONSES, "o1", None, PARTITIONS)]


@pytest.mark.parametrize("side", ["partitioner", "other_partitioner"])
@pytest.mark.parametrize("found", [set(), {0, 1}, [2, 3]])
def test_a_join_by_foreign_key_needs_one_partition(side: str, found: Any) -> None:
    """As in Kafka Streams: without it results would be missing, without an error."""
    run = joined_by_foreign_key(**{side: lambda topic, key, value, partitions: found})
    with pytest.raises(AssertionError, match="a join by foreign key needs one partition"):
        run.pipe([*sent("customers", "ada", value=b"Ada"), *sent("orders", "o1", value=b"ada|1")])
    one = joined_by_foreign_key(**{side: lambda topic, key, value, partitions: {4}})
    one.pipe([*sent("customers", "ada", value=b"Ada"), *sent("orders", "o1", value=b"ada|1")])
    assert placed(one, RESPONSES if side == "partitioner" else SUBSCRIPTIONS)[0][1] == 4


def test_an_answer_to_a_partition_that_is_not_there_stops_the_batch() -> None:
    run = joined_by_foreign_key()
    far = b"\x01\x02" + bytes(16) + b"order" + (9).to_bytes(4, "big")
    with pytest.raises(AssertionError) as caught:
        run.pipe([*sent("customers", "ada", value=b"Ada"), (SUBSCRIPTIONS, b"ada", far, 5, ())])
    said = str(caught.value)
    assert "came from partition 9 of the left table" in said
    assert f"{RESPONSES} has the partitions 0 to 4" in said
    assert f"something else has written to one of {SUBSCRIPTIONS}, customers, or to the subscriptions' changelog" in said
    assert "offset -1" not in said


# --- windowed keys ---


def counted(windows: Callable[[Any], Any], serde: Any = None) -> StepRun:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key(key=STRING, value=STRING)
    windows(grouped).count(store="counts").to_stream().to("out", key=serde, value=LONG)
    return StepRun(builder.build(), partitions=PARTITIONS)


WINDOWS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "time": (lambda grouped: grouped.windowed_by(TimeWindows.of_size(1_000, grace=0)), 8),
    "session": (lambda grouped: grouped.windowed_by(SessionWindows.of_inactivity_gap(10, grace=0)), 16),
}


@pytest.mark.parametrize("windows", WINDOWS)
def test_all_windows_of_a_key_go_to_the_partition_of_the_key(windows: str) -> None:
    made, width = WINDOWS[windows]
    run = counted(made)
    run.pipe(sent("in", *("abcdefgh" * 3)))
    found = placed(run, "out")
    assert len(found) >= 24
    assert all(key is not None and to == partition_of_key(key[:-width], PARTITIONS) for key, to in found)


def test_a_repartition_topic_has_windowed_keys_by_all_of_their_bytes() -> None:
    builder = StreamsBuilder()
    serde = WindowedSerdes.time_windowed_serde_from(STRING, 1_000)
    windowed = builder.stream("in", key=STRING, value=STRING).map(
        per_record(lambda k, v: (Windowed(k, 0, 1_000), v), (serde, STRING))
    )
    windowed.repartition(name="again", key=serde, value=STRING).to("out", key=serde, value=STRING)
    run = StepRun(builder.build(), partitions=PARTITIONS)
    run.pipe(sent("in", "a", "b"))
    assert [to for _key, to in placed(run, "app-again-repartition")] == [None, None]
    assert [to for _key, to in placed(run, "out")] == [partition_of_key(key, PARTITIONS) for key in (b"a", b"b")]


def test_a_sink_of_a_processor_topology_has_windowed_keys_by_all_of_their_bytes() -> None:
    serde = WindowedSerdes.time_windowed_serde_from(STRING, 1_000)
    builder = TopologyBuilder().add_source("source", "in", key=serde, value=STRING)
    builder.add_sink("sink", "out", "source", key=serde, value=STRING)
    run = StepRun(builder.build(), partitions=PARTITIONS)
    run.pipe([("in", serde.serialize(Windowed("a", 0, 1_000)), b"v", 0, ())])
    assert [to for _key, to in placed(run, "out")] == [None]


# --- a partitioner of the user's ---


def with_partitioner(partitioner: Callable[..., Any]) -> StepRun:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING).map_values(per_record(lambda value: value, STRING))
    stream.to("out", key=STRING, value=STRING, partitioner=partitioner)
    return StepRun(builder.build(), partitions=PARTITIONS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, [None]), (0, [0]), (4, [4]), ({3, 1}, [1, 3]), ([2, 2], [2]), (frozenset({0}), [0]), (range(5), [0, 1, 2, 3, 4])],
    ids=str,
)
def test_a_partitioner_names_no_partition_one_or_several(given: Any, expected: list[int | None]) -> None:
    run = with_partitioner(lambda topic, key, value, partitions: given)
    run.pipe(sent("in", "a", "b"))
    assert placed(run, "out") == [(key, to) for key in (b"a", b"b") for to in expected]
    assert run.dropped == 0


def test_a_record_that_the_partitioner_gives_an_empty_set_is_dropped_and_counted() -> None:
    run = with_partitioner(lambda topic, key, value, partitions: set() if key == "b" else {1})
    run.pipe(sent("in", "a", "b", "c"))
    assert placed(run, "out") == [(b"a", 1), (b"c", 1)]
    assert run.dropped == 1


@pytest.mark.parametrize("given", [-1, 5, True, "1", 1.0, {0, -1}, [7]], ids=str)
def test_a_partition_that_is_not_there_stops_the_batch_with_what_was_given(given: Any) -> None:
    run = with_partitioner(lambda topic, key, value, partitions: given)
    with pytest.raises(AssertionError, match=r"the partitioner gave .* for out, which has the partitions 0 to 4"):
        run.pipe(sent("in", "a"))


def test_a_changelog_has_its_tasks_partition() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key(key=STRING, value=STRING).count(store="counts")
    run = StepRun(builder.build(), partition=3, partitions=PARTITIONS)
    run.pipe(sent("in", "a", "b"))
    assert placed(run, "app-counts-changelog") == [(b"a", 3), (b"b", 3)]

"""What a leader keeps of the rebalances that it has led: moves, their reasons, who joined and left."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import ApplicationState, Assignment, AssignmentConfig, ClientAssignment, TaskAssignor
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.joined_group import Subscription
from tidemill.membership.leader import LeaderConfig, PreparedRebalance, complete, prepare
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import InternalTopicConfig, TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, encode_subscription
from tidemill.query.document_reader import read_document, to_plain
from tidemill.query.group_documents import LedDecisions, RebalanceDocument
from tidemill.runtime.group import rebalance_history
from tidemill.runtime.group.rebalance_history import KEPT, RebalanceHistory, rebalance_to_json

ONE, TWO = ProcessId(0x1111111111111111, 1), ProcessId(0x2222222222222222, 2)
CHANGELOG = "app-store-changelog"
FACTS = TopologyMetadata(
    subtopologies=(
        TopicsInfo(subtopology=0, source_topics=frozenset({"in"}), changelog_topics=frozenset({CHANGELOG})),
    ),
    internal_topics={CHANGELOG: InternalTopicConfig(name=CHANGELOG, is_repartition=False)},
)
TASKS = [TaskId(0, number) for number in range(4)]
END = 100_000


def joins(
    led: RebalanceHistory,
    *members: tuple[ProcessId, str, dict[TaskId, int], list[int]],
    at_ms: int,
    assignor: TaskAssignor = HighAvailabilityTaskAssignor(),  # noqa: B008  # it has no state
) -> None:
    """A rebalance of members: process, address, offset sums, partitions owned."""
    said = {
        f"member-{number}": Subscription(
            user_data=encode_subscription(
                SubscriptionInfo(process_id=process, task_offset_sums=sums, user_endpoint=host)
            ),
            owned_partitions=tuple(TopicPartition("in", partition) for partition in owned),
        )
        for number, (process, host, sums, owned) in enumerate(members)
    }
    config = LeaderConfig(
        leader_process_id=members[0][0],
        assignor=assignor,
        settings=AssignmentConfig(acceptable_recovery_lag=10, num_standby_replicas=0),
    )
    prepared = prepare(said, ClusterMetadata(partition_counts={"in": 4}), FACTS, config)
    assert isinstance(prepared, PreparedRebalance)
    ends = {TopicPartition(CHANGELOG, number): END for number in range(4)}
    led.add(prepared, complete(prepared, FetchedOffsets(end_offsets=ends), at_ms), at_ms, 5)


def group_that_grows() -> RebalanceHistory:
    led = RebalanceHistory()
    joins(led, (ONE, "one:1", {}, []), at_ms=1_000)
    running = dict.fromkeys(TASKS, -2)
    joins(led, (ONE, "one:1", running, [0, 1, 2, 3]), (TWO, "two:2", {}, []), at_ms=2_000)
    return led


def test_the_first_rebalance_takes_every_task_up_from_nobody() -> None:
    first = group_that_grows().to_json()[0]
    assert [(move["task"], move["from"], move["to"]) for move in first["moves"]] == [(str(t), None, "one:1") for t in TASKS]
    assert (first["joined"], first["left"], first["stable"]) == ([], [], True)


def test_what_is_told_of_rebalances_and_decisions_is_what_others_can_read() -> None:
    led = group_that_grows()
    documents = led.to_json()
    assert documents
    for told in documents:
        assert {**to_plain(read_document(RebalanceDocument, told)), "led_by": ""} == {**told, "led_by": ""}
    for task in (None, TASKS[0]):
        decisions = led.decisions(task)
        assert decisions is not None
        assert decisions["decisions"]
        assert to_plain(read_document(LedDecisions, decisions)) == decisions


def test_a_newcomer_is_named_and_its_warm_ups_have_the_assignors_own_reason() -> None:
    second = group_that_grows().to_json()[1]
    assert second["joined"] == ["two:2"]
    assert {(move["role"], move["to"]) for move in second["moves"]} == {("warm-up", "two:2")}
    assert len(second["moves"]) == 2  # max.warmup.replicas
    for move in second["moves"]:
        assert "is being warmed up on two:2" in move["reason"]
        assert "acceptable.recovery.lag = 10" in move["reason"]
    assert second["next_ms"] == 2_000 + 600_000


def test_one_that_leaves_is_named_by_the_address_it_had_and_a_copy_that_takes_over_is_told_apart() -> None:
    led = group_that_grows()
    warm = {TaskId.parse(move["task"]) for move in led.to_json()[1]["moves"]}
    joins(led, (TWO, "two:2", dict.fromkeys(warm, END), []), at_ms=3_000)
    last = led.to_json()[-1]
    assert last["left"] == ["one:1"]
    moved = {move["task"]: move["had_copy"] for move in last["moves"] if move["role"] == "active"}
    assert moved == {str(task): task in warm for task in TASKS}


def test_a_leader_that_is_new_takes_the_members_word_for_what_was_before() -> None:
    led = RebalanceHistory()
    joins(led, (ONE, "one:1", dict.fromkeys(TASKS, -2), [0, 1, 2, 3]), at_ms=1_000)
    assert led.to_json()[0]["moves"] == []


def test_the_last_thirty_are_reported_whoever_has_asked_before() -> None:
    led = RebalanceHistory()
    for number in range(40):
        joins(led, (ONE, "one:1", {}, []), *([(TWO, "two:2", {}, [])] if number % 2 else []), at_ms=1_000 + number)
    told = led.to_json()
    assert [one["at_ms"] for one in told] == [1_010 + number for number in range(30)]
    assert all(bool(one["joined"]) == bool(one["at_ms"] % 2) and one["moves"] for one in told)
    assert led.total == 40


def test_a_clock_that_was_set_back_hides_no_rebalance() -> None:
    led = RebalanceHistory()
    led.remember([{"at_ms": 9_000 + number} for number in range(KEPT)])
    for at_ms in (1_000, 1_001, 1_002):
        joins(led, (ONE, "one:1", {}, []), at_ms=at_ms)
    assert [one["at_ms"] for one in led.history()] == [*range(9_003, 9_000 + KEPT), 1_000, 1_001, 1_002]


def test_a_leader_adds_a_rebalance_while_the_history_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    led = RebalanceHistory()
    joins(led, (ONE, "one:1", {}, []), at_ms=1_000)
    waited: list[bool] = []

    def slow(*rebalance: Any) -> dict[str, object]:
        later = threading.Thread(target=joins, args=(led, (ONE, "one:1", {}, [])), kwargs={"at_ms": 2_000}, daemon=True)
        if led.total == 1:
            later.start()
            later.join(60)
            waited.append(later.is_alive())
        return rebalance_to_json(*rebalance)

    monkeypatch.setattr(rebalance_history, "rebalance_to_json", slow)
    assert [one["at_ms"] for one in led.history()] == [1_000]
    assert waited == [False]
    assert [one["at_ms"] for one in led.history()] == [1_000, 2_000]


def test_decisions_are_those_of_the_newest_rebalance_and_name_instances_by_address() -> None:
    found = group_that_grows().decisions(TASKS[0])
    assert found is not None
    assert found["at_ms"] == 2_000
    assert found["decisions"]
    for decision in found["decisions"]:
        assert decision["task"] == "0_0"
        assert decision["on"] in ("one:1", "two:2", None)
        assert "1111" not in decision["reason"]
    assert RebalanceHistory().decisions(None) is None


class AsksAgain:
    """Puts everything on one client and asks for another look."""

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms

    def assign(self, state: ApplicationState) -> Assignment:
        held = ClientAssignment(active=frozenset(state.tasks), followup_deadline_ms=self.deadline_ms)
        return Assignment(clients={state.clients[0].process_id: held}, followup_needed=False)


@pytest.mark.parametrize(("deadline_ms", "next_ms"), [(7_000, 7_000), (0, 1_000), (500, 1_000)])
def test_a_custom_assignors_own_deadline_is_reported_and_is_no_hand_over(deadline_ms: int, next_ms: int) -> None:
    led = RebalanceHistory()
    joins(led, (ONE, "one:1", {}, []), at_ms=1_000, assignor=AsksAgain(deadline_ms))
    (told,) = led.to_json()
    assert (told["next_ms"], told["hands_over"], told["stable"]) == (next_ms, False, False)

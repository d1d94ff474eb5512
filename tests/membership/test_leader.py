"""The leader's rules that recorded runs do not show: errors, versions, lost offsets, withheld tasks, its log."""

import struct
import sys
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.membership.two_subtopologies import CHANGELOG, FACTS
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import LONG_MAX, Assignment, AssignmentConfig, ClientAssignment
from tidemill.assignment.sticky.assignor import StickyTaskAssignor
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.membership.client_states import FetchedOffsets
from tidemill.membership.group_assignment import StreamsGroupAssignment
from tidemill.membership.joined_group import FUTURE_PROCESS, Subscription
from tidemill.membership.leader import LeaderConfig, PreparedRebalance, complete, prepare
from tidemill.membership.topic_plan import ClusterMetadata
from tidemill.membership.topology_metadata import TopicsInfo, TopologyMetadata
from tidemill.membership.wire import SubscriptionInfo, decode_assignment, encode_subscription
from tidemill.membership.wire.assignment import AssignorError

P1, P2, P3 = ProcessId(1, 0), ProcessId(2, 0), ProcessId(3, 0)
METADATA = ClusterMetadata(partition_counts={"in": 3})
CONFIG = LeaderConfig(
    leader_process_id=P1,
    assignor=HighAvailabilityTaskAssignor(),
    settings=AssignmentConfig(acceptable_recovery_lag=10, probing_rebalance_interval_ms=600_000),
)
ENDS = {TopicPartition(CHANGELOG, number): 1_000 for number in range(3)}
NOW = 1_700_000_000_000


def said(process, *, owned=(), sums=None, generation=-1, **info):
    data = encode_subscription(SubscriptionInfo(process_id=process, task_offset_sums=sums or {}, **info))
    return Subscription(user_data=data, owned_partitions=tuple(owned), generation=generation)


FETCHED = FetchedOffsets(end_offsets=ENDS)


def lead(members, *, offsets=FETCHED, config=CONFIG, facts=FACTS, metadata=METADATA):
    prepared = prepare(members, metadata, facts, config)
    assert isinstance(prepared, PreparedRebalance)
    return complete(prepared, offsets, NOW)


def running(process, answer, member, *, standby_offset=1_000):
    """What the member would say in the next rebalance, all being restored."""
    info = answer.members[member].info
    sums = {task: -2 for task in info.active_tasks if task.subtopology == 1}
    sums.update(dict.fromkeys(info.standby_tasks, standby_offset))
    return said(process, owned=answer.members[member].partitions, sums=sums)


def test_what_is_to_be_fetched_leaves_out_topics_made_just_now():
    prepared = prepare({"a": said(P1)}, METADATA, FACTS, CONFIG)
    assert prepared.changelog_partitions() == tuple(sorted(ENDS))
    assert prepared.changelog_partitions({CHANGELOG}) == ()
    assert prepared.partition_counts == {"in": 3, "r": 3, CHANGELOG: 3}
    answer = complete(prepared, FetchedOffsets(created_topics=frozenset({CHANGELOG})), NOW)
    assert set(answer.state.end_offset_sums.values()) == {0}


def test_a_source_topic_that_serves_as_changelog_ends_where_the_group_has_committed():
    facts = TopologyMetadata(
        subtopologies=(
            TopicsInfo(
                subtopology=0, source_topics=frozenset({"in"}), changelog_topics=frozenset({"in", CHANGELOG})
            ),
        )
    )
    prepared = prepare({"a": said(P1)}, METADATA, facts, CONFIG)
    assert prepared.source_changelog_partitions() == tuple(TopicPartition("in", number) for number in range(3))
    committed = {TopicPartition("in", 0): 5, TopicPartition("in", 1): LONG_MAX}
    answer = complete(prepared, FetchedOffsets(end_offsets=ENDS, committed_offsets=committed), NOW)
    assert answer.state.end_offset_sums == {TaskId(0, 0): 1_005, TaskId(0, 1): LONG_MAX, TaskId(0, 2): 1_000}


def test_without_offsets_the_previous_assignment_is_returned_and_asked_about_again():
    members = {
        "a": said(P1, owned=[TopicPartition("r", 2)], sums={TaskId(1, 2): -2}),
        "b": said(P2, owned=[TopicPartition("r", 0), TopicPartition("r", 1)], sums={TaskId(1, 0): -2, TaskId(1, 1): -2}),
    }
    answer = lead(members, offsets=None)
    active = {client: tasks.active for client, tasks in answer.assignment.clients.items()}
    assert TaskId(1, 2) in active[P1]
    assert {TaskId(1, 0), TaskId(1, 1)} <= active[P2]
    assert any(line.text.startswith("Failed to fetch end offsets for changelogs") for line in answer.log)
    assert answer.members["a"].info.next_rebalance_ms == NOW + 600_000
    assert answer.members["b"].info.next_rebalance_ms == LONG_MAX
    assert not answer.is_stable


def test_an_assignor_that_needs_no_lags_is_asked_even_without_offsets():
    config = replace(CONFIG, assignor=StickyTaskAssignor(), assignor_needs_lags=False)
    answer = lead({"a": said(P1)}, offsets=None, config=config)
    assert answer.is_stable
    assert not any("Failed to fetch" in line.text for line in answer.log)


def test_a_task_that_another_member_owns_is_withheld_and_asked_for_at_once():
    first = lead({"a": said(P1)})
    second = lead({"a": running(P1, first, "a"), "b": said(P2)})
    moved = second.assignment.clients[P2].active
    assert moved
    assert second.members["b"].partitions == ()
    assert second.members["b"].info.next_rebalance_ms == 0
    assert not second.is_stable
    for task in moved:
        text = f"Removing task {task} from b active assignment until it is safely revoked in followup rebalance"
        assert text in {line.text for line in second.log}
    third = lead({"a": running(P1, second, "a"), "b": running(P2, second, "b", standby_offset=1)})
    assert {*third.members["b"].info.active_tasks} == third.assignment.clients[P2].active


def test_a_stateless_task_is_never_kept_as_a_standby():
    owned = [TopicPartition("in", number) for number in range(3)]
    everywhere = {TaskId(0, number): 7 for number in range(3)}
    answer = lead({"a": said(P1, owned=owned), "b": said(P2, sums=everywhere)})
    withheld = [line.text for line in answer.log if line.text.startswith("Removing task 0_")]
    assert withheld
    assert answer.members["b"].info.standby_tasks == {}


def test_previous_tasks_are_the_owned_and_the_running_ones_and_state_of_the_others_makes_standbys():
    sums = {TaskId(1, 0): -2, TaskId(1, 1): 40, TaskId(1, 2): 50, TaskId(9, 9): 3}
    (client,) = lead({"a": said(P1, owned=[TopicPartition("r", 1), TopicPartition("in", 2)], sums=sums)}).state.clients
    assert client.previous_active == {TaskId(1, 0), TaskId(1, 1), TaskId(0, 2)}
    assert client.previous_standby == {TaskId(1, 2), TaskId(9, 9)}
    assert client.lags == {TaskId(1, 0): -2, TaskId(1, 1): 960, TaskId(1, 2): 950}


def test_a_disputed_task_is_given_to_no_one_until_its_claimants_have_let_go():
    owned = (TopicPartition("in", 0), TopicPartition("in", 1))
    disputed = {"a": said(P1, owned=owned, generation=3), "b": said(P2, owned=owned[:1], generation=3)}
    answer = lead(disputed)
    assert owned[0] not in {partition for told in answer.members.values() for partition in told.partitions}
    assert not answer.is_stable
    settled = lead({"a": said(P1, generation=4), "b": said(P2, generation=4)})
    assert owned[0] in {partition for told in settled.members.values() for partition in told.partitions}


def test_a_withheld_stateful_task_stays_a_standby_where_it_was_one_but_is_not_made_one_elsewhere():
    settings_ = AssignmentConfig(acceptable_recovery_lag=LONG_MAX)
    config = replace(CONFIG, settings=settings_)
    owned = [TopicPartition("r", number) for number in range(3)]
    sums = {TaskId(1, number): -2 for number in range(3)}
    had_copies = {"a": said(P1, owned=owned, sums=sums), "b": said(P2, sums={TaskId(1, 1): 400})}
    answer = lead(had_copies, config=config)
    assert TaskId(1, 1) in answer.assignment.clients[P2].active
    assert answer.members["b"].info.standby_tasks == {TaskId(1, 1): (TopicPartition("r", 1),)}
    line = "Adding removed stateful active task 1_1 as a standby for b before it is revoked in followup rebalance"
    assert line in {entry.text for entry in answer.log}
    without_copies = {**had_copies, "b": said(P2)}
    assert lead(without_copies, config=config).members["b"].info.standby_tasks == {}


def test_the_probing_deadline_goes_to_the_first_member_of_the_leaders_client_alone():
    first = lead({"a1": said(P2), "a2": said(P2)})
    members = {name: running(P2, first, name) for name in ("a1", "a2")}
    members |= {"l2": said(P1), "l1": said(P1)}
    second = lead(members)
    assert second.assignment.followup_needed
    stable = {**members, "l1": running(P1, second, "l1", standby_offset=1), "l2": running(P1, second, "l2", standby_offset=1)}
    stable |= {name: running(P2, second, name) for name in ("a1", "a2")}
    third = lead(stable)
    assert third.assignment.followup_needed
    assert {name: given.info.next_rebalance_ms for name, given in third.members.items()} == {
        "a1": LONG_MAX, "a2": LONG_MAX, "l1": NOW + 600_000, "l2": LONG_MAX,
    }  # fmt: skip
    assert (
        f"Requesting followup rebalance be scheduled by l1 for {NOW + 600_000} ms to probe for caught-up replica tasks."
        in {line.text for line in third.log}
    )
    assert third.log[-1].text == "Finished unstable assignment of tasks, a followup rebalance will be scheduled."


def test_a_stable_assignment_says_so():
    answer = lead({"a": said(P1)})
    assert answer.is_stable
    assert answer.log[-1].text == "Finished stable assignment of tasks, no followup rebalances required."


def test_the_log_names_every_client_and_its_tasks_as_the_article_shows_it():
    """The leader's line of 13:48:02.571 in the Japanese article, from a like assignment."""
    clients = {
        "bbb83e43-b1af-4b2d-a60a-94a7091684d0": (["0_0", "0_1", "0_2", "0_3"], ["1_0"]),
        "4b61083e-57d0-457d-951f-d06556c148ca": (["0_4", "1_0", "1_2", "1_4"], []),
        "7156cef1-307e-49c0-a5bb-0f11d26a4933": (["0_5", "1_1", "1_3", "1_5"], ["1_2"]),
    }

    class Fixed:
        def assign(self, _state):
            return Assignment(
                clients={
                    ProcessId.parse(name): ClientAssignment(
                        active=frozenset(map(TaskId.parse, active)), standby=frozenset(map(TaskId.parse, standby))
                    )
                    for name, (active, standby) in clients.items()
                },
                followup_needed=True,
            )

    leader = "7156cef1-307e-49c0-a5bb-0f11d26a4933"
    config = LeaderConfig(
        leader_process_id=ProcessId.parse(leader),
        assignor=Fixed(),
        settings=AssignmentConfig(probing_rebalance_interval_ms=60_000),
    )
    prepared = prepare(
        {name: said(ProcessId.of(UUID(name))) for name in clients},
        ClusterMetadata(partition_counts={"in": 6}),
        FACTS,
        config,
    )
    offsets = FetchedOffsets(created_topics=frozenset({CHANGELOG}))
    texts = [line.text for line in complete(prepared, offsets, 1_649_652_482_571).log]
    assert (
        "Assigned tasks [0_0, 0_1, 1_0, 0_2, 1_1, 0_3, 1_2, 0_4, 1_3, 0_5, 1_4, 1_5] including stateful "
        "[1_0, 1_1, 1_2, 1_3, 1_4, 1_5] to clients as: \n"
        "bbb83e43-b1af-4b2d-a60a-94a7091684d0=[activeTasks: ([0_0, 0_1, 0_2, 0_3]) standbyTasks: ([1_0])]\n"
        "4b61083e-57d0-457d-951f-d06556c148ca=[activeTasks: ([0_4, 1_0, 1_2, 1_4]) standbyTasks: ([])]\n"
        "7156cef1-307e-49c0-a5bb-0f11d26a4933=[activeTasks: ([0_5, 1_1, 1_3, 1_5]) standbyTasks: ([1_2])]."
    ) in texts
    assert (
        f"Requesting followup rebalance be scheduled by {leader} for 1649652542571 ms to probe for caught-up replica "
        "tasks."
    ) in texts


def test_missing_source_topics_are_told_to_every_member_as_error_1():
    future = Subscription(user_data=struct.pack(">ii", 12, 12))
    members = {"a": said(P1), "b": said(P2, version=8), "f": future}
    answer = prepare(members, ClusterMetadata(partition_counts={}), FACTS, CONFIG)
    assert isinstance(answer, StreamsGroupAssignment)
    assert {name: decode_assignment(given.user_data).error_code for name, given in answer.members.items()} == {
        "a": 1, "b": 1, "f": 1,
    }  # fmt: skip
    assert answer.refusal.code is AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
    assert "in (sub-topology 0)" in answer.refusal.reason


def test_a_shutdown_request_is_told_to_every_member_before_anything_else_is_looked_at():
    answer = prepare(
        {"a": said(P1), "b": said(P2, error_code=4)}, ClusterMetadata(partition_counts={}), FACTS, CONFIG
    )
    assert {given.info.error_code for given in answer.members.values()} == {AssignorError.SHUTDOWN_REQUESTED}


def test_topics_that_are_not_copartitioned_end_in_an_error_for_all():
    facts = TopologyMetadata(
        subtopologies=(TopicsInfo(subtopology=0, source_topics=frozenset({"in", "other"})),),
        copartition_groups=(frozenset({"in", "other"}),),
    )
    answer = prepare({"a": said(P1)}, ClusterMetadata(partition_counts={"in": 2, "other": 3}), facts, CONFIG)
    assert answer.members["a"].info.error_code == AssignorError.ASSIGNMENT_ERROR
    assert answer.refusal.is_thrown_by_kafka
    assert "in=2, other=3" in answer.refusal.reason


def test_a_member_that_can_not_be_read_is_the_only_one_to_get_an_error():
    claims = (TopicPartition("in", 0),)
    broken = {
        "b": Subscription(user_data=b"?", owned_partitions=claims, generation=7),
        "c": Subscription(user_data=b"", unreadable="these are no bytes of a subscription"),
    }
    answer, alone = lead({"a": said(P1), **broken}), lead({"a": said(P1)})
    assert answer.refusal is None
    assert answer.left_out == {"b", "c"}
    assert answer.members["a"] == alone.members["a"]
    for name in broken:
        assert decode_assignment(answer.members[name].user_data).error_code == AssignorError.ASSIGNMENT_ERROR
        assert answer.members[name].partitions == ()
    warned = [line.text for line in answer.log if line.level.name == "WARNING"]
    assert any("Member b is left out" in text for text in warned)
    assert any("no bytes of a subscription" in text for text in warned)


def test_a_group_of_which_nobody_can_be_read_is_answered_with_an_error_that_names_the_member():
    answer = prepare({"b": Subscription(user_data=b"?")}, METADATA, FACTS, CONFIG)
    assert {given.info.error_code for given in answer.members.values()} == {AssignorError.ASSIGNMENT_ERROR}
    assert "member b" in answer.refusal.reason


def test_an_end_offset_that_was_not_fetched_is_an_error_not_a_guess():
    answer = lead({"a": said(P1)}, offsets=FetchedOffsets())
    assert answer.refusal.code is AssignorError.ASSIGNMENT_ERROR
    assert f"{CHANGELOG}-0" in answer.refusal.reason


@pytest.mark.parametrize("version", range(3, 11))
def test_everybody_is_answered_in_the_lowest_version_of_the_group(version):
    answer = lead({"a": said(P1, version=version), "b": said(P2)})
    for given_ in answer.members.values():
        info = decode_assignment(given_.user_data)
        assert (info.version, info.commonly_supported_version) == (version, 11)


def test_a_future_member_keeps_its_tasks_and_the_group_is_asked_again():
    owned = (TopicPartition("in", 0), TopicPartition("r", 1))
    future = Subscription(user_data=struct.pack(">ii", 12, 13), owned_partitions=owned)
    answer = lead({"a": said(P1), "f": future})
    assert answer.assignment.clients[FUTURE_PROCESS].active
    info = decode_assignment(answer.members["f"].user_data)
    assert (info.version, info.commonly_supported_version) == (11, 11)
    assert "(version: 12)" in answer.log[0].text
    nothing_withheld = lead({"a": said(P1), "f": replace(future, owned_partitions=())})
    assert {told.info.next_rebalance_ms for told in nothing_withheld.members.values()} == {LONG_MAX}
    assert not nothing_withheld.is_stable


class _AsksFor:
    """Shares out as the sticky assignor does, and asks for follow-up rebalances (KIP-924)."""

    def __init__(self, **deadlines_ms):
        self.deadlines_ms = deadlines_ms

    def assign(self, state):
        placed = StickyTaskAssignor().assign(state)
        names = {client.consumers[0].member: client.process_id for client in state.clients}
        asked = {names[name]: at_ms for name, at_ms in self.deadlines_ms.items()}
        held = {p: replace(tasks, followup_deadline_ms=asked.get(p)) for p, tasks in placed.clients.items()}
        return replace(placed, clients=held)


def _next(answer):
    return {name: told.info.next_rebalance_ms for name, told in answer.members.items()}


@pytest.mark.parametrize("leader", [P1, P3])
def test_a_followup_deadline_is_told_to_the_first_member_of_its_client_whoever_leads(leader):
    members = {"a": said(P1), "b": said(P2), "b2": said(P2)}
    config = replace(CONFIG, leader_process_id=leader, assignor=_AsksFor(b=NOW + 5))
    answer = lead(members, config=config)
    assert _next(answer) == {"a": LONG_MAX, "b": NOW + 5, "b2": LONG_MAX}
    assert (answer.is_stable, answer.hands_over) == (False, False)
    assert any(f"followup rebalance be scheduled by b for {NOW + 5} ms" in line.text for line in answer.log)
    at_once = lead(members, config=replace(config, assignor=_AsksFor(a=0, b=NOW + 5)))
    assert _next(at_once) == {"a": 0, "b": NOW + 5, "b2": LONG_MAX}
    nothing = lead(members, config=replace(config, assignor=_AsksFor()))
    assert (set(_next(nothing).values()), nothing.is_stable) == ({LONG_MAX}, True)


def test_a_followup_deadline_gives_way_to_tasks_that_are_withheld_and_to_an_earlier_probe():
    first = lead({"a": said(P1)})
    moving = replace(CONFIG, assignor=_AsksFor(b=NOW + 5))
    second = lead({"a": running(P1, first, "a"), "b": said(P2)}, config=moving)
    assert second.hands_over
    assert _next(second)["b"] == 0

    class ProbesToo(_AsksFor):
        def assign(self, state):
            return replace(super().assign(state), followup_needed=True)

    for deadline, earliest in ((NOW + 5, NOW + 5), (NOW + 10**9, NOW + 600_000)):
        answer = lead({"a": said(P1)}, config=replace(CONFIG, assignor=ProbesToo(a=deadline)))
        assert _next(answer) == {"a": earliest}


@pytest.mark.parametrize("deadline", [-1, 2**63, 1.5, True, "soon"])
def test_a_followup_deadline_that_is_no_time_is_refused_like_any_wrong_answer(deadline):
    answer = lead({"a": said(P1)}, config=replace(CONFIG, assignor=_AsksFor(a=deadline)))
    assert answer.refusal is None
    (said_why,) = [line.text for line in answer.log if "is refused" in line.text]
    assert f"has the follow-up deadline {deadline!r}; expected None or milliseconds since 1970" in said_why
    assert _next(answer) == {"a": NOW + 600_000}


class _Raises:
    def assign(self, _state):
        raise ZeroDivisionError("user code")


class _Exits:
    def assign(self, _state):
        sys.exit("user code")


class _TwiceActive:
    def assign(self, state):
        everything = ClientAssignment(active=frozenset(state.tasks))
        return Assignment(clients={c.process_id: everything for c in state.clients}, followup_needed=False)


@pytest.mark.parametrize(
    ("assignor", "wrong"),
    [
        (_Raises(), "ZeroDivisionError: user code"),
        (_Exits(), "SystemExit: user code"),
        (_TwiceActive(), "task 0_0 is active on 2 clients"),
        (_TwiceActive(), "; and 1 more)"),
    ],
)
def test_an_invalid_answer_of_a_users_assignor_is_refused_and_the_previous_assignment_kept(assignor, wrong):
    first = lead({"a": said(P1), "b": said(P2)})
    again = {"a": running(P1, first, "a"), "b": running(P2, first, "b")}
    answer = lead(again, config=replace(CONFIG, assignor=assignor))
    active = {name: {*given_.info.active_tasks} for name, given_ in answer.members.items()}
    assert active == {name: {*given_.info.active_tasks} for name, given_ in first.members.items()}
    assert any(wrong in line.text for line in answer.log)
    assert answer.members["a"].info.next_rebalance_ms == NOW + 600_000


def _sent(process, partitions, sums):
    return said(process, owned=partitions, sums=sums)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_the_members_own_no_partition_gets_a_second_owner_and_every_task_a_place(data):
    draw = data.draw
    processes = [ProcessId(number, 0) for number in range(draw(st.integers(1, 4)))]
    names = [(f"{process.most}-{thread}", process) for process in processes for thread in range(draw(st.integers(1, 3)))]
    partitions = [TopicPartition(topic, number) for topic in ("in", "r") for number in range(3)]
    owner = {partition: draw(st.sampled_from([None, *(name for name, _ in names)])) for partition in partitions}
    owned = {name: [p for p in partitions if owner[p] == name] for name, _ in names}
    members = {
        name: _sent(
            process,
            owned[name],
            {TaskId(1, p.partition): -2 for p in owned[name] if p.topic == "r"}
            | {TaskId(1, n): 990 for n in draw(st.sets(st.integers(0, 2))) if owner[TopicPartition("r", n)] != name},
        )
        for name, process in names
    }
    answer = lead(members, config=replace(CONFIG, settings=replace(CONFIG.settings, num_standby_replicas=1)))
    given_to = {}
    for name, told in answer.members.items():
        for partition, task in zip(told.partitions, told.info.active_tasks, strict=True):
            assert partition not in given_to
            given_to[partition] = name
            assert owner[partition] in (None, name)
            assert task.partition == partition.partition
        assert list(told.partitions) == sorted(told.partitions)
    withheld = [line.text.split()[2] for line in answer.log if line.text.startswith("Removing task")]
    placed = {str(task) for told in answer.members.values() for task in told.info.active_tasks}
    assert placed | set(withheld) == {f"{s}_{n}" for s in (0, 1) for n in range(3)}
    assert not placed & set(withheld)
    assert answer.is_stable == (not withheld and not answer.assignment.followup_needed)

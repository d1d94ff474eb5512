"""Rack-aware strategies: recorded answers of Kafka 4.3.0, and what must hold of any answer."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.assignment.recorded import recorded
from tidemill.assignment.iteration_order import sorted_iteration
from tidemill.assignment.kip441.high_availability import HighAvailabilityTaskAssignor
from tidemill.assignment.model import ApplicationState, AssignmentConfig, ClientState, RackStrategy, TaskInfo
from tidemill.assignment.rack import aware as rack
from tidemill.assignment.rack.aware import RackCosts
from tidemill.assignment.sticky.assignor import StickyTaskAssignor
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TaskId, TopicPartition
from tidemill.replay.records import application_state, expected

RACKS = ("r0", "r1", "r2")
ASSIGNORS = {"ha": HighAvailabilityTaskAssignor(), "sticky": StickyTaskAssignor()}


@pytest.mark.parametrize("assignor", ["ha", "sticky"])
def test_answers_are_kafkas(assignor):
    wrong = []
    for line in recorded("rack_aware", every=18):
        if line["assignor"] == assignor:
            state = application_state(line)
            answer = expected(ASSIGNORS[assignor].assign(state), state.stateful_tasks)
            if answer != line["expected"] or rack.is_applicable(state) != line["can_enable"]:
                wrong.append(line["id"])
    assert wrong == []


def test_sticky_answers_with_sorted_inputs_are_kafkas():
    wrong = []
    for line in recorded("rack_aware", every=18):
        if "expected_sorted_containers" in line:
            state = application_state(line)
            answer = expected(StickyTaskAssignor(iteration=sorted_iteration).assign(state), state.stateful_tasks)
            if answer != line["expected_sorted_containers"]:
                wrong.append(line["id"])
    assert wrong == []


def client(number, rack_id):
    return ClientState(process_id=ProcessId(number, 0), capacity=1, rack=rack_id)


@st.composite
def placements(draw):
    """A state with the racks of everything, and one owner for each task."""
    clients = [client(number, draw(st.sampled_from(RACKS))) for number in range(draw(st.integers(1, 4)))]
    tasks = [TaskId(s, p) for s in range(2) for p in range(draw(st.integers(0, 4)))]
    info = {
        task: TaskInfo(
            source_partitions=(TopicPartition(f"in{task.subtopology}", task.partition),),
            changelog_partitions=(TopicPartition(f"log{task.subtopology}", task.partition),),
        )
        for task in tasks
    }
    partitions = [p for i in info.values() for p in (*i.source_partitions, *i.changelog_partitions)]
    state = ApplicationState(
        clients=tuple(clients),
        tasks=tuple(tasks),
        stateful_tasks=frozenset(tasks),
        task_info=info,
        partition_racks={p: draw(st.frozensets(st.sampled_from(RACKS), min_size=1)) for p in partitions},
        config=AssignmentConfig(
            num_standby_replicas=1,
            rack_aware_assignment_strategy=draw(
                st.sampled_from([RackStrategy.MIN_TRAFFIC, RackStrategy.BALANCE_SUBTOPOLOGY])
            ),
        ),
    )
    placement = {each.process_id: set() for each in clients}
    for task in tasks:
        placement[draw(st.sampled_from(clients)).process_id].add(task)
    costs = RackCosts(traffic=draw(st.integers(0, 10)), non_overlap=draw(st.integers(0, 10)))
    return state, placement, costs


def cost_of(state, before, after, costs):
    racks = {each.process_id: each.rack for each in state.clients}
    return sum(
        costs.traffic * (racks[owner] not in state.partition_racks[state.task_info[task].source_partitions[0]])
        + costs.non_overlap * (task not in before[owner])
        for owner, tasks in after.items()
        for task in tasks
    )


@given(placements())
def test_every_client_keeps_its_number_of_tasks_and_no_cheaper_swap_is_left(case):
    state, before, costs = case
    after = rack.optimize_active(state, before, state.tasks, costs)
    assert {owner: len(tasks) for owner, tasks in after.items()} == {owner: len(tasks) for owner, tasks in before.items()}
    assert sorted(task for tasks in after.values() for task in tasks) == sorted(state.tasks)
    if state.config.rack_aware_assignment_strategy is RackStrategy.MIN_TRAFFIC:
        least = cost_of(state, before, after, costs)
        assert least <= cost_of(state, before, before, costs)
        for one, other in combinations(sorted(after), 2):
            for task in after[one]:
                for swapped in after[other]:
                    changed = {**after, one: after[one] - {task} | {swapped}, other: after[other] - {swapped} | {task}}
                    assert least <= cost_of(state, before, changed, costs)


@given(placements())
def test_balance_subtopology_leaves_each_client_about_its_share_of_each_subtopology(case):
    state, before, costs = case
    strategy = RackStrategy.BALANCE_SUBTOPOLOGY
    state = replace(state, config=replace(state.config, rack_aware_assignment_strategy=strategy))
    after = rack.optimize_active(state, before, state.tasks, costs)
    assert after.keys() == before.keys()
    for owner, tasks in after.items():
        for subtopology in {task.subtopology for task in state.tasks}:
            all_of_it = [task for task in state.tasks if task.subtopology == subtopology]
            share = len(before[owner]) / len(state.tasks) * len(all_of_it)
            assert len([task for task in tasks if task.subtopology == subtopology]) < share + 1


@given(placements())
def test_standbys_never_join_their_active_and_clients_keep_their_numbers(case):
    state, standby, costs = case
    clients = sorted(standby)
    active = {owner: set() for owner in clients}
    for at, task in enumerate(state.tasks):
        choices = [owner for owner in clients if task not in standby[owner]]
        if choices:
            active[choices[at % len(choices)]].add(task)
    after = rack.optimize_standby(state, active, standby, costs)
    assert {owner: len(tasks) for owner, tasks in after.items()} == {owner: len(tasks) for owner, tasks in standby.items()}
    assert not any(after[owner] & active[owner] for owner in clients)


@settings(max_examples=30)
@given(placements())
def test_standbys_stay_where_moving_is_forbidden(case):
    state, standby, costs = case
    active = {owner: set() for owner in standby}
    assert rack.optimize_standby(state, active, standby, costs, may_move=lambda *_: False) == standby


def test_one_client_without_a_rack_switches_the_strategies_off_for_all():
    task = TaskId(0, 0)
    partition, changelog = TopicPartition("in", 0), TopicPartition("log", 0)
    state = ApplicationState(
        clients=(client(0, "r0"), client(1, "r1")),
        tasks=(task,),
        stateful_tasks=frozenset({task}),
        task_info={task: TaskInfo(source_partitions=(partition,), changelog_partitions=(changelog,))},
        partition_racks={partition: frozenset({"r0"})},
        config=AssignmentConfig(rack_aware_assignment_strategy=RackStrategy.MIN_TRAFFIC),
    )
    fields = {name: getattr(state, name) for name in state.__dataclass_fields__}
    without_rack = ApplicationState(**{**fields, "clients": (client(0, "r0"), client(1, None))})
    with_standbys = AssignmentConfig(
        rack_aware_assignment_strategy=RackStrategy.MIN_TRAFFIC, num_standby_replicas=1
    )
    assert rack.is_applicable(state)
    assert not rack.is_applicable(without_rack)
    assert not rack.is_applicable(ApplicationState(**{**fields, "config": with_standbys}))
    assert not rack.is_applicable(ApplicationState(**{**fields, "config": AssignmentConfig()}))
    with pytest.raises(AssignmentError, match="1_1 has no partitions"):
        rack.optimize_active(state, {ProcessId(0, 0): {TaskId(1, 1)}}, [TaskId(1, 1)], rack.STATELESS_COSTS)

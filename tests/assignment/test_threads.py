"""Tasks to threads, against recorded answers of Kafka's StreamsPartitionAssignor (4.3.0, 2.7.2)."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.assignment.recorded import VECTORS, recorded
from tidemill.assignment.model import ClientAssignment, ClientState, ConsumerState
from tidemill.assignment.threads import Stage, assign_stages, assign_to_threads, assign_to_threads_2_7
from tidemill.errors import AssignmentError
from tidemill.ids import ProcessId, TaskId
from tidemill.replay.records import application_state

PROCESS = ProcessId(1, 2)


def tasks(texts):
    return [TaskId.parse(text) for text in texts]


def sums(entry):
    return {TaskId.parse(task): total for task, total in entry.items()}


def texts_of(assignment):
    return {thread: [str(task) for task in given] for thread, given in assignment.items()}


def client_of(entry):
    return ClientState(
        process_id=ProcessId.parse(entry["process_id"]),
        capacity=entry["capacity"],
        consumers=tuple(
            ConsumerState(member=member, task_offset_sums=sums(said["task_offset_sums"]))
            for member, said in entry["consumers"].items()
        ),
        lags=sums(entry["task_lags"]),
    )


def test_stages_and_their_input_order_are_kafkas():
    wrong = []
    for line in recorded("thread_assignment", every=3):
        ends = sums(line["end_offset_sums"])
        client = client_of(line["client"])
        assigned = ClientAssignment(
            active=frozenset(tasks(line["assigned_active"])), standby=frozenset(tasks(line["assigned_standby"]))
        )
        inputs = [(Stage(stage["stage"]), tasks(stage["input_iteration_order"])) for stage in line["stages"]]
        results = assign_stages(client, inputs, ends.keys(), ends)
        got = [(texts_of(result.tasks), result.load_after) for result in results]
        whole = assign_to_threads(client, assigned, ends.keys(), ends)
        if (
            got != [(stage["assignment"], stage["thread_load_after"]) for stage in line["stages"]]
            or texts_of(whole.active) != line["active_per_consumer"]
            or texts_of(whole.standby) != line["stages"][1]["assignment"]
        ):
            wrong.append(line["id"])
    assert wrong == []


@pytest.mark.parametrize(
    ("version", "form"), [("kafka_2.7.2", assign_to_threads_2_7), ("kafka_4.3.0", assign_to_threads)]
)
def test_threads_of_the_wordcount_experiment_are_kafkas(version, form):
    experiment = json.loads(gzip.decompress((VECTORS / "seed_experiment.json.gz").read_bytes()))
    cases = [(case["input"], case[version]["result"]) for case in experiment["same_inputs"]]
    cases += [(case["input"], case["result"]) for case in experiment["own_trajectory"][version]["rounds"]]
    assert len(cases) > 6
    for case, result in cases:
        state = application_state(case)
        for client in state.clients:
            recorded_tasks = result["expected"]["clients"][str(client.process_id)]
            assigned = ClientAssignment(
                active=frozenset(tasks(recorded_tasks["active"])), standby=frozenset(tasks(recorded_tasks["standby"]))
            )
            got = form(client, assigned, state.stateful_tasks, state.end_offset_sums)
            for thread, said in result["threads"][str(client.process_id)].items():
                assert [str(task) for task in got.active[thread]] == said["active"], (result["id"], thread)
                assert [str(task) for task in got.standby[thread]] == said["standby"], (result["id"], thread)


def test_standbys_avoid_the_thread_with_more_actives_today_but_not_in_2_7():
    client = ClientState(process_id=PROCESS, capacity=2, consumers=(ConsumerState(member="a"), ConsumerState(member="b")))
    assigned = ClientAssignment(active=frozenset({TaskId(0, 0)}), standby=frozenset({TaskId(0, 1)}))
    stateful, ends = {TaskId(0, 0), TaskId(0, 1)}, {TaskId(0, 0): 1, TaskId(0, 1): 1}
    assert assign_to_threads(client, assigned, stateful, ends).standby == {"a": (), "b": (TaskId(0, 1),)}
    assert assign_to_threads_2_7(client, assigned, stateful, ends).standby == {"a": (TaskId(0, 1),), "b": ()}


def test_a_reported_task_that_is_unknown_is_skipped_today_and_refused_in_2_7():
    said = ConsumerState(member="a", task_offset_sums={TaskId(9, 9): 5})
    client = ClientState(process_id=PROCESS, capacity=1, consumers=(said,))
    assigned = ClientAssignment(active=frozenset({TaskId(0, 0)}))
    assert assign_to_threads(client, assigned, {TaskId(0, 0)}, {TaskId(0, 0): 1}).active == {"a": (TaskId(0, 0),)}
    with pytest.raises(AssignmentError, match="9_9"):
        assign_to_threads_2_7(client, assigned, {TaskId(0, 0)}, {TaskId(0, 0): 1})
    assert assign_to_threads_2_7(client, assigned, set(), {}).active == {"a": (TaskId(0, 0),)}


def test_a_task_without_reported_lag_counts_with_its_end_offset():
    thread_a = ConsumerState(member="a", task_offset_sums={TaskId(0, 0): 0, TaskId(0, 1): 3})
    client = ClientState(process_id=PROCESS, capacity=2, consumers=(thread_a, ConsumerState(member="b")), lags={TaskId(0, 1): 7})
    stateful = {TaskId(0, 0), TaskId(0, 1)}
    assigned = ClientAssignment(active=frozenset(stateful))
    kept_by_least_lag = assign_to_threads(client, assigned, stateful, {TaskId(0, 0): 10, TaskId(0, 1): 10})
    assert kept_by_least_lag.active == {"a": (TaskId(0, 1),), "b": (TaskId(0, 0),)}


def test_a_client_without_members_is_refused():
    with pytest.raises(AssignmentError, match="no members"):
        assign_to_threads(ClientState(process_id=PROCESS, capacity=0), ClientAssignment(), set(), {})


@given(st.integers(1, 5), st.lists(st.integers(0, 2), max_size=30), st.data())
def test_every_task_gets_one_thread_and_threads_stay_within_one_task_of_each_other(threads, kinds, data):
    all_tasks = [TaskId(number % 3, number // 3) for number in range(len(kinds))]
    by_stage = {stage: [t for t, kind in zip(all_tasks, kinds, strict=True) if kind == at] for at, stage in enumerate(Stage)}
    stateful = set(by_stage[Stage.STATEFUL_ACTIVE] + by_stage[Stage.STANDBY])
    reported = st.dictionaries(st.sampled_from(all_tasks), st.integers(-3, 9), max_size=8) if kinds else st.just({})
    consumers = tuple(ConsumerState(member=f"m{at}", task_offset_sums=data.draw(reported)) for at in range(threads))
    client = ClientState(process_id=PROCESS, capacity=threads, consumers=consumers)
    results = assign_stages(client, list(by_stage.items()), stateful, dict.fromkeys(stateful, 9))
    for result in results:
        given_tasks = [task for tasks_ in result.tasks.values() for task in tasks_]
        assert sorted(given_tasks) == sorted(by_stage[result.stage])
        assert max(result.load_after.values()) - min(result.load_after.values()) <= 1

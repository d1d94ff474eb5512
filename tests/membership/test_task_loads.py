"""Loads of tasks on their way: from a member's join into the weights that the leader's assignor gets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.membership.test_leader import P1, P2, lead, said
from tidemill.assignment.task_load import HIGHEST_LEVEL, TaskLoad
from tidemill.errors import WireFormatError
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.wire.task_loads import MOST_TASKS, TAG, decode_loads, encode_loads

LEVELS = st.integers(0, HIGHEST_LEVEL)
LOADS = st.dictionaries(
    st.builds(TaskId, st.integers(0, 999), st.integers(0, 99_999)), st.builds(TaskLoad, LEVELS, LEVELS), min_size=1, max_size=30
)


@settings(derandomize=True)
@given(loads=LOADS)
def test_loads_come_back_as_they_were(loads):
    assert decode_loads(encode_loads(loads)) == loads


def test_of_too_many_tasks_the_heaviest_are_sent():
    loads = {TaskId(0, number): TaskLoad(records=number % 100) for number in range(MOST_TASKS + 500)}
    kept = decode_loads(encode_loads(loads))
    assert len(kept) == MOST_TASKS
    assert min(load.records for load in kept.values()) >= 19


@pytest.mark.parametrize(
    "text",
    ["", " ", "1_0", "1_0=", "1_0=128", "1_0=1.200", "1_0=-1", "-1_0=1", "1_0=1  1_1=1", "1_0=1\n", "1_0=\u0661", "x" * 100_000,
     "1_0=1 " * MOST_TASKS + "1_0=1"],
)  # fmt: skip
def test_other_text_is_refused(text):
    with pytest.raises(WireFormatError):
        decode_loads(text)


FIRST, SECOND, THIRD = TaskId(0, 0), TaskId(0, 1), TaskId(0, 2)
A_ZONE = {"zone": "a"}


def loaded(process, owned, text, **more):
    return said(
        process, owned=[TopicPartition("in", task.partition) for task in owned], sums=dict.fromkeys(owned, -2), generation=3,
        client_tags={TAG: text, **more},
    )  # fmt: skip


def weights_of(answer):
    return {task: round(info.weight, 3) for task, info in answer.state.task_info.items() if info.weight is not None}


def test_the_assignor_gets_weights_and_what_else_it_knows_of_tasks():
    answer = lead({"a": loaded(P1, [FIRST, SECOND], "0_0=6 0_1=0"), "b": loaded(P2, [THIRD], "0_2=0")})
    assert weights_of(answer) == {FIRST: 2.4, SECOND: 0.3, THIRD: 0.3}
    assert answer.state.task_info[FIRST].source_partitions == (TopicPartition("in", 0),)
    assert all(not client.tags for client in answer.state.clients)


def test_without_loads_there_are_no_weights():
    answer = lead({"a": said(P1), "b": said(P2)})
    assert weights_of(answer) == {}


def test_of_a_task_that_moved_its_owners_measure_counts_and_until_then_that_of_its_last_owner():
    new_owner_has_measured = lead({"a": loaded(P1, [SECOND], "0_0=20 0_1=4"), "b": loaded(P2, [FIRST], "0_0=4")})
    assert weights_of(new_owner_has_measured) == {FIRST: 1.0, SECOND: 1.0}
    it_has_not = lead({"a": loaded(P1, [SECOND], "0_0=20 0_1=4"), "b": loaded(P2, [FIRST], "0_1=4")})
    assert weights_of(it_has_not)[FIRST] > 1.9


def test_loads_of_tasks_that_there_are_not_are_left_out():
    answer = lead({"a": loaded(P1, [FIRST], "0_0=2 7_7=100"), "b": said(P2)})
    assert weights_of(answer) == {FIRST: 1.0}


def test_garbage_is_remarked_and_costs_neither_the_member_nor_its_tags():
    answer = lead({"a": loaded(P1, [FIRST], "no loads at all", **A_ZONE), "b": loaded(P2, [SECOND], "0_1=3")})
    assert weights_of(answer) == {SECOND: 1.0}
    assert any("The loads that member a sent are left out" in line.text for line in answer.log)
    assert next(client.tags for client in answer.state.clients if client.process_id == P1) == A_ZONE


def test_five_tags_of_its_own_are_not_too_many_beside_the_loads():
    tags = {f"tag{number}": "x" for number in range(5)}
    answer = lead({"a": loaded(P1, [FIRST], "0_0=1", **tags)})
    assert next(iter(answer.state.clients)).tags == tags

"""The number of instances by figures alone; how they are found in a group's document is tests/query/test_scale.py's."""

from __future__ import annotations

from dataclasses import replace

from tidemill.assignment.scale import GroupLoad, ScaleWish, advice, restores, warms_up

LOAD = GroupLoad(present=3, records_per_s=3_000.0, lag=0, measured_per_s=1_000.0, tasks=12, threads=1, held_up="")


def test_what_holds_a_change_up_keeps_the_number_and_is_the_reason() -> None:
    found = advice(replace(LOAD, held_up=restores("A", 2)), ScaleWish())
    assert (found.wanted, found.waits, found.why) == (3, True, "waits: A restores 2 tasks")
    assert advice(LOAD, ScaleWish()).wanted == 4


def test_a_single_task_is_spoken_of_as_one() -> None:
    assert restores("A", 1) == "A restores 1 task"
    assert (warms_up("A", 1), warms_up("A", 2)) == ("1 task warms up on A", "2 tasks warm up on A")


def test_no_more_instances_than_threads_can_have_tasks() -> None:
    assert advice(replace(LOAD, tasks=4, threads=2), ScaleWish()).wanted == 2

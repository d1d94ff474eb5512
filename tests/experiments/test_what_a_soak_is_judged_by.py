"""The soak's auditors: a second active is found, what a frozen instance could not know is not held against it, growth is; a
record that is missing or too many is found, and what is expected does not depend on how records were cut into batches."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from instances import Event
from soak_auditors import Active, Blind, Series, active_times, overlaps
from soak_loads import added, difference, event, foreign_rows, lacking, replayed, sums
from soak_program import EXACT, RECENT, RUNNING, foreign_key


def line(at_s: float, name: str, task: str = "1_0", cause: str = "revoked") -> tuple[str, Event]:
    return name, Event(at_s=at_s, fields={"task": task, "thread": "T", "cause": f"'{cause}'"})


def times(host: str, *lines: tuple[str, Event], deaths: tuple[float, ...] = (), blind: tuple[Blind, ...] = ()) -> list[Active]:
    return active_times(host, lines, deaths, blind, end_s=100.0)


def spans(found: list[Active]) -> list[tuple[str, float, float]]:
    return [(active.task, active.begin_s, active.end_s) for active in found]


def test_a_task_is_active_from_running_until_it_is_given_up_the_process_dies_or_all_ends() -> None:
    lines = (line(1, "task-running"), line(5, "task-closed"), line(6, "task-running"), line(20, "task-running", "1_1"))
    assert spans(times("a", *lines)) == [("1_0", 1, 5), ("1_0", 6, 100), ("1_1", 20, 100)]
    assert spans(times("a", *lines, deaths=(9.0,))) == [("1_0", 1, 5), ("1_0", 6, 9), ("1_1", 20, 100)]


def test_two_actives_of_one_task_at_a_time_are_found() -> None:
    one = times("a", line(1, "task-running"), line(10, "task-demoted"))
    apart = times("b", line(10, "task-running"))
    assert overlaps([*one, *apart]) == []
    together = times("b", line(9.9, "task-running"))
    assert overlaps([*one, *together]) == [(one[0], together[0])]
    assert overlaps([*one, *times("b", line(2, "task-running", "1_1"))]) == []


def test_what_was_lost_while_it_was_frozen_counts_until_the_freeze_only() -> None:
    frozen = Blind(host="a", begin_s=4.0, end_s=14.0)
    lost = (line(1, "task-running"), line(14.5, "task-closed", cause="the session has expired"))
    assert spans(times("a", *lost, blind=(frozen,))) == [("1_0", 1, 4)]
    assert spans(times("b", *lost, blind=(frozen,))) == [("1_0", 1, 14.5)], "another one was frozen"
    revoked = (line(1, "task-running"), line(14.5, "task-closed"))
    assert spans(times("a", *revoked, blind=(frozen,))) == [("1_0", 1, 14.5)], "it gave the task up in good order"
    after_it = (line(14.2, "task-running"), line(14.5, "task-closed", cause="the session has expired"))
    assert times("a", *after_it, blind=(frozen,)) == [], "its batch had begun before the freeze"
    long_ago = (line(1, "task-running"), line(90, "task-closed", cause="the session has expired"))
    assert spans(times("a", *long_ago, blind=(frozen,))) == [("1_0", 1, 90)]


def series(kind: str, memory_mib: list[float], files: list[int]) -> Series:
    made = Series(name="x", kind=kind)
    made.at_s = [3.0 * number for number in range(len(memory_mib))]
    made.memory_mib, made.files = memory_mib, files
    return made


def is_bounded(made: Series) -> bool | None:
    growth = made.growth(heap_mib=768)
    return None if growth is None else growth.is_bounded


def test_what_grows_is_told_from_what_warms_up() -> None:
    count = 60
    steady = [100.0] * count
    files = [20] * count
    assert is_bounded(series("worker", steady, files)) is True
    assert is_bounded(series("worker", [20.0] * 9 + steady[9:], files)) is True, "the beginning does not count"
    assert is_bounded(series("worker", [100.0 + 5 * n for n in range(count)], files)) is False
    assert is_bounded(series("worker", steady, [20 + n for n in range(count)])) is False
    away = [45] * (count // 2) + [85] * (count // 2)
    assert is_bounded(series("worker", steady, away)) is False
    assert is_bounded(series("driver", steady, away)) is True, "sockets of failed connections, until the next garbage collection"
    assert is_bounded(series("driver", steady, [45 + 2 * n for n in range(count)])) is False
    assert is_bounded(series("jvm", [300.0 + 5 * n for n in range(count)], files)) is True, "a heap fills"
    assert is_bounded(series("jvm", [900.0 + 20 * n for n in range(count)], files)) is False
    assert is_bounded(series("worker", steady[:20], files[:20])) is None, "too short to tell"


def test_a_record_that_is_missing_or_twice_is_found() -> None:
    one, other = ("k1", b"1", 5), ("k2", b"2", 6)
    assert difference(Counter([one, other]), Counter([other, one])) == "2 records, all as expected"
    assert difference(Counter([one, one]), Counter([one, other])) == (
        f"WRONG: 1 of 2 records missing, 1 not expected, e.g. missing [{other}], not expected [{one}]"
    )


@pytest.mark.parametrize(
    ("topic", "expected", "more", "less"),
    [
        (RUNNING, b"7: 3 20", b"7: 4 27", b"7: 2 20"),
        (RECENT, b"7: 1 4", b"7: 4 5 1", b"7: 1 5"),
        ("soak-windows", (300).to_bytes(8, "big"), (301).to_bytes(8, "big"), (299).to_bytes(8, "big")),
        ("soak-pairs", b"7 8", b"7 8", b"7 9"),
    ],
)
def test_at_least_once_a_result_may_come_again_or_say_more_but_not_less(
    topic: str, expected: bytes, more: bytes, less: bytes
) -> None:
    wanted = [("k1", expected, 5)]
    assert lacking(topic, wanted, wanted) == []
    assert lacking(topic, [("k1", less, 5), ("k1", more, 5)], wanted) == []
    assert lacking(topic, [("k1", less, 5)], wanted) == wanted
    assert lacking(topic, [("k2", b"8: 9 99" if topic in (RUNNING, RECENT) else more, 5)], wanted) == wanted
    assert lacking(topic, [], wanted) == wanted


def test_rows_joined_by_foreign_key_are_those_of_the_last_values() -> None:
    key = foreign_key("4")
    assert foreign_rows([("a", b"2", 0), ("a", b"4", 0), (key, b"3", 0), (key, b"5", 0), ("b", b"7", 0)]) == {"a": b"4 5"}
    assert foreign_rows([("a", b"2", 0), (foreign_key("2"), b"3", 0), ("a", b"4", 0)]) == {}, "it refers to another row now"


@pytest.mark.spark
def test_what_is_expected_of_a_partition_does_not_depend_on_batches(spark: object) -> None:
    drawn = random.Random(1)
    sent = [(key, value.encode(), at_ms) for key, value, at_ms in (event(number, drawn) for number in range(400))]
    whole = {topic: Counter(records) for topic, records in replayed(sent, at_once=400).items()}
    assert {topic: Counter(records) for topic, records in replayed(sent, at_once=7).items()} == whole
    assert min(whole[topic].total() for topic in EXACT) > 20, "each topic has results"


def test_the_last_sum_of_a_key_counts() -> None:
    events = [("a", b"3", 1), ("b", b"2", 2), ("a", b"4", 3)]
    results = [("a", (3).to_bytes(8, "big"), 1), ("b", (2).to_bytes(8, "big"), 2), ("a", (7).to_bytes(8, "big"), 3)]
    assert sums(results) == added(events) == {"a": 7, "b": 2}
    assert sums(results[:2]) != added(events)

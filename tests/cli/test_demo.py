"""`tidemill demo`: it counts right and says so, it says what is wrong, and nothing outlives it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.cli_process import CliProcess, cli, ran_here
from tests.waiting import until
from tidemill.cli import demo as demo_module
from tidemill.cli.demo import next_goal
from tidemill.cli.demo_text import Text, differences, english, words
from tidemill.cli.demo_topics import APPLICATION, INPUT, OUTPUT, Reading
from tidemill.errors import RetriableError, StopError
from tidemill.ids import TopicPartition


def test_words_are_what_javas_regex_leaves_in_lower_case() -> None:
    assert words("It's 3_x-Ray, naïve!") == ["it", "s", "3_x", "ray", "na", "ve"]
    assert words("") == words(" -- ") == []
    # Two letters that are not ASCII are so in lower case, in Java and in Python.
    assert words("K İ") == ["k", "i"]


def test_the_text_is_counted_line_by_line() -> None:
    text = Text.of(["to be", "", "or not to be"])
    assert (text.summary, dict(text.counts)) == ("3 lines, 6 words, 4 distinct", {"to": 2, "be": 2, "or": 1, "not": 1})


def test_the_demo_has_a_text_of_some_size() -> None:
    text = english()
    assert len(text.lines) > 10_000
    assert len(text.counts) > 3_000
    assert english(20).lines == text.lines[:20]


def test_equal_counts_do_not_differ() -> None:
    assert differences({"a": 1}, {"a": 1}) == ""


def test_missing_wrong_and_strange_words_are_told() -> None:
    assert differences({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5}) == (
        "3 counts differ: 'a' is there 1 times, counted 0; 'c' is there 3 times, counted 4; 'd' is there 0 times, counted 5"
    )
    many = {f"w{number:02}": 1 for number in range(12)}
    assert differences(many, {}).startswith("12 counts differ: 'w00' is there 1 times, counted 0; ")
    assert differences(many, {}).endswith("; and 7 more")


@given(st.integers(10, 20_000), st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=60))
def test_the_last_lines_wait_until_all_instances_are_at_work(total: int, ticks: list[tuple[float, bool]]) -> None:
    goal, ever_at_work = total * 0.3, False
    for seconds, at_work in ticks:
        ever_at_work = ever_at_work or at_work
        after = next_goal(goal, total, seconds, are_all_at_work=at_work)
        assert goal <= after <= (total if ever_at_work else max(goal, total * 0.8))
        goal = after
    assert next_goal(goal, total, total, are_all_at_work=True) == total


WORDS = f"{APPLICATION}-counts-store-repartition"


class Brokers:
    """An admin client: of each topic's only partition what the group has committed, and where the topic ends."""

    def __init__(self, committed: dict[str, int], ends: dict[str, int]) -> None:
        self.committed, self.ends = committed, ends

    def committed_offsets(self, group: str, **_: Any) -> dict[TopicPartition, int]:
        assert group == APPLICATION
        return {TopicPartition(topic, 0): offset for topic, offset in self.committed.items()}

    def topics(self, **_: Any) -> set[str]:
        return {*self.ends, OUTPUT, f"{APPLICATION}-counts-store-changelog"}

    def partitions(self, topics: Collection[str], **_: Any) -> dict[str, int | None]:
        assert set(topics) == set(self.ends)
        return dict.fromkeys(topics, 1)

    def stable_end_offsets(self, partitions: Collection[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        if not self.committed:
            raise RetriableError("the broker does not answer")
        return {tp: self.ends[tp.topic] for tp in partitions}


@pytest.mark.parametrize(
    ("committed", "ends", "is_over"),
    [
        ({INPUT: 9, WORDS: 7}, {INPUT: 10, WORDS: 7}, False),
        ({INPUT: 10, WORDS: 6}, {INPUT: 10, WORDS: 7}, False),
        ({INPUT: 10}, {INPUT: 10, WORDS: 7}, False),
        ({INPUT: 10, WORDS: 7}, {INPUT: 10, WORDS: 7}, True),
        ({INPUT: 10}, {INPUT: 10, WORDS: 0}, True),
        ({}, {INPUT: 10, WORDS: 7}, False),
    ],
    ids=["a line is not", "a word is not", "no word yet", "all", "lines without words", "no answer"],
)
def test_all_is_read_when_the_group_has_committed_the_ends_of_lines_and_words(
    committed: dict[str, int], ends: dict[str, int], is_over: bool
) -> None:
    reading = Reading("127.0.0.1:1")
    reading._admin = cast("Any", Brokers(committed, ends))
    assert reading.is_over() is is_over


PATIENT_S = 600
"""For a broker and two instances that start one after the other on a busy machine."""


@pytest.mark.broker
@pytest.mark.spark
def test_two_instances_share_the_tasks_and_every_count_is_compared(tmp_path: Path) -> None:
    with cli("demo", "--instances", 2, "--lines", 600, "--limit-s", PATIENT_S) as demo:
        assert demo.end(PATIENT_S) == 0, demo.text
        assert demo.lines[-1] == f"demo: {english(600).summary}: all counts equal"
        assert demo.lines[-2].startswith("the ten commonest words: the ")
        shares: dict[str, list[str]] = {"1": [], "2": []}
        together = []  # at each change: a session may have ended on a busy machine, and what comes last be one instance's
        for number, tasks in re.findall(r"instance (\d): RUNNING · tasks ((?:\d_\d ?)+)", demo.text):
            shares[number] = tasks.split()
            together.append(sorted(shares["1"] + shares["2"]) if all(shares.values()) else [])
        assert [f"{sub}_{part}" for sub in range(2) for part in range(6)] in together, demo.text
        demo.leaves_nothing()


@pytest.mark.broker
@pytest.mark.spark
def test_counts_that_differ_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An application that counts otherwise, in the place of the demo's."""
    wrong = tmp_path / "wrong.py"
    right = demo_module.APP.read_text()
    wrong.write_text(right.replace('"), "")', '"), "the")'))
    assert wrong.read_text() != right
    monkeypatch.setattr(demo_module, "APP", wrong)
    monkeypatch.setattr(demo_module, "_ASK_AFTER_S", 0.0)  # however soon: it is asked whether all was read
    handler = signal.getsignal(signal.SIGTERM)
    try:
        told = r"2 counts differ: '' is there 0 times, counted \d+; 'the' is there \d+ times, counted 0"
        with pytest.raises(StopError, match=told):
            demo_module.demo(lines=300, limit_s=PATIENT_S)
    finally:
        signal.signal(signal.SIGTERM, handler)


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.fault
@pytest.mark.parametrize(
    ("moment", "interrupt"),
    [("starting a Kafka broker", CliProcess.interrupt_group), ("instance 1 starts", CliProcess.interrupt)],
)
def test_an_interrupted_demo_leaves_nothing(
    tmp_path: Path, moment: str, interrupt: Callable[[CliProcess], None]
) -> None:
    with cli("demo") as demo:
        demo.wait_for_line(moment)
        assert until(lambda: len(demo.family()) > (3 if "instance" in moment else 1))
        interrupt(demo)
        assert demo.end() == 130, demo.text
        demo.leaves_nothing()


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.fault
def test_a_demo_that_is_killed_takes_its_instances_and_broker_with_it(tmp_path: Path) -> None:
    with cli("demo") as demo:
        demo.wait_for_line("instance 1 starts")
        assert until(lambda: len(demo.family()) > 4)  # the demo, the broker and its guard, the instance and its JVM
        demo.kill()
        assert until(lambda: not demo.family()), [process.cmdline() for process in demo.family()]


def test_a_folder_with_something_in_it_is_not_taken_for_data(tmp_path: Path) -> None:
    (tmp_path / "letters").touch()
    done = ran_here("demo", "--keep-data", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tidemill: --keep-data {tmp_path}: it is there and not empty")

"""Rebalances kept over restarts: the last hundred, whole lines only, and what is no history is put aside."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.runtime.group.test_rebalance_history import ONE, TASKS, TWO, group_that_grows, joins
from tidemill.deadline import Deadline
from tidemill.documents import Document
from tidemill.runtime.group.history_file import ASIDE, FILE, HistoryFile, HistoryKeeper
from tidemill.runtime.group.rebalance_history import KEPT, RebalanceHistory


def kept_by(directory: Path, *times_ms: int) -> RebalanceHistory:
    """An instance's life, in which it leads at these times."""
    led = RebalanceHistory()
    keeper = HistoryKeeper(led, directory)
    keeper.start()
    for at_ms in times_ms:
        joins(led, (ONE, "one:1", {}, []), at_ms=at_ms)
    keeper.close()
    return led


def test_what_one_life_has_led_the_next_one_tells(tmp_path: Path) -> None:
    kept_by(tmp_path, 1_000, 2_000)
    again = kept_by(tmp_path, 3_000)
    assert [led["at_ms"] for led in again.history()] == [1_000, 2_000, 3_000]
    assert again.history() == kept_by(tmp_path).history()
    assert again.problem == ""


def test_moves_and_reasons_are_kept_as_they_were_told(tmp_path: Path) -> None:
    grown = group_that_grows().history()
    HistoryFile(tmp_path).append(grown, grown)
    found, problem = HistoryFile(tmp_path).load()
    assert (found, problem) == (grown, "")
    assert any(move["reason"] for led in found for move in led["moves"])


def test_only_the_last_hundred_are_kept_and_the_file_stays_small(tmp_path: Path) -> None:
    led = kept_by(tmp_path, *range(1_000, 1_000 + 3 * KEPT))
    assert [one["at_ms"] for one in led.history()] == list(range(1_000 + 2 * KEPT, 1_000 + 3 * KEPT))
    assert len(led.to_json()) < KEPT, "pages are told the newest"
    file = HistoryFile(tmp_path)
    kept, _ = file.load()
    assert kept == led.history()
    for at_ms in range(5 * KEPT):
        file.append([{**kept[0], "at_ms": at_ms}], kept)
    assert len((tmp_path / FILE).read_bytes().splitlines()) <= 2 * KEPT


class Busy(RebalanceHistory):
    """Leads another rebalance right after each look at the history, up to ``last_ms``."""

    at_ms, last_ms = 1_000, 1_000 + 5 * KEPT

    def history(self) -> list[Document]:
        found = super().history()
        if self.at_ms < self.last_ms:
            self.at_ms += 1
            joins(self, (ONE, "one:1", {}, []), at_ms=self.at_ms)
        return found


def test_one_that_comes_while_the_others_are_written_is_in_the_file_once(tmp_path: Path) -> None:
    led = Busy()
    keeper = HistoryKeeper(led, tmp_path)
    keeper.start()
    joins(led, (ONE, "one:1", {}, []), at_ms=led.at_ms)  # from here on each write brings the next one
    deadline = Deadline.after(120)
    while led.at_ms < led.last_ms and not deadline.is_over:
        time.sleep(0.01)
    keeper.close()
    found, _ = HistoryFile(tmp_path).load()
    times = [one["at_ms"] for one in found]
    assert times == sorted(set(times))
    assert times[-1] == led.last_ms


def test_a_line_that_a_crash_has_cut_short_is_left_out(tmp_path: Path) -> None:
    kept_by(tmp_path, 1_000, 2_000)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-20])
    assert [led["at_ms"] for led in kept_by(tmp_path, 3_000).history()] == [1_000, 3_000]
    assert [led["at_ms"] for led in kept_by(tmp_path).history()] == [1_000, 3_000]
    path.write_bytes(b'{"at_ms": 1')
    assert kept_by(tmp_path).history() == []


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """This process can write no file beyond this size meanwhile: what does not fit is an error, after what fits."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))


def test_a_disk_without_room_costs_no_line_before_and_none_after(tmp_path: Path) -> None:
    led = RebalanceHistory()
    keeper = HistoryKeeper(led, tmp_path)
    joins(led, (ONE, "one:1", {}, []), at_ms=1_000)
    keeper._write()
    joins(led, (ONE, "one:1", {}, []), at_ms=2_000)
    with room_for((tmp_path / FILE).stat().st_size + 20):
        keeper._write()
    joins(led, (ONE, "one:1", {}, []), at_ms=3_000)
    keeper._write()
    found, problem = HistoryFile(tmp_path).load()
    assert ([one["at_ms"] for one in found], problem) == ([1_000, 2_000, 3_000], "")


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"garbage\n", "line 1 is no rebalance"),
        (b"\x00\xff\xfe\n", "line 1 is no rebalance"),
        (b"{}\n", "has no at_ms"),
        (b"[1, 2]\n", "is a list, expected an object"),
        (b"[" * 100_000 + b"\n", "line 1 is no rebalance"),
    ],
)
def test_what_is_no_history_is_put_aside_and_said_and_the_instance_goes_on(tmp_path: Path, content: bytes, named: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    led = kept_by(tmp_path, 1_000)
    assert named in led.problem
    assert "put aside as rebalances.jsonl.unreadable" in led.problem
    assert (tmp_path / ASIDE).read_bytes() == content
    assert [one["at_ms"] for one in kept_by(tmp_path).history()] == [1_000]


@pytest.mark.parametrize("aside", ["a folder", "a file"])
def test_a_directory_in_the_files_place_keeps_nobody_from_leading(tmp_path: Path, aside: str) -> None:
    (tmp_path / FILE).mkdir()
    if aside == "a folder":
        (tmp_path / ASIDE).mkdir()
        (tmp_path / ASIDE / "something").touch()
    else:
        (tmp_path / ASIDE).touch()
    led = kept_by(tmp_path, 1_000)
    assert "could not be put aside" in led.problem
    assert "no rebalances are kept over a restart: remove or rename rebalances.jsonl and" in led.problem
    assert "a new one begins" not in led.problem
    assert [one["at_ms"] for one in led.history()] == [1_000]


def test_a_second_line_that_is_none_is_named_by_its_number(tmp_path: Path) -> None:
    kept_by(tmp_path, 1_000)
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes() + json.dumps({"at_ms": "soon"}).encode() + b"\n")
    assert "line 2" in kept_by(tmp_path).problem


def test_the_first_rebalance_after_a_restart_is_reported_without_those_before(tmp_path: Path) -> None:
    """Who joined and left since is not known: members' own words count."""
    led = RebalanceHistory()
    led.remember(group_that_grows().history())
    running = dict.fromkeys(TASKS, -2)
    joins(led, (ONE, "one:1", running, [0, 1, 2, 3]), (TWO, "two:2", {}, []), at_ms=9_000)
    assert (led.history()[-1]["joined"], led.history()[-1]["left"]) == ([], [])

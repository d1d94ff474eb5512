"""What the duplicates experiment concludes from consumers' logs, and how a Java leader's log is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from consumer_group import ConsumerLog, missing, repeated
from java_streams import JavaStreams
from rounds import assignments

FIRST = """\
10.0 J MainThread
10.1 A MainThread 0,1
11.0 R 0 5
11.1 R 1 7
11.2 C 0:6,1:8
12.0 R 0 6
12.1 R 1 8
12.2 C 0:7
"""
SECOND = """\
13.0 J MainThread
13.5 A MainThread -
14.0 A MainThread 0,1
14.1 R 1 8
14.2 R 0 7
15.0 R 0 7
"""


@pytest.fixture
def logs(tmp_path: Path) -> list[ConsumerLog]:
    written = []
    for name, text in (("first", FIRST), ("second", SECOND)):
        (tmp_path / name).write_text(text)
        written.append(ConsumerLog(tmp_path / name))
    return written


def test_a_record_with_two_lines_was_processed_twice_when_the_second_was_written(logs: list[ConsumerLog]) -> None:
    assert repeated(logs, 0, 20) == 2
    assert repeated(logs, 14, 15) == 1
    assert repeated(logs, 0, 14) == 0


def test_only_records_that_one_consumer_had_processed_count_as_its_own(logs: list[ConsumerLog]) -> None:
    first, second = logs
    assert repeated(logs, 0, 20, first) == 1
    assert repeated(logs, 0, 20, second) == 2


def test_what_was_processed_beyond_the_last_commit_is_not_committed(logs: list[ConsumerLog]) -> None:
    first, second = logs
    assert first.committed == {0: 7, 1: 8}
    assert first.uncommitted == 1
    assert second.uncommitted == 2


def test_records_that_nobody_has_processed_are_missing(logs: list[ConsumerLog]) -> None:
    assert missing(logs, {0: 8, 1: 9}) == 17 - 5


def test_an_empty_assignment_gives_no_partitions(logs: list[ConsumerLog], tmp_path: Path) -> None:
    (tmp_path / "third").write_text("1.0 J MainThread\n1.1 A MainThread -\n")
    assert [log.has_partitions for log in (*logs, ConsumerLog(tmp_path / "third"), ConsumerLog(tmp_path / "none"))] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_java_leaders_assignment_is_read_as_tidemills(tmp_path: Path) -> None:
    java = JavaStreams(tmp_path / "java", "localhost:1", "app", process_id="4b61083e-57d0-457d-951f-d06556c148ca")
    leader = "stream-thread [app-4b61083e-57d0-457d-951f-d06556c148ca-StreamThread-1-consumer]"
    java.log_file.write_text(
        f"1795268672.980 StreamsPartitionAssignor {leader} Assignment of tasks to nodes: "
        "4b61083e-57d0-457d-951f-d06556c148ca=[activeTasks: ([1_0]) standbyTasks: ([])]\n"
        "7156cef1-307e-49c0-a5bb-0f11d26a4933=[activeTasks: ([0_0]) standbyTasks: ([1_0])]\n"
        f"1795268672.987 StreamsPartitionAssignor {leader} Requesting followup rebalance be scheduled by app-1-consumer-2 for "
        "2026-11-21 13:45:32,984 Z to probe for caught-up replica tasks.\n"
        f"1795268672.990 StreamsPartitionAssignor {leader} Finished unstable assignment of tasks, a followup rebalance will be "
        "scheduled.\n"
    )
    (found,) = assignments([java.log])
    assert "4b61083e" in found.leader
    assert found.active == {
        "4b61083e-57d0-457d-951f-d06556c148ca": ("1_0",), "7156cef1-307e-49c0-a5bb-0f11d26a4933": ("0_0",)
    }  # fmt: skip
    assert found.standby["7156cef1-307e-49c0-a5bb-0f11d26a4933"] == ("1_0",)
    assert found.probing_at_ms == 1795268732984
    assert found.follow_up == "a probe 60 s later"

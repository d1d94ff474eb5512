"""The timeline of a start: what is told, and the file that viewers of Chrome's trace format open."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.errors import EnvironmentProblem
from tidemill.start_trace import FIRST_OUTPUT, TraceFile, is_traced, log, span, tell_moment, tell_process, tell_span


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "trace.json"
    log.setLevel(logging.NOTSET)
    log.propagate = True
    assert not any(isinstance(handler, TraceFile) for handler in log.handlers)


@pytest.fixture
def trace(path: Path) -> Iterator[TraceFile]:
    file = TraceFile(path)
    file.listen()
    yield file
    file.close()


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def told(path: Path) -> dict[str, dict[str, Any]]:
    return {event["name"]: event for event in events(path) if event["ph"] != "M"}


def lane_names(path: Path) -> dict[tuple[int, int], str]:
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events(path) if event["ph"] == "M"}


def test_nothing_is_noted_while_nobody_listens() -> None:
    assert not is_traced()
    with span("work") as details:
        details["rows"] = 1
    tell_moment(FIRST_OUTPUT)


def test_a_span_is_a_complete_event_with_its_details_and_the_threads_own_time(trace: TraceFile, path: Path) -> None:
    with span("plan built", thread=1) as details:
        details["rows"] = 7
    trace.close()
    event = told(path)["plan built"]
    assert event["ph"] == "X"
    assert event["dur"] >= 0
    assert event["args"]["thread"] == 1
    assert event["args"]["rows"] == 7
    assert event["args"]["cpu_ms"] >= 0


def test_a_span_that_fails_is_told_all_the_same(trace: TraceFile, path: Path) -> None:
    with pytest.raises(ValueError, match="no"), span("topics checked"):
        raise ValueError("no")
    trace.close()
    assert "topics checked" in told(path)


def test_each_thread_and_each_process_has_a_line_of_its_own_with_its_name(trace: TraceFile, path: Path) -> None:
    with span("here"):
        pass
    other = threading.Thread(target=lambda: tell_span("there", 1.0, 2.5), name="StreamThread-1")
    other.start()
    other.join()
    tell_span("imports", 1.0, 1.5, process=(4711, "worker 1/source"))
    trace.close()
    found, names = told(path), lane_names(path)
    lanes = {name: (event["pid"], event["tid"]) for name, event in found.items()}
    assert names[lanes["there"]] == "StreamThread-1"
    assert names[lanes["imports"]] == "worker 1/source"
    assert lanes["here"][0] == lanes["there"][0] == os.getpid()
    assert len(set(lanes.values())) == 3
    assert (found["there"]["ts"], found["there"]["dur"]) == (1_000_000, 1_500_000)


def test_a_process_begins_when_it_was_created_to_some_hundredths(trace: TraceFile, path: Path) -> None:
    before = time.time()
    with subprocess.Popen(["sleep", "60"]) as process:
        after = time.time()
        tell_process("until now", process.pid, "sleep", 4e9)
        process.kill()
    trace.close()
    assert before - 0.05 <= told(path)["until now"]["ts"] / 1e6 <= after + 0.05


def test_a_thread_that_stands_still_while_it_reads_the_clocks_moves_no_process(
    trace: TraceFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine with more to do than it can."""
    tell_process("before", os.getpid(), "driver", 4e9)
    clock, stands_still = time.clock_gettime, [True]

    def late_at_first(which: int) -> float:
        if stands_still:
            stands_still.clear()
            time.sleep(0.5)
        return clock(which)

    monkeypatch.setattr(time, "clock_gettime", late_at_first)
    tell_process("late", os.getpid(), "driver", 4e9)
    monkeypatch.undo()
    trace.close()
    found = told(path)
    assert abs(found["late"]["ts"] - found["before"]["ts"]) / 1e6 < 0.25
    assert not stands_still


def test_a_process_is_told_from_its_creation_and_one_that_has_ended_not_at_all(trace: TraceFile, path: Path) -> None:
    tell_process("until now", os.getpid(), "driver", 4e9)
    tell_process("never", 2**22 + 1, "gone", 4e9)  # above any pid that Linux gives
    trace.close()
    assert told(path).keys() == {"until now"}


def test_the_file_ends_with_the_first_output_and_later_spans_cost_nothing(trace: TraceFile, path: Path) -> None:
    tell_moment("assigned", tasks=2)
    tell_moment(FIRST_OUTPUT)
    assert not is_traced()
    with span("micro-batch"):
        pass
    trace.close()
    found = told(path)
    assert list(found) == ["assigned", FIRST_OUTPUT]
    assert found[FIRST_OUTPUT]["ph"] == "i"


@pytest.mark.usefixtures("trace")
def test_the_log_gets_no_spans() -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        with span("here"):
            pass
    finally:
        logging.getLogger().removeHandler(handler)
    assert records == []


def test_a_file_that_cannot_be_written_is_named_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"--trace-start: .*gone/t\.json can't be written .*No such file"):
        TraceFile(tmp_path / "gone" / "t.json")

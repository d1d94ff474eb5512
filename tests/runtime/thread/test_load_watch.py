"""Loads of a stream thread's tasks: measured from its metrics, handed to joins, worth a rebalance once an interval has passed."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidemill.assignment.choice import NAMES, PUBLIC_STICKY, reads_weights
from tidemill.assignment.task_load import TaskLoad, level
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.thread.load_watch import LoadWatch

TASK, INPUT = TaskId(0, 0), TopicPartition("in", 0)


@dataclass
class Thread:
    """A thread with one running task whose input grows by 100 records a second."""

    root: Path
    assignor: str = "balanced"
    wanted: bool = True
    now_s: float = 1_000.0
    is_joining: bool = False
    probing_ms: int = 120_000
    metrics: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(assigned_at_s=1_000.0, high_watermarks={}))

    def __post_init__(self) -> None:
        config = SimpleNamespace(
            task_weights=self.wanted, task_assignor_class=self.assignor, probing_rebalance_interval_ms=self.probing_ms
        )
        tasks = SimpleNamespace(
            running={TASK}, active={TASK: SimpleNamespace(inputs={INPUT: 0})},
            member=SimpleNamespace(is_joining=self.is_joining),
        )  # fmt: skip
        directory = SimpleNamespace(task_path=lambda task: self.root / str(task))
        self.watch = LoadWatch(config, SimpleNamespace(now=tasks), self.metrics, directory, lambda: self.now_s)  # type: ignore[arg-type]

    def look_after(self, seconds: float) -> bool:
        self.now_s += seconds
        self.metrics.high_watermarks[INPUT] = int(self.now_s * 100)
        return self.watch.measure()


def test_a_join_says_what_was_measured_with_the_size_of_the_state_here(tmp_path: Path) -> None:
    (tmp_path / str(TASK)).mkdir()
    (tmp_path / str(TASK) / "data.mdb").write_bytes(b"x" * (1 << 20))
    thread = Thread(tmp_path)
    assert thread.watch.joins() == {}
    thread.look_after(0)
    thread.look_after(10)  # too early
    thread.look_after(20)
    assert thread.watch.joins() == {TASK: TaskLoad(records=level(100), state=20)}


def test_a_probing_interval_that_is_shorter_than_the_time_between_two_looks_shortens_it(tmp_path: Path) -> None:
    thread = Thread(tmp_path, probing_ms=2_000)
    thread.look_after(0)
    assert thread.look_after(2)
    assert thread.watch.joins() == {TASK: TaskLoad(records=level(100))}


def test_it_wants_a_rebalance_for_a_load_that_no_join_has_said_once_an_interval_has_passed(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    assert not any(thread.look_after(seconds) for seconds in (0, 30, 30, 30))
    assert thread.look_after(30)
    thread.watch.joins()
    assert not thread.look_after(30)


@pytest.mark.parametrize("thread", [{"wanted": False}, {"assignor": "HighAvailabilityTaskAssignor"}])
def test_nothing_is_measured_where_it_is_off_or_the_assignor_is_kafkas(tmp_path: Path, thread: dict[str, object]) -> None:
    off = Thread(tmp_path, **thread)  # type: ignore[arg-type]
    assert not any(off.look_after(60) for _ in range(5))
    assert off.watch.joins() == {}


def test_only_balanced_and_classes_of_users_read_weights() -> None:
    assert [name for name in (*NAMES, PUBLIC_STICKY, "my.package:Mine") if reads_weights(name)] == ["balanced", "my.package:Mine"]

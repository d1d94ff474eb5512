"""What an engine knows of its workers, which join on the control channel's threads."""

from __future__ import annotations

import threading
from typing import Any, cast

from tidemill.control.worker_process import WorkerProcess
from tidemill.spark.engine import BatchEngine
from tidemill.spark.run import Run


class Dying:
    """A worker that dies when it is killed."""

    host = "localhost"

    def __init__(self, pid: int) -> None:
        self.pid, self.is_dead = pid, False

    def kill(self) -> None:
        self.is_dead = True

    def wait_dead(self, timeout_s: float) -> bool:
        return self.is_dead


def without_spark() -> Any:
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._workers, engine._at_work, engine._run, engine._thread = {}, set(), None, "thread"
    engine._joining = threading.Lock()
    return engine


def test_a_worker_takes_the_place_of_the_one_of_an_earlier_run() -> None:
    engine, before, now = without_spark(), Dying(1), Dying(2)
    first = engine._run = Run(is_standing=True)
    assert engine.worker_joined(first.number, "step-1", before)
    engine._run = Run(is_standing=True)
    assert engine.worker_joined(engine._run.number, "step-1", now)
    assert engine.worker_pids == {"step-1": 2}
    assert (before.is_dead, now.is_dead) == (True, False)


def test_a_worker_that_is_ready_when_its_run_is_over_does_not_end_the_one_of_the_next_run() -> None:
    """On a busy machine a run takes too long and is cancelled while one of its workers still imports."""
    engine, late, now = without_spark(), Dying(1), Dying(2)
    failed, engine._run = Run(is_standing=True), Run(is_standing=True)
    assert engine.worker_joined(engine._run.number, "step-1", now)
    assert not engine.worker_joined(failed.number, "step-1", late)
    engine.worker_left("step-1", late)
    assert engine.worker_pids == {"step-1": 2}
    assert (late.is_dead, now.is_dead, engine._run.is_ending) == (True, False, False)


def test_of_two_workers_that_join_at_the_same_time_the_one_of_the_run_under_way_is_left() -> None:
    engine, late, now = without_spark(), Dying(1), Dying(2)
    engine._run = Run(is_standing=True)
    joining: list[threading.Thread] = []

    class JoinedMeanwhile(dict[str, Any]):
        def get(self, step: str, default: Any = None) -> Any:
            found = super().get(step, default)
            if not joining:
                engine._run = Run(is_standing=True)
                joining.append(threading.Thread(target=engine.worker_joined, args=(engine._run.number, step, now)))
                joining[0].start()
                joining[0].join(0.2)  # it waits for its turn; without one it is done by now
            return found

    engine._workers = JoinedMeanwhile()
    engine.worker_joined(engine._run.number, "step-1", late)
    joining[0].join(30)
    assert engine.worker_pids == {"step-1": 2}
    assert (late.is_dead, now.is_dead) == (True, False)


def test_the_writer_is_found_while_another_worker_joins() -> None:
    engine = without_spark()
    writer, joined = cast("WorkerProcess", object()), cast("WorkerProcess", object())

    class JoinedMeanwhile(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __ne__(self, other: object) -> bool:
            engine.worker_joined(1, "source", joined)
            return super().__ne__(other)

    engine.worker_joined(1, JoinedMeanwhile("step-1"), writer)
    assert engine.writer is writer
    assert dict(engine._workers) == {"step-1": writer, "source": joined}

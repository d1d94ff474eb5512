"""A stream thread that runs another plan: its workers are others, which begin with what is committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.thread_alone import KEPT, Engine, ThreadAlone, source
from tidemill.errors import RejoinError
from tidemill.task.batch import Outcome
from tidemill.task.lifecycle import Phase


class Closable(Engine):
    was_closed = False

    def close(self) -> None:
        self.was_closed = True


@pytest.fixture
def before() -> Closable:
    return Closable(Outcome.COMMITTED)


@pytest.fixture
def alone(before: Closable, tmp_path: Path) -> ThreadAlone:
    alone = ThreadAlone(before, tmp_path)
    alone.assign(KEPT)
    alone.run_all()
    alone.runner.run()
    return alone


def test_the_workers_of_the_plan_before_are_ended_and_tasks_continue_at_what_is_committed(
    alone: ThreadAlone, before: Closable
) -> None:
    after: Any = Closable(Outcome.COMMITTED)
    assert alone.registry.now.active[KEPT].phase is Phase.RUNNING
    assert alone.runner.change(lambda: after)
    assert alone.runner.engine is after
    assert before.was_closed
    assert before.was_killed
    assert alone.registry.now.active[KEPT].needs_bounds


def test_the_plan_changes_only_when_what_was_processed_is_committed(alone: ThreadAlone, before: Closable) -> None:
    """At least once: else the workers, which begin with what is committed, would process it again."""
    after: Any = Closable(Outcome.COMMITTED)
    member: Any = alone.parts.group.member
    answers: list[Exception | None] = [RejoinError("a rebalance is in progress"), None]

    def commit(_offsets: object) -> None:
        if answer := answers.pop(0):
            raise answer

    member.commit = commit
    alone.parts.commits.waiting = {source(KEPT): 5}
    assert not alone.runner.change(lambda: after)
    assert alone.runner.engine is before  # type: ignore[comparison-overlap]
    assert not before.was_closed
    assert not before.was_killed
    assert alone.runner.change(lambda: after)
    assert alone.parts.commits.committed == {source(KEPT): 5}


def test_the_plan_does_not_change_during_a_join(alone: ThreadAlone, before: Closable) -> None:
    after: Any = Closable(Outcome.COMMITTED)
    alone.registry.joins(generation=1, incarnation=0, offset_sums={}, running=())
    assert not alone.runner.change(lambda: after)
    assert not before.was_killed
    alone.assign(KEPT)
    assert alone.runner.change(lambda: after)

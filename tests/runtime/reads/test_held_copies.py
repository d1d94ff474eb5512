"""Which of the tasks that a member holds are copies to read, from before its thread has them until they are given up."""

from __future__ import annotations

from pathlib import Path

from tests.query.stand_ins import COUNTS
from tidemill.ids import TaskId
from tidemill.membership.member_state import HeldTask, Hold, Role
from tidemill.query.local_copies import LocalCopies, LocalCopy
from tidemill.runtime.reads.queries import held_copies
from tidemill.state.lmdb import TaskState
from tidemill.task.lifecycle import ActiveTask, Phase

TASK = TaskId(1, 0)


def copies(hold: Hold, role: Role, phase: Phase | None, folder: Path = Path("state")) -> list[LocalCopy]:
    """``phase``: of the thread's active task, None if it has none."""
    held = {TASK: HeldTask(role=role, partitions=(), hold=hold)}
    tasks = {}
    if phase is not None:
        tasks = {TASK: ActiveTask(task=TASK, directory="d", epoch="e", inputs=(), changelogs={}, phase=phase, stores={"s": 7})}
    return list(held_copies(held, tasks, lambda task: folder / str(task)))


def test_a_task_that_runs_is_a_copy_with_its_positions() -> None:
    (copy,) = copies(Hold.OPEN, Role.ACTIVE, Phase.RUNNING)
    assert copy == LocalCopy(
        task=TASK, role=Role.ACTIVE, directory=Path("state/1_0"), is_running=True, epoch="e", positions={"s": 7}
    )
    assert copies(Hold.RELEASING, Role.ACTIVE, Phase.RUNNING) == [copy]  # it is read until it has been committed and closed


def test_a_standby_is_a_copy_and_what_is_lost_or_given_up_is_none() -> None:
    (copy,) = copies(Hold.OPEN, Role.STANDBY, None)
    assert (copy.role, copy.is_running) == (Role.STANDBY, False)
    for role in Role:
        assert copies(Hold.LOST, role, None) == []
    assert copies(Hold.RELEASING, Role.ACTIVE, None) == []


def test_a_range_is_not_read_without_a_task_that_is_assigned_and_not_taken_up_yet(tmp_path: Path) -> None:
    """The group says already that this instance has it: to leave it out would pass for a store without those keys."""
    state = TaskState.open(tmp_path / "1_0", ["counts"])
    state.claim("e")
    state.close(clean=True)
    held: list[LocalCopy] = []
    local = LocalCopies(lambda wanted: [copy for copy in held if wanted(copy.task)])
    for phase, is_refused in ((None, True), (Phase.RESTORING, True), (Phase.RUNNING, False)):
        held[:] = copies(Hold.OPEN, Role.ACTIVE, phase, tmp_path)
        found = local.open(COUNTS, stale=False)
        assert (set(found.readers), set(found.refused)) == ((set(), {0}) if is_refused else ({0}, set()))
        assert set(local.open(COUNTS, stale=True).readers) == {0}
    local.close()

"""Stores that are not persistent are read where their worker keeps them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from tests.query.stand_ins import PARTITIONS, store_info, stored
from tidemill.errors import InvalidStateStoreError
from tidemill.ids import TaskId
from tidemill.membership.member_state import Role
from tidemill.query.local_copies import LocalCopies, LocalCopy
from tidemill.runtime.worker.task_store import VOLATILE_FOLDER, OwnedStores
from tidemill.steps.step_spec import StoreSpec
from tidemill.task.batch import TaskRun

FACTS = store_info(folder=VOLATILE_FOLDER)
SPEC = StoreSpec(
    name="counts", tag=1, subtopology=1, changelog=FACTS.changelog, timestamped=True, persistent=False, logged=True,
    key_serde=FACTS.key_serde, value_serde=FACTS.value_serde,
)  # fmt: skip


def test_a_store_in_memory_is_read_beside_its_worker_and_not_believed_after_a_new_one_began(tmp_path: Path) -> None:
    task = TaskId(1, PARTITIONS - 1)
    run = TaskRun(task=task, directory=str(tmp_path / str(task)), epoch=str(uuid4()), changelog={})
    worker = OwnedStores(run, {"counts": SPEC})
    worker.apply({"counts": {b"k": stored(FACTS, 3)}}, {"counts": 4})
    assert _read(run) == stored(FACTS, 3)
    worker.close(clean=False)
    replaced = OwnedStores(run, {"counts": SPEC})
    with pytest.raises(InvalidStateStoreError, match=r"wiped and are being restored \(offset 0 of 4\)"):
        _read(run)
    replaced.close(clean=False)


def _read(run: TaskRun) -> bytes | None:
    """What the driver reads, which has heard that the task runs and is at offset 4."""
    copy = LocalCopy(
        task=run.task,
        role=Role.ACTIVE,
        directory=Path(run.directory),
        is_running=True,
        epoch=run.epoch,
        positions={"counts": 4},
    )
    copies = LocalCopies(lambda _: [copy])
    try:
        return copies.open(FACTS, stale=False).readers[run.task.partition].get(b"k")
    finally:
        copies.close()

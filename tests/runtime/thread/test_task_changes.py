"""Instructions of the task manager, carried out in order."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

from tidemill.ids import TaskId
from tidemill.membership.member_state import TimePassed
from tidemill.runtime.thread.task_changes import TaskChanges
from tidemill.task.tasks import CloseTasks, TasksClosed


def test_what_is_processed_is_committed_before_a_batch_that_only_closes_stores() -> None:
    """At least once, the worker forgets in such a batch where it was. Without a commit the next batch did not fit what is
    committed, and all since then was processed again: whenever a standby was closed."""
    done: list[str] = []

    def handle(event: object) -> list[CloseTasks]:
        done.append(type(event).__name__)
        return [] if isinstance(event, TasksClosed) else [CloseTasks(tasks={TaskId(0, 0): "not assigned any more"})]

    parts: dict[str, Any] = {
        "group": SimpleNamespace(acting=contextlib.nullcontext),
        "registry": SimpleNamespace(handle=handle),
        "local": None,
        "runner": SimpleNamespace(close_stores=lambda *, are_open: done.append("close")),
        "commits": SimpleNamespace(commit=lambda: done.append("commit")),
        "observers": SimpleNamespace(on_change=lambda: None),
    }
    TaskChanges("thread", **parts).step(TimePassed())
    assert done == ["TimePassed", "commit", "close", "TasksClosed"]

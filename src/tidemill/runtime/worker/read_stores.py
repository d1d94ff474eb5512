"""Read access to a task's stores for the workers of earlier steps, while the last step's worker owns them.

Decides that a store which its owner has not created yet is empty: in a task's first batch earlier steps run before the last one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tidemill.errors import NoStateYetError, StateError
from tidemill.ids import TaskId
from tidemill.runtime.worker.task_store import VOLATILE_FOLDER, StoreViews
from tidemill.state.lmdb import TaskState
from tidemill.steps.rows.task_rows import NO_STATE
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StoreView
from tidemill.task.batch import StorePositions, TaskRun


class ReadStores:
    """One task's stores: opened when first read, never written."""

    def __init__(self, run: TaskRun, specs: Mapping[str, StoreSpec]) -> None:
        self.run = run
        self._specs = specs
        self._states: dict[bool, TaskState] = {}

    @property
    def at(self) -> StorePositions:
        return StorePositions(task=self.run.task, changelog={})

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        state = self._state_of(store)
        return [None] * len(keys) if state is None else state.get_many(store, keys)

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        state = self._state_of(store)
        return iter(()) if state is None else state.scan(store, low, high, reverse=reverse)

    def entries(self, store: str) -> int:
        state = self._state_of(store)
        return 0 if state is None else state.entries(store)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[StoreView]:
        mine = [spec.name for spec in self._specs.values() if spec.subtopology == self.run.task.subtopology]
        state_of = {name: self._state_of(name) for name in mine}
        with contextlib.ExitStack() as stack:
            views = {state: stack.enter_context(state.snapshot()) for state in set(state_of.values()) if state is not None}
            yield StoreViews({name: NO_STATE if state is None else views[state] for name, state in state_of.items()})

    def _state_of(self, store: str) -> TaskState | None:
        persistent = self._specs[store].persistent
        if persistent not in self._states:
            folder = Path(self.run.directory)
            try:
                self._states[persistent] = TaskState.open_to_read(folder if persistent else folder / VOLATILE_FOLDER)
            except NoStateYetError:
                return None
        return self._states[persistent]

    def check(self, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        raise StateError(f"task {self.run.task}: only the last step writes stores, asked to write {sorted(writes)}")

    def apply(self, writes: Mapping[str, Mapping[bytes, bytes | None]], changelog: Mapping[str, int]) -> None:
        del changelog
        self.check(writes)

    def close(self) -> None:
        for state in self._states.values():
            state.close(clean=False)


class ReadTasks:
    """The tasks that a step before the last has open."""

    def __init__(self, specs: Mapping[str, StoreSpec]) -> None:
        self._specs = specs
        self._open: dict[TaskId, ReadStores] = {}

    def open(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, ReadStores]:
        wanted = {run.task: run for run in runs}
        for task, stores in list(self._open.items()):
            if task not in wanted or wanted[task].epoch != stores.run.epoch:
                stores.close()
                del self._open[task]
        for task, run in wanted.items():
            self._open.setdefault(task, ReadStores(run, self._specs))
        return self._open

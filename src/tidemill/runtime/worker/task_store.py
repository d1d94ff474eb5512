"""The stores of tasks, as the last step's worker has them open: it is their owner, and the only process that writes them.

Decides when stores count as behind (correctness.md, rule 15), and what is done with corrupt files and with files of another task:
they are wiped, which is logged, and restored from the changelog. If one of the task's stores has no changelog, files of another
task are an error instead: the right ones may still be found and put back. In-memory stores are kept in a folder that every new
owner wipes, so that all steps can read them. The formats and the compare-and-swap itself are ``state``'s.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from tidemill.errors import (
    BatchLostError,
    CorruptStateError,
    ForeignStateError,
    StateBehindError,
    StateError,
    StopError,
)
from tidemill.ids import TaskId, TopicPartition
from tidemill.log_format import LogEvent
from tidemill.state.directory import DATA_FILE
from tidemill.state.durability import Shutdown, needing_the_disk
from tidemill.state.lmdb import TaskState, wipe_files
from tidemill.state.meta import StateIdentity
from tidemill.state.store import CheckedWrites, Positions, TaskStores, Writes
from tidemill.steps.commit.store_layout import form_of
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StoreView
from tidemill.task.batch import StorePositions, TaskRun

log = logging.getLogger("tidemill.state")

VOLATILE_FOLDER = "in-memory"


class OwnedStores:
    """Stores of one task: an environment for persistent stores and one for the others, each with its own positions.
    ``application_id`` None: the directory does not say whose it is."""

    def __init__(self, run: TaskRun, specs: Mapping[str, StoreSpec], application_id: str | None = None) -> None:
        self.run = run
        self.whose = None if application_id is None else StateIdentity(application_id=application_id, task=run.task)
        self._topic_ids: Mapping[str, str] = {}
        mine = [spec for spec in specs.values() if spec.subtopology == run.task.subtopology]
        self._persistent = [spec for spec in mine if spec.persistent]
        self._volatile = [spec for spec in mine if not spec.persistent]
        self._logged = frozenset(spec.name for spec in mine if spec.changelog or spec.source_topic)
        self._states: list[TaskState] = []
        self._checked: tuple[object, list[CheckedWrites]] | None = None
        self._state_of: dict[str, TaskState] = {}
        self._note = ""
        self._is_behind = False
        try:
            self._open(run)
            self._fit(run)
        except BaseException:
            self.close(clean=False)
            raise

    def _open(self, run: TaskRun) -> None:
        if self._persistent:
            self._add(_open(Path(run.directory), self._persistent, run.task.partition, self), self._persistent)
        if self._volatile:
            folder = Path(run.directory) / VOLATILE_FOLDER
            with needing_the_disk(folder):
                folder.mkdir(parents=True, exist_ok=True)
            wipe_files(folder)
            self._add(_open(folder, self._volatile, run.task.partition, self), self._volatile)
        self._topic_ids = {}
        try:
            self._positions = [state.claim(run.epoch) for state in self._states]
        except CorruptStateError as corrupt:
            self._wipe(_wiped(corrupt))

    def _add(self, state: TaskState, specs: Sequence[StoreSpec]) -> None:
        self._states.append(state)
        self._state_of.update({spec.name: state for spec in specs})

    @contextlib.contextmanager
    def _sound(self) -> Iterator[None]:
        """Files that turn out to be corrupt within this block are wiped; the batch is lost, and the task is restored."""
        try:
            yield
        except CorruptStateError as corrupt:
            self._wipe(_wiped(corrupt))
            raise BatchLostError(f"task {self.run.task}: {self._note}") from corrupt

    def _wipe(self, note: str) -> None:
        for state in self._states:
            with contextlib.suppress(StateError):
                state.close(clean=False)
            wipe_files(state.directory)
        self._states.clear()
        self._checked = None
        self._open(self.run)
        self._is_behind = True
        self.noted(note)

    def inspect(self) -> None:
        """Reads the files whole; if a page is broken they are wiped, and the stores behind."""
        try:
            for state in self._states:
                state.inspect()
        except CorruptStateError as corrupt:
            self._wipe(_wiped(corrupt))

    def noted(self, note: str) -> None:
        log.warning(LogEvent("state-note", task=self.run.task, note=note))
        self._note = "; ".join(filter(None, [self._note, note]))

    def expect(self, run: TaskRun) -> None:
        """The next batch's view of the same task."""
        self.run = run
        self._note = ""
        # A removed file would be written on, but no one else could read it, and a crash would lose all of it.
        replaced = [str(state.directory / DATA_FILE) for state in self._states if state.is_replaced()]
        if replaced:
            self._wipe(f"{', '.join(replaced)} was removed or replaced while the task runs here; wiped")
        self._fit(run)

    def _fit(self, run: TaskRun) -> None:
        """Empties stores that don't belong to their changelogs, then compares positions with those that the driver expects."""
        if run.wipe:
            self._empty_logged()
        self._follow_topics(run)
        if self._is_elsewhere(run):  # not where this worker has left them: what counts is what is in the files
            with self._sound():
                self._positions = [state.positions() for state in self._states]
        self._is_behind = self._is_elsewhere(run)

    def _empty_logged(self) -> None:
        """Empties the stores that have a changelog: others could not be restored, and there is none that they don't fit."""
        self.noted(
            f"the stores of task {self.run.task}, at {self._changelog()}, are not part of their changelogs, which end before "
            "that or lack what the stores lack: wiped"
        )
        with self._sound():
            for state in self._states:
                for store in self._logged.intersection(state.stores):
                    state.wipe(store)
            self._positions = [state.positions() for state in self._states]

    def _follow_topics(self, run: TaskRun) -> None:
        """Empties stores whose changelog topic was deleted and created again: positions in it are positions in another topic."""
        if not run.topic_ids or run.topic_ids == self._topic_ids:
            return
        with self._sound():
            for at, state in enumerate(self._states):
                for store, topic_id in state.follow_topics(run.topic_ids, epoch=run.epoch).items():
                    self.noted(
                        f"the changelog of store {store} of task {run.task} was created again: its topic id is "
                        f"{run.topic_ids[store]}, and the store follows {topic_id}; emptied, to be restored from what is there"
                    )
                    self._positions[at] = state.positions()
        self._topic_ids = dict(run.topic_ids)

    def _is_elsewhere(self, run: TaskRun) -> bool:
        """True if the stores are at other positions than the driver expects, or another owner has claimed them (rule 15)."""
        moved = run.changelog is not None and dict(run.changelog) != self._changelog()
        return moved or any(positions.epoch != run.epoch for positions in self._positions)

    def _changelog(self) -> dict[str, int]:
        """A store that was persistent and is kept in memory now still has the position that it had in the persistent file."""
        return {
            store: at
            for state, positions in zip(self._states, self._positions, strict=True)
            for store, at in positions.changelog.items()
            if self._state_of.get(store, state) is state
        }

    @property
    def at(self) -> StorePositions:
        return StorePositions(task=self.run.task, changelog=self._changelog(), is_behind=self._is_behind, note=self._note)

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._sound():
            return self._state_of[store].get_many(store, keys)

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a store with ``low <= key < high``."""
        with self._sound():
            yield from self._state_of[store].scan(store, low, high, reverse=reverse)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[StoreView]:
        """A view of all stores at this time, for many reads."""
        with self._sound(), contextlib.ExitStack() as stack:
            views = [stack.enter_context(state.snapshot()) for state in self._states]
            yield StoreViews({name: view for state, view in zip(self._states, views, strict=True) for name in state.stores})

    def check(self, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> None:
        with self._sound():
            self._checked = writes, [state.check(_of(state, writes)) for state in self._states]

    def apply(self, writes: Mapping[str, Mapping[bytes, bytes | None]], changelog: Mapping[str, int]) -> None:
        # What was checked may have been for a batch that was aborted since: only these very writes are taken as checked.
        before_commit, self._checked = self._checked, None
        checked: Sequence[CheckedWrites | Writes]
        if before_commit is not None and before_commit[0] is writes:
            checked = before_commit[1]
        else:
            checked = [_of(state, writes) for state in self._states]
        for index, state in enumerate(self._states):
            before = replace(self._positions[index], epoch=self.run.epoch)
            after = Positions(
                changelog={**before.changelog, **{s: at for s, at in changelog.items() if s in state.stores}},
                inputs=before.inputs,
                epoch=before.epoch,
            )
            try:
                with self._sound():
                    state.apply(expected=before, new=after, writes=checked[index])
            except StateBehindError as behind:
                self._is_behind = True
                self._positions[index] = state.positions()
                self.noted(str(behind))
            else:
                self._positions[index] = after

    def close(self, *, clean: bool) -> None:
        for state in self._states:
            state.close(clean=clean)


def _of(state: TaskStores, writes: Mapping[str, Mapping[bytes, bytes | None]]) -> Writes:
    return {store: list(rows.items()) for store, rows in writes.items() if store in state.stores}


def _open(directory: Path, specs: Sequence[StoreSpec], partition: int, owner: OwnedStores) -> TaskState:
    names = [spec.name for spec in specs]
    changelogs = {
        spec.name: TopicPartition(topic, partition) for spec in specs if (topic := spec.changelog or spec.source_topic)
    }
    from_sources = {spec.name for spec in specs if not spec.changelog}
    forms = {spec.name: form_of(spec) for spec in specs}
    opened = partial(
        TaskState.open, directory, names, whose=owner.whose, changelogs=changelogs, from_sources=from_sources, forms=forms
    )
    try:
        state = opened()
    except (CorruptStateError, ForeignStateError) as refused:
        if isinstance(refused, ForeignStateError):
            _require_logged(refused, names, changelogs)
        owner.noted(f"{refused}; wiped" if isinstance(refused, ForeignStateError) else _wiped(refused))
        wipe_files(directory)
        return opened()
    for reason in state.emptied.values():
        owner.noted(f"{reason}: emptied, to be restored")
    if state.opened_after is Shutdown.LOST_POWER:
        owner.noted(f"{directory} was in use when the machine went down, or when it was copied; wiped")
    return state


def _require_logged(foreign: ForeignStateError, stores: Sequence[str], changelogs: Mapping[str, TopicPartition]) -> None:
    unlogged = [name for name in stores if name not in changelogs]
    if unlogged:
        raise StopError(
            f"{foreign}. {', '.join(unlogged)} can't be restored, having no changelog: put the task's own state back there, or "
            "remove the directory to begin with empty stores"
        ) from foreign


def _wiped(corrupt: CorruptStateError) -> str:
    return f"{corrupt.path} is corrupt: found {corrupt.found}, expected {corrupt.expected}; wiped"


class TaskLocks(Protocol):
    def open(self, task: TaskId) -> None:
        """BatchLostError if another worker has it."""

    def close(self, task: TaskId) -> None: ...


class OpenTasks:
    """The tasks that a worker has open. ``locks`` takes and frees each task's own, where no lock holds them all;
    ``application_id``: whose they are, which their directories say."""

    def __init__(
        self, specs: Mapping[str, StoreSpec], locks: TaskLocks | None = None, *, application_id: str | None = None
    ) -> None:
        self._specs, self._locks, self._application_id = specs, locks, application_id
        self._open: dict[TaskId, OwnedStores] = {}

    def open(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, OwnedStores]:
        """Opens these tasks and closes all others; a task with a new epoch is opened again."""
        wanted = {run.task: run for run in runs}
        for task, stores in list(self._open.items()):
            if task not in wanted or wanted[task].epoch != stores.run.epoch:
                stores.close(clean=True)
                del self._open[task]
                if self._locks is not None:
                    self._locks.close(task)
        for task, run in wanted.items():
            if task in self._open:
                self._open[task].expect(run)
            else:
                self._open[task] = self._opened(run)
            if run.inspect:
                self._open[task].inspect()
        return self._open

    def _opened(self, run: TaskRun) -> OwnedStores:
        """Its lock is freed if that fails: the task may be another worker's next."""
        if self._locks is None:
            return OwnedStores(run, self._specs, self._application_id)
        self._locks.open(run.task)
        try:
            return OwnedStores(run, self._specs, self._application_id)
        except BaseException:
            self._locks.close(run.task)
            raise


class StoreViews:
    """Several snapshots as one."""

    def __init__(self, view_of: Mapping[str, StoreView]) -> None:
        self._view_of = view_of

    def get(self, store: str, key: bytes) -> bytes | None:
        return self._view_of[store].get(store, key)

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._view_of[store].scan(store, low, high, reverse=reverse)

    def entries(self, store: str) -> int:
        return self._view_of[store].entries(store)

"""A task's stores as its worker has them: what is written is what was committed, where the files are is what counts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from tidemill import Serdes
from tidemill.errors import BatchLostError, CorruptStateError, StopError
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.worker.read_stores import ReadTasks
from tidemill.runtime.worker.task_store import OpenTasks, OwnedStores
from tidemill.state import keys
from tidemill.state.directory import DATA_FILE
from tidemill.state.lmdb import TaskState
from tidemill.steps.commit.store_layout import form_of
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.step_state import StoreView
from tidemill.task.batch import TaskRun
from tidemill.topology.nodes import Store, StoreKind

TASK = TaskId(1, 0)
SPECS = {
    "counts": StoreSpec(
        name="counts",
        tag=-100,
        subtopology=1,
        changelog="app-counts-changelog",
        timestamped=True,
        persistent=True,
        logged=True,
        key_serde=Serdes.string(),
        value_serde=Serdes.long(),
    )
}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "1_0")


def run(folder: str, position: int | None = None, epoch: str = "owner") -> TaskRun:
    return TaskRun(task=TASK, directory=folder, epoch=epoch, changelog=None if position is None else {"counts": position})


def opened(folder: str, position: int | None = None, epoch: str = "owner") -> OwnedStores:
    return OpenTasks(SPECS).open([run(folder, position, epoch)])[TASK]


def test_what_an_aborted_batch_had_checked_is_never_written(folder: str) -> None:
    stores = opened(folder)
    stores.check({"counts": {b"aborted": b"1"}})
    stores.apply({"counts": {b"restored": b"2"}}, {"counts": 5})
    assert stores.get_many("counts", [b"aborted", b"restored"]) == [None, b"2"]
    stores.check({"counts": {b"aborted": b"1"}})
    stores.apply({}, {"counts": 6})
    assert stores.get_many("counts", [b"aborted"]) == [None]
    assert stores.at.changelog == {"counts": 6}


def test_what_was_checked_and_committed_is_written(folder: str) -> None:
    stores = opened(folder)
    writes: dict[str, dict[bytes, bytes | None]] = {"counts": {b"k": b"1"}}
    stores.check(writes)
    stores.apply(writes, {"counts": 3})
    assert stores.get_many("counts", [b"k"]) == [b"1"]
    assert stores.at.changelog == {"counts": 3}


def test_stores_that_another_worker_has_moved_are_where_their_files_are(folder: str) -> None:
    """Two workers with the task's epoch, one after the other: the older must not believe its memory."""
    older, newer = opened(folder), opened(folder)
    newer.apply({"counts": {b"k": b"1"}}, {"counts": 7})
    older.expect(run(folder, 7))
    assert not older.at.is_behind
    assert older.at.changelog == {"counts": 7}


def test_stores_elsewhere_than_the_driver_thinks_are_behind(folder: str) -> None:
    stores = opened(folder)
    stores.apply({}, {"counts": 7})
    stores.expect(run(folder, 9))
    assert stores.at.is_behind
    assert stores.at.changelog == {"counts": 7}


def test_stores_that_another_owner_has_claimed_are_written_no_more_and_stay_behind(folder: str) -> None:
    former = opened(folder, epoch="former")
    OpenTasks(SPECS).open([run(folder, epoch="next")])
    former.apply({"counts": {b"k": b"1"}}, {"counts": 7})
    assert former.at.is_behind
    assert former.get_many("counts", [b"k"]) == [None]
    former.expect(run(folder, 0, epoch="former"))
    assert former.at.is_behind
    former.apply({"counts": {b"k": b"1"}}, {"counts": 8})
    assert former.get_many("counts", [b"k"]) == [None]


def broken_deep_inside(folder: str) -> OwnedStores:
    """Stores at 9, opened over a file whose last leaf is empty, which no look at the first pages tells."""
    stores = opened(folder)
    stores.apply({"counts": {f"key{number:06}".encode(): b"v" * 100 for number in range(40_000)}}, {"counts": 9})
    stores.close(clean=True)
    file = Path(folder) / DATA_FILE
    content = file.read_bytes()
    at = content.index(b"key039999") // 4096 * 4096
    file.write_bytes(content[:at] + bytes(4096) + content[at + 4096 :])
    again = opened(folder, 9)
    assert not again.at.is_behind
    assert again.get_many("counts", [b"key000001"]) == [b"v" * 100]
    return again


def test_a_page_that_turns_out_to_be_broken_costs_the_batch_and_the_state_but_nothing_else(folder: str) -> None:
    stores = broken_deep_inside(folder)
    with pytest.raises(BatchLostError, match=r"data.mdb is corrupt: .*wiped"):
        stores.get_many("counts", [b"key039999"])
    assert stores.at.is_behind
    assert stores.at.changelog == {}
    assert "wiped" in stores.at.note
    stores.expect(run(folder))
    assert not stores.at.is_behind, "it can be restored now"
    stores.apply({"counts": {b"k": b"1"}}, {"counts": 3})
    assert stores.get_many("counts", [b"k", b"key000001"]) == [b"1", None]


@pytest.mark.parametrize(("key", "value"), [(b"application", b"\xff"), (b"position/counts", b"\x07")], ids=repr)
def test_an_entry_that_no_owner_has_written_is_wiped_when_the_state_is_opened(folder: str, key: bytes, value: bytes) -> None:
    def open_all() -> OwnedStores:
        return OpenTasks(SPECS, application_id="app").open([run(folder)])[TASK]

    first = open_all()
    first.apply({"counts": {b"k": b"1"}}, {"counts": 9})
    first.close(clean=True)
    with lmdb.open(folder, max_dbs=4) as environment, environment.begin(write=True) as transaction:
        transaction.put(key, value, db=environment.open_db(b"meta", txn=transaction))
    stores = open_all()
    assert (stores.at.changelog, stores.get_many("counts", [b"k"])) == ({}, [None])
    assert "expected what an owner has written; wiped" in stores.at.note
    stores.apply({"counts": {b"k": b"1"}}, {"counts": 3})
    assert not stores.at.is_behind


def test_a_step_that_only_reads_them_leaves_corrupt_files_to_their_owner(folder: str) -> None:
    owned = broken_deep_inside(folder)
    reader = ReadTasks(SPECS).open([run(folder, 9)])[TASK]
    with pytest.raises(CorruptStateError, match=r"data.mdb is corrupt"):
        reader.get_many("counts", [b"key039999"])
    reader.close()
    owned.inspect()
    assert owned.at.is_behind
    assert "wiped" in owned.at.note


def in_a_snapshot(stores: OwnedStores, read: Callable[[StoreView], object]) -> object:
    with stores.snapshot() as view:
        return read(view)


WANTED, OTHER = b"k" * 600, b"k" * 600 + b"other"
READS: dict[str, Callable[[OwnedStores], object]] = {
    "keys": lambda stores: stores.get_many("counts", [WANTED]),
    "a scan": lambda stores: list(stores.scan("counts")),
    "a key in a snapshot": lambda stores: in_a_snapshot(stores, lambda view: view.get("counts", WANTED)),
    "a scan in a snapshot": lambda stores: in_a_snapshot(stores, lambda view: list(view.scan("counts"))),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_entry_that_holds_another_key_costs_the_batch_and_the_state_and_no_record_is_to_blame(
    folder: str, monkeypatch: pytest.MonkeyPatch, read: Callable[[OwnedStores], object]
) -> None:
    stores = opened(folder)
    with monkeypatch.context() as changed:
        changed.setattr(keys, "wrap_value", lambda _key, value: len(OTHER).to_bytes(4, "big") + OTHER + value)
        stores.apply({"counts": {WANTED: b"1"}}, {"counts": 9})
    with pytest.raises(BatchLostError, match=r"1_0 is corrupt: found an entry of .* does not belong to its LMDB key.*wiped"):
        read(stores)
    assert stores.at.is_behind


def test_a_file_is_looked_through_when_that_is_asked_for(folder: str) -> None:
    stores = broken_deep_inside(folder)
    stores.close(clean=True)
    tasks = OpenTasks(SPECS)
    assert not tasks.open([run(folder, 9)])[TASK].at.is_behind
    held = tasks.open([replace(run(folder, 9), inspect=True)])[TASK]
    assert held.at.is_behind
    assert "wiped" in held.at.note
    assert not tasks.open([replace(run(folder), inspect=True)])[TASK].at.is_behind


# Whose a directory is

OTHER_TASK = TaskId(1, 1)


@pytest.mark.parametrize("is_put_back", [False, True])
def test_a_file_that_is_removed_or_replaced_while_the_task_runs_costs_its_state(folder: str, *, is_put_back: bool) -> None:
    tasks = OpenTasks(SPECS)
    tasks.open([run(folder)])[TASK].apply({"counts": {b"k": b"1"}}, {"counts": 3})
    data = Path(folder) / DATA_FILE
    if is_put_back:
        backup = Path(shutil.copy(data, data.with_name("backup")))
        tasks.open([run(folder, 3)])[TASK].apply({"counts": {b"k": b"2"}}, {"counts": 4})
        backup.replace(data)
    else:
        data.unlink()
    stores = tasks.open([run(folder, 4 if is_put_back else 3)])[TASK]
    assert stores.at.is_behind
    assert stores.at.changelog == {}
    assert "was removed or replaced while the task runs here; wiped" in stores.at.note
    stores.apply({"counts": {b"k": b"3"}}, {"counts": 5})
    again = tasks.open([run(folder, 5)])[TASK]
    assert (again.at.is_behind, again.at.note) == (False, "")
    reader = TaskState.open_to_read(Path(folder))
    assert reader.get_many("counts", [b"k"]) == [b"3"]
    reader.close(clean=False)


def owned(folder: str, task: TaskId = TASK, application: str = "app", specs: Mapping[str, StoreSpec] = SPECS) -> OwnedStores:
    """The stores as a worker of this application has them."""
    run = TaskRun(task=task, directory=folder, epoch="owner")
    return OpenTasks(specs, application_id=application).open([run])[task]


def left(folder: str, task: TaskId = TASK, application: str = "app", specs: Mapping[str, StoreSpec] = SPECS) -> None:
    """A closed state with a row in each store, at 5."""
    stores = owned(folder, task, application, specs)
    stores.apply({name: {b"k": b"of " + str(task).encode()} for name in specs}, dict.fromkeys(specs, 5))
    stores.close(clean=True)


def unlogged() -> dict[str, StoreSpec]:
    return {**SPECS, "seen": replace(SPECS["counts"], name="seen", changelog=None, logged=False)}


def by_version_0_1_0(folder: str, task: TaskId = TASK) -> None:
    """As ``left``, but it does not say whose it is."""
    changelogs = {"counts": TopicPartition("app-counts-changelog", task.partition)}
    forms = {"counts": form_of(SPECS["counts"])}
    state = TaskState.open(Path(folder), ["counts"], changelogs=changelogs, forms=forms)
    before = state.claim("owner")
    after = replace(before, changelog={"counts": 5})
    state.apply(expected=before, new=after, writes={"counts": [(b"k", b"of " + str(task).encode())]})
    state.close(clean=True)


def test_the_state_of_the_same_task_is_taken_up(folder: str) -> None:
    left(folder)
    stores = owned(folder)
    assert (stores.get_many("counts", [b"k"]), stores.at.changelog, stores.at.note) == ([b"of 1_0"], {"counts": 5}, "")


@pytest.mark.parametrize(
    ("task", "application"), [(OTHER_TASK, "app"), (TASK, "another-app")], ids=["another task", "another application"]
)
def test_the_state_of_another_is_wiped_and_said_so(folder: str, tmp_path: Path, task: TaskId, application: str) -> None:
    left(str(tmp_path / "its-own"), task, application)
    shutil.copytree(tmp_path / "its-own", folder)
    stores = owned(folder)
    assert (stores.get_many("counts", [b"k"]), stores.at.changelog) == ([None], {})
    assert f"holds the state of task {task} of application {application}, expected that of task 1_0 of application app" in (
        stores.at.note
    )
    stores.apply({"counts": {b"k": b"restored"}}, {"counts": 9})
    stores.close(clean=True)
    assert owned(folder).at.changelog == {"counts": 9}, "it says from now on whose it is"


def test_the_state_of_another_is_refused_where_a_store_could_not_be_restored(folder: str, tmp_path: Path) -> None:
    left(str(tmp_path / "1_1"), OTHER_TASK, specs=unlogged())
    shutil.copytree(tmp_path / "1_1", folder)
    with pytest.raises(StopError, match=r"1_0 holds the state of task 1_1 of application app.* seen can't be restored"):
        owned(folder, specs=unlogged())
    stores = owned(folder, OTHER_TASK, specs=unlogged())
    assert stores.get_many("seen", [b"k"]) == [b"of 1_1"], "nothing was lost: it can be put where it belongs"


def test_a_state_of_version_0_1_0_is_taken_up_and_says_from_then_on_whose_it_is(folder: str, tmp_path: Path) -> None:
    by_version_0_1_0(folder)
    stores = owned(folder)
    assert (stores.get_many("counts", [b"k"]), stores.at.changelog, stores.at.note) == ([b"of 1_0"], {"counts": 5}, "")
    stores.close(clean=True)
    shutil.copytree(folder, tmp_path / "1_1")
    assert "holds the state of task 1_0" in owned(str(tmp_path / "1_1"), OTHER_TASK).at.note


def test_a_state_of_version_0_1_0_is_known_as_another_tasks_by_its_changelogs(folder: str) -> None:
    by_version_0_1_0(folder, OTHER_TASK)
    stores = owned(folder)
    assert (stores.get_many("counts", [b"k"]), stores.at.changelog) == ([None], {})
    assert "holds the state of the task that has the changelog app-counts-changelog-1" in stores.at.note


def test_a_store_that_gets_another_changelog_is_emptied_and_its_neighbours_stay(folder: str) -> None:
    left(folder, specs=unlogged())
    source = replace(SPECS["counts"], changelog=None, source_topic="rows", logged=False)
    stores = owned(folder, specs={**unlogged(), "counts": source})
    assert (stores.get_many("counts", [b"k"]), stores.get_many("seen", [b"k"])) == ([None], [b"of 1_0"])
    assert "counts" not in stores.at.changelog
    assert "was made from app-counts-changelog-0, not from rows-0: emptied" in stores.at.note


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_store_whose_source_topic_was_its_changelog_is_not_restored_from_another_one(folder: str, *, has_rows: bool) -> None:
    """``topology.optimization`` is switched off again: the store's own changelog has rows that were deleted since, or none."""
    source = {"counts": replace(SPECS["counts"], changelog=None, source_topic="rows", logged=False)}
    stores = owned(folder, specs=source)
    stores.apply({"counts": {b"k": b"1"} if has_rows else {}}, {"counts": 5})
    stores.close(clean=True)
    with pytest.raises(StopError, match=r"counts in .*1_0 had the source topic rows-0 as its changelog.*tidemill reset"):
        owned(folder)
    assert owned(folder, specs=source).get_many("counts", [b"k"]) == [b"1" if has_rows else None], "nothing was lost"


def with_windows(retention_ms: int) -> dict[str, StoreSpec]:
    """Windows that have a changelog, and some that have none; next to counts."""
    kept = Store(name="hours", kind=StoreKind.TIMESTAMPED_WINDOW, retention_ms=retention_ms)
    logged = replace(SPECS["counts"], name="hours", changelog="app-hours-changelog", kept=kept)
    unlogged = replace(logged, name="seen", changelog=None, logged=False, kept=replace(kept, name="seen", logged=False))
    return {**SPECS, "hours": logged, "seen": unlogged}


HOUR_MS = 3_600_000


def test_windows_of_another_retention_are_emptied_and_their_neighbours_stay(folder: str) -> None:
    """The rows' keys begin with their segments, whose length comes from the retention: under another they are not found."""
    left(folder, specs=with_windows(HOUR_MS))
    same_segments = {**with_windows(2 * HOUR_MS), "seen": with_windows(HOUR_MS)["seen"]}
    stores = owned(folder, specs=same_segments)
    assert (stores.get_many("hours", [b"k"]), stores.get_many("counts", [b"k"])) == ([None], [b"of 1_0"])
    assert stores.get_many("seen", [b"k"]) == [b"of 1_0"]
    assert stores.at.changelog == {"counts": 5, "seen": 5}
    assert re.search(r"hours in .* \(.* segment_ms=1800000\) and is to be \(.* segment_ms=3600000\): emptied", stores.at.note)
    stores.close(clean=True)
    assert not owned(folder, specs=same_segments).at.note


def test_windows_of_another_retention_are_refused_where_they_could_not_be_restored(folder: str) -> None:
    left(folder, specs=with_windows(HOUR_MS))
    with pytest.raises(StopError, match=r"store seen in .* is to be .*, and has no changelog to be restored from"):
        owned(folder, specs=with_windows(2 * HOUR_MS))
    stores = owned(folder, specs=with_windows(HOUR_MS))
    assert (stores.get_many("seen", [b"k"]), stores.get_many("hours", [b"k"])) == ([b"of 1_0"], [b"of 1_0"]), "nothing was lost"


def test_windows_without_rows_and_changelog_may_get_another_retention(folder: str) -> None:
    owned(folder, specs=with_windows(HOUR_MS)).close(clean=True)
    owned(folder, specs=with_windows(2 * HOUR_MS)).close(clean=True)
    assert not owned(folder, specs=with_windows(2 * HOUR_MS)).at.note


def test_rows_of_a_store_that_had_no_changelog_are_refused_once_it_has_one(folder: str) -> None:
    left(folder, specs=unlogged())
    logged = {**unlogged(), "seen": replace(unlogged()["seen"], changelog="app-seen-changelog", logged=True)}
    with pytest.raises(StopError, match=r"store seen in .*1_0 had no changelog until now: app-seen-changelog-0 may lack rows"):
        owned(folder, specs=logged)
    stores = owned(folder, specs=unlogged())
    assert stores.get_many("seen", [b"k"]) == [b"of 1_0"], "nothing was lost: the program can go back"


def test_a_store_without_rows_may_get_a_changelog_and_one_that_left_the_program_has_it_still(folder: str) -> None:
    owned(folder, specs=unlogged()).close(clean=True)
    logged = {**unlogged(), "seen": replace(unlogged()["seen"], changelog="app-seen-changelog", logged=True)}
    left(folder, specs=logged)
    owned(folder).close(clean=True)
    stores = owned(folder, specs=logged)
    assert (stores.get_many("seen", [b"k"]), stores.at.note) == ([b"of 1_0"], "")


def test_a_persistent_store_that_is_kept_in_memory_now_is_behind_and_one_that_is_persistent_again_goes_on(folder: str) -> None:
    """The other stores of its task may still be persistent: their file has the position that it had."""
    other = replace(SPECS["counts"], name="other", changelog="app-other-changelog")
    owned = OwnedStores(run(folder), {**SPECS, "other": other})
    owned.apply({"counts": {b"k": b"1"}, "other": {b"k": b"1"}}, {"counts": 5, "other": 3})
    owned.close(clean=True)
    expected = replace(run(folder), changelog={"counts": 5, "other": 3})
    in_memory = OwnedStores(expected, {"counts": replace(SPECS["counts"], persistent=False), "other": other})
    assert in_memory.at.changelog == {"other": 3}
    assert in_memory.at.is_behind
    in_memory.apply({"counts": {b"k": b"2"}}, {"counts": 8})
    assert in_memory.at.changelog == {"counts": 8, "other": 3}
    in_memory.close(clean=True)
    again = OwnedStores(run(folder), {**SPECS, "other": other})
    assert again.get_many("counts", [b"k"]) == [b"1"]
    assert again.at.changelog == {"counts": 5, "other": 3}, "what was written meanwhile is read from the changelog"


def test_stores_that_are_not_part_of_their_changelogs_are_emptied_and_those_without_one_stay(folder: str) -> None:
    left(folder, specs=unlogged())
    stores = owned(folder, specs=unlogged())
    stores.expect(replace(stores.run, wipe=True))
    assert (stores.get_many("counts", [b"k"]), stores.get_many("seen", [b"k"])) == ([None], [b"of 1_0"])
    assert "counts" not in stores.at.changelog
    assert "not part of their changelogs" in stores.at.note


def following(folder: str, topic_id: str, position: int | None = None) -> OwnedStores:
    run = TaskRun(
        task=TASK, directory=folder, epoch="owner", topic_ids={"counts": topic_id},
        changelog=None if position is None else {"counts": position},
    )  # fmt: skip
    return OpenTasks(SPECS, application_id="app").open([run])[TASK]


def test_a_store_whose_changelog_was_recreated_is_emptied(folder: str) -> None:
    left(folder)
    first = following(folder, "first", 5)
    assert not first.at.is_behind, "a state that has no id yet takes the one that there is"
    first.close(clean=True)
    assert not following(folder, "first", 5).at.is_behind
    second = following(folder, "second", 5)
    assert (second.get_many("counts", [b"k"]), second.at.changelog, second.at.is_behind) == ([None], {}, True)
    assert "was created again: its topic id is second, and the store follows first; emptied" in second.at.note


def test_a_changelog_that_is_recreated_while_the_task_is_open_is_noticed(folder: str) -> None:
    stores = following(folder, "first")
    stores.apply({"counts": {b"k": b"1"}}, {"counts": 5})
    stores.expect(replace(stores.run, changelog={"counts": 5}, topic_ids={}))
    assert not stores.at.is_behind, "not known now"
    stores.expect(replace(stores.run, changelog={"counts": 5}, topic_ids={"counts": "second"}))
    assert stores.at.is_behind
    stores.expect(replace(stores.run, changelog={}, topic_ids={"counts": "second"}))
    assert not stores.at.is_behind
    stores.apply({"counts": {b"k": b"2"}}, {"counts": 1})
    stores.expect(replace(stores.run, changelog={"counts": 1}))
    assert (stores.get_many("counts", [b"k"]), stores.at.is_behind) == ([b"2"], False)


def test_an_owner_that_has_been_replaced_empties_nothing(folder: str) -> None:
    former = following(folder, "first")
    former.apply({"counts": {b"k": b"1"}}, {"counts": 5})
    OpenTasks(SPECS, application_id="app").open([run(folder, epoch="next")])
    former.expect(replace(former.run, topic_ids={"counts": "second"}))
    assert former.get_many("counts", [b"k"]) == [b"1"]


class Locks:
    """Tasks' own locks, as workers on executors take them."""

    def __init__(self) -> None:
        self.held: set[TaskId] = set()

    def open(self, task: TaskId) -> None:
        self.held.add(task)

    def close(self, task: TaskId) -> None:
        self.held.discard(task)


def test_the_lock_of_a_task_that_can_not_be_opened_is_freed_for_its_next_owner(folder: str) -> None:
    Path(folder).write_text("no folder")
    locks = Locks()
    tasks = OpenTasks(SPECS, locks)
    with pytest.raises(StopError, match="no folder"):
        tasks.open([run(folder)])
    assert not locks.held
    Path(folder).unlink()
    assert tasks.open([run(folder)]).keys() == locks.held == {TASK}
    tasks.open([])
    assert not locks.held

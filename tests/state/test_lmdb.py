"""What only the state on disk has: several processes, a map that grows, unsynced writes, files that are wiped."""

from __future__ import annotations

import errno
import os
import resource
import select
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from tests.state.state_processes import FOR_EVER, KEYS, STORES, apply_batch, batch_found, start
from tidemill.errors import StateBehindError, StateDiskError, StateError
from tidemill.ids import TopicPartition
from tidemill.state import registry
from tidemill.state.directory import CHECKPOINT_FILE, DATA_FILE, LMDB_LOCK_FILE
from tidemill.state.durability import DIRTY_FILE, Shutdown
from tidemill.state.lmdb import TaskState, wipe_files
from tidemill.state.store import Positions

MEBIBYTE = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "1_0"


@pytest.fixture
def state(directory: Path) -> Iterator[TaskState]:
    opened = TaskState.open(directory, STORES)
    yield opened
    opened.close(clean=False)


def in_a_fork(act: Callable[[], None]) -> int:
    """The exit status of a forked child that does `act`: 0, 1 for an exception, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Processes


def test_a_reader_in_another_process_follows_a_map_that_grows(directory: Path) -> None:
    batches = 40
    state = TaskState.open(directory, STORES, map_size=MEBIBYTE)
    apply_batch(state, 1)
    with start("read", directory, batches) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for number in range(2, batches + 1):
            apply_batch(state, number, value_size=number * 2000)
        seen, map_size = map(int, reader.stdout.readline().split())
        assert reader.wait() == 0
    assert seen > 1
    assert 8 * MEBIBYTE < map_size <= state.size()[0]
    assert batch_found(state) == batches
    state.close(clean=False)


def test_a_reader_sees_whole_batches_while_another_process_writes(directory: Path) -> None:
    with start("write", directory, MEBIBYTE, FOR_EVER) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            reader = TaskState.open_to_read(directory)
            found = set()
            deadline = time.monotonic() + 240
            while len(found) < 100 and time.monotonic() < deadline:
                values = reader.get_many("a", KEYS)
                assert len(set(values)) == 1
                found.add(values[0])
                batch_found(reader)
        finally:
            writer.kill()
    reader.close(clean=True)
    assert len(found) == 100


def test_what_a_killed_reader_held_is_freed_by_a_reader_check(state: TaskState) -> None:
    apply_batch(state, 1)

    def growth(first: int) -> int:
        used = state.size()[1]
        for number in range(first, first + 10):
            apply_batch(state, number)
        return state.size()[1] - used

    growth(2)
    with start("hold", state.directory) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        reader.kill()
    assert growth(12) > 0
    assert state.reader_check() == 1
    assert state.reader_check() == 0
    growth(22)
    assert growth(32) == 0


def test_slots_that_dead_readers_fill_are_freed_when_one_is_needed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_MAX_READERS", 3)
    TaskState.open(directory, STORES).close(clean=True)
    state = TaskState.open_to_read(directory)
    with start("hold", directory) as one, start("hold", directory) as other, state.snapshot():
        for reader in (one, other):
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
        for reader in (one, other):
            reader.kill()
            reader.wait()
        assert batch_found(state) == 0
    monkeypatch.setattr(registry, "_GATE_LIMIT_S", 0.05)
    with state._environment.exclusive():  # what was tried in vain counts as no open read
        pass
    state.close(clean=True)


def test_opening_frees_what_dead_readers_held(directory: Path) -> None:
    TaskState.open(directory, STORES).close(clean=True)
    with start("told", directory) as writer, start("hold", directory) as reader:
        for process in (writer, reader):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        reader.kill()
        reader.wait()
        state = TaskState.open(directory, STORES)
        assert state.reader_check() == 0
        state.close(clean=True)
        writer.kill()


def test_a_fork_can_not_use_what_its_parent_has_open_and_does_no_harm(state: TaskState, tmp_path: Path) -> None:
    apply_batch(state, 1)

    def child() -> None:
        with pytest.raises(StateError, match="before a fork"):
            state.positions()
        with pytest.raises(StateError, match="before a fork"):
            state.get_many("a", KEYS)
        with pytest.raises(StateError, match="forked from"):
            TaskState.open(state.directory, STORES)
        other = TaskState.open(tmp_path / "1_1", STORES)
        apply_batch(other, 1)
        other.close(clean=False)

    assert in_a_fork(child) == 0
    apply_batch(state, 2)
    assert batch_found(state) == 2
    other = TaskState.open(tmp_path / "1_1", STORES)
    assert batch_found(other) == 1
    other.close(clean=False)


def test_a_process_that_was_overtaken_applies_nothing(directory: Path) -> None:
    state = TaskState.open(directory, STORES)
    apply_batch(state, 1)
    with start("write", directory, MEBIBYTE, 1) as writer:
        assert writer.wait() == 0
    with pytest.raises(StateBehindError) as refusal:
        apply_batch(state, 2)
    assert refusal.value.found_offsets == {"a": 2, "b": 2}
    assert batch_found(state) == 2
    state.close(clean=False)


@pytest.mark.parametrize("is_checked", [True, False], ids=["grown before", "grown when full"])
def test_threads_of_a_reader_survive_growth_in_their_own_process(
    directory: Path, monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    if not is_checked:
        monkeypatch.setattr(TaskState, "_make_room", lambda *_: None)
    state = TaskState.open(directory, STORES, map_size=MEBIBYTE)
    apply_batch(state, 1)
    reader = TaskState.open_to_read(directory)
    stop, faults = threading.Event(), []

    def read() -> None:
        try:
            while not stop.is_set():
                assert len(set(reader.get_many("a", KEYS))) == 1
                batch_found(reader)
        except BaseException as fault:  # Handed to the test, which fails with it.
            faults.append(fault)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(2, 30):
            apply_batch(state, number, value_size=number * 2000)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert faults == []
    assert state.size()[0] > 4 * MEBIBYTE
    reader.close(clean=True)
    assert batch_found(state) == 29
    state.close(clean=False)


# Room


def test_a_map_that_is_full_in_spite_of_the_check_is_doubled(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskState, "_make_room", lambda *_: None)
    state = TaskState.open(directory, STORES, map_size=MEBIBYTE)
    for number in range(1, 8):
        apply_batch(state, number, value_size=50_000)
        assert batch_found(state) == number
    assert state.size()[0] > MEBIBYTE
    state.close(clean=False)


def test_checked_writes_find_room_without_growing_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = TaskState.open(directory, STORES, map_size=MEBIBYTE)
    for number in range(1, 30):
        sizes = (10, 500, 1901, 2100, 4081, 20_000)
        items = [(os.urandom(9), bytes(sizes[(number + at) % len(sizes)])) for at in range(number * 17)]
        checked = state.check({"a": items})
        with monkeypatch.context() as patched:
            patched.setattr(state._environment, "grow", lambda needed: pytest.fail(f"had to grow to {needed}"))
            state.apply(expected=state.positions(), new=Positions(changelog={"a": number}), writes=checked)
    state.close(clean=False)


def test_a_disk_without_room_refuses_before_anything_is_written(state: TaskState, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("tidemill.state.lmdb.disk_usage", lambda _: usage)
    with pytest.raises(StateDiskError, match="only 1000 are free"):
        state.check({"a": [(b"k", bytes(2000))]})


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_no_more_files_is_told_from_a_folder_that_is_gone(
    directory: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("tidemill.state.durability.sync_directory", refuse)
    with pytest.raises(StateDiskError, match=f"{directory} can't be written: {os.strerror(code)}"):
        TaskState.open(directory, STORES)
    monkeypatch.undo()
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StateDiskError, match=f"{directory} can't be written"):
        TaskState.open(directory, STORES)
    code = errno.ENOENT
    with pytest.raises(FileNotFoundError):
        TaskState.open(directory, STORES)


def test_a_file_that_can_not_grow_is_a_problem_of_the_disk(state: TaskState) -> None:
    """The bound of a file's size stands in for a disk that is full in the middle of a commit."""
    apply_batch(state, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((state.directory / DATA_FILE).stat().st_size, hard))
    try:
        with pytest.raises(StateDiskError, match=f"{state.directory} can't be written"):
            apply_batch(state, 2, value_size=5_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert batch_found(state) == 1
    apply_batch(state, 2)
    assert batch_found(state) == 2


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system gives no blocks ahead")
@pytest.mark.parametrize("length", [None, 0, 32_896], ids=["missing", "empty", "a hole"])
def test_the_file_that_is_written_through_a_map_has_its_room_before(
    directory: Path, monkeypatch: pytest.MonkeyPatch, length: int | None
) -> None:
    """On a disk that is full LMDB writes its lock file's head into a hole: the process would end by SIGBUS, again and again."""
    lock_file = directory / LMDB_LOCK_FILE
    directory.mkdir()
    if length is not None:
        lock_file.touch()
        os.truncate(lock_file, length)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        with pytest.raises(StateDiskError, match=f"{directory} can't be written: No space left"):
            TaskState.open(directory, STORES)
    state = TaskState.open(directory, STORES)
    found = lock_file.stat()
    state.close(clean=False)
    assert found.st_blocks * 512 > found.st_size - 4096  # the last page may be used by the 509th reader only


def test_the_error_of_a_file_that_can_not_be_opened_names_the_directory_once(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / LMDB_LOCK_FILE).symlink_to(LMDB_LOCK_FILE)
    with pytest.raises(StateError) as refused:
        TaskState.open(directory, STORES)
    assert str(refused.value) == f"{directory}: {os.strerror(errno.ELOOP)}"


def test_a_map_that_the_machine_does_not_grant_is_a_state_error(state: TaskState) -> None:
    apply_batch(state, 1)
    with pytest.raises(StateError, match="can't grow"):
        state._environment.grow(1 << 61)
    apply_batch(state, 2)
    assert batch_found(state) == 2


# Opening and closing


def test_everything_is_there_after_a_clean_close(directory: Path) -> None:
    state = TaskState.open(directory, STORES)
    state.claim("thread-1")
    state.apply(
        expected=Positions(epoch="thread-1"), new=Positions(changelog={"a": 5}, epoch="thread-1"), writes={"a": [(b"", b"1")]}
    )
    state.close(clean=True)
    state = TaskState.open(directory, STORES)
    assert state.opened_after is Shutdown.CLEAN
    assert state.positions() == Positions(changelog={"a": 5}, epoch="thread-1")
    assert state.get_many("a", [b""]) == [b"1"]
    state.close(clean=True)


def test_a_store_that_the_topology_gained_begins_empty_beside_the_old_ones(directory: Path) -> None:
    state = TaskState.open(directory, STORES)
    apply_batch(state, 1)
    state.close(clean=True)
    state = TaskState.open(directory, [*STORES, "c"])
    assert batch_found(state) == 1
    assert list(state.scan("c")) == []
    state.close(clean=True)


def test_reading_where_there_is_no_state_yet_is_refused(directory: Path) -> None:
    with pytest.raises(StateError, match="no state yet"):
        TaskState.open_to_read(directory)
    assert not directory.exists()


def test_a_reader_knows_all_stores_and_can_not_write(state: TaskState) -> None:
    state.close(clean=True)
    reader = TaskState.open_to_read(state.directory)
    assert reader.stores == STORES
    for write in (lambda: reader.claim("thief"), lambda: apply_batch(reader, 1), reader.wipe):
        with pytest.raises(StateError, match="its owner writes"):
            write()
    reader.close(clean=True)


def test_an_error_of_who_reads_a_snapshot_is_his_own_and_an_unknown_store_is_named(state: TaskState) -> None:
    with pytest.raises(KeyError, match="of a function"), state.snapshot():
        raise KeyError("of a function")
    with state.snapshot() as view:
        for read in (lambda: view.get("c", b"k"), lambda: view.get_many("c", [b"k"]), lambda: view.scan("c")):
            with pytest.raises(StateError, match="has no store 'c'; its stores are a, b"):
                read()


def test_a_reader_of_the_same_process_lets_the_owner_open_and_sees_what_he_writes(directory: Path) -> None:
    TaskState.open(directory, STORES).close(clean=True)
    reader = TaskState.open_to_read(directory)
    assert batch_found(reader) == 0
    owner = TaskState.open(directory, STORES)
    apply_batch(owner, 1)
    assert batch_found(reader) == 1
    owner.close(clean=False)
    assert batch_found(reader) == 1
    reader.close(clean=True)


def test_a_reader_goes_over_to_the_state_that_replaces_a_wiped_one(directory: Path) -> None:
    with start("write", directory, MEBIBYTE, 7) as writer:
        writer.wait()
    reader = TaskState.open_to_read(directory)
    assert batch_found(reader) == 7
    wipe_files(directory)
    with pytest.raises(StateError, match="no state yet"):
        reader.positions()
    with start("write", directory, MEBIBYTE, 2) as writer:
        writer.wait()
    assert batch_found(reader) == 2
    reader.close(clean=True)


def test_a_state_that_this_process_writes_is_not_wiped_under_it(state: TaskState) -> None:
    apply_batch(state, 1)
    with pytest.raises(StateError, match="close it before"):
        wipe_files(state.directory)
    assert batch_found(state) == 1


def test_the_environment_is_closed_with_its_last_user(directory: Path) -> None:
    first, second = TaskState.open(directory, STORES), TaskState.open(directory, STORES)
    first.close(clean=True)
    apply_batch(second, 1)
    second.close(clean=True)
    with lmdb.open(str(directory), max_dbs=4):  # Would be refused while this process has it open.
        pass


# Power cuts


def test_a_power_cut_with_unsynced_writes_wipes_the_state(directory: Path) -> None:
    state = TaskState.open(directory, STORES, boot_id="first")
    apply_batch(state, 1)
    state.close(clean=False)
    with pytest.raises(StateError, match="when the machine went down"):
        TaskState.open_to_read(directory, boot_id="second")
    state = TaskState.open(directory, STORES, boot_id="second")
    assert state.opened_after is Shutdown.LOST_POWER
    assert batch_found(state) == 0
    apply_batch(state, 1)
    state.close(clean=False)
    state = TaskState.open(directory, STORES, boot_id="second")
    assert state.opened_after is Shutdown.CRASHED
    assert batch_found(state) == 1
    state.close(clean=False)


def test_a_power_cut_after_a_clean_close_costs_nothing(directory: Path) -> None:
    state = TaskState.open(directory, STORES, boot_id="first")
    apply_batch(state, 1)
    state.close(clean=True)
    state = TaskState.open(directory, STORES, boot_id="second")
    assert state.opened_after is Shutdown.CLEAN
    assert batch_found(state) == 1
    state.close(clean=False)
    state = TaskState.open(directory, STORES, boot_id="third")
    assert state.opened_after is Shutdown.CLEAN, "it was only read in between"
    assert batch_found(state) == 1
    state.close(clean=False)


def test_a_copy_made_while_the_state_was_written_is_wiped(directory: Path) -> None:
    """It has some pages from before a batch and others from after it, which nothing else shows."""
    state = TaskState.open(directory, STORES)
    apply_batch(state, 1)
    live, moved = directory.with_name("live"), directory.with_name("moved")
    shutil.copytree(directory, live)
    state.close(clean=True)
    stopped = directory.with_name("stopped")
    shutil.copytree(directory, stopped)
    for copy, left in ((live, Shutdown.LOST_POWER), (stopped, Shutdown.CLEAN)):
        shutil.rmtree(directory)
        shutil.copytree(copy, directory)
        state = TaskState.open(directory, STORES)
        assert state.opened_after is left
        assert batch_found(state) == (left is Shutdown.CLEAN)
        apply_batch(state, batch_found(state) + 1)
        state.close(clean=False)
    directory.rename(moved)
    state = TaskState.open(moved, STORES)
    assert (state.opened_after, batch_found(state)) == (Shutdown.CRASHED, 2), "moved, it is the same"
    state.close(clean=True)
    for crashed in (False, True):  # over the files that are there, which stay the same ones
        shutil.copytree(live, moved, copy_function=shutil.copyfile, dirs_exist_ok=True)
        os.utime(moved / DIRTY_FILE, ns=(0, 0))
        state = TaskState.open(moved, STORES)
        assert state.opened_after is Shutdown.LOST_POWER, crashed
        shutil.rmtree(live)
        apply_batch(state, 1)
        shutil.copytree(moved, live)
        state.close(clean=False)


@pytest.mark.parametrize(
    "write",
    [
        lambda state: apply_batch(state, 1),
        lambda state: state.claim("thread-1"),
        lambda state: state.wipe(),
    ],
    ids=["apply", "claim", "wipe"],
)
def test_the_directory_is_dirty_before_a_write_is_committed(directory: Path, write: Callable[[TaskState], object]) -> None:
    TaskState.open(directory, STORES).close(clean=True)
    state = TaskState.open(directory, STORES)
    assert not (directory / DIRTY_FILE).exists()
    dirty_at_commit = []
    commit = state._environment._leave
    state._environment._leave = lambda: (dirty_at_commit.append((directory / DIRTY_FILE).exists()), commit())[1]  # type: ignore[method-assign]
    write(state)
    assert dirty_at_commit[-1]
    state.close(clean=False)


def test_a_clean_close_does_not_call_another_processs_later_writes_clean(directory: Path) -> None:
    with start("told", directory) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        state = TaskState.open(directory, STORES)
        apply_batch(state, 1)
        state.close(clean=True)
        assert not (directory / DIRTY_FILE).exists()
        print(2, file=writer.stdin, flush=True)
        assert writer.stdout.readline() == "applied\n"
        assert (directory / DIRTY_FILE).exists()
        writer.kill()


def test_nobody_commits_between_the_sync_and_the_word_that_all_is_clean(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start("told", directory) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        state = TaskState.open(directory, STORES)
        apply_batch(state, 1)
        sync = state._environment.sync

        def sync_while_the_other_writes() -> None:
            sync()
            print(2, file=writer.stdin, flush=True)
            assert not select.select([writer.stdout], [], [], 0.3)[0], "a batch was committed during a clean close"

        monkeypatch.setattr(state._environment, "sync", sync_while_the_other_writes)
        state.close(clean=True)
        assert writer.stdout.readline() == "applied\n"
        assert (directory / DIRTY_FILE).exists()
        writer.kill()


# Checkpoints


def test_a_clean_close_writes_the_last_applied_offsets_by_changelog(directory: Path) -> None:
    changelogs = {"a": TopicPartition("app-a-changelog", 3), "b": TopicPartition("in", 3)}
    state = TaskState.open(directory, [*STORES, "unlogged"], changelogs=changelogs)
    state.apply(expected=Positions(), new=Positions(changelog={"a": 42}), writes={})
    assert state.checkpoint() == {changelogs["a"]: 41, changelogs["b"]: -4}
    assert not (directory / CHECKPOINT_FILE).exists()
    state.close(clean=True)
    assert (directory / CHECKPOINT_FILE).read_text() == "0\n2\napp-a-changelog 3 41\nin 3 -4\n"


def test_the_changelogs_are_remembered_until_others_are_given(directory: Path) -> None:
    first, second = {"a": TopicPartition("one", 0)}, {"b": TopicPartition("two", 0)}
    TaskState.open(directory, STORES, changelogs=first).close(clean=False)
    state = TaskState.open(directory, STORES)
    assert state.checkpoint() == {TopicPartition("one", 0): -4}
    state.close(clean=False)
    state = TaskState.open(directory, STORES, changelogs=second)
    assert state.checkpoint() == {TopicPartition("two", 0): -4}
    state.close(clean=False)


def test_the_files_are_those_that_the_documents_name(directory: Path) -> None:
    state = TaskState.open(directory, STORES, changelogs={"a": TopicPartition("t", 0)})
    assert {entry.name for entry in directory.iterdir()} == {DATA_FILE, "lock.mdb", "dirty"}
    state.close(clean=True)
    assert {entry.name for entry in directory.iterdir()} == {DATA_FILE, "lock.mdb", ".checkpoint"}
    wipe_files(directory)
    assert list(directory.iterdir()) == []


def test_reads_that_never_end_and_moves_of_the_map_do_not_wait_for_each_other_forever(
    state: TaskState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_GATE_LIMIT_S", 0.05)
    shared = registry.open_environment(state.directory, read_only=True, map_size=1 << 20)
    try:
        with shared.read(), pytest.raises(StateError, match=r"1 reads .* have not ended .* close iterators"), shared.exclusive():
            pytest.fail("beside a read")
        with shared.exclusive(), pytest.raises(StateError, match="another thread has been moving"), shared.read():
            pytest.fail("beside a move")
        with shared.read():
            pass
    finally:
        registry.close_environment(shared)


def test_a_file_that_can_not_be_closed_yet_is_not_opened_a_second_time(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TaskState.open(directory, STORES).close(clean=True)
    monkeypatch.setattr(registry, "_GATE_LIMIT_S", 0.05)
    shared = registry.open_environment(directory, read_only=False, map_size=1 << 20)
    with shared.read():
        with pytest.raises(StateError, match=r"1 reads .* have not ended"):
            registry.close_environment(shared)
        assert registry.open_environment(directory, read_only=False, map_size=1 << 20) is shared
    registry.close_environment(shared)
    later = registry.open_environment(directory, read_only=False, map_size=1 << 20)
    assert later is not shared
    with later.read(), pytest.raises(StateError, match=r"1 reads .* have not ended"):
        registry.close_environment(later)
    wipe_files(directory)
    new = registry.open_environment(directory, read_only=False, map_size=1 << 20)
    assert new is not later
    registry.close_environment(new)


def test_moves_of_the_map_come_one_after_the_other(state: TaskState) -> None:
    shared, order = state._environment, []

    def move() -> None:
        begins.set()
        with shared.exclusive():
            order.append("second")

    begins = threading.Event()
    second = threading.Thread(target=move)
    with shared.exclusive():
        second.start()
        assert begins.wait(30)
        second.join(0.1)
        order.append("first")
    second.join(30)  # half of what it would wait if nobody told it
    assert order == ["first", "second"]

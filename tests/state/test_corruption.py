"""Files that are not what was written: noticed at opening, with what was found, and never by a dead process."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tests.state.state_processes import STORES
from tests.state.test_lmdb import in_a_fork
from tidemill.errors import CorruptStateError, StopError
from tidemill.ids import TaskId
from tidemill.state.directory import DATA_FILE
from tidemill.state.lmdb import TaskState, wipe_files
from tidemill.state.meta import StateIdentity
from tidemill.state.pages import find_fault, read_header
from tidemill.state.store import Positions

PAGE = os.sysconf("SC_PAGE_SIZE")
KEYS = [b"key-%05d" % number for number in range(3000)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data file of a state of some 90 pages, most of them in use."""
    directory = tmp_path / "1_0"
    state = TaskState.open(directory, STORES)
    for number in range(1, 4):
        writes = {"a": [(key, b"%d" % number * 40) for key in KEYS[:: 4 - number]]}
        state.apply(expected=state.positions(), new=Positions(changelog={"a": number}), writes=writes)
    state.close(clean=True)
    return directory / DATA_FILE


def _open(data: Path) -> None:
    """Open, read everything and write: what a corrupt file that passes would break."""
    state = TaskState.open(data.parent, STORES)
    assert [key for key, _ in state.scan("a")] == KEYS
    state.apply(expected=state.positions(), new=Positions(changelog={"a": 9}), writes={"a": [(key, b"") for key in KEYS]})
    state.close(clean=True)


def _overwrite(data: Path, at: int, content: bytes) -> None:
    with open(data, "r+b") as file:
        file.seek(at)
        file.write(content)


def test_a_sound_file_has_no_fault(data: Path) -> None:
    header = read_header(data)
    assert header is not None
    assert header.file_size > 80 * PAGE
    assert find_fault(data) is None
    _open(data)


@pytest.mark.parametrize("kept", [1, 100, PAGE, PAGE + 100, 2 * PAGE, 3 * PAGE, -30 * PAGE, -30 * PAGE + 7, -1])
def test_a_truncated_file_is_noticed_before_it_is_mapped(data: Path, kept: int) -> None:
    os.truncate(data, kept if kept > 0 else data.stat().st_size + kept)
    with pytest.raises(CorruptStateError, match="Wipe the task's state") as noticed:
        TaskState.open(data.parent, STORES)
    assert str(data) in str(noticed.value)
    with pytest.raises(CorruptStateError):
        TaskState.open_to_read(data.parent)


def test_a_truncated_file_whose_roots_are_whole_is_noticed_before_it_is_mapped(tmp_path: Path) -> None:
    state = TaskState.open(tmp_path, STORES)
    state.apply(expected=Positions(), new=Positions(), writes={"a": [(b"%06d" % n, b"v" * 400) for n in range(5000)]})
    # The roots move to the pages that the deleted entries leave behind, near the file's beginning.
    state.apply(expected=Positions(), new=Positions(), writes={"a": [(b"%06d" % n, None) for n in range(1500)]})
    for _ in range(3):
        state.apply(expected=Positions(), new=Positions(), writes={"a": [(b"000000", b"")]})
    state.close(clean=True)
    data = tmp_path / DATA_FILE
    header = read_header(data)
    assert header is not None
    kept = header.file_size - 40 * PAGE
    assert max(header.roots) * PAGE < kept
    os.truncate(data, kept)
    for open_state in (lambda: TaskState.open(tmp_path, STORES), lambda: TaskState.open_to_read(tmp_path)):
        with pytest.raises(CorruptStateError, match="page"):
            open_state()


def test_a_file_that_ends_before_a_page_that_nobody_uses_is_sound(data: Path) -> None:
    header = read_header(data)
    assert header is not None
    # The meta page says one page more than was ever written, as after a page that was taken and given back in one batch.
    newer = header.transaction % 2
    _overwrite(data, newer * PAGE + 16 + 8 + 16 + 96, struct.pack("=Q", header.last_page + 1))
    shortened = read_header(data)
    assert shortened is not None
    assert shortened.is_short
    _open(data)


@pytest.mark.parametrize(
    ("at", "content", "says"),
    [
        (0, b"not an LMDB file at all".ljust(PAGE, b"."), "magic number"),
        (16, b"\0\0\0\0", "magic number 0x00000000"),
        (PAGE + 16, b"\xff\xff\xff\xff", "meta page 1 with magic number 0xffffffff"),
        (20, struct.pack("=I", 7), "data version 7"),
        (16 + 24, struct.pack("=I", 5000), "page size of 5000"),
    ],
)
def test_a_damaged_meta_page_is_noticed(data: Path, at: int, content: bytes, says: str) -> None:
    _overwrite(data, at, content)
    with pytest.raises(CorruptStateError, match=says):
        TaskState.open(data.parent, STORES)


def _zeros(_: int) -> bytes:
    return bytes(PAGE)


def _noise(number: int) -> bytes:
    return random.Random(number).randbytes(PAGE)


def _noise_behind_a_sound_header(number: int) -> bytes:
    return struct.pack("=QHHHH", number, 0, 2, 16 + 40, 2000) + random.Random(number).randbytes(PAGE - 16)


def _noticed(data: Path, garbage: Callable[[int], bytes], step: int, use: Callable[[], None]) -> int:
    """How often the state is not believed, with garbage in every ``step``th of its pages; no process may end otherwise."""
    sound, noticed = data.read_bytes(), 0

    def act() -> None:
        try:
            use()
        except CorruptStateError:
            os._exit(3)

    for number in range(2, len(sound) // PAGE, step):
        wipe_files(data.parent)
        data.write_bytes(sound)
        _overwrite(data, number * PAGE, garbage(number))
        status = in_a_fork(act)
        assert status in (0, 3), f"garbage in page {number} ended the process with {status}"
        noticed += status == 3
    return noticed


@pytest.mark.parametrize("garbage", [_zeros, _noise, _noise_behind_a_sound_header])
def test_garbage_in_any_page_is_noticed_or_in_a_free_one_harmless(data: Path, garbage: Callable[[int], bytes]) -> None:
    step = 3 if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else 9
    assert _noticed(data, garbage, step, lambda: _open(data)) > 60 // step


@pytest.mark.parametrize("garbage", [_zeros, _noise, _noise_behind_a_sound_header])
def test_garbage_in_any_page_ends_no_process_that_only_reads(data: Path, garbage: Callable[[int], bytes]) -> None:
    """The instance itself reads, before any of its workers: it would end at each start."""

    def read() -> None:
        state = TaskState.open_to_read(data.parent)
        state.positions(), state.checkpoint(), state.forms(), state.whose()
        for store in state.stores:
            list(state.scan(store))

    assert _noticed(data, garbage, 9, read) > 6


def test_a_store_of_another_format_is_refused_with_both_versions(data: Path) -> None:
    with lmdb.open(str(data.parent), max_dbs=4) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"version", b"7", db=environment.open_db(b"meta", txn=transaction))
    for open_state in (lambda: TaskState.open(data.parent, STORES), lambda: TaskState.open_to_read(data.parent)):
        with pytest.raises(CorruptStateError, match="found store format '7', expected '1'"):
            open_state()


WHOSE = StateIdentity(application_id="app", task=TaskId(1, 0))
ENTRIES = [
    (b"application", b"\xff"), (b"task", b"one"), (b"epoch", b"\xff"), (b"position/a", b"\x07"), (b"position/\xff", bytes(8)),
    (b"input/\0\0\0\0", bytes(8)), (b"changelog/a", b"\0\0\0\x01\xff"), (b"changelog/a", b"\0"), (b"form/a", b"\xff"),
    (b"changelog-id/a", b"\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), ENTRIES, ids=repr)
def test_an_entry_that_no_owner_has_written_is_a_corrupt_state_for_whoever_reads_it(
    tmp_path: Path, key: bytes, value: bytes
) -> None:
    """The page is sound, and LMDB has no checksums."""
    directory = tmp_path / "1_0"
    TaskState.open(directory, STORES, whose=WHOSE, forms={"a": "form"}).close(clean=True)
    with lmdb.open(str(directory), max_dbs=4) as environment, environment.begin(write=True) as transaction:
        transaction.put(key, value, db=environment.open_db(b"meta", txn=transaction))

    def used(open_state: Callable[[], TaskState]) -> None:
        state = open_state()
        try:
            state.positions(), state.checkpoint(), state.forms(), state.topic_ids()
        finally:
            state.close(clean=False)

    for open_state in (
        lambda: TaskState.open(directory, STORES, whose=WHOSE, forms={"a": "form"}),
        lambda: TaskState.open_to_read(directory, whose=WHOSE),
    ):
        with pytest.raises(CorruptStateError, match=r"data.mdb is corrupt: found .*, expected what an owner has written"):
            used(open_state)


def test_a_wiped_state_opens_empty(data: Path) -> None:
    _overwrite(data, 0, bytes(PAGE))
    wipe_files(data.parent)
    state = TaskState.open(data.parent, STORES)
    assert state.positions() == Positions()
    assert list(state.scan("a")) == []
    state.close(clean=True)


@pytest.mark.parametrize("what", ["a file", "a link to nothing", "a link to itself"])
def test_what_is_no_folder_in_the_place_of_a_tasks_stays_and_is_named(tmp_path: Path, what: str) -> None:
    task = tmp_path / "1_0"
    if what == "a file":
        task.write_bytes(b"x")
    else:
        task.symlink_to("1_0" if what == "a link to itself" else "nothing")
    with pytest.raises(StopError, match=r"1_0 can't be made: there is something else that is no folder\. Remove it"):
        TaskState.open(task, STORES)
    assert os.path.lexists(task)


@pytest.mark.parametrize("act", [wipe_files, lambda task: TaskState.open(task, STORES)], ids=["wiped", "opened"])
@pytest.mark.parametrize("has_data", [True, False])
@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", ".checkpoint", "dirty"])
def test_a_folder_in_the_place_of_a_file_stays_and_is_named(
    data: Path, name: str, has_data: bool, act: Callable[[Path], object]
) -> None:
    if not has_data:
        data.unlink()
    path = data.parent / name
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(StopError, match=f"{name} is a folder, expected a file of a task's state. Remove it"):
        act(data.parent)
    assert path.is_dir()


def test_pages_that_lead_in_a_circle_are_a_fault_and_not_a_walk_without_end(data: Path) -> None:
    """Each page with children has itself as the first of them."""
    content = data.read_bytes()
    for begin in range(2 * PAGE, len(content), PAGE):
        number, _, flags = struct.unpack_from("=QHH", content, begin)
        if (number, flags) == (begin // PAGE, 1):
            [node] = struct.unpack_from("=H", content, begin + 16)
            _overwrite(data, begin + node, struct.pack("=HHH", number, 0, 0))
    fault = find_fault(data)
    assert fault is not None
    assert "pages that are used twice" in str(fault)

"""Temporary folders that what clears ``/tmp`` passes over."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.kept_folder import kept_folder, remove_kept_folder, remove_kept_folders, written_by


def lock(folder: str) -> None:
    """As ``systemd-tmpfiles`` locks what it is about to clear. BlockingIOError: another has it."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(number)


def test_a_folder_is_locked_until_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = len(os.listdir("/dev/fd"))
    folder = kept_folder("some-")
    Path(folder, "inside").write_text("x")
    assert Path(folder).parent == tmp_path
    assert Path(folder).stat().st_mode & 0o777 == 0o700
    with pytest.raises(BlockingIOError):
        lock(folder)
    remove_kept_folder(folder)
    assert not Path(folder).exists()
    assert len(os.listdir("/dev/fd")) == before
    remove_kept_folder(folder)


def test_what_a_killed_process_left_behind_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = "import os, tidemill.kept_folder as kept; kept.kept_folder('some-'); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", killed], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (left,) = tmp_path.iterdir()
    Path(left, "inside").mkdir()
    others = [tmp_path / name for name in ("some-longer-abcdefgh", "some-abc", "other-abcdefgh")]
    live = kept_folder("some-")
    assert left.is_dir(), "it may be just about to be locked"
    for folder in (left, live, *others):
        Path(folder).mkdir(exist_ok=True)
        os.utime(folder, (0, 0))
    new = kept_folder("some-")
    assert {Path(folder) for folder in (live, new)} | set(others) == set(tmp_path.iterdir())
    remove_kept_folder(live)
    remove_kept_folder(new)


def test_a_folder_on_a_file_system_without_locks_is_one_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    folder = kept_folder("some-")
    assert Path(folder).is_dir()
    remove_kept_folder(folder)
    assert not Path(folder).exists()


def test_a_child_removes_none_of_its_parent_s_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = kept_folder("some-")
    child = os.fork()
    if child == 0:
        remove_kept_folders()
        os._exit(0)
    os.waitpid(child, 0)
    assert Path(folder).is_dir()
    remove_kept_folder(folder)


def test_who_writes_to_a_folder_has_ended_before_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = kept_folder("some-")
    writes = "import os, sys\nwhile True:\n    os.makedirs(sys.argv[1] + '/a', exist_ok=True)\n    print(flush=True)"
    writer = subprocess.Popen([sys.executable, "-c", writes, folder], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    written_by(folder, writer)
    writer.stdout.readline()
    remove_kept_folders()
    assert writer.poll() is not None
    writer.stdout.close()
    assert not Path(folder).exists()

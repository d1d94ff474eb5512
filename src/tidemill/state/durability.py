"""Durability of a task's files: how they are replaced, and whether they can be trusted after the machine went down.

LMDB runs without sync: the kernel keeps what a dead process wrote, but a power cut may take any part of it. So a task directory
holds a file `dirty`, with the id of the machine's boot, from before the first write until a clean close has synced everything.
A dirty directory of *this* boot lost nothing (at most its process died); of another boot it can't be believed. Nor can a copy
that was made while it was written, of which some pages are older than others: `dirty` also says which file it is itself, and in
a copy it is another. The `dirty` file itself and every other small file is replaced through sync and rename, so none is ever
seen half written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TextIO

import psutil

from tidemill.errors import CorruptStateError, StateDiskError

DIRTY_FILE = "dirty"
_LINUX_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BOOT_TIME_GRAIN_S = 10
_BLOCK_BYTES = 512  # of st_blocks, whatever the file system's are
_GET_GENERATION = 0x80087601  # FS_IOC_GETVERSION of linux/fs.h

TAKES_NOTHING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)
"""Errors of a disk that trying again does not mend: someone has to make room there or to give rights."""


class Shutdown(Enum):
    """State in which the last owner left a directory."""

    CLEAN = "clean"
    CRASHED = "crashed"
    """Its process died, or lives: what the kernel holds is whole."""
    LOST_POWER = "lost power"
    """The machine went down with unsynced writes, or this is a copy from while it was written: not to be believed."""


def disk_problem(directory: Path, code: int) -> StateDiskError:
    """``code``: one of ``TAKES_NOTHING``."""
    return StateDiskError(
        f"{directory} can't be written: {os.strerror(code)}. state.dir must be on a sound disk with room, for more files too "
        "(df, df -i), in a folder that this user may write"
    )


@contextmanager
def needing_the_disk(directory: Path) -> Iterator[None]:
    """StateDiskError where files of ``directory`` can't be written; other errors pass, such as that of a folder that is gone."""
    try:
        yield
    except OSError as error:
        if error.errno not in TAKES_NOTHING:
            raise
        raise disk_problem(directory, error.errno) from error


def with_its_blocks(path: Path, size: int) -> None:
    """Makes the file if it is missing, and gives it its blocks on the disk: for its whole length, or ``size`` if it is empty.
    OSError if there is no room: who writes to a hole through a map then ends by SIGBUS. A file that can't be opened is left as
    it is, for whoever opens it next to say why."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        return
    try:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    try:
        found = os.fstat(opened)
        wanted = found.st_size or size
        if found.st_blocks * _BLOCK_BYTES < wanted:
            os.posix_fallocate(opened, 0, wanted)
    except OSError as error:
        if error.errno in TAKES_NOTHING:
            raise
    finally:
        os.close(opened)


@cache
def current_boot_id() -> str:
    """An id of this boot of the machine, another one after each restart.

    A wrong difference costs a restore, a wrong equality would cost data. Where the system has no id, the boot time is used.
    """
    if _LINUX_BOOT_ID.exists():
        return _LINUX_BOOT_ID.read_text().strip()
    if sys.platform == "darwin":
        answer = subprocess.run(["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip()
    return f"boot-time-{int(psutil.boot_time()) // _BOOT_TIME_GRAIN_S}"


def last_shutdown(directory: Path, boot_id: str) -> Shutdown:
    """State in which `directory` was left, seen from the boot `boot_id`. CorruptStateError if that can't be found out."""
    try:
        with open(directory / DIRTY_FILE, encoding="utf-8", errors="replace") as file:
            written_by, here = file.read().split(), _file_id(file)
    except FileNotFoundError:
        return Shutdown.CLEAN
    except IsADirectoryError:
        raise CorruptStateError(str(directory / DIRTY_FILE), found="a folder", expected="a file with a boot's id") from None
    # Versions before have written the boot alone.
    return Shutdown.CRASHED if written_by in ([boot_id], [boot_id, here]) else Shutdown.LOST_POWER


def mark_dirty(directory: Path, boot_id: str) -> None:
    """Say, safely on the disk, that unsynced writes of this boot may follow."""
    with _replacing(directory / DIRTY_FILE) as file:
        made = os.fstat(file.fileno()).st_mtime_ns
        file.write(f"{boot_id} {_file_id(file)}\n")
        file.flush()
        os.utime(file.fileno(), ns=(made, made))


def _file_id(file: TextIO) -> str:
    """Which file of its disk this is, and from when; a renamed one is the same, a copy is not, nor one that was written over.

    Some file systems give the number of a file that is gone to the next one, and have a generation to tell them apart.
    """
    generation = bytes(8)
    if sys.platform == "linux":
        with suppress(OSError):
            generation = fcntl.ioctl(file.fileno(), _GET_GENERATION, generation)
    found = os.fstat(file.fileno())
    return f"{found.st_ino}-{generation.hex()}-{found.st_mtime_ns}"


def ensure_dirty(directory: Path, boot_id: str) -> None:
    """Writes the same, unless it is written already."""
    if not (directory / DIRTY_FILE).exists():
        mark_dirty(directory, boot_id)


def mark_clean(directory: Path) -> None:
    """Say, safely on the disk, that everything in `directory` is synced: the caller has done so."""
    (directory / DIRTY_FILE).unlink(missing_ok=True)
    sync_directory(directory)


def replace_file(path: Path, text: str) -> None:
    """Put `text` at `path`: after any crash or power cut there is the old file or the whole new one."""
    with _replacing(path) as file:
        file.write(text)


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with open(descriptor, "w", encoding="utf-8", newline="\n") as file:
        yield file
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` safe on the disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

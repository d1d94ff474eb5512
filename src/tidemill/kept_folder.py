"""Temporary folders that stay while the process uses them, however long nothing in them changes.

``systemd-tmpfiles`` removes what has not changed in ``/tmp`` for ten days on many systems, also under a running instance, whose
sockets and Spark's folders are rarely written to. It passes over a folder that is locked (tmpfiles.d(5), flock(2)). What a killed
process leaves is locked no longer: the next one that makes such a folder removes it.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress

_folders: dict[str, int | None] = {}
"""The folders of this process, each with the open file that locks it; None on a file system without locks."""
_writers: dict[str, subprocess.Popen[bytes]] = {}
_END_LIMIT_S = 5.0
_LEFT_BEHIND_S = 300.0
"""Age from which a folder without a lock is removed: before, its maker may be about to lock it, or its JVM may still end."""
os.register_at_fork(after_in_child=_folders.clear)  # a child's copies of the files go with it


def kept_folder(prefix: str) -> str:
    """A new folder that only this user may enter; ``remove_kept_folder`` ends it. ``prefix``: no one else's folders begin so."""
    _remove_left_behind(prefix)
    folder = tempfile.mkdtemp(prefix=prefix)
    _folders[folder] = None
    with suppress(OSError):  # a file system without locks
        number = _folders[folder] = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_SH)
    return folder


def _remove_left_behind(prefix: str) -> None:
    for folder in glob.glob(os.path.join(glob.escape(tempfile.gettempdir()), f"{prefix}????????")):
        with suppress(OSError):  # another's, just removed, locked (BlockingIOError), or on a file system without locks
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                about = os.fstat(number)
                if about.st_uid == os.geteuid() and time.time() - about.st_mtime > _LEFT_BEHIND_S:
                    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(number)


def remove_kept_folder(folder: str) -> None:
    """Removes the folder and all in it; does nothing if it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    _writers.pop(folder, None)
    number = _folders.pop(folder, None)
    if number is not None:
        os.close(number)


def written_by(folder: str, process: subprocess.Popen[bytes]) -> None:
    """Says which process makes files in the folder: it has to end first."""
    _writers[folder] = process


def remove_kept_folders() -> None:
    """Removes all that there are, for a process that ends on the spot; kills those that would write to them."""
    for folder in list(_folders):
        writer = _writers.get(folder)
        if writer is not None:
            writer.kill()
            with suppress(subprocess.TimeoutExpired):
                writer.wait(_END_LIMIT_S)
        remove_kept_folder(folder)

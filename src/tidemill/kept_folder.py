"""Temporary folders that stay while the process uses them, however long nothing in them changes.

``systemd-tmpfiles`` removes what has not changed in ``/tmp`` for ten days on many systems, also under a running instance, whose
sockets and Spark's folders are rarely written to. It passes over a folder that is locked (tmpfiles.d(5), flock(2)).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress

_folders: dict[str, int | None] = {}
"""Those of this process, with the open file that locks them where the file system has locks."""
_writers: dict[str, subprocess.Popen[bytes]] = {}
_END_LIMIT_S = 5.0
os.register_at_fork(after_in_child=_folders.clear)  # a child's copies of the files go with it


def kept_folder(prefix: str) -> str:
    """A new folder that only this user may enter; ``remove_kept_folder`` ends it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    _folders[folder] = None
    with suppress(OSError):  # a file system without locks
        number = _folders[folder] = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_SH)
    return folder


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

"""Temporary folders that stay while the process uses them, however long nothing in them changes.

``systemd-tmpfiles`` removes what has not changed in ``/tmp`` for ten days on many systems, also under a running instance, whose
sockets and Spark's folders are rarely written to. It passes over a folder that is locked (tmpfiles.d(5), flock(2)).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

_locks: dict[str, int] = {}


def kept_folder(prefix: str) -> str:
    """A new folder that only this user may enter; ``remove_kept_folder`` ends it."""
    folder = tempfile.mkdtemp(prefix=prefix)
    with suppress(OSError):  # a file system without locks
        number = _locks[folder] = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_SH)
    return folder


def remove_kept_folder(folder: str) -> None:
    """Removes the folder and all in it; does nothing if it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    number = _locks.pop(folder, None)
    if number is not None:
        os.close(number)

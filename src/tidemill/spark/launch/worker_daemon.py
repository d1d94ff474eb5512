"""The program that Spark starts for a Python worker (``spark.python.daemon.module``): it has the real daemon forked
from a process that has imported everything, and waits for its end.

Decides what happens where there is no such server, as on another machine: PySpark's own daemon runs here. Imports little, since a
worker waits for it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import suppress

ADDRESS_KEY = "TIDEMILL_FORK_SERVER"
"""In the environment of workers: where the server listens."""
SAFE_PATH, OWN_SAFE_PATH = "PYTHONSAFEPATH", "tidemill"
"""In the environment of what Spark or the driver starts with ``python -m``, so that files of the current folder, which the driver
may not import from, are not taken for modules (Python 3.11 and later)."""
LENGTH_BYTES = 8
STREAMS = 3
_FORK_LIMIT_S = 20.0
"""Time that a worker waits for a server that is still importing; then it imports by itself."""


def main() -> None:
    drop_own_safe_path()
    connection = None
    with suppress(OSError):
        connection = ask(os.environ.get(ADDRESS_KEY, ""), sys.argv)
    if connection is None:  # not in an except clause, whose error would be the context of each that a function raises
        from pyspark.daemon import manager

        from tidemill.spark.launch.function_output import shows_output

        shows_output(os.environ)
        manager()
        return
    # From here on the streams are the daemon's alone: its standard input must end when Spark closes it.
    os.dup2(connection.fileno(), sys.stdin.fileno())
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    try:
        os.execvp("cat", ["cat"])  # waits as well as Python does, in a tenth of the memory
    except OSError:
        while connection.recv(1):
            continue


def drop_own_safe_path() -> None:
    """Programs that a function starts have the path that they have without us."""
    if os.environ.get(SAFE_PATH) == OWN_SAFE_PATH:
        del os.environ[SAFE_PATH]


def import_path() -> dict[str, str]:
    """In the environment of a process that imports what this one does, from where this one does. The empty entry of ``sys.path``,
    that of ``python -`` and of notebooks, is the current folder."""
    return {
        "PYTHONPATH": os.pathsep.join(folder or os.curdir for folder in sys.path),
        SAFE_PATH: os.environ.get(SAFE_PATH, OWN_SAFE_PATH),
    }


def ask(address: str, argv: list[str]) -> socket.socket:
    """Has a daemon forked with this process' streams, environment and folder; the connection ends with it.

    Raises:
        OSError: no server listens there, or there is no answer.
    """
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        asking.connect(address)
        wanted = json.dumps({"environ": dict(os.environ), "folder": os.getcwd(), "argv": argv}).encode()
        socket.send_fds(asking, [len(wanted).to_bytes(LENGTH_BYTES, "big")], range(STREAMS))
        asking.sendall(wanted)
        asking.settimeout(_FORK_LIMIT_S)
        if not asking.recv(1):
            raise ConnectionResetError("the fork server has ended")
        asking.settimeout(None)
    except OSError:
        asking.close()
        raise
    return asking


if __name__ == "__main__":
    main()

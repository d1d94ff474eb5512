"""The program that Spark starts for a Python worker (``spark.python.daemon.module``): it has the real daemon forked
from a process that has imported everything, and waits for its end.

Decides what happens where there is no such server, as on another machine: PySpark's own daemon runs here. Imports little, since a
worker waits for it.
"""

from __future__ import annotations

import os
import shutil
import sys

from tidemill.spark.launch.fork_server import ADDRESS_KEY, ask


def main() -> None:
    try:
        connection = ask(os.environ.get(ADDRESS_KEY, ""), sys.argv)
    except OSError:
        from pyspark.daemon import manager

        manager()
        return
    # From here on the streams are the daemon's alone: its standard input must end when Spark closes it.
    os.dup2(connection.fileno(), sys.stdin.fileno())
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    cat = shutil.which("cat")
    if cat is not None:
        os.execv(cat, ["cat"])  # waits as well as Python does, in a tenth of the memory
    while connection.recv(1):
        continue


if __name__ == "__main__":
    main()

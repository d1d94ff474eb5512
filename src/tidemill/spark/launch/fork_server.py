"""The process from which Python workers are forked: it has imported once what each of them would import for itself.

Decides how long it lives (as long as its driver, whose pipe it reads) and what a forked process takes over from the one that
Spark has started in its place (``worker_daemon``): its streams, environment, folder and arguments. What is forked is PySpark's
own daemon, which forks the worker. Nothing is shared but what was imported: no client, no file, no thread of the driver's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TypedDict

from tidemill.control.sockets import LocalListener
from tidemill.errors import EnvironmentProblem
from tidemill.kept_folder import remove_kept_folder
from tidemill.spark.launch.function_output import shows_output
from tidemill.spark.launch.worker_daemon import LENGTH_BYTES, STREAMS, import_path

_ASK_LIMIT_S = 10.0
_END_LIMIT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkServer:
    """The driver's handle. ``address``: a socket in a folder that only this user can open."""

    address: str
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        """The workers end with Spark, not with the server."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_LIMIT_S)
        remove_kept_folder(os.path.dirname(self.address))


def start_fork_server(modules: Sequence[str]) -> ForkServer:
    """Starts a server that imports ``modules``; returns at once, and who asks before they are imported waits for them.

    Raises:
        EnvironmentProblem: there can be no socket in the temporary folder, or Python can't be started.
    """
    listener = LocalListener("socket", use="the socket of the process that workers are forked from,", prefix="tidemill-fork-")
    number = listener.socket.fileno()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidemill.spark.launch.fork_server", str(number), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[number],
            start_new_session=True,  # Ctrl-C is for the driver
            env=_environment(),
        )
    except BaseException as problem:
        listener.close()
        if isinstance(problem, OSError):
            raise EnvironmentProblem(
                f"Python can't be started for the workers ({problem}): this user must be allowed to execute {sys.executable} and"
                " to start another process"
            ) from problem
        raise
    listener.socket.close()
    return ForkServer(address=listener.address, process=process)


def _environment() -> dict[str, str]:
    """The driver's; functions that hash text get the same numbers in every worker of every run, as PySpark has it."""
    return {"PYTHONHASHSEED": "0", "MALLOC_ARENA_MAX": "2", **os.environ, **import_path()}


def main() -> None:
    """The server itself."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    settle_pandas()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # else the first collection in each process would copy all pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    leash = sys.stdin.fileno()
    while True:
        ready, _, _ = select.select([leash, listener], [], [])
        if leash in ready:
            os._exit(0)  # nothing is ever written to it: the driver is gone, or has closed it
        asking, _ = listener.accept()
        with asking, contextlib.suppress(OSError, ValueError):  # the process that asked has ended meanwhile
            asking.settimeout(_ASK_LIMIT_S)
            streams, wanted = _heard(asking)
            if os.fork() == 0:
                listener.close()
                _become_daemon(asking, streams, wanted)
            for stream in streams:
                os.close(stream)


def settle_pandas() -> None:
    """pyarrow imports pandas at the first list that it makes an array of, in each worker, and makes the same array without. It is
    to find none until someone else imports it."""
    if "pandas" in sys.modules:
        return
    import pyarrow

    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pyarrow.array([])
    finder.is_hidden = False


class _PandasFinder(MetaPathFinder):
    """Has pyarrow know pandas as soon as it is imported: it makes other arrays of a Series than of a list."""

    is_hidden = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError(fullname)
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_known_to_pyarrow, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _known_to_pyarrow(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    import pyarrow

    execute(module)
    pyarrow.nulls(0).to_pandas()  # requires pandas, so it looks again


class _DaemonSettings(TypedDict):
    """Settings of the process that asks for a daemon, which the daemon takes over."""

    environ: dict[str, str]
    folder: str
    argv: list[str]


def _heard(asking: socket.socket) -> tuple[list[int], _DaemonSettings]:
    head, streams, _, _ = socket.recv_fds(asking, LENGTH_BYTES, STREAMS)
    text = b""
    try:
        while len(text) < int.from_bytes(head, "big"):
            part = asking.recv(1 << 16)
            if not part:
                raise ValueError("the end came before all was said")
            text += part
        return list(streams), json.loads(text)
    except (OSError, ValueError):
        for stream in streams:  # kept open here, they would never end for Spark
            os.close(stream)
        raise


def _become_daemon(asking: socket.socket, streams: Sequence[int], wanted: _DaemonSettings) -> None:
    """Never returns. The connection stays open until this process ends: that is what the one that asked waits for."""
    code = 1
    try:
        asking.sendall(b".")  # fails if the other side no longer waits
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.environ.clear()
        os.environ.update(wanted["environ"])
        os.chdir(wanted["folder"])
        sys.argv = wanted["argv"]
        folders = [folder for folder in wanted["environ"].get("PYTHONPATH", "").split(os.pathsep) if folder]
        sys.path[:] = [*folders, *(folder for folder in sys.path if folder not in folders)]
        importlib.invalidate_caches()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.register_at_fork(after_in_child=asking.close)
        shows_output(os.environ)
        with contextlib.suppress(OSError):  # for ps and top, where there is /proc
            Path("/proc/self/comm").write_text("pyspark.daemon")
        from pyspark.daemon import manager

        manager()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()

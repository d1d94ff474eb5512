"""A standalone Spark cluster on this machine, from PySpark's own classes: a master and some workers, all on loopback.

    python deploy/standalone.py [--workers 2] [--cores 1] [--memory 1g] [--port 7077] [--folder FOLDER]

Prints the master's URL when all workers have registered, then waits; Ctrl-C, SIGTERM or the end of standard input (with
``--until-stdin-ends``) ends everything that it has started. For several machines start the same two classes there, with the
addresses of those machines: ``docs/cluster.md`` has the commands. Nothing here asks for a password: Spark's own setting for that
is ``spark.authenticate``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

from tidemill.embedded.java import find_java
from tidemill.errors import EnvironmentProblem
from tidemill.spark.launch.cluster_settings import worker_environment

HOST = "127.0.0.1"
START_LIMIT_S = 120.0
END_LIMIT_S = 20.0
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_REGISTERED = re.compile(r"Successfully registered with master")


class Cluster:
    """A context manager; ``url`` is what ``spark.master`` takes."""

    def __init__(self, folder: Path, *, workers: int, cores: int, memory: str, port: int) -> None:
        self.folder = folder
        self._workers, self._cores, self._memory = workers, cores, memory
        self._port = port or _free_port()
        self.url = f"spark://{HOST}:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._java = find_java(os.environ).path
        packaged = Path(pyspark.__file__).parent
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **os.environ,
            **worker_environment(self._java, packaged, folder),
            "SPARK_LOCAL_IP": HOST,
            "MALLOC_ARENA_MAX": "2",
        }

    def __enter__(self) -> Cluster:
        try:
            self._start("master", _MASTER, "--host", HOST, "--port", str(self._port), "--webui-port", "0")
            self._wait_listening()
            for number in range(1, self._workers + 1):
                name = f"worker-{number}"
                self._start(
                    name, _WORKER, "--host", HOST, "--port", "0", "--webui-port", "0", "--cores", str(self._cores),
                    "--memory", self._memory, "--work-dir", str(self.folder / name / "work"), self.url,
                )  # fmt: skip
            for number in range(1, self._workers + 1):
                self._wait_registered(f"worker-{number}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Workers first: each ends its executors."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        deadline = time.monotonic() + END_LIMIT_S
        for process in reversed(self._processes):
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(5)

    def _start(self, name: str, role: str, *arguments: str) -> None:
        own = self.folder / name
        own.mkdir(parents=True, exist_ok=True)
        (own / "log4j2.properties").write_text(_LOGGING)
        command = [
            str(self._java), "-Xmx256m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={own / 'log4j2.properties'}",
            "-cp", str(Path(pyspark.__file__).parent / "jars" / "*"), role, *arguments,
        ]  # fmt: skip
        environment = {**self._environment, "SPARK_LOCAL_DIRS": str(own / "local")}
        with (own / "log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=own, start_new_session=True
                )
            )

    def _wait_listening(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self._port), 1):
                return
            self._require_alive("master", deadline, "listen")

    def _wait_registered(self, name: str) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while not _REGISTERED.search((self.folder / name / "log").read_text(errors="replace")):
            self._require_alive(name, deadline, "register with the master")

    def _require_alive(self, name: str, deadline: float, what: str) -> None:
        ended = [process.returncode for process in self._processes if process.poll() is not None]
        if ended or time.monotonic() > deadline:
            said = (self.folder / name / "log").read_text(errors="replace")[-2000:]
            why = f"a process ended with code {ended[0]}" if ended else f"it did not {what} within {START_LIMIT_S:.0f} s"
            raise EnvironmentProblem(f"the {name} of {self.url} did not start: {why}; its log says: {said}")
        time.sleep(0.1)


_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def _free_port() -> int:
    with socket.socket() as asking:
        asking.bind((HOST, 0))
        return int(asking.getsockname()[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cores", type=int, default=1, help="of each worker")
    parser.add_argument("--memory", default="1g", help="of each worker")
    parser.add_argument("--port", type=int, default=7077, help="of the master; 0: any")
    parser.add_argument("--folder", type=Path, help="for logs and work; otherwise a temporary one that is removed")
    parser.add_argument("--until-stdin-ends", action="store_true")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="tidemill-standalone-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Cluster(folder, workers=asked.workers, cores=asked.cores, memory=asked.memory, port=asked.port) as cluster:
            print(cluster.url, flush=True)
            if asked.until_stdin_ends:
                sys.stdin.read()
            else:
                signal.pause()
    except EnvironmentProblem as problem:
        print(f"standalone: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

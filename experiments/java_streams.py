"""A Java Kafka Streams instance: the WordCountDemo that Kafka ships, unchanged, in a JVM of its own; nothing of it is left.

    with JavaStreams(scene.folder / "java", scene.servers, "streams-wordcount", process_id="4b61...") as java:
        java.start()                     # returns when it is RUNNING
        java.stop()                      # SIGTERM: it commits and closes; start() begins its next life on the same directory
        java.kill()
        java.log                         # each line led by the time in seconds, as the logs of `instances` are

Decides its settings: exactly-once, the timeouts that Tidemill's instances have in experiments. The jars are those that the
benchmarks take (``kafka-streams`` in tidemill/embedded/jars.lock), fetched by Ivy once.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from instances import SETTINGS, ExperimentError, until

from tidemill.embedded import guard
from tidemill.embedded.jars import fetch_bundle
from tidemill.embedded.java import find_java

VERSION = "4.3.1"
LEAST_PROBING_INTERVAL_MS = 60_000
"""Java refuses a shorter probing.rebalance.interval.ms."""

_MAIN = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
_START_LIMIT_S = 240.0
_STOP_LIMIT_S = 240.0
_LOGGING = """\
status = error
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{UNIX}.%d{SSS} %c{1} %m%n
logger.configs.name = org.apache.kafka.common.config
logger.configs.level = warn
"""
_RUNNING = re.compile(r"stream-client \[\S+\] State transition from \w+ to RUNNING")
_ASSIGNMENT = "Assignment of tasks to nodes: "
_PROBE_AT = re.compile(r"(be scheduled by \S+ for )(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) Z")


class JavaStreams:
    """One state directory, and what runs on it now. A context manager."""

    def __init__(
        self, folder: Path, servers: str, application_id: str, *, process_id: str, settings: Mapping[str, object] | None = None
    ) -> None:
        own = folder / "state" / application_id
        own.mkdir(parents=True)
        (own / "kafka-streams-process-metadata").write_text(json.dumps({"processId": process_id}))
        self._folder, self.log_file = folder, folder / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._since = 0
        written = {
            "application.id": application_id,
            "bootstrap.servers": servers,
            "state.dir": folder / "state",
            "processing.guarantee": "exactly_once_v2",
            "num.stream.threads": 1,
            "session.timeout.ms": SETTINGS["session.timeout.ms"],
            "heartbeat.interval.ms": SETTINGS["heartbeat.interval.ms"],
            "probing.rebalance.interval.ms": LEAST_PROBING_INTERVAL_MS,
            # The demo's own default is 0, which writes one changelog record a word.
            "statestore.cache.max.bytes": 10 << 20,
            **(settings or {}),
        }
        (folder / "application.properties").write_text("".join(f"{name}={value}\n" for name, value in written.items()))
        (folder / "log4j2.properties").write_text(_LOGGING)

    def __enter__(self) -> JavaStreams:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def start(self, limit_s: float = _START_LIMIT_S) -> JavaStreams:
        """Returns when it is RUNNING. EnvironmentProblem if the jars can't be had."""
        bundle = fetch_bundle("kafka-streams", environ=os.environ)
        java = find_java(os.environ).path
        self._since = len(self.log)
        # Whatever ends the experiment ends the JVM, too.
        command = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), "-"]
        command += [str(java), "-Xmx512m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"]
        command += ["-cp", bundle.classpath, _MAIN, str(self._folder / "application.properties")]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd=self._folder, start_new_session=True
            )
        until(self._is_running, "the Java instance to run", limit_s)
        return self

    def stop(self, limit_s: float = _STOP_LIMIT_S) -> float:
        """In good order; how long it took."""
        if self._process is None or self._process.poll() is not None:
            raise ExperimentError(f"the Java instance does not run; log: {self.log_end()}")
        began = time.monotonic()
        os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise ExperimentError(f"the Java instance did not close within {limit_s:.0f} s; log: {self.log_end()}") from None
        return time.monotonic() - began

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_STOP_LIMIT_S)

    # --- its log ---------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """What its leader decides is said as Tidemill's and older versions say it."""
        text = self.log_file.read_text(errors="replace") if self.log_file.exists() else ""
        return _PROBE_AT.sub(_probe_in_ms, text.replace(_ASSIGNMENT, "Assigned tasks to clients as: \n"))

    def log_end(self) -> str:
        return self.log[-2000:]

    def _is_running(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            code = None if process is None else process.returncode
            raise ExperimentError(f"the Java instance has ended with {code}; log: {self.log_end()}")
        return _RUNNING.search(self.log[self._since :]) is not None


def _probe_in_ms(found: re.Match[str]) -> str:
    at = datetime.strptime(found[2], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=timezone.utc)
    return f"{found[1]}{at.timestamp() * 1e3:.0f} ms"

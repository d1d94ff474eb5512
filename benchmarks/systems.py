"""The systems that are measured, each as a child process that is started, watched and ended.

Decides how each is set up: what its own documentation calls the defaults, exactly-once where it has it, and whatever makes a
peer faster on a machine of two cores without changing its answer. The reasons are next to the settings.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark
from output_topic import CountReader, count_of_long, count_of_text
from process_watch import end_tree

from tidemill.embedded.jars import fetch_bundle
from tidemill.embedded.java import find_java

HERE = Path(__file__).parent
APP = HERE.parent / "examples" / "wordcount.py"
SESSION_TIMEOUT_MS = 6_000
_HEARTBEAT_MS = 500
_STOP_LIMIT_S = 30.0
_KAFKA_STREAMS_MAIN = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What an instance is started with; ``folder`` is its own."""

    servers: str
    application_id: str
    folder: Path
    threads: int
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the benchmark's own."""
    trace: Path | None = None
    """Where Tidemill writes the timeline of its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """``shares_work``: a second instance takes over from one that dies; otherwise a new one is started in its place."""

    name: str
    command: Callable[[Start], list[str]]
    read_count: CountReader
    shares_work: bool = True


class Instance:
    """A running child process. What it says goes to ``log``."""

    def __init__(self, system: System, start: Start) -> None:
        start.folder.mkdir(parents=True, exist_ok=True)
        self.log = start.folder / "log"
        self._name = system.name
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                system.command(start), stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=start.folder, start_new_session=True,
                env=_environment(start),
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """RuntimeError if it has ended."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"{self._name} ended with code {code}: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """SIGKILL for the whole tree."""
        end_tree(self.pid)
        self._process.wait()

    def stop(self) -> None:
        """In good order; by force after a limit. Nothing of it is left."""
        tree = []
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(self.pid).children(recursive=True)
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_LIMIT_S)
        self.kill()
        for left in psutil.wait_procs(tree, timeout=5)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


def _environment(start: Start) -> dict[str, str]:
    """With bytecode of its modules, as a user's instance has: compiling all of them would be half a second of each start."""
    mine = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**mine, **start.environment}


def _tidemill(start: Start) -> list[str]:
    settings = {
        "application.id": start.application_id,
        "bootstrap.servers": start.servers,
        "num.stream.threads": str(start.threads),
        "session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "heartbeat.interval.ms": str(_HEARTBEAT_MS),
        # Tasks move at once, not with a probing rebalance minutes later.
        "acceptable.recovery.lag": str(2**63 - 1),
        **start.settings,
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "tidemill", "run", str(APP), "--end-with-stdin", "--log-level", "info"]
    if os.environ.get("TIDEMILL_BATCH_TRACE"):
        command[1:3] = [str(HERE / "batch_trace.py")]
    if start.trace is not None:
        command += ["--trace-start", str(start.trace)]
    return [*command, "--state-dir", str(start.folder / "state"), *words]


def kafka_streams_settings(start: Start) -> dict[str, str]:
    """What a Kafka Streams application is started with."""
    return {
        "application.id": start.application_id,
        "bootstrap.servers": start.servers,
        "num.stream.threads": str(start.threads),
        "processing.guarantee": "exactly_once_v2",
        "state.dir": str(start.folder / "state"),
        "session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "heartbeat.interval.ms": str(_HEARTBEAT_MS),
        # Kafka Streams' own default; the demo would turn the cache off, and write one record per word.
        "statestore.cache.max.bytes": str(10 * 1024 * 1024),
        # As above.
        "acceptable.recovery.lag": str(2**63 - 1),
        **start.settings,
    }


def _kafka_streams(start: Start) -> list[str]:
    settings = kafka_streams_settings(start)
    properties = start.folder / "application.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    bundle = fetch_bundle("kafka-streams", environ=os.environ)
    java = find_java(os.environ).path
    return [str(java), "-Xmx1g", "-cp", bundle.classpath, _KAFKA_STREAMS_MAIN, str(properties)]


def _structured_streaming(start: Start) -> list[str]:
    jars = sorted(fetch_bundle("spark-kafka", environ=os.environ).folder.glob("*.jar"))
    return [
        *(sys.executable, str(HERE / "structured_wordcount.py"), start.servers, str(start.folder / "checkpoint")),
        *(str(start.threads), ",".join(map(str, jars)), os.path.dirname(pyspark.__file__)),
    ]


TIDEMILL = System(name="Tidemill", command=_tidemill, read_count=count_of_long)
KAFKA_STREAMS = System(name="Kafka Streams", command=_kafka_streams, read_count=count_of_long)
STRUCTURED_STREAMING = System(
    name="Structured Streaming", command=_structured_streaming, read_count=count_of_text, shares_work=False
)

"""Instances of an application as an experiment needs them: started, looked at, closed, killed, frozen; nothing of them is left.

    with Scene(Path("/tmp/x"), topics={"lines": 6}) as scene:            # a broker and a folder; all ends with the block
        a = scene.own("a", PROGRAM, settings)                            # an instance in a process (and a JVM) of its own
        host = scene.host("shared", PROGRAM, slots=4)                    # several instances in one Spark driver process
        b = host.instance("b", settings, process_id="4b61...")           # its state is in <folder>/b/state
        a.start(); b.start(wait=False)                                   # start waits until it is RUNNING
        a.look()["tasks"]                                                # {"1_0": "running", ...}; see instance_host.Instances
        a.close()                                                        # in good order; a.start() begins its next life
        a.host.kill(); a.host.freeze(); a.host.thaw()                    # SIGKILL, SIGSTOP, SIGCONT: the whole process tree
        a.host.events("task-running")                                    # log lines of an event: [Event(at_s=..., fields={...})]

``settings`` are the application's, on top of SETTINGS and of what the scene knows (bootstrap.servers, state.dir). Every wait has
a limit; what ends too early or takes too long is an ExperimentError that shows the end of the log. Leaving the scene, also by
Ctrl-C or an error, kills all process trees and stops the broker: ``scene.broker``, an EmbeddedBroker or a BrokerCluster.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any

import psutil
from broker_cluster import BrokerCluster

from tidemill.embedded.broker import EmbeddedBroker
from tidemill.kafka.admin.client import Admin, TopicSpec

HERE = Path(__file__).parent
WORDCOUNT = HERE.parent / "examples" / "wordcount.py"
INPUT, OUTPUT = "streams-plaintext-input", "streams-wordcount-output"
SETTINGS: Mapping[str, object] = {
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,
    "repartition.purge.interval.ms": 5_000,
    "tidemill.test.short.intervals": "true",
}
LIMIT_S = 240.0
HEAP = "768m"
_FIELD = re.compile(r"([\w.]+)=('[^']*'|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|\S*)")


class ExperimentError(Exception):
    """Something did not happen in time, or ended that should not have: the experiment can't go on."""


def until(claim: Callable[[], bool], what: str, limit_s: float = LIMIT_S, pause_s: float = 0.05) -> float:
    """Waits until ``claim()``; how long that took. ExperimentError after the limit."""
    began = time.monotonic()
    while not claim():
        if time.monotonic() - began > limit_s:
            raise ExperimentError(f"waited {limit_s:.0f} s for: {what}")
        time.sleep(pause_s)
    return time.monotonic() - began


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a host's log: ``event=NAME key=value ...``."""

    at_s: float
    fields: Mapping[str, str]


@dataclass(slots=True)
class Instance:
    """One state directory, and what runs on it now."""

    name: str
    host: Host
    folder: Path
    settings: dict[str, object]
    program: Path | None = None

    def start(self, *, wait: bool = True, limit_s: float = LIMIT_S, **settings: object) -> Instance:
        """``settings`` (underscores for dots) hold from this life on. With ``wait`` it is RUNNING afterwards."""
        self.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        self.host.start()
        written = {name: str(value) for name, value in self.settings.items()}
        program = {} if self.program is None else {"program": str(self.program)}
        self.host.ask("start", limit_s, name=self.name, settings=written, **program)
        return self.wait_running(limit_s) if wait else self

    def look(self) -> dict[str, Any]:
        """How it stands; NOT_STARTED too where its host was never started, or killed."""
        if not self.host.is_running:
            return {"state": "NOT_STARTED", "tasks": {}, "standbys": {}, "threads": {}}
        return self.host.ask("look", LIMIT_S, name=self.name)

    def wait_running(self, limit_s: float = LIMIT_S) -> Instance:
        self.wait(lambda at: at["state"] == "RUNNING", "running", limit_s)
        return self

    def wait(self, claim: Callable[[dict[str, Any]], bool], what: str, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """How it stands when ``claim`` is true of it. ExperimentError too if it fails meanwhile."""
        seen: dict[str, Any] = {}

        def holds() -> bool:
            seen.update(self.look())
            if seen["state"] in ("ERROR", "PENDING_ERROR"):
                raise ExperimentError(f"instance {self.name} is {seen['state']}: {seen['error']}; log: {self.host.log_end()}")
            return claim(seen)

        try:
            until(holds, f"instance {self.name} to be {what}", limit_s)
        except ExperimentError as error:
            raise ExperimentError(f"{error}; it is {seen}; log: {self.host.log_end()}") from error
        return seen

    def close(self, limit_s: float = 60.0) -> dict[str, Any]:
        """In good order; the host goes on. Nothing if it does not run."""
        if not self.host.is_running:
            return {"closed": True, **self.look()}
        answer = self.host.ask("close", limit_s + 30, name=self.name, timeout_s=limit_s)
        if not answer["closed"]:
            raise ExperimentError(f"instance {self.name} did not close within {limit_s:.0f} s; log: {self.host.log_end()}")
        return answer


    def drain(self, limit_s: float = LIMIT_S) -> dict[str, Any]:
        """Its tasks are handed over to others as these catch up, then it closes."""
        answer = self.host.ask("drain", limit_s + 60, name=self.name, timeout_s=limit_s)
        if not answer["drained"]:
            raise ExperimentError(f"instance {self.name} did not drain within {limit_s:.0f} s; log: {self.host.log_end()}")
        return answer


class Host:
    """A process of ``instance_host``; started when its first instance is, again after ``kill``. Made by a Scene."""

    def __init__(
        self,
        name: str,
        folder: Path,
        program: Path,
        slots: int,
        known: Mapping[str, object],
        heap: str = HEAP,
        copies_wait_s: float = 0.0,
    ) -> None:
        self.name, self.folder, self.instances = name, folder, {}  # type: str, Path, dict[str, Instance]
        self.log_file = folder / f"{name}.log"
        self._asked = {"program": str(program), "slots": slots, "heap": heap, "copies_wait_s": copies_wait_s}
        self._known = dict(known)
        self._process: subprocess.Popen[str] | None = None
        self._answers: dict[int, Queue[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def instance(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        process_id: str | None = None,
        program: Path | None = None,
    ) -> Instance:
        """A new instance, of the host's program or its own; ``process_id``: of a state directory that is still empty."""
        folder = self.folder / name
        state = folder / "state"
        written = {**SETTINGS, **self._known, "state.dir": str(state), **(settings or {})}
        made = Instance(name, self, folder, written, program)
        if process_id is not None:
            own = state / str(made.settings.get("application.id", "streams-wordcount"))
            own.mkdir(parents=True, exist_ok=True)
            (own / "kafka-streams-process-metadata").write_text(json.dumps({"processId": process_id}))
        folder.mkdir(parents=True, exist_ok=True)
        self.instances[name] = made
        return made

    def start(self) -> None:
        """Nothing if it runs."""
        if self.is_running:
            return
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "instance_host.py"), json.dumps(self._asked)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._process,), name=f"host-{self.name}", daemon=True).start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ExperimentError(f"the host {self.name} was never started")
        return self._process.pid

    def ask(self, do: str, limit_s: float, **what: object) -> dict[str, Any]:
        """The answer to an order; ExperimentError for a problem, or none in time."""
        process, number, box = self._process, next(self._numbers), Queue[dict[str, Any]]()
        self._answers[number] = box
        try:
            if process is None or process.stdin is None:
                raise OSError("never started")
            with self._lock:
                process.stdin.write(json.dumps({"id": number, "do": do, "with": what}) + "\n")
                process.stdin.flush()
            answer = self._answer(process, box, limit_s)
        except (OSError, Empty) as error:
            ended = "no answer" if self.is_running else f"it has ended with {process.poll() if process else None}"
            raise ExperimentError(f"host {self.name}, {do}: {ended} ({error}); log: {self.log_end()}") from error
        finally:
            self._answers.pop(number, None)
        if "problem" in answer:
            raise ExperimentError(f"host {self.name}, {do} {what.get('name', '')}: {answer['problem']}")
        return answer

    def _answer(self, process: subprocess.Popen[str], box: Queue[dict[str, Any]], limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return box.get(timeout=0.5)
            except Empty:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            box = self._answers.get(answer.pop("id"))
            if box is not None:
                box.put(answer)

    # --- breaking --------------------------------------------------------------------------------------------------

    def tree(self) -> list[psutil.Process]:
        """The driver and all below it, parents first."""
        try:
            driver = psutil.Process(self.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """SIGKILL for the whole tree; nothing of it is left."""
        if self._process is None:
            return
        doomed = self.tree()
        _signal(doomed, signal.SIGKILL)
        self._process.wait(LIMIT_S)
        psutil.wait_procs(doomed[1:], timeout=60)

    def freeze(self) -> list[psutil.Process]:
        frozen = self.tree()
        _signal(frozen, signal.SIGSTOP)
        return frozen

    def thaw(self) -> None:
        _signal(self.tree(), signal.SIGCONT)

    # --- its log ---------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def log_end(self) -> str:
        return self.log[-2000:]

    def events(self, name: str, since_s: float = 0.0) -> list[Event]:
        """The log lines of this event from then on (time.time())."""
        found = []
        for line in self.log.splitlines():
            if f"event={name} " in line + " ":
                with contextlib.suppress(ValueError):  # a line that two threads wrote into
                    event = Event(at_s=float(line.split(" ", 1)[0]), fields=dict(_FIELD.findall(line)))
                    if event.at_s >= since_s:
                        found.append(event)
        return found


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


@dataclass
class Scene:
    """A broker of its own with ``topics`` (name -> partitions), and hosts; a context manager. ``folder`` is emptied first.

    ``broker_settings`` go to the broker's server.properties.
    """

    folder: Path
    topics: Mapping[str, int] = field(default_factory=lambda: {INPUT: 6, OUTPUT: 6})
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    hosts: dict[str, Host] = field(default_factory=dict)
    keeps_broker: bool = False
    """Its data and log stay in the folder, to be looked at; those of several always do."""
    brokers: int = 1
    """Number of brokers; of several each partition has a replica on all. ``broker_settings`` are for one."""

    def __enter__(self) -> Scene:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        # SIGTERM ends an experiment as Ctrl-C does: what it has started is ended.
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        self.broker: EmbeddedBroker | BrokerCluster = (
            BrokerCluster(self.folder / "brokers", self.brokers) if self.brokers > 1 else self._one_broker()
        )
        self.broker.__enter__()
        try:
            self.admin = Admin({"bootstrap.servers": self.servers})
            self.admin.create_topics([TopicSpec(name=name, partitions=count) for name, count in self.topics.items()])
        except BaseException:
            self.broker.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for host in self.hosts.values():
            host.kill()
        self.broker.__exit__(kind, error, trace)

    def _one_broker(self) -> EmbeddedBroker:
        return EmbeddedBroker(
            environ=os.environ,
            settings=dict(self.broker_settings),
            start_limit_s=LIMIT_S,
            data=self.folder / "broker" if self.keeps_broker else None,
        )

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def host(
        self, name: str, program: Path = WORDCOUNT, *, slots: int, heap: str = HEAP, copies_wait_s: float = 0.0
    ) -> Host:
        """One Spark driver process for several instances, with ``slots`` stream threads at most; their standbys and warm-ups
        begin to follow ``copies_wait_s`` after they were assigned."""
        made = Host(name, self.folder, program, slots, {"bootstrap.servers": self.servers}, heap, copies_wait_s)
        self.hosts[name] = made
        return made

    def own(
        self, name: str, program: Path = WORDCOUNT, settings: Mapping[str, object] | None = None, *, process_id: str | None = None
    ) -> Instance:
        """An instance that has a process and a JVM of its own, as in production."""
        made = Host(name, self.folder, program, 0, {"bootstrap.servers": self.servers})
        self.hosts[name] = made
        return made.instance(name, settings, process_id=process_id)


def own_wordcount(scene: Scene, application: str, partitions: int) -> Path:
    """The example with topics of this application's own, ``<application>-<INPUT>`` and ``-<OUTPUT>``, which are made."""
    scene.admin.create_topics([TopicSpec(name=f"{application}-{end}", partitions=partitions) for end in (INPUT, OUTPUT)])
    source = WORDCOUNT.read_text()
    for end in (INPUT, OUTPUT):
        source = source.replace(f'"{end}"', f'"{application}-{end}"')
    path = scene.folder / f"{application}.py"
    path.write_text(source)
    return path


def all_at_work(instances: list[Instance], tasks: int) -> bool:
    """Each is RUNNING, and together they run so many tasks, each once."""
    looks = [instance.look() for instance in instances]
    running = [task for at in looks for task, phase in at["tasks"].items() if phase == "running"]
    return all(at["state"] == "RUNNING" for at in looks) and len(running) == len(set(running)) == tasks

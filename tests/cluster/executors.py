"""Executors of a running instance, as processes of this machine: which there are, whose a worker is, and ending one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.runtime.instance_process import InstanceProcess
from tests.runtime.words import Counts, Feed, create_topics, differences, stored_counts
from tests.waiting import until

_SCRIPT = Path(__file__).parents[2] / "deploy" / "standalone.py"
_BACKEND = "CoarseGrainedExecutorBackend"


def executors(processes: Iterable[psutil.Process]) -> dict[str, psutil.Process]:
    """The executors' JVMs among these, by Spark's name."""
    found = {}
    for process in processes:
        try:
            words = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if any(word.endswith(_BACKEND) for word in words) and "--executor-id" in words:
            found[words[words.index("--executor-id") + 1]] = process
    return found


def executor_of(worker: int, running: dict[str, psutil.Process]) -> str | None:
    """The executor that a Python worker belongs to."""
    try:
        above = {process.pid for process in psutil.Process(worker).parents()}
    except psutil.NoSuchProcess:
        return None
    return next((name for name, process in running.items() if process.pid in above), None)


def counts_on(disks: Iterable[Path], application_id: str) -> dict[str, int]:
    """What the stores on executors' disks hold together, each task where it is newest. ``disks``: their state directories."""
    folders = [disk / application_id for disk in disks]
    [process_id] = {found.name for folder in folders for found in folder.glob("*-*-*-*-*")}
    return stored_counts(folders, process_id)


@dataclass
class Master:
    """A standalone master with two workers."""

    url: str
    script: subprocess.Popen[str]

    def processes(self) -> list[psutil.Process]:
        return psutil.Process(self.script.pid).children(recursive=True)


@contextmanager
def standalone(folder: Path) -> Iterator[Master]:
    """By ``deploy/standalone.py``; nothing of it is left afterwards."""
    command = [sys.executable, str(_SCRIPT), "--port", "0", "--folder", str(folder), "--until-stdin-ends"]
    script = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert script.stdin is not None
    assert script.stdout is not None
    master = Master("", script)
    started: list[psutil.Process] = []
    try:
        master.url = script.stdout.readline().strip()
        assert master.url.startswith("spark://127.0.0.1:"), f"the script has ended with {script.poll()}"
        yield master
        started = master.processes()
    finally:
        script.stdin.close()
        assert script.wait(240) == 0
        assert not psutil.wait_procs(started, 240)[1]


@dataclass
class Run:
    """One application that runs through all tests of this module."""

    instance: InstanceProcess
    feed: Feed
    counts: Counts
    processes: Callable[[], list[psutil.Process]]
    """Where executors are looked for."""

    def some_words_are_counted_exactly(self) -> None:
        self.feed.send(20)
        total = self.feed.expected.total()
        assert self.counts.reach(total, 240), f"{sum(self.counts.latest.values())} of {total}: {self.instance.log_end()}"
        assert differences(self.counts.latest, self.feed.expected) == {}
        assert self.counts.not_rising == []

    def workers(self) -> list[int]:
        return [pid for of_thread in self.instance.look()["workers"] for pid in of_thread.values()]

    def places(self) -> list[set[str | None]]:
        """The executors of each thread's workers."""
        running = executors(self.processes())
        return [{executor_of(pid, running) for pid in thread.values()} for thread in self.instance.look()["workers"]]

    def settled_without(self, executor: str | None) -> None:
        """Every thread has workers, and every worker has another executor than this one."""
        self._wait_settled(lambda places: executor not in places)

    def one_executor(self) -> str:
        """One that has workers, once every worker has an executor."""
        return min(self._wait_settled(bool))

    def _wait_settled(self, claim: Callable[[list[str]], bool]) -> list[str]:
        found: list[str] = []

        def is_settled() -> bool:
            found[:] = self._settled()
            return bool(found) and claim(found)

        assert until(is_settled), f"{self.places()}: {self.instance.log_end()}"
        return found

    def _settled(self) -> list[str]:
        """The executors, if every thread has workers and every worker has one; else none."""
        places = self.places()
        found = [name for of_thread in places for name in of_thread if name is not None]
        return found if all(of_thread and None not in of_thread for of_thread in places) else []


@contextmanager
def running(
    bootstrap_servers: str,
    application: str,
    folder: Path,
    settings: Mapping[str, object],
    *,
    seed: int,
    processes: Callable[[], list[psutil.Process]] | None = None,
) -> Iterator[Run]:
    """An instance of the application, which is RUNNING, with a feed and a reader of its own; all of it is ended afterwards.
    ``processes``: where its executors are, if not below the instance."""
    create_topics(bootstrap_servers, application)
    instance = InstanceProcess(folder, bootstrap_servers, application, settings={"spark.executor.memory": "512m", **settings})
    feed, counts = Feed(bootstrap_servers, application, seed=seed), Counts(bootstrap_servers, application)
    instance.start()
    try:
        instance.wait_running()
        yield Run(instance, feed, counts, processes or instance.tree)
        feed.stop()
    finally:
        counts.close()
        instance.end()

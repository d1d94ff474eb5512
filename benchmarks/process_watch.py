"""What a process tree costs while it runs: CPU time and memory, and what else the machine does meanwhile.

Samples /proc from a thread of its own (Linux only). CPU time is kept per process at its last value, so that one that
has ended still counts; a process that lives for less than a second may be missed. Memory is PSS, the share of pages that
processes have in common counted once.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_EVERY_S = 0.2
_LOOK_AROUND_EVERY = 5
"""New processes and memory: with every fifth sample of CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    cpu_s: float


class ProcessWatch:
    """Watches the trees below some processes until it is left. A context manager."""

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = list(roots)
        self._cpu_s: dict[tuple[int, float], float] = {}
        self._names: dict[tuple[int, float], str] = {}
        self._known: list[psutil.Process] = []
        self._samples: list[Sample] = []
        self._machine_before = self._machine_cpu_s()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process-watch", daemon=True)
        self._before_s = 0.0
        self.peak_pss_bytes = 0
        self.began_s = time.time()

    def __enter__(self) -> ProcessWatch:
        self._look_around()
        self._sample()
        self._before_s = self._samples.pop().cpu_s
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def add(self, root: int) -> None:
        self._roots.append(root)

    def cpu_s_at(self, at_s: float) -> float:
        """CPU seconds used from the watch's beginning to a moment, from the samples around it."""
        before = Sample(at_s=self.began_s, cpu_s=0.0)
        for sample in list(self._samples):
            if sample.at_s >= at_s:
                share = (at_s - before.at_s) / max(sample.at_s - before.at_s, 1e-9)
                return before.cpu_s + (sample.cpu_s - before.cpu_s) * min(max(share, 0.0), 1.0)
            before = sample
        return before.cpu_s

    def by_process(self) -> list[tuple[str, float]]:
        """CPU seconds of each process, the busiest first."""
        return sorted(((self._names.get(key, "?"), used) for key, used in self._cpu_s.items()), key=lambda item: -item[1])

    def others_cores(self, known_cpu_s: float) -> float:
        """Cores that the machine spent on all else since the watch began: on neighbours of the benchmark, if any."""
        spent = self._machine_cpu_s() - self._machine_before - known_cpu_s
        return max(0.0, spent / (time.time() - self.began_s))

    def _run(self) -> None:
        number = 0
        while not self._done.is_set():
            if number % _LOOK_AROUND_EVERY == 0:
                self._look_around()
            number += 1
            self._sample()
            self._done.wait(_CPU_EVERY_S)
        self._sample()

    def _look_around(self) -> None:
        known = []
        for root in self._roots:
            try:
                process = psutil.Process(root)
                known += [process, *process.children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
        self._known = known
        for process in known:  # again and again: between fork and exec a process has its parent's name
            with contextlib.suppress(psutil.Error):
                self._names[process.pid, process.create_time()] = _kind(process)
        self.peak_pss_bytes = max(self.peak_pss_bytes, sum(_pss_bytes(process.pid) for process in known))

    def _sample(self) -> None:
        for process in self._known:
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            self._cpu_s[process.pid, process.create_time()] = (int(fields[11]) + int(fields[12])) / _TICKS
        self._samples.append(Sample(at_s=time.time(), cpu_s=sum(self._cpu_s.values()) - self._before_s))

    @staticmethod
    def _machine_cpu_s() -> float:
        times = psutil.cpu_times()
        return float(times.user + times.nice + times.system + times.irq + times.softirq)


def own_cpu_s() -> float:
    """CPU seconds of the benchmark itself."""
    times = os.times()
    return times.user + times.system


def end_tree(root: int) -> None:
    """SIGKILL for a process and all below it, at once as a machine's failure would be."""
    try:
        process = psutil.Process(root)
        doomed = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in doomed:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(doomed, timeout=10)


def _pss_bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def _kind(process: psutil.Process) -> str:
    words = process.cmdline()
    if "pyspark.daemon" in words or "tidemill.spark.launch.fork_server" in words:
        return "python worker"
    return "jvm" if words and Path(words[0]).name == "java" else "python driver"

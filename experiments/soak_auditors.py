"""What a soak is judged by, besides the counts: one active per task, nothing left running, nothing that grows.

Decides from the instances' log lines when a task was active where, and from samples of their processes what grows; when somebody
is killed or frozen is told by the soak. A frozen instance can't know that its session has ended: what it thought to have counts
only until it was frozen, if the group took it away meanwhile. The same holds while the broker is away.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
from instances import Event, Host

ENDS = ("task-closed", "task-demoted", "task-created", "task-restoring")
_BLIND_LIMIT_S = 60.0
"""So long before the loss of a membership is known it may have begun: a freeze or an outage, and the session's end."""
_SAMPLE_S = 3.0
_WARM_S, _LEAST_S, _WINDOW_S = 30.0, 90.0, 30.0
_PYTHON_GROWTH, _PYTHON_GROWTH_MIB = 0.25, 48.0
_JVM_ROOM_MIB = 900.0
_FILES_MORE, _DRIVER_FILES_MORE = 24, 64
"""While the brokers are away, kafka-python holds the sockets of failed connections until Python's next garbage collection: 40 of
them at most were seen in a driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A task that ran on an instance's thread from ``begin_s`` to ``end_s``."""

    task: str
    who: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blind:
    """A time in which an instance (None: any) could not hear of the group."""

    host: str | None
    begin_s: float
    end_s: float


def active_times(
    host: str, events: Sequence[tuple[str, Event]], deaths: Sequence[float], blind: Sequence[Blind], end_s: float
) -> list[Active]:
    """When which task ran there. ``events``: (name, line) in their order; ``deaths``: when the process was killed."""
    found: list[Active] = []
    running: dict[tuple[str, str], float] = {}
    marks = sorted([(event.at_s, name, event) for name, event in events], key=lambda mark: mark[0])
    stops = sorted(deaths)
    for at_s, name, event in [*marks, (end_s, "end", None)]:
        while stops and stops[0] <= at_s:
            death_s = stops.pop(0)
            found += [Active(task=t, who=w, begin_s=b, end_s=death_s) for (t, w), b in running.items()]
            running.clear()
        if event is None:
            found += [Active(task=t, who=w, begin_s=b, end_s=at_s) for (t, w), b in running.items()]
            break
        key = event.fields["task"], f"{host}/{event.fields['thread']}"
        if name == "task-running":
            running.setdefault(key, at_s)
        elif key in running:
            active = Active(task=key[0], who=key[1], begin_s=running.pop(key), end_s=_known_end(host, event, blind))
            if active.begin_s < active.end_s:  # else the batch that made it run was over before the loss was noticed
                found.append(active)
    return found


def _known_end(host: str, event: Event, blind: Sequence[Blind]) -> float:
    """Where a loss was noticed late, the last moment before it at which the instance could still hear of the group."""
    if event.fields.get("cause", "").strip("'\"") in ("revoked", "the thread ends"):
        return event.at_s
    before = [b.begin_s for b in blind if b.host in (None, host) and b.begin_s <= event.at_s <= b.end_s + _BLIND_LIMIT_S]
    return min([event.at_s, *before])


def overlaps(times: Sequence[Active]) -> list[tuple[Active, Active]]:
    """Pairs in which one task ran in two places at once."""
    found = []
    by_task: dict[str, list[Active]] = {}
    for each in sorted(times, key=lambda active: active.begin_s):
        for other in by_task.setdefault(each.task, []):
            if each.who != other.who and each.begin_s < other.end_s:
                found.append((other, each))
        by_task[each.task].append(each)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A process that lived long enough to be judged: (early, late) medians."""

    name: str
    seconds: float
    memory_mib: tuple[float, float]
    files: tuple[float, float]
    is_bounded: bool


@dataclass
class Series:
    """Samples of one process; ``kind``: driver, worker or jvm."""

    name: str
    kind: str
    at_s: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    def growth(self, heap_mib: float) -> Growth | None:
        """None for what did not live long enough."""
        if not self.at_s or self.at_s[-1] - self.at_s[0] < _LEAST_S:
            return None
        early = [n for n, at in enumerate(self.at_s) if _WARM_S <= at - self.at_s[0] <= _WARM_S + _WINDOW_S]
        late = [n for n, at in enumerate(self.at_s) if self.at_s[-1] - at <= _WINDOW_S]
        if not early or not late:
            return None
        memory = (statistics.median(self.memory_mib[n] for n in early), statistics.median(self.memory_mib[n] for n in late))
        files = (statistics.median(self.files[n] for n in early), statistics.median(self.files[n] for n in late))
        most = memory[0] * (1 + _PYTHON_GROWTH) + _PYTHON_GROWTH_MIB
        if self.kind == "jvm":  # a heap fills up to its size: that is no growth
            most = heap_mib + _JVM_ROOM_MIB
        files_more = _DRIVER_FILES_MORE if self.kind == "driver" else _FILES_MORE
        return Growth(
            name=self.name,
            seconds=self.at_s[-1] - self.at_s[0],
            memory_mib=memory,
            files=files,
            is_bounded=memory[1] <= most and files[1] - files[0] <= files_more,
        )


class ProcessAudit:
    """Samples the trees of some hosts on a thread of its own, until ``close``."""

    def __init__(self, hosts: Sequence[Host], heap_mib: float) -> None:
        self._hosts, self._heap_mib = list(hosts), heap_mib
        self._series: dict[tuple[int, float], Series] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process-audit", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        self._thread.join()

    def left(self) -> list[str]:
        """The processes that were seen and live still."""
        return sorted(series.name for (pid, born), series in self._series.items() if _lives(pid, born))

    def growths(self) -> list[Growth]:
        found = [series.growth(self._heap_mib) for series in self._series.values()]
        return sorted((growth for growth in found if growth is not None), key=lambda growth: growth.name)

    def _run(self) -> None:
        while not self._ends.wait(_SAMPLE_S):
            for host in self._hosts:
                if host.is_running:
                    for process in host.tree():
                        with contextlib.suppress(psutil.Error):
                            self._sample(host, process)

    def _sample(self, host: Host, process: psutil.Process) -> None:
        key = process.pid, process.create_time()
        if key not in self._series:
            kind = _kind(process)
            self._series[key] = Series(name=f"{host.name} {kind} {process.pid}", kind=kind)
        series, now_s = self._series[key], time.time()
        memory, files = process.memory_info().rss / 2**20, process.num_fds()
        series.at_s.append(now_s)
        series.memory_mib.append(memory)
        series.files.append(files)


def _kind(process: psutil.Process) -> str:
    words = process.cmdline()
    if "pyspark.daemon" in words or "tidemill.spark.launch.fork_server" in words:
        return "worker"
    return "jvm" if words and words[0].endswith("java") else "driver"


def _lives(pid: int, born: float) -> bool:
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() == born and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False

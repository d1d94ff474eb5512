"""Part (a): how fast a system works off lines that wait for it.

The clock runs from just before the process is started until its last count is committed. Meanwhile nothing reads the output:
its committed end is asked for ten times a second, and what was counted when is read afterwards, from the times at which the
broker appended each count.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from bench_broker import Feed, fresh_broker
from conditions import Conditions, settled
from output_topic import Arrival, Differences, OutputTopic
from process_watch import ProcessWatch
from systems import Instance, Start, System
from zipf_lines import ZipfLines

_LIMIT_S = 900.0
_POLL_S = 0.1
_STILL_S = 1.5
"""When the committed end has not moved for so long, the counts are read: this may have been the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchUp:
    """Words per second and CPU microseconds per word, of the whole run and of the words after the first half.

    ``started_words_per_s``: from the moment at which the system says that it begins to process; None if it doesn't say.
    """

    system: str
    seconds: float
    first_output_s: float
    words_per_s: float
    cpu_us_per_word: float
    half_words_per_s: float
    half_cpu_us_per_word: float
    started_words_per_s: float | None
    broker_cpu_s: float
    peak_pss_mib: float
    cpu_by_process: list[tuple[str, float]]
    output_records: int
    wrong: Differences
    conditions: Conditions


def catch_up(system: System, lines: ZipfLines, threads: int, folder: Path) -> CatchUp:
    with fresh_broker(append_times=True) as broker:
        feed = Feed(broker.bootstrap_servers, lines)
        feed.send(len(lines))
        feed.flush()
        output = OutputTopic(broker.bootstrap_servers, system.read_count)
        load = settled()
        with ProcessWatch([broker.pid]) as broker_watch:
            began = time.time()
            instance = Instance(
                system,
                Start(servers=broker.bootstrap_servers, application_id="catch-up", folder=folder, threads=threads),
            )
            try:
                with ProcessWatch([instance.pid]) as watch:
                    ended, arrivals = until_all_counted(output, lines.words, instance)
                conditions = load.during(watch, [broker_watch])
            finally:
                instance.stop()
        wrong = output.differences(lines.counts())
        records = output.records
        output.close()
    times, counted = progress(arrivals)
    half = int(np.searchsorted(counted, lines.words / 2))
    half_s = float(times[half])
    half_words = lines.words - int(counted[half])
    query_started = _query_started(instance.log)
    return CatchUp(
        system=system.name,
        seconds=ended - began,
        first_output_s=float(times[0]) - began,
        words_per_s=lines.words / (ended - began),
        cpu_us_per_word=watch.cpu_s_at(ended) / lines.words * 1e6,
        half_words_per_s=half_words / (ended - half_s),
        half_cpu_us_per_word=(watch.cpu_s_at(ended) - watch.cpu_s_at(half_s)) / max(half_words, 1) * 1e6,
        started_words_per_s=lines.words / (ended - query_started) if query_started else None,
        broker_cpu_s=broker_watch.cpu_s_at(ended),
        peak_pss_mib=watch.peak_pss_bytes / 2**20,
        cpu_by_process=watch.by_process(),
        output_records=records,
        wrong=wrong,
        conditions=conditions,
    )


class Checked(Protocol):
    """One or several instances."""

    @property
    def log(self) -> Path: ...

    def check(self) -> None:
        """RuntimeError if one has ended."""


def until_all_counted(output: OutputTopic, words: int, instance: Checked) -> tuple[float, list[Arrival]]:
    """When the last count was committed, and all counts. RuntimeError if they don't come."""
    arrivals: list[Arrival] = []
    began = moved_at = time.time()
    committed, read = 0, 0
    while time.time() - began < _LIMIT_S:
        now = time.time()
        end = sum(output.stable_ends().values())
        if end != committed:
            committed, moved_at = end, now
        elif committed != read and now - moved_at > _STILL_S:
            read = committed
            arrivals += output.take_to_end()
            if output.total >= words:
                return moved_at, arrivals
        instance.check()
        time.sleep(_POLL_S)
    raise RuntimeError(f"{output.total} of {words} words counted after {_LIMIT_S:.0f} s; see {instance.log}")


def progress(arrivals: list[Arrival]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Moments, and how many words had been counted by then."""
    times = np.array([arrival.appended_s for arrival in arrivals])
    raised = np.array([arrival.raised for arrival in arrivals], dtype=np.int64)
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(raised[order])


def _query_started(log: Path) -> float | None:
    found = re.search(r"query started at ([\d.]+)", log.read_text(errors="replace"))
    return float(found[1]) if found else None

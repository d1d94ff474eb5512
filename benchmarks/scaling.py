"""How throughput grows with instances, threads and executors on this machine: WordCount's catch-up, run for each combination.

    python benchmarks/scaling.py [--lines 500000] [--cases 1x1x0,1x2x0,2x1x0,1x1x1,1x2x2,2x1x1] [--json FILE]

A case is instances x threads of each x executors of each; 0 executors is local[*]. Every case has a broker of its own and the
same lines; the clock runs from just before the first process is started until the last count is committed, and counts are
compared with numpy's: exits 1 if one was wrong. `rate` is over the whole run, start included; `second half` is of the words
after the first half, when all JVMs are warm. All processes share this machine's cores, the broker too: what is to be seen is
what a layer costs, not what more machines would give.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from bench_broker import Feed, fresh_broker
from catch_up import progress, until_all_counted
from conditions import settled
from output_topic import OutputTopic
from process_watch import ProcessWatch
from rich.console import Console
from rich.table import Table
from systems import TIDEMILL, Instance, Start
from zipf_lines import ZipfLines, zipf_lines

_CASES = "1x1x0,1x2x0,2x1x0,1x1x1,1x2x2,2x1x1"
_EXECUTOR_MIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    instances: int
    threads: int
    executors: int

    @classmethod
    def parse(cls, text: str) -> Case:
        try:
            instances, threads, executors = (int(part) for part in text.split("x"))
        except ValueError:
            raise SystemExit(f"{text!r} is no case: write instances x threads x executors, such as 1x2x2") from None
        return cls(instances=instances, threads=threads, executors=executors)

    @property
    def settings(self) -> dict[str, str]:
        if not self.executors:
            return {}
        cores = -(-self.threads // self.executors)
        return {
            "spark.master": f"local-cluster[{self.executors},{cores},{_EXECUTOR_MIB}]",
            "spark.executor.memory": f"{_EXECUTOR_MIB // 2}m",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    case: Case
    seconds: float
    words_per_s: float
    half_words_per_s: float
    cpu_us_per_word: float
    peak_pss_mib: float
    load_before: float
    wrong: int


class Instances:
    """Several processes of one application, as one."""

    def __init__(self, running: list[Instance]) -> None:
        self._running = running
        self.log = running[0].log.parent.parent

    def check(self) -> None:
        for instance in self._running:
            instance.check()


def measure(case: Case, lines: ZipfLines, folder: Path) -> Measured:
    with fresh_broker(append_times=True) as broker, contextlib.ExitStack() as running:
        feed = Feed(broker.bootstrap_servers, lines)
        feed.send(len(lines))
        feed.flush()
        output = OutputTopic(broker.bootstrap_servers, TIDEMILL.read_count)
        running.callback(output.close)
        load = settled()
        began = time.time()
        started = []
        for number in range(case.instances):
            instance = Instance(
                TIDEMILL,
                Start(
                    servers=broker.bootstrap_servers,
                    application_id="scaling",
                    folder=folder / f"instance-{number}",
                    threads=case.threads,
                    settings=case.settings,
                ),
            )
            running.callback(instance.stop)
            started.append(instance)
        watch = running.enter_context(ProcessWatch([instance.pid for instance in started]))
        ended, arrivals = until_all_counted(output, lines.words, Instances(started))
        times, counted = progress(arrivals)
        half = int(np.searchsorted(counted, lines.words / 2))
        wrong = output.differences(lines.counts())
        return Measured(
            case=case,
            seconds=ended - began,
            words_per_s=lines.words / (ended - began),
            half_words_per_s=(lines.words - int(counted[half])) / max(ended - float(times[half]), 1e-9),
            cpu_us_per_word=watch.cpu_s_at(ended) / lines.words * 1e6,
            peak_pss_mib=watch.peak_pss_bytes / 2**20,
            load_before=load.load,
            wrong=wrong.over + wrong.under,
        )


def table_of(measured: list[Measured], words: int) -> Table:
    table = Table(title=f"{words:,} words on {os.cpu_count()} cores, all processes together")
    for heading in ("instances", "threads of each", "executors of each", "s", "words/s", "second half", "CPU us/word", "PSS MiB",
                    "load before", "counts"):  # fmt: skip
        table.add_column(heading, justify="right")
    for one in measured:
        table.add_row(
            str(one.case.instances), str(one.case.threads), str(one.case.executors or "local[*]"), f"{one.seconds:.1f}",
            f"{one.words_per_s:,.0f}", f"{one.half_words_per_s:,.0f}", f"{one.cpu_us_per_word:.2f}",
            f"{one.peak_pss_mib:,.0f}", f"{one.load_before:.1f}", "exact" if not one.wrong else f"{one.wrong} wrong",
        )  # fmt: skip
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--cases", default=_CASES)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    cases = [Case.parse(text) for text in asked.cases.split(",")]
    lines = zipf_lines(asked.lines, seed=1)
    measured: list[Measured] = []
    failed: list[str] = []
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="tidemill-scaling-", ignore_cleanup_errors=True) as folder:
            try:
                measured.append(measure(case, lines, Path(folder)))
                print(f"{time.strftime('%H:%M:%S')} {measured[-1]}", flush=True)
            except RuntimeError as problem:
                failed.append(f"{case}: {problem}")
                print(failed[-1], flush=True)
    Console(width=150).print(table_of(measured, lines.words))
    if asked.json:
        asked.json.write_text(json.dumps([asdict(one) for one in measured], indent=1))
    return 1 if failed or any(one.wrong for one in measured) else 0


if __name__ == "__main__":
    sys.exit(main())

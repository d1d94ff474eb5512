"""A stream thread added to a running instance: how long until its tasks run, by part, and how long any task waits meanwhile.

    python benchmarks/add_thread.py [--runs 3] [--seconds 8]

WordCount with one thread on a fresh broker gets 200 lines a second; then ``add_stream_thread()`` is called. Prints a table
(medians and all runs) and one JSON line. ``plan and workers``: until the new thread has run its plan once, while the other works;
``group``: from its join until tasks are assigned; ``tasks``: until all of them run. ``longest pause``: of any task, from when it
was given up or assigned until it ran again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import runpy
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench_broker import Feed, fresh_broker
from conditions import settled
from rich.console import Console
from rich.table import Table
from systems import APP
from zipf_lines import zipf_lines

from tidemill import KafkaStreams, State, StreamsBuilder
from tidemill.log_format import LogEvent

_RATE = 200
_LIMIT_S = 300.0
PARTS = ("plan and workers", "group", "tasks")


class Events(logging.Handler):
    """Log events of the instance with the time of each."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen: list[tuple[float, LogEvent]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.msg, LogEvent):
            self.seen.append((record.created, record.msg))

    def named(self, name: str, since_s: float) -> list[tuple[float, dict[str, Any]]]:
        return [(at, event.fields) for at, event in list(self.seen) if event.name == name and at >= since_s]


def word_count() -> StreamsBuilder:
    """The program of ``examples/wordcount.py``."""
    program: StreamsBuilder = runpy.run_path(str(APP))["builder"]
    return program


def added(folder: Path, seconds: int) -> dict[str, float]:
    events = Events()
    logger = logging.getLogger("tidemill")
    logger.addHandler(events)
    logger.setLevel(logging.INFO)
    lines = zipf_lines(_RATE * int(_LIMIT_S), seed=2)
    with fresh_broker() as broker:
        feed, is_over = Feed(broker.bootstrap_servers, lines), threading.Event()
        began = time.time()

        def run() -> None:
            while not is_over.wait(0.01):
                feed.send(min(len(lines), int((time.time() - began) * _RATE)))

        feeder = threading.Thread(target=run, daemon=True)
        feeder.start()
        streams = KafkaStreams(
            word_count(), application_id="add-thread", bootstrap_servers=broker.bootstrap_servers, state_dir=str(folder),
            num_stream_threads=1, config={"spark.master": "local[4]"},
        )  # fmt: skip
        try:
            with streams:
                streams.wait(State.RUNNING, timeout=_LIMIT_S)
                time.sleep(seconds)
                settled()
                return _measured(streams, events)
        finally:
            is_over.set()
            feeder.join()
            logger.removeHandler(events)


def _measured(streams: KafkaStreams, events: Events) -> dict[str, float]:
    began = time.time()
    name = streams.add_stream_thread()
    call_s = time.time() - began
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        new = next(thread for thread in streams.threads if thread.name == name)
        if new.is_running and new.tasks and all(thread.is_running for thread in streams.threads):
            break
        time.sleep(0.005)
    ended = time.time()
    time.sleep(1.0)  # the end of the rebalance is logged when the tasks have run a batch
    joined = events.named("join", began)[0][0]
    assigned = [at for at, fields in events.named("assigned", began) if fields.get("thread") == name and fields.get("tasks")]
    paused = [ms for _, fields in events.named("rebalance-over", began) for ms in fields["paused_ms"].values()]
    return {
        "call": call_s, "plan and workers": joined - began, "group": assigned[0] - joined, "tasks": ended - assigned[0],
        "together": ended - began, "longest pause": max(paused, default=0) / 1e3,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=8, help="of work before the thread is added")
    options = parser.parse_args()
    runs = []
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="tidemill-add-", ignore_cleanup_errors=True) as folder:
            runs.append(added(Path(folder), options.seconds))
    table = Table(title="a thread added to a running instance, seconds", title_justify="left")
    for column in ("", "median", "all runs"):
        table.add_column(column, justify="left" if not column else "right")
    for what in runs[0]:
        table.add_row(what, f"{statistics.median(run[what] for run in runs):.2f}", " ".join(f"{run[what]:.2f}" for run in runs))
    Console(width=120).print(table)
    line = {
        "benchmark": "add_thread", "at": time.strftime("%Y-%m-%d %H:%M:%S"), "cores": os.cpu_count(),
        "command": " ".join(["benchmarks/add_thread.py", *sys.argv[1:]]), "runs": runs,
    }  # fmt: skip
    sys.stdout.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

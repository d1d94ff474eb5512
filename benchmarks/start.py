"""Start to first output: Tidemill, compared with Kafka Streams and Spark Structured Streaming; Tidemill's timeline and memory.

    python benchmarks/start.py [--peers] [--runs 3] [--threads 1] [--seconds 15] [--json FILE] [--trace FILE]

200 lines wait; the clock runs from just before the process starts to the arrival of the first count. Systems take turns, each
run on a fresh broker. Then lines come at 1,000 a second, and memory is taken by part at the end. One more run of Tidemill gives
the timeline (``tidemill run --trace-start``) with the JVM's own account of its memory, which costs it a little. Prints tables and
one JSON line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_broker import Feed, fresh_broker
from conditions import Conditions, settled
from latency import FIRST_LINES, first_output
from memory_parts import TRACKED, memory_parts
from output_topic import OutputTopic
from process_watch import ProcessWatch
from rich.console import Console
from rich.table import Table
from systems import KAFKA_STREAMS, STRUCTURED_STREAMING, TIDEMILL, Instance, Start, System
from zipf_lines import zipf_lines

_RATE = 1_000
_WIDTH = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """One run. ``cpu_s``: of all its processes, up to the first output; ``pss_mib``: the peak; ``parts``: MiB, at the end."""

    system: str
    first_output_s: float
    cpu_s: float
    pss_mib: float
    parts: dict[str, float]
    conditions: Conditions


def started(system: System, threads: int, seconds: int, folder: Path, *, is_traced: bool = False) -> Started:
    lines = zipf_lines(FIRST_LINES + _RATE * seconds, seed=2)
    with fresh_broker() as broker:
        output = OutputTopic(broker.bootstrap_servers, system.read_count)
        feed = Feed(broker.bootstrap_servers, lines)
        feed.send(FIRST_LINES)
        feed.flush()
        load = settled()
        began = time.time()
        start = Start(
            servers=broker.bootstrap_servers, application_id="start", folder=folder, threads=threads,
            environment=TRACKED if is_traced else {}, trace=folder / "trace.json" if is_traced else None,
        )  # fmt: skip
        instance = Instance(system, start)
        try:
            with ProcessWatch([broker.pid]) as broker_watch, ProcessWatch([instance.pid]) as watch:
                first_at = first_output(output, instance)[0].arrived_s
                fed_from = time.time()
                while feed.sent < len(lines):
                    feed.send(min(len(lines), FIRST_LINES + int((time.time() - fed_from) * _RATE)))
                    output.take(0.002)
                parts = memory_parts(instance.pid)
            conditions = load.during(watch, [broker_watch])
        finally:
            instance.stop()
        output.close()
    return Started(
        system=system.name, first_output_s=first_at - began, cpu_s=watch.cpu_s_at(first_at),
        pss_mib=watch.peak_pss_bytes / 2**20, parts=parts, conditions=conditions,
    )  # fmt: skip


def main() -> int:
    options = _options()
    systems = [TIDEMILL, *([KAFKA_STREAMS, STRUCTURED_STREAMING] if options.peers else [])]
    runs: list[Started] = []
    console = Console(width=_WIDTH)
    with tempfile.TemporaryDirectory(prefix="tidemill-start-", ignore_cleanup_errors=True) as folder:
        for number in range(options.runs):
            for system in systems:
                place = Path(folder) / f"{number}-{system.name.replace(' ', '-').lower()}"
                runs.append(started(system, options.threads, options.seconds, place))
                console.print(f"{system.name}: {runs[-1].first_output_s:.1f} s", highlight=False)
        place = Path(folder) / "traced"
        traced = started(TIDEMILL, options.threads, options.seconds, place, is_traced=True)
        events = json.loads((place / "trace.json").read_text())
    if options.trace:
        Path(options.trace).write_text(json.dumps(events) + "\n")
    console.print(_starts(runs, options.threads))
    console.print(_timeline(events))
    console.print(_memory(traced))
    line = json.dumps(_as_json(runs, traced, events, options))
    sys.stdout.write(line + "\n")
    if options.json:
        Path(options.json).write_text(line + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peers", action="store_true", help="Kafka Streams and Structured Streaming too")
    parser.add_argument("--runs", type=int, default=3, help="of each system, in turns")
    parser.add_argument("--threads", type=int, default=1, help="stream threads, or task slots")
    parser.add_argument("--seconds", type=int, default=15, help="of 1,000 lines each, before memory is taken")
    parser.add_argument("--json", metavar="FILE", help="the JSON line goes there too")
    parser.add_argument("--trace", metavar="FILE", help="the timeline goes there, in Chrome's trace format")
    return parser.parse_args()


def _starts(runs: list[Started], threads: int) -> Table:
    table = Table(title=f"start to first output, {threads} threads, medians", title_justify="left")
    for column in ("", "runs", "first output s", "all runs", "CPU s", "PSS MiB", "against Tidemill", "other cores"):
        table.add_column(column, justify="left" if not column else "right")
    for name in dict.fromkeys(run.system for run in runs):
        mine = [run for run in runs if run.system == name]
        table.add_row(
            name,
            str(len(mine)),
            f"{_median(runs, name):.1f}",
            " ".join(f"{run.first_output_s:.1f}" for run in mine),
            f"{statistics.median(run.cpu_s for run in mine):.1f}",
            f"{statistics.median(run.pss_mib for run in mine):.0f}",
            f"{_median(runs, TIDEMILL.name) / _median(runs, name):.1f} x",
            " ".join(f"{run.conditions.other_cores:.1f}" for run in mine),
        )
    return table


def _median(runs: list[Started], system: str) -> float:
    return statistics.median(run.first_output_s for run in runs if run.system == system)


def _timeline(events: list[dict[str, Any]]) -> Table:
    table = Table(title="Tidemill's start", title_justify="left")
    for column, side in (("from s", "right"), ("for s", "right"), ("CPU s", "right"), ("where", "left"), ("what", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    told = sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"])
    began = min((e["ts"] for e in told), default=0)
    for event in told:
        cpu_ms = event["args"].get("cpu_ms")
        table.add_row(
            f"{(event['ts'] - began) / 1e6:.2f}",
            f"{event['dur'] / 1e6:.2f}" if "dur" in event else "",
            "" if cpu_ms is None else f"{cpu_ms / 1e3:.2f}",
            names.get((event["pid"], event["tid"]), "").rpartition("StreamThread-")[2],
            event["name"],
        )
    return table


def _memory(run: Started) -> Table:
    table = Table(title=f"Tidemill's memory at {_RATE} lines/s by part", title_justify="left")
    table.add_column("part")
    table.add_column("MiB", justify="right")
    for name, mib in sorted(run.parts.items(), key=lambda item: -item[1]):
        if mib >= 1:
            table.add_row(name, f"{mib:.0f}")
    table.add_row("together", f"{sum(run.parts.values()):.0f}")
    return table


def _as_json(
    runs: list[Started], traced: Started, events: list[dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    return {
        "benchmark": "start",
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(["benchmarks/start.py", *sys.argv[1:]]),
        "cores": os.cpu_count(),
        "threads": options.threads,
        "runs": [dataclasses.asdict(run) for run in runs],
        "traced": dataclasses.asdict(traced),
        "timeline": events,
    }


if __name__ == "__main__":
    sys.exit(main())

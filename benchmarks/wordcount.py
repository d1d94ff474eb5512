"""WordCount from topic to topic: Tidemill, compared with Kafka Streams and Spark Structured Streaming.

    python benchmarks/wordcount.py [--lines 2000000] [--peers] [--threads 2] [--parts a,b,c,d] [--json FILE]

(a) catch-up of lines that wait, (b) latency at 1,000 lines/s for 60 s, (c) start to first output, (d) kill -9 of one of two
instances. Every system runs as a child process on a fresh broker with the same lines, and its counts are compared with numpy's
after every run. Prints a table, the targets with what was reached, and one JSON line; exits 1 if a count was wrong.
docs/benchmarks.md says what is measured and how; RESULTS.md next to this file keeps what was.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from catch_up import CatchUp, catch_up
from instance_kill import InstanceKill, instance_kill
from latency import Latency, latency
from results_file import record
from rich.console import Console
from rich.table import Table
from systems import KAFKA_STREAMS, STRUCTURED_STREAMING, TIDEMILL, System
from targets import Results, judged
from wordcount_tables import catch_up_table, instance_kill_table, latency_table, process_table, target_table
from zipf_lines import ZipfLines, zipf_lines

_WIDTH = 150


def main() -> int:
    options = _options()
    systems = [TIDEMILL, *([KAFKA_STREAMS, STRUCTURED_STREAMING] if options.peers else [])]
    if options.only:
        systems = [system for system in (TIDEMILL, KAFKA_STREAMS, STRUCTURED_STREAMING) if options.only in system.name]
    console = Console(width=_WIDTH)
    results = Results(catch_up={}, latency={}, instance_kill={})
    failed: list[str] = []
    lines = zipf_lines(options.lines, seed=1) if "a" in options.parts else None
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-", ignore_cleanup_errors=True) as folder:
        for system in systems:
            for part in ("a", "b", "d"):
                if part not in options.parts:
                    continue
                console.print(f"{time.strftime('%H:%M:%S')} {system.name}: part {part}", highlight=False)
                place = Path(options.keep or folder) / f"{part}-{system.name.replace(' ', '-').lower()}"
                try:
                    _measure(part, system, options, lines, place, results)
                except RuntimeError as problem:
                    failed.append(f"{system.name}, part {part}: {problem}")
                    console.print(f"failed: {problem}", highlight=False, markup=False)
    for table in _tables(results, options):
        console.print(table)
    for text in failed:
        console.print(f"FAILED {text.splitlines()[0]}", highlight=False, markup=False)
    line = json.dumps(_as_json(results, options, failed))
    sys.stdout.write(line + "\n")
    if options.json:
        Path(options.json).write_text(line + "\n")
    if options.record is not None:
        record(list(_tables(results, options)), _machine(), failed, options.record)
    return 1 if failed or results.wrong() else 0


def _measure(
    part: str, system: System, options: argparse.Namespace, lines: ZipfLines | None, place: Path, results: Results
) -> None:
    if part == "a":
        assert lines is not None
        results.catch_up[system.name] = catch_up(system, lines, options.threads, place)
    elif part == "b":
        results.latency[system.name] = latency(system, options.rate, options.seconds, options.threads, place)
    else:
        results.instance_kill[system.name] = instance_kill(system, options.rate, place)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, default=2_000_000, help="of part a")
    parser.add_argument("--peers", action="store_true", help="Kafka Streams and Structured Streaming too")
    parser.add_argument("--only", metavar="NAME", help="one system, by a part of its name")
    parser.add_argument("--threads", type=int, default=2, help="stream threads, or task slots, of parts a to c")
    parser.add_argument("--parts", default="a,b,c,d", help="which; b and c are one run")
    parser.add_argument("--rate", type=int, default=1_000, help="lines per second of parts b and d")
    parser.add_argument("--seconds", type=int, default=60, help="how long part b is measured")
    parser.add_argument("--json", metavar="FILE", help="the JSON line goes there too")
    parser.add_argument("--record", metavar="NOTE", help="append the tables, under this sentence, to RESULTS.md")
    parser.add_argument("--keep", metavar="DIR", help="keep the processes' logs and state there")
    options = parser.parse_args()
    options.parts = {"b" if part == "c" else part for part in options.parts.split(",")}
    if not options.parts or options.parts - {"a", "b", "d"}:
        parser.error("--parts takes a, b, c, d with commas between them")
    if options.keep:
        options.keep = str(Path(options.keep).absolute())
    return options


def _tables(results: Results, options: argparse.Namespace) -> Iterator[Table]:
    if results.catch_up:
        yield catch_up_table(list(results.catch_up.values()), options.lines, options.threads)
    if results.latency:
        yield latency_table(list(results.latency.values()), options.threads)
    if results.instance_kill:
        yield instance_kill_table(list(results.instance_kill.values()))
    runs: list[CatchUp | Latency] = [*results.catch_up.values(), *results.latency.values()]
    if runs:
        yield process_table(runs)
    targets = judged(results)
    if targets:
        yield target_table(targets)


def _as_json(results: Results, options: argparse.Namespace, failed: list[str]) -> dict[str, Any]:
    def figures(of: dict[str, CatchUp] | dict[str, Latency] | dict[str, InstanceKill]) -> dict[str, Any]:
        return {name: dataclasses.asdict(result) for name, result in of.items()}

    return {
        "benchmark": "wordcount",
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(["benchmarks/wordcount.py", *sys.argv[1:]]),
        "machine": _machine(),
        "lines": options.lines,
        "threads": options.threads,
        "catch_up": figures(results.catch_up),
        "latency": figures(results.latency),
        "instance_kill": figures(results.instance_kill),
        "targets": [dataclasses.asdict(target) for target in judged(results)],
        "failed": failed,
    }


def _machine() -> str:
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}"


if __name__ == "__main__":
    sys.exit(main())

"""Where the time of a micro-batch goes.

    TIDEMILL_BATCH_TRACE=FILE python benchmarks/wordcount.py --parts b --only Tidemill --threads 1
    python benchmarks/batch_trace.py FILE [--last-s 30]

With the variable set, the benchmarks start Tidemill through this module, which notes every micro-batch in the file, one JSON line
each: its seconds as the stream thread sees them, records in and out, and the steps' own timings. Called with a file it prints the
medians as a table, batches that have read source topics apart from those of repartition topics alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

_PARTS = (
    ("read: rest, wait, fetch", ("read",)),
    ("convert to Arrow", ("convert",)),
    ("hand on to the JVM", ("hand on",)),
    ("Catalyst and the way between the processes", ()),
    ("last step waits for the rest of the rows", ("wait",)),
    ("restore, continuity", ("gather", "restore", "continuity")),
    ("state: look up, compute", ("run",)),
    ("produce", ("foreach-batch", "produce", "room")),
    ("membership", ("membership",)),
    ("commit: offsets, flush, end of the transaction", ("commit",)),
    ("apply to the stores", ("apply",)),
)


def trace(path: str) -> None:
    from tidemill.runtime.observe.thread_metrics import ThreadMetrics

    note = ThreadMetrics.batch

    def noted(self: ThreadMetrics, report: Any, seconds: float) -> None:
        note(self, report, seconds)
        line = {
            "at": time.time(), "thread": id(self), "seconds": seconds, "in": report.records_in, "out": report.records_out,
            "outcome": report.outcome.value, "sources": report.has_read_sources, **report.source_ms, **report.timings_ms,
        }  # fmt: skip
        with open(path, "a") as file:
            file.write(json.dumps(line) + "\n")

    ThreadMetrics.batch = noted  # type: ignore[method-assign]


def table(path: Path, last_s: float) -> None:
    from rich.console import Console
    from rich.table import Table

    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines = [line for line in lines if line["at"] >= lines[-1]["at"] - last_s and line["in"]]
    kinds = {
        "sources": [line for line in lines if line["sources"]], "repartition": [line for line in lines if not line["sources"]]
    }  # fmt: skip
    shown = Table(title=f"a micro-batch, medians of the last {last_s:.0f} s, ms")
    shown.add_column("part")
    for kind, of_kind in kinds.items():
        shown.add_column(f"{kind} ({len(of_kind) / last_s:.0f} a second)", justify="right")
    for part, names in _PARTS:
        shown.add_row(part, *(f"{_median(of_kind, names):.1f}" for of_kind in kinds.values()))
    shown.add_row("records in / out", *(f"{_of(of_kind, 'in'):.0f} / {_of(of_kind, 'out'):.0f}" for of_kind in kinds.values()))
    shown.add_row("all, as the stream thread sees it", *(f"{_of(of_kind, 'seconds') * 1e3:.1f}" for of_kind in kinds.values()))
    Console(width=120).print(shown)


def _of(lines: list[dict[str, Any]], name: str) -> float:
    return float(statistics.median(line.get(name, 0.0) for line in lines)) if lines else 0.0


def _median(lines: list[dict[str, Any]], names: tuple[str, ...]) -> float:
    """No names: what none of the others has."""
    if not lines:
        return 0.0
    if names:
        return float(statistics.median(sum(line.get(name, 0.0) for name in names) for line in lines))
    known = [name for _, part in _PARTS for name in part]
    return float(statistics.median(line["seconds"] * 1e3 - sum(line.get(name, 0.0) for name in known) for line in lines))


if __name__ == "__main__":
    if "TIDEMILL_BATCH_TRACE" in os.environ:
        from tidemill.cli.main import main

        trace(os.environ["TIDEMILL_BATCH_TRACE"])
        main()
        sys.exit()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--last-s", type=float, default=30, help="so many seconds before the last batch")
    options = parser.parse_args()
    table(options.file, options.last_s)

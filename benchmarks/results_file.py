"""Keeps a run's tables in RESULTS.md, after those that are there: nothing is ever taken out."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).with_name("RESULTS.md")
_WIDTH = 400


def record(tables: Sequence[Table], machine: str, failed: Sequence[str], note: str) -> None:
    text = [f"\n## WordCount, {time.strftime('%Y-%m-%d %H:%M')}, commit {_commit()}\n"]
    text += [f"`python {' '.join(['benchmarks/wordcount.py', *sys.argv[1:]])}` on {machine}\n"]
    if note:
        text += [f"{note}\n"]
    for table in tables:
        text += [_markdown(table)]
    text += [f"Failed: {problem.splitlines()[0]}\n" for problem in failed]
    with RESULTS.open("a") as file:
        file.write("\n".join(text))


def _markdown(table: Table) -> str:
    title, table.title = table.title, None
    table.box, table.show_edge = box.MARKDOWN, True
    out = io.StringIO()
    Console(file=out, width=_WIDTH).print(table)
    lines = [line.strip() for line in out.getvalue().splitlines() if line.strip()]
    return f"{title}\n\n" + "\n".join(lines) + "\n"


def _commit() -> str:
    here = Path(__file__).parent
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"

"""`tidemill assign sweep`: all combinations of settings over a scenario, as a Spark job, and the best trade-offs.

Decides which variants run, where the rows go and which of them are the best trade-offs; a run's numbers are made in
``tidemill.sim``, the job in ``tidemill.cli.sweep_job``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidemill.cli.files import read_scenario
from tidemill.documents import Document
from tidemill.errors import ConfigError
from tidemill.text_table import table_lines

if TYPE_CHECKING:
    from tidemill.sim.scenario import Scenario

MOST_VARIANTS = 1_000_000
SHOWN = 20
GOALS = ("time_to_balanced_ms", "longest_outage_ms", "restored_bytes", "most_extra_copies", "most_loaded")
"""All to be small: how long it takes, and what it costs in availability, network and load."""


def sweep(
    scenario: Path = typer.Argument(help="A scenario in TOML."),
    vary: list[str] = typer.Option(
        ..., "--vary", help="NAME=FIRST..LAST[..STEP] or NAME=VALUE,VALUE...; may be repeated: every combination runs."
    ),
    out: Path | None = typer.Option(None, help="Write all rows to this Parquet file."),
    threads: int = typer.Option(2, min=1, help="Number of concurrent runs."),
    heap: str = typer.Option("768m", help="Memory of Spark's JVM."),
) -> None:
    """Run all combinations as a Spark job; print those that no other one beats in every respect."""
    from tidemill.sim.variants import combinations, parse_axis, with_values

    base = read_scenario(scenario)
    axes = [parse_axis(text) for text in vary]
    count = 1
    for _, values in axes:
        count *= len(values)
    if count > MOST_VARIANTS:
        raise ConfigError(f"--vary asks for {count:,} runs; expected at most {MOST_VARIANTS:,}: vary less at once")
    chosen = [variant.values for variant in combinations(axes)]
    with_values(base, chosen[0])  # a name that can't be varied is refused before a JVM is started
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.absolute().parent} does not exist")
    rows = _rows(base, chosen, out, threads, heap)
    typer.echo("\n".join(_lines([name for name, _ in axes], rows)))
    if all(row["error"] is not None for row in rows):
        raise typer.Exit(1)


def _rows(
    base: Scenario, chosen: Sequence[Mapping[str, str]], out: Path | None, threads: int, heap: str
) -> list[Document]:
    """Run the job; the rows in the order of the variants."""
    import os

    import pyarrow.parquet

    from tidemill.cli.sweep_job import sweep as sweep_job
    from tidemill.runtime.instance.machine_jvm import machine_jvm

    # A session has one slot to spare beyond its stream threads.
    handle = machine_jvm(
        os.environ, application_id="tidemill-sweep", threads=max(threads - 1, 1), heap=heap,
        settings={"spark.master": f"local[{threads}]"},
    ).session()  # fmt: skip
    try:
        table = sweep_job(handle.session, base, chosen).toArrow().sort_by("variant")
    finally:
        handle.close()
    if out is not None:
        try:
            pyarrow.parquet.write_table(table, out)
        except OSError as error:
            raise ConfigError(f"--out {out}: can't be written ({error.strerror})") from None
    found: list[Document] = table.to_pylist()
    return found


def best_trade_offs(rows: Sequence[Document]) -> list[Document]:
    """Rows that no other row beats in one goal without losing in another; of equal ones the first."""
    best: list[tuple[tuple[int, ...], Document]] = []
    able = [row for row in rows if row["error"] is None and row["time_to_balanced_ms"] is not None]
    for goals, row in sorted(((tuple(row[goal] for goal in GOALS), row) for row in able), key=lambda entry: entry[0]):
        if not any(all(has <= wants for has, wants in zip(other, goals, strict=True)) for other, _ in best):
            best.append((goals, row))
    return [row for _, row in best]


def _lines(names: Sequence[str], rows: Sequence[Document]) -> Iterator[str]:
    from tidemill.sim.report import duration, size

    failed = [row for row in rows if row["error"] is not None]
    never = sum(row["error"] is None and row["time_to_balanced_ms"] is None for row in rows)
    best = best_trade_offs(rows)
    yield f"{len(rows):,} runs, {never:,} never balanced, {len(failed):,} failed; {len(best):,} best trade-offs:"
    yield ""
    table = [(*names, "balanced after", "longest down", "restored", "extra copies", "most loaded", "moves")]
    table += [
        (
            *(row[name] for name in names),
            duration(row["time_to_balanced_ms"]),
            duration(row["longest_outage_ms"]),
            size(row["restored_bytes"]),
            str(row["most_extra_copies"]),
            str(row["most_loaded"]),
            str(row["moved_tasks"]),
        )
        for row in best[:SHOWN]
    ]
    yield from table_lines(table)
    if len(best) > SHOWN:
        yield f"and {len(best) - SHOWN:,} more; --out FILE.parquet keeps all rows"
    for row in failed[:3]:
        yield f"failed: {', '.join(f'{name}={row[name]}' for name in names)}: {row['error']}"

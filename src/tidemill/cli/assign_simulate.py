"""`tidemill assign simulate`: run a scenario in virtual time and report what moves, when it is balanced and what it costs.

Decides which variants run and how they are shown. What happens in a run is decided in ``tidemill.sim``, which drives the
functions that a running instance uses.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tidemill.cli.files import read_scenario, run_scenario
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.sim.history import SimulatedRun
    from tidemill.sim.scenario import Scenario


MOST_COMPARED = 1_000


def simulate(
    scenario: Path = typer.Argument(help="A scenario in TOML; examples/scenarios has some."),
    compare: list[str] = typer.Option(
        [], "--compare", help="NAME=VALUE,VALUE...: a run for each value (may be repeated: each combination). Names are "
        "settings such as max.warmup.replicas, or assignor, compatibility, seed, threads, restore_records_per_s ..."
    ),
    variants: bool = typer.Option(False, "--variants", help=r"A run for each of the file's own [\[variants]]."),
    plot: Path | None = typer.Option(None, "--plot", help="Draw tasks over clients in time, as .svg or .png."),
    as_json: bool = typer.Option(False, "--json", help="Print the runs as JSON."),
) -> None:
    """Simulate a scenario. Exit code 1 if an auditor finds a violation."""
    from tidemill.sim import report

    base = read_scenario(scenario)
    runs = [(name, run_scenario(variant)) for name, variant in _variants(base, compare, own=variants)]
    if plot is not None:
        from tidemill.cli.assign_simulate_plot import draw

        draw(runs, plot)
    if as_json:
        typer.echo(json.dumps([{"variant": name, **report.as_json(run)} for name, run in runs], ensure_ascii=False))
    elif len(runs) == 1:
        typer.echo("\n".join(report.lines(runs[0][1])))
    else:
        typer.echo("\n".join([f"{base.name}: {base.description}", "", *report.comparison_lines(runs)]))
    if any(run.violations for _, run in runs):
        _tell_violations(runs)
        raise typer.Exit(1)


def _variants(base: Scenario, compare: list[str], *, own: bool) -> list[tuple[str, Scenario]]:
    from tidemill.sim.variants import combinations, parse_axis, with_values

    chosen = list(base.variants) if own else []
    if own and not chosen:
        raise ConfigError(f"scenario {base.name!r} has no [[variants]]; name values with --compare instead")
    if compare:
        axes = [parse_axis(text) for text in compare]
        count = math.prod(len(values) for _, values in axes)
        if count > MOST_COMPARED:
            raise ConfigError(f"--compare asks for {count:,} runs; expected at most {MOST_COMPARED:,}: compare less at once")
        chosen += combinations(axes)
    if not chosen:
        return [(base.name, base)]
    return [(variant.name, with_values(base, variant.values)) for variant in chosen]


def _tell_violations(runs: list[tuple[str, SimulatedRun]]) -> None:
    for name, run in runs:
        for wrong in run.violations:
            typer.echo(f"{name}: {wrong}", err=True)

"""The picture of a run: time from left to right, a row for each client, its tasks as bars.

Decides layout and colours; what is drawn are the rounds of a run. Needs matplotlib (the extra ``plot``).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.ids import ProcessId, TaskId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from tidemill.sim.history import SimulatedRun

FORMATS = (".svg", ".png")
BAR_INCHES = 0.16
STYLES = {"active": (1.0, None), "standby": (0.35, None), "warm-up": (0.35, "////")}


def draw(runs: Sequence[tuple[str, SimulatedRun]], file: Path) -> None:
    """One panel below the other for each run."""
    if file.suffix.lower() not in FORMATS:
        raise ConfigError(f"--plot {file}: expected a name that ends in {' or '.join(FORMATS)}")
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentProblem("--plot needs matplotlib; install it with: pip install 'tidemill[plot]'") from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tidemill"  # the same run gives the same file
    from matplotlib import pyplot

    bars = [_bars(run) for _, run in runs]
    heights = [max(2.0, 0.8 + BAR_INCHES * sum(_rows(found).values())) for found in bars]
    figure, axes = pyplot.subplots(
        len(runs), 1, figsize=(11, sum(heights)), squeeze=False, layout="constrained", height_ratios=heights
    )
    for (name, run), found, axis in zip(runs, bars, axes[:, 0], strict=True):
        _panel(axis, name, run, found)
    try:
        figure.savefig(file, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise ConfigError(f"--plot {file}: can't be written ({error.strerror})") from None
    finally:
        pyplot.close(figure)


Bar = tuple[ProcessId, TaskId, str, int, int]


def _bars(run: SimulatedRun) -> list[Bar]:
    """(client, task, role, from, to), with neighbours of the same kind joined."""
    rounds = run.rounds_after_start
    end = _end_ms(run)
    found: list[Bar] = []
    open_bars: dict[tuple[ProcessId, TaskId, str], int] = {}
    for round_ in rounds:
        now: set[tuple[ProcessId, TaskId, str]] = set()
        for process_id, held in round_.assignment.clients.items():
            now |= {(process_id, task, "active") for task in held.active}
            now |= {(process_id, task, "standby") for task in held.standby - held.warmup}
            now |= {(process_id, task, "warm-up") for task in held.warmup}
        for key in [key for key in open_bars if key not in now]:
            found.append((*key, open_bars.pop(key), round_.time_ms))
        for key in now:
            open_bars.setdefault(key, round_.time_ms)
    return sorted([*found, *((*key, since, end) for key, since in open_bars.items())])


def _end_ms(run: SimulatedRun) -> int:
    rounds = run.rounds_after_start
    last = max([round_.time_ms for round_ in rounds] + [outage.to_ms for outage in run.outages], default=0)
    first = rounds[0].time_ms if rounds else 0
    return last + max((last - first) // 10, 1_000)


def _rows(bars: Sequence[Bar]) -> dict[ProcessId, int]:
    """Number of tasks that each client ever has."""
    tasks: dict[ProcessId, set[TaskId]] = {}
    for process_id, task, *_ in bars:
        tasks.setdefault(process_id, set()).add(task)
    return {process_id: len(tasks[process_id]) for process_id in sorted(tasks)}


def _panel(axis: Axes, name: str, run: SimulatedRun, bars: Sequence[Bar]) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    colours = colormaps["tab20"]
    subtopologies = sorted({task.subtopology for _, task, *_ in bars})
    rows = sorted({(process_id, task) for process_id, task, *_ in bars})
    row_of = {row: at for at, row in enumerate(rows)}
    for process_id, task, role, from_ms, to_ms in bars:
        alpha, hatch = STYLES[role]
        colour = colours(2 * subtopologies.index(task.subtopology) % 20)
        row = row_of[process_id, task]
        axis.barh(
            row, (to_ms - from_ms) / 1_000, left=from_ms / 1_000, height=0.85, color=colour, alpha=alpha, hatch=hatch
        )
        axis.text(from_ms / 1_000, row, f" {task}", va="center", fontsize=6)
    for outage in run.outages:
        if outage.to_ms >= run.scenario.disturbed_ms:
            for process_id, task in rows:
                if task == outage.task:
                    axis.plot(
                        [outage.from_ms / 1_000, outage.to_ms / 1_000], [row_of[process_id, task] + 0.45] * 2, "r-", lw=1.2
                    )
    for round_ in run.rounds_after_start:
        axis.axvline(round_.time_ms / 1_000, color="0.7", lw=0.6, zorder=0)
    _label_clients(axis, run, rows)
    axis.set_xlabel("seconds of virtual time")
    axis.set_title(f"{name}: {run.scenario.assignor}, {run.scenario.compatibility.value}", fontsize=9, loc="left")
    styles = [Patch(facecolor="0.4", alpha=alpha, hatch=hatch, label=role) for role, (alpha, hatch) in STYLES.items()]
    styles.append(Patch(color="red", label="no client runs it"))
    axis.legend(handles=styles, fontsize=6, loc="lower right", bbox_to_anchor=(1, 1), ncols=4)


def _label_clients(axis: Axes, run: SimulatedRun, rows: Sequence[tuple[ProcessId, TaskId]]) -> None:
    clients = sorted({process_id for process_id, _ in rows})
    middles = []
    for process_id in clients:
        own = [at for at, (of_row, _) in enumerate(rows) if of_row == process_id]
        middles.append(sum(own) / len(own))
        axis.axhline(own[-1] + 0.5, color="0.3", lw=0.5)
    axis.set_yticks(middles, [run.name(process_id) for process_id in clients])
    axis.set_ylim(len(rows) - 0.5, -0.5)

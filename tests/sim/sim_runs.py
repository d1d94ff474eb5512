"""Scenarios for tests: the ready ones by name, run with their own seed."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from tidemill.sim.cluster import simulate
from tidemill.sim.scenario_file import scenario_of
from tidemill.sim.variants import with_values

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"


def ready_scenario(name, **values):
    """``values``: settings to change, dots as underscores where a setting has dots."""
    table = tomllib.loads((SCENARIOS / f"{name}.toml").read_text(encoding="utf-8"))
    named = {
        key.replace("_", ".") if key.split("_")[0] in ("max", "acceptable", "num", "probing") else key: str(value)
        for key, value in values.items()
    }
    return with_values(scenario_of(table, name), named)


def run_of(scenario):
    return simulate(scenario, Random(scenario.seed))


def run(name, **values):
    return run_of(ready_scenario(name, **values))


def decided(run_):
    """The last round of each phase, in which everything is handed over."""
    return [phase[-1] for phase in run_.phases()]


def shown(run_, round_, *, active_of=None):
    """{"A": "1_0 1_3 | 1_2"}: active and standby tasks by client; ``active_of``: of this sub-topology only."""
    return {
        run_.name(process_id): f"{_text(held.active, active_of)} | {_text(held.standby, active_of)}".strip()
        for process_id, held in sorted(round_.assignment.clients.items())
    }


def threads(run_, round_):
    """{"bbb8 1": "0_0 1_0 | 1_3"} by client and number of the thread."""
    named = {str(process_id): name for process_id, name in run_.names.items()}
    found = {}
    for member, told in round_.threads.items():
        client, _, rest = member.removeprefix("simulated-").partition("-StreamThread-")
        found[f"{named[client]} {rest.partition('-')[0]}"] = f"{_text(told.active)} | {_text(told.standby)}".strip()
    return found


def _text(tasks, subtopology=None):
    return " ".join(str(task) for task in sorted(tasks) if subtopology in (None, task.subtopology))

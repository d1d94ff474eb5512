"""Scenario files for the commands that simulate.

Decides how a file is read and what seeds a run; what a scenario means is decided in ``tidemill.sim``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli.files import read_text
from tidemill.config.texts import parse_toml
from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.sim.history import SimulatedRun
    from tidemill.sim.scenario import Scenario

_MOST_BYTES = 4 << 20


def read_scenario(file: Path) -> Scenario:
    """ConfigError if the file can't be read or is no scenario."""
    from tidemill.sim.scenario_file import scenario_of

    try:
        table = parse_toml(read_text(file, expected="a scenario in TOML", most_bytes=_MOST_BYTES))
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(str(file)) else f"{file}: {error}") from None
    return scenario_of(table, file.stem)


def run_scenario(scenario: Scenario) -> SimulatedRun:
    """With the scenario's seed, so that a run can be repeated."""
    from random import Random

    from tidemill.sim.cluster import simulate

    return simulate(scenario, Random(scenario.seed))

"""Scenario files for the commands that simulate.

Decides how a file is read and what seeds a run; what a scenario means is decided in ``tidemill.sim``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.errors import ConfigError

if TYPE_CHECKING:
    from tidemill.sim.history import Run
    from tidemill.sim.scenario import Scenario

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_scenario(file: Path) -> Scenario:
    """ConfigError if the file can't be read or is no scenario."""
    from tidemill.sim.scenario_file import scenario_of

    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: can't be read ({error.strerror}); expected a scenario in TOML") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not TOML ({error})") from None
    return scenario_of(table, file.stem)


def run_scenario(scenario: Scenario) -> Run:
    """With the scenario's seed, so that a run can be repeated."""
    from random import Random

    from tidemill.sim.cluster import simulate

    return simulate(scenario, Random(scenario.seed))

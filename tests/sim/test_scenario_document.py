"""The file that docs/simulate.md shows is a scenario."""

import re
import sys
from pathlib import Path

from tests.sim.sim_runs import run_of
from tidemill.sim.scenario_file import scenario_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENT = Path(__file__).parents[2] / "docs" / "simulate.md"


def test_the_documented_file_runs():
    text = DOCUMENT.read_text(encoding="utf-8").partition("## Scenario files")[2].partition("## Explaining")[0]
    file = "\n".join(line[4:] for line in text.splitlines() if re.match(r" {4}", line))
    scenario = scenario_of(tomllib.loads(file), "documented")
    assert len(scenario.events) == 1
    assert run_of(scenario).rounds

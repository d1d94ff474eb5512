"""The benchmarks and experiments can be run: a name that has moved in the package is noticed here, not when one measures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [script for folder in ("benchmarks", "experiments") for script in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_finds_all_that_it_imports(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="imported")


def test_the_python_steps_of_each_program_send_its_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ROOT / "benchmarks" / "python_steps.py"
    monkeypatch.syspath_prepend(str(script.parent))
    names = runpy.run_path(str(script), run_name="imported")
    names["main"](["--records", "2000", "--batch", "500"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == list(names["OF_ONE_TASK"])
    assert all(int(row[-1]) >= 1000 for row in rows)

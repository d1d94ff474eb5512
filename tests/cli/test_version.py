"""`tidemill --version` says the version that is installed, or that it can't say anything."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tidemill.cli.main import main


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"tidemill {metadata.version('tidemill')}, Python 3.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is Linux's")
@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_output_that_can_not_be_written_is_one_sentence_on_standard_error(argument: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tidemill", argument], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.stderr == "tidemill: the output can't be written: No space left on device\n"
    assert ended.returncode == 1

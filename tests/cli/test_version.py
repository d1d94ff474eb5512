"""`tidemill --version` says the version that is installed, `--help` what a command takes, or that they can't say anything."""

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


@pytest.mark.parametrize(("command", "said"), [
    (["try"], "[@TIME] [TOPIC:] [KEY =>] VALUE"),
    (["assign", "simulate"], "own [[variants]]."),
    (["assign", "sweep"], "NAME=FIRST..LAST[..STEP]"),
])  # fmt: skip
def test_the_help_shows_what_stands_in_brackets(
    command: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Help texts are Rich's markup, in which some brackets are tags."""
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert said in capsys.readouterr().out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it is Linux's")
@pytest.mark.parametrize("argument", ["--version", "--help"])
def test_output_that_can_not_be_written_is_one_sentence_on_standard_error(argument: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "tidemill", argument], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.stderr == "tidemill: the output can't be written: No space left on device\n"
    assert ended.returncode == 1

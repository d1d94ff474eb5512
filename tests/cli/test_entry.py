"""Ctrl-C before a command has begun: the modules that it needs are still being imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

INTERRUPTED_AT = """
import os, runpy, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["tidemill", "--version"]
runpy.run_module("tidemill", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["tidemill.cli.main", "typer", "tidemill.printable"])
def test_a_ctrl_c_while_modules_are_imported_ends_the_command_in_silence(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT.format(module=module)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")

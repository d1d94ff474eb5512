"""Before a command has begun: a Ctrl-C while the modules that it needs are imported, standard streams that are none, a working
folder that is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


OPENED = """
import os, sys
from tidemill.cli import entry, main
main.main = lambda: print(os.open(sys.argv[1], os.O_RDONLY) > 2, file=open(sys.argv[2], "w"))
entry.main()
print("to nobody"), print("to nobody", file=sys.stderr), sys.stdin.read()
"""


def test_a_file_never_takes_the_place_of_a_closed_standard_stream(tmp_path: Path) -> None:
    """What a library writes to standard error would be written into it."""
    found = tmp_path / "found"
    command = [sys.executable, "-c", OPENED, __file__, str(found)]
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
    assert subprocess.run(closed, timeout=120, check=False).returncode == 0
    assert found.read_text() == "True\n"


@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=pytest.mark.skipif(
    not os.path.exists("/dev/full"), reason="this system has no device that is full"
))])
def test_the_exit_code_counts_where_nobody_can_be_told(stderr: str) -> None:
    command = [sys.executable, "-m", "tidemill", "describe", "no-such-file.py"]
    failed = subprocess.run(["sh", "-c", f'exec "$@" {stderr}', "sh", *command], timeout=120, check=False)
    assert failed.returncode == 2


def test_a_working_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = [sys.executable, "-m", "tidemill", "state", "ls", "state"]
    found = subprocess.run(
        ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone), *command],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (2, "")
    assert found.stderr == "tidemill: the folder in which this was started is gone; go to one that exists, and start it there\n"


def test_warnings_may_be_errors() -> None:
    """Of kafka-python, as it is imported, those of Python 3.11 and 3.12 were."""
    modules = "tidemill.cli.main, tidemill.runtime.instance.application, tidemill.kafka.group.member, tidemill.embedded.broker"
    command = [sys.executable, "-W", "error", "-c", f"import {modules}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

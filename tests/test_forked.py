"""What a process inherits from the one that it was forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PROGRAM = """
import os
from tidemill.forked import leaves_to_parent

class Owner:
    left = 0

    def leave_to_parent(self):
        self.left += 1
        raise OSError("closed already")

owners = [Owner(), Owner(), Owner()]
for owner in owners:
    leaves_to_parent(owner)
for generation in range(3):
    assert all(owner.left == generation for owner in owners)
    child = os.fork()
    if child != 0:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status))
"""


def test_each_owner_lets_go_in_a_child_whatever_another_one_meets() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")

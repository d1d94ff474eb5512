"""What a process inherits from the one that it was forked from."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.operators.step_harness import StepRun
from tidemill import Serdes, StreamsBuilder, per_record

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


WITH_CLIENTS = """
import os, signal, sys
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.security.rights import asking_client

settings = {"bootstrap.servers": "127.0.0.1:1"}
clients = [Admin(settings), Admin(settings), asking_client(settings), asking_client(settings)]
child = os.fork()
if child == 0:
    signal.alarm(60)  # it might as well wait for a thread that it does not have
    clients.clear()
    sys.exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


def test_a_child_that_ends_leaves_its_parent_s_clients_of_brokers_alone() -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", WITH_CLIENTS]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "7\n"), ran.stderr


RETURNING = """
import os, sys
from tidemill.forked import children_end

with children_end():
    child = os.fork()
    if child == 0:
        {ends}
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize(("ends", "code"), [
    ("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1), ("1 / 0", 1), ("raise KeyboardInterrupt", 1),
])  # fmt: skip
def test_a_child_does_not_leave_the_block_that_it_was_forked_in(ends: str, code: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", RETURNING.format(ends=ends)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{code}\n")


@pytest.mark.parametrize("end", [lambda: None, lambda: sys.exit(0)], ids=["returns", "exits"])
def test_a_child_that_a_function_has_forked_does_nothing_more_in_the_step(end: Callable[[], None]) -> None:
    """It would write rows, or an error, into its parent's connection to the JVM."""
    parent, codes = os.getpid(), []

    def function(value: str) -> str:
        child = os.fork()
        if child == 0:
            end()
        else:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        return value.upper()

    text, builder = Serdes.string(), StreamsBuilder()
    builder.stream("in", key=text, value=text).map_values(per_record(function)).to("out", key=text, value=text)
    run = StepRun(builder.build())
    try:
        run.pipe([("in", b"k", b"a", 5)])
    finally:
        if os.getpid() != parent:
            os._exit(99)
    assert codes == [0]
    assert [record[2] for record in run.written] == [b"A"]

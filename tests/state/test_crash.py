"""kill -9 of the process that writes a state, at any moment: it is at some applied batch, and never wiped."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.state.state_processes import FOR_EVER, STORES, at_batch, batch_found, start
from tidemill.state.durability import Shutdown
from tidemill.state.lmdb import TaskState

pytestmark = pytest.mark.fault

MEBIBYTE = 1 << 20
KILLS = 12 if os.environ.get("TIDEMILL_ALL_VECTORS") == "1" else 5


def wait_for_batch(directory: Path, number: int) -> None:
    """Until the writer has come to it: on a busy machine it may get no time between two kills."""
    reader = TaskState.open_to_read(directory)
    deadline = time.monotonic() + 240
    while batch_found(reader) < number:
        assert time.monotonic() < deadline, f"batch {number} was not written within 240 s"
    reader.close(clean=True)


def test_a_killed_writer_leaves_the_state_at_an_applied_batch(tmp_path: Path) -> None:
    moments = random.Random(20)
    last = 0
    for kill in range(KILLS):
        with start("write", tmp_path, MEBIBYTE, FOR_EVER) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            if kill == 0:
                wait_for_batch(tmp_path, KILLS + 1)
            time.sleep(moments.random() * 0.06)
            writer.kill()
        state = TaskState.open(tmp_path, STORES)
        found = batch_found(state)
        assert state.opened_after is Shutdown.CRASHED
        assert found >= last
        last = found
        state.close(clean=False)
    assert last > KILLS


def test_a_writer_killed_while_it_makes_the_state_leaves_one_that_opens(tmp_path: Path) -> None:
    moments = random.Random(21)
    for attempt in range(KILLS):
        directory = tmp_path / str(attempt)
        with start("write", directory, MEBIBYTE, FOR_EVER) as writer:
            deadline = time.monotonic() + 240
            while not directory.exists():
                assert time.monotonic() < deadline
                time.sleep(0.0002)
            time.sleep(moments.random() * 0.015)
            writer.kill()
        state = TaskState.open(directory, STORES)
        number = batch_found(state)
        assert state.positions() == at_batch(number)
        state.close(clean=True)

"""The service of test drivers, with engines that are stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any, cast

import pytest

from tests.state.test_lmdb import in_a_fork
from tidemill.errors import NoSlotError
from tidemill.spark.engine import BatchEngine
from tidemill.testing import driver_service
from tidemill.testing.driver_service import SharedDriverService, shared_driver_service


class FullEngine:
    """``full``: how often Spark has no slot."""

    def __init__(self, full: int) -> None:
        self.full = full

    def run(self, request: object) -> object:
        self.full -= 1
        if self.full >= 0:
            raise NoSlotError("other jobs have all slots")
        return request


def run(engine: FullEngine) -> object:
    return SharedDriverService().run(cast("BatchEngine", engine), cast("Any", "the request"))


def test_a_batch_waits_while_other_jobs_have_all_slots(caplog: pytest.LogCaptureFixture) -> None:
    assert run(FullEngine(2)) == "the request"
    assert caplog.text.count("other jobs have all slots") == 2


def test_a_batch_that_gets_no_slot_for_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_service, "SLOT_LIMIT_S", 0.0)
    with pytest.raises(NoSlotError):
        run(FullEngine(1_000_000))


def test_an_engine_hears_of_the_workers_that_are_there_while_another_one_joins() -> None:
    service, heard = SharedDriverService(), list[str]()

    class Joined(FullEngine):
        def worker_joined(self, run: int, step: str, worker: object) -> None:
            heard.append(step)
            service.worker_joined(1, "step-1", cast("Any", "another worker"))

    service.worker_joined(1, "source", cast("Any", "a worker"))
    assert service.run(cast("BatchEngine", Joined(0)), cast("Any", "the request")) == "the request"
    assert heard == ["source"]


def test_a_forked_process_has_a_service_of_its_own() -> None:
    service, server = shared_driver_service()

    def child() -> None:
        assert server._listener.socket.fileno() == -1
        assert shared_driver_service()[0] is not service

    assert in_a_fork(child) == 0
    assert shared_driver_service() == (service, server)


FORKS_AND_ENDS = """
import os, sys, tempfile
from tidemill.testing.driver_service import shared_driver_service

shared_driver_service()
child = os.fork()
if child == 0:
    sys.exit(0)  # in order, with all that a process does at its end
_, status = os.waitpid(child, 0)
print(status, len(os.listdir(tempfile.gettempdir())))
"""


def test_a_process_leaves_no_folder_of_its_service_and_a_forked_one_touches_none() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # with a short name: a socket lies in it
        environment = {**os.environ, "TMPDIR": folder}
        command = [sys.executable, "-c", FORKS_AND_ENDS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.split() == ["0", "1"], done.stderr
        assert os.listdir(folder) == []

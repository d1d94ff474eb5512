"""Calls of ``foreach_batch`` functions: who calls, and what becomes of what they raise. The frame is a stand-in."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemill import Serdes
from tidemill.errors import BatchLostError
from tidemill.runtime.thread import batch_handover as module
from tidemill.runtime.thread.batch_handover import BatchHandover
from tidemill.runtime.thread.driver_service import DriverService
from tidemill.spark.plan.batch_sinks import BatchFunction

NODE = "KSTREAM-FOREACH-0000000001"


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "background_pool", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(module, "batch_frame", lambda *_: "the frame")


def called(function: Any, folder: Path) -> tuple[str, BatchHandover]:
    text = Serdes.string()
    made = BatchFunction(function=function, key_serde=text, value_serde=text, topic="in")
    handover = BatchHandover(cast("Any", None), cast("Any", None), "app", {NODE: made})
    path = folder / "batch.parquet"
    path.touch()
    found = handover.call(NODE, str(path), cast("Any", "batch 1"))
    assert not path.exists()
    return found, handover


def test_while_a_function_is_called_its_caller_is_known(tmp_path: Path) -> None:
    callers: list[object] = []
    handovers: list[BatchHandover] = []
    text = Serdes.string()

    def note(_frame: object, _batch: object) -> None:
        callers.append(handovers[0].caller)

    made = BatchFunction(function=note, key_serde=text, value_serde=text, topic="in")
    handovers.append(BatchHandover(cast("Any", None), cast("Any", None), "app", {NODE: made}))
    (tmp_path / "batch.parquet").touch()
    assert handovers[0].call(NODE, str(tmp_path / "batch.parquet"), cast("Any", "batch 1")) == ""
    assert callers == [threading.current_thread()]
    assert handovers[0].caller is None


@pytest.mark.parametrize("under_way", [None, SimpleNamespace(read=(), request=SimpleNamespace(incarnation=1))])
def test_the_records_of_a_batch_that_counts_no_more_are_removed_without_a_call(tmp_path: Path, under_way: object) -> None:
    """The group may have moved on, or the batch may have taken too long."""
    runner: Any = SimpleNamespace(under_way=under_way)
    group: Any = SimpleNamespace(may_commit=lambda *_tasks, **_incarnation: False)
    handover = BatchHandover(cast("Any", None), cast("Any", None), "app", {})
    path = tmp_path / "batch.parquet"
    path.touch()
    with pytest.raises(BatchLostError):
        DriverService(runner, group, cast("Any", None), handover).hand_over(NODE, str(path), cast("Any", "batch 1"))
    assert not path.exists()


def test_what_a_function_raises_is_said_and_sys_exit_is_no_exception_to_that(tmp_path: Path) -> None:
    def leave(_frame: object, _batch: object) -> None:
        sys.exit(3)

    def divide(_frame: object, _batch: object) -> None:
        raise ZeroDivisionError("by zero")

    said, handover = called(leave, tmp_path)
    assert said == f"the function of {NODE} failed on the batch batch 1: SystemExit: 3"
    assert handover.caller is None
    assert called(divide, tmp_path)[0] == f"the function of {NODE} failed on the batch batch 1: ZeroDivisionError: by zero"

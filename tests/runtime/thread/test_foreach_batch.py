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
from tidemill.runtime.thread import foreach_batch as module
from tidemill.runtime.thread.driver_service import DriverService
from tidemill.runtime.thread.foreach_batch import ForeachBatchCalls
from tidemill.spark.plan.batch_sinks import BatchFunction

NODE = "KSTREAM-FOREACH-0000000001"
LIMIT_S = 240


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "background_pool", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(module, "batch_frame", lambda *_: "the frame")


def called(function: Any, folder: Path) -> tuple[str, ForeachBatchCalls]:
    text = Serdes.string()
    made = BatchFunction(function=function, key_serde=text, value_serde=text, topic="in")
    calls = ForeachBatchCalls(cast("Any", None), cast("Any", None), "app", {NODE: made})
    path = folder / "batch.parquet"
    path.touch()
    found = calls.call(NODE, str(path), cast("Any", "batch 1"))
    assert not path.exists()
    return found, calls


def test_while_a_function_is_called_its_caller_is_known(tmp_path: Path) -> None:
    callers: list[object] = []
    made_calls: list[ForeachBatchCalls] = []
    text = Serdes.string()

    def note(_frame: object, _batch: object) -> None:
        callers.append(made_calls[0].caller)

    made = BatchFunction(function=note, key_serde=text, value_serde=text, topic="in")
    made_calls.append(ForeachBatchCalls(cast("Any", None), cast("Any", None), "app", {NODE: made}))
    (tmp_path / "batch.parquet").touch()
    assert made_calls[0].call(NODE, str(tmp_path / "batch.parquet"), cast("Any", "batch 1")) == ""
    assert callers == [threading.current_thread()]
    assert made_calls[0].caller is None


@pytest.mark.parametrize("under_way", [None, SimpleNamespace(read=(), request=SimpleNamespace(batch_id=1, incarnation=1))])
def test_the_records_of_a_batch_that_counts_no_more_are_removed_without_a_call(tmp_path: Path, under_way: object) -> None:
    """The group may have moved on, or the batch may have taken too long."""
    runner: Any = SimpleNamespace(under_way=under_way)
    group: Any = SimpleNamespace(may_commit=lambda *_tasks, **_incarnation: False)
    calls = ForeachBatchCalls(cast("Any", None), cast("Any", None), "app", {})
    path = tmp_path / "batch.parquet"
    path.touch()
    with pytest.raises(BatchLostError):
        DriverService(runner, group, calls).call_foreach_batch(1, NODE, str(path), cast("Any", "batch 1"))
    assert not path.exists()


@pytest.mark.parametrize("now", [None, 3])
def test_a_call_that_waited_for_another_until_its_batch_was_given_up_is_not_made(tmp_path: Path, now: int | None) -> None:
    """The function took longer on the batch before than a batch may; the records that waited have another owner by now, or come
    again in the batch that is under way."""
    begun, may_end, asked = threading.Event(), threading.Event(), threading.Event()
    handed_over: list[object] = []
    answers: dict[int, str] = {}

    def function(_frame: object, offsets: object) -> None:
        handed_over.append(offsets)
        begun.set()
        may_end.wait(LIMIT_S)

    text = Serdes.string()
    made = BatchFunction(function=function, key_serde=text, value_serde=text, topic="in")
    calls = ForeachBatchCalls(cast("Any", None), cast("Any", None), "app", {NODE: made})
    runner, group = SimpleNamespace(under_way=None), SimpleNamespace(may_commit=lambda *_tasks, **_incarnation: True)
    service = DriverService(cast("Any", runner), cast("Any", group), calls)

    def give(batch_id: int | None) -> None:
        request = SimpleNamespace(batch_id=batch_id, incarnation=1)
        runner.under_way = None if batch_id is None else SimpleNamespace(read=(), request=request)

    def ask(batch_id: int) -> None:
        path = tmp_path / f"{batch_id}.parquet"
        path.touch()
        asked.set()
        try:
            answers[batch_id] = service.call_foreach_batch(batch_id, NODE, str(path), cast("Any", batch_id))
        except BatchLostError as lost:
            answers[batch_id] = str(lost)

    give(1)
    threads = [threading.Thread(target=ask, args=(batch_id,), daemon=True) for batch_id in (1, 2)]
    threads[0].start()
    assert begun.wait(LIMIT_S)
    asked.clear()
    give(2)
    threads[1].start()
    assert asked.wait(LIMIT_S), "it waits for the first, or has not been read yet: as the driver may read it late"
    give(now)
    may_end.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert handed_over == [1]
    assert answers == {1: "", 2: "its batch is not under way any more"}
    assert not list(tmp_path.iterdir())


def test_what_a_function_raises_is_said_and_sys_exit_is_no_exception_to_that(tmp_path: Path) -> None:
    def leave(_frame: object, _batch: object) -> None:
        sys.exit(3)

    def divide(_frame: object, _batch: object) -> None:
        raise ZeroDivisionError("by zero")

    said, calls = called(leave, tmp_path)
    assert said == f"the function of {NODE} failed on the batch batch 1: SystemExit: 3"
    assert calls.caller is None
    assert called(divide, tmp_path)[0] == f"the function of {NODE} failed on the batch batch 1: ZeroDivisionError: by zero"

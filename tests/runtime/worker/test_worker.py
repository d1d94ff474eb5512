"""What leaves a Python step as an exception: what the driver takes it for decides whether a record is blamed, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from tidemill.control.failures import blaming_no_record, kind_of
from tidemill.control.messages import FailureKind
from tidemill.errors import ColumnsResultError, MisfitError, StateError, StopError
from tidemill.runtime.worker import worker as workers
from tidemill.runtime.worker.step_code import StepCode

CODE = StepCode(address="nowhere", key=b"", thread="thread", step="step-1", pickled=b"")


def step_that_raises(monkeypatch: pytest.MonkeyPatch, problem: Exception) -> Iterator[pa.RecordBatch]:
    def micro_batches(_: object) -> Iterator[Any]:
        raise problem
        yield

    control = SimpleNamespace(leaving_on_failure=lambda _run: blaming_no_record(CODE.step))
    made = SimpleNamespace(spec=SimpleNamespace(spec=SimpleNamespace(last=True)), control=control)
    monkeypatch.setattr(workers, "run_of_task", lambda: (1, False))
    monkeypatch.setattr(workers, "_worker", lambda *_: cast("workers.Worker", made))
    monkeypatch.setattr(workers, "micro_batches", micro_batches)
    return workers.run_step(CODE, [])


def test_what_a_step_itself_raises_is_blamed_on_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    with pytest.raises(MisfitError, match=r"step-1 failed: UnicodeDecodeError: .*start byte \(test_worker.py:\d+\)") as raised:
        list(step_that_raises(monkeypatch, problem))
    assert kind_of(raised.value) is FailureKind.MISFIT


@pytest.mark.parametrize(
    "problem",
    [
        StopError("no"), StateError("no"), ColumnsResultError("no"), OSError(28, "no room"), MemoryError(),
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_what_the_system_a_client_or_the_library_raises_passes_as_it_is(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    with pytest.raises(type(problem)) as raised:
        list(step_that_raises(monkeypatch, problem))
    assert raised.value is problem

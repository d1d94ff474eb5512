"""What leaves a Python step as an exception: what the driver takes it for decides whether a record is blamed, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from tidemill.control.failures import blaming_no_record, kind_of
from tidemill.control.messages import FailureKind
from tidemill.errors import ColumnsResultError, ConfigError, MisfitError, StateError, StopError
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
        StopError("no"), StateError("no"), ColumnsResultError("n", "no"), OSError(28, "no room"), MemoryError(),
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


def test_the_driver_knows_of_a_worker_that_can_not_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[FailureKind | None] = []

    @contextmanager
    def leaving_on_failure(run: int) -> Iterator[None]:
        try:
            yield
        except ConfigError as problem:
            known.append(kind_of(problem))
            raise

    def refused(*_: object) -> workers.Worker:
        raise ConfigError("no such setting")

    monkeypatch.setattr(StepCode, "loaded", lambda code: None)
    monkeypatch.setattr(StepCode, "client", lambda code, run: SimpleNamespace(leaving_on_failure=leaving_on_failure))
    monkeypatch.setattr(workers, "Worker", refused)
    with pytest.raises(ConfigError):
        workers._worker(CODE, 1)
    assert known == [FailureKind.STOP]

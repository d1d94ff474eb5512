"""What an engine knows of its workers, which join on the control channel's threads."""

from __future__ import annotations

from typing import Any, cast

from tidemill.control.worker_process import WorkerProcess
from tidemill.spark.engine import BatchEngine


def test_the_writer_is_found_while_another_worker_joins() -> None:
    engine: Any = BatchEngine.__new__(BatchEngine)
    engine._workers = {}
    writer, joined = cast("WorkerProcess", object()), cast("WorkerProcess", object())

    class JoinedMeanwhile(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __ne__(self, other: object) -> bool:
            engine.worker_joined("source", joined)
            return super().__ne__(other)

    engine.worker_joined(JoinedMeanwhile("step-1"), writer)
    assert engine.writer is writer
    assert dict(engine._workers) == {"step-1": writer, "source": joined}

"""A batch that takes all it may makes the engine prepare for a backlog while it still runs; no other does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.thread_alone import Engine, thread_with
from tidemill.ids import TopicPartition
from tidemill.task.batch import BatchReport, Outcome, SourceProgress
from tidemill.task.pacing import BACKLOG

COUNTS = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_in=1)


@pytest.mark.parametrize(("records", "expects"), [(0, False), (BACKLOG - 1, False), (BACKLOG, True)])
def test_a_full_batch_makes_the_engine_expect_a_backlog(tmp_path: Path, records: int, expects: bool) -> None:
    progress = SourceProgress(records=records, first=(TopicPartition("in", 0), 0))
    thread = thread_with(engine := Engine(Outcome.COMMITTED, [(progress, COUNTS)]), tmp_path)
    thread.runner.run()
    assert engine.expects_backlog is expects

"""The file with the records of a batch for ``foreach_batch``, on a disk without room for it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest

from tidemill.errors import StateDiskError
from tidemill.runtime.worker.worker import Worker
from tidemill.task.batch_id import BatchId

ROWS = pa.table({"value": [bytes([at]) * 10_000 for at in range(100)]})


@contextmanager
def small_files() -> Iterator[None]:
    """The bound of a file's size stands in for a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_batch_that_finds_no_room_for_its_file_ends_the_thread_as_one_that_finds_none_for_its_stores(tmp_path: Path) -> None:
    folder = tmp_path / "foreach-batch"
    worker = cast("Worker", SimpleNamespace(spec=SimpleNamespace(batch_folder=str(folder))))
    with small_files(), pytest.raises(StateDiskError, match=f"{folder} can't be written"):
        Worker.call_foreach_batch(worker, 1, "EACH", ROWS, BatchId({}))
    assert not list(folder.iterdir()), "each try has a file of another name: with many there would be no room left"

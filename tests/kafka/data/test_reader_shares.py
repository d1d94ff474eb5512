"""How much of each kind a batch may still read."""

from __future__ import annotations

from typing import Any

import pytest

from tidemill.kafka.data.read_times import ReadKind
from tidemill.kafka.data.reader import _Shares
from tidemill.task.batch import BatchRequest

RESTORED = (ReadKind.CHANGELOG, ReadKind.STANDBY)


def shares() -> _Shares:
    return _Shares(BatchRequest(batch_id=1, inputs={}, max_bytes=400, max_records=10, max_restore_records=10))


def records(size: int) -> Any:
    """A record has the length of its value."""
    return [bytes(size)]


@pytest.mark.parametrize("kind", list(ReadKind))
def test_a_batch_takes_a_quarter_of_its_bytes_of_restored_records(kind: ReadKind) -> None:
    read = shares()
    read.take(kind, records(99))
    assert not read.is_restored_full
    read.take(kind, records(1))
    assert (read.is_restored_full, read.is_full) == (kind in RESTORED, False)
    read.take(kind, records(300))
    assert read.is_full


def test_all_kinds_together_have_no_more_bytes_than_a_batch_may() -> None:
    read = shares()
    for kind in (ReadKind.SOURCE, ReadKind.INTERNAL, ReadKind.GLOBAL, ReadKind.CHANGELOG):
        assert not read.is_full
        read.take(kind, records(99))
    read.take(ReadKind.SOURCE, records(4))
    assert read.is_full

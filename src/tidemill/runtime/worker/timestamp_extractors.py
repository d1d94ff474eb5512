"""Kafka Streams' own timestamp extractors, but ``FailOnInvalidTimestamp``: that is what happens without one."""

from __future__ import annotations

import time

from tidemill.operators.record import SourceRecord


def log_and_skip_on_invalid(record: SourceRecord, _partition_time: int) -> int:
    """The record's timestamp; a negative one drops the record."""
    return record.timestamp


def use_partition_time_on_invalid(record: SourceRecord, partition_time: int) -> int:
    """The highest timestamp of the partition so far in place of a negative one.

    Raises:
        ValueError: there is none yet.
    """
    if record.timestamp >= 0:
        return record.timestamp
    if partition_time < 0:
        raise ValueError(f"a partition's first record has the timestamp {record.timestamp}: no time is known to use instead")
    return partition_time


def wall_clock(_record: SourceRecord, _partition_time: int) -> int:
    """The time at which the record is read."""
    return time.time_ns() // 1_000_000

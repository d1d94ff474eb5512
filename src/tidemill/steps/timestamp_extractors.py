"""Kafka Streams' own timestamp extractors. ``FailOnInvalidTimestamp`` is what happens without one."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tidemill.config.values import KafkaExtractor
from tidemill.operators.record import SourceRecord
from tidemill.topology.functions import UserFunction


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


_OF_KAFKA: Mapping[KafkaExtractor, UserFunction | None] = {
    KafkaExtractor.FAIL_ON_INVALID: None,
    KafkaExtractor.LOG_AND_SKIP_ON_INVALID: log_and_skip_on_invalid,
    KafkaExtractor.USE_PARTITION_TIME_ON_INVALID: use_partition_time_on_invalid,
    KafkaExtractor.WALL_CLOCK: wall_clock,
}


def extractor_function(given: UserFunction | KafkaExtractor | None) -> UserFunction | None:
    """The function of an extractor, which the program gives itself or names."""
    return _OF_KAFKA[given] if isinstance(given, KafkaExtractor) else given

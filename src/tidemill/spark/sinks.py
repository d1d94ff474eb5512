"""Where each record of a sink goes: its topic, if a function names it, and its partition, if a function gives it.

Both functions get Python values, so bytes are read again here, for such sinks only. Leaves sending to ``produce``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tidemill.errors import RecordError
from tidemill.operators.record import Record
from tidemill.spark.records import ANY_PARTITION, Records
from tidemill.spark.step_spec import SinkSpec


def by_topic_of(sink: SinkSpec, records: Records) -> dict[str, Records]:
    """The records of a sink by topic.

    Raises:
        RecordError: the topic extractor failed.
    """
    if sink.topic_extractor is None:
        return {sink.topic: records}
    found: dict[str, list[int]] = {}
    for at in range(len(records)):
        key, value = sink.key_serde.deserialize(records.keys[at]), sink.value_serde.deserialize(records.values[at])
        record = Record(key, value, records.timestamps[at], tuple(records.header(at) or ()))
        topic = _called(sink, "topic extractor", records, at, partial(sink.topic_extractor, key, value, record))
        found.setdefault(topic, []).append(at)
    return {topic: _chosen(records, places) for topic, places in found.items()}


def place(sink: SinkSpec, topic: str, records: Records, partitions_of: Callable[[str], int]) -> None:
    """Says for each record which partition of ``topic`` it goes to.

    Raises:
        RecordError: the partitioner failed, or there is no such partition.
    """
    if sink.partitioner is None:
        return
    count = partitions_of(topic)
    records.partitions = []
    for at in range(len(records)):
        key, value = sink.key_serde.deserialize(records.keys[at]), sink.value_serde.deserialize(records.values[at])
        to = _called(sink, "partitioner", records, at, partial(sink.partitioner, topic, key, value, count))
        if to is not None and not 0 <= to < count:
            raise _failed(sink, records, at, f"the partitioner gave {to} for {topic}, which has the partitions 0 to {count - 1}")
        records.partitions.append(ANY_PARTITION if to is None else to)


def _called(sink: SinkSpec, what: str, records: Records, at: int, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as problem:
        raise _failed(sink, records, at, f"the {what} failed: {type(problem).__name__}: {problem}") from problem


def _failed(sink: SinkSpec, records: Records, at: int, what: str) -> RecordError:
    offset = records.offsets[at]
    return RecordError(
        f"{sink.name}: {what}", task=sink.name, topic=sink.topic, partition=records.parts[at],
        offset=-1 if offset is None else offset,
    )  # fmt: skip


def _chosen(records: Records, places: list[int]) -> Records:
    return Records(
        parts=[records.parts[at] for at in places],
        keys=[records.keys[at] for at in places],
        values=[records.values[at] for at in places],
        timestamps=[records.timestamps[at] for at in places],
        offsets=[records.offsets[at] for at in places],
        sequences=[records.sequences[at] for at in places],
        headers=None if records.headers is None else [records.headers[at] for at in places],
    )

"""Topic and partitions of each record of a sink, with the rules of Kafka Streams' RecordCollector.

A function of the user's names the topic (TopicNameExtractor) or the partitions (StreamPartitioner, KIP-837): none of its own
(the key decides), one, several (a copy goes to each), or no partition at all (the record is dropped). Both functions get
Python values, so bytes are read again here, for such sinks only. Without a function the sink's ``Partitioning`` decides:
windowed keys go where the key within goes, answers to subscriptions where the subscription came from, which their bytes don't
say and ``Records.partitions`` carries. Leaves sending to ``produce``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache, partial

from tidemill.dsl.serdes_windowed import window_bytes_of
from tidemill.errors import RecordError
from tidemill.ids import TaskId
from tidemill.log_format import LogEvent
from tidemill.operators.exception_handlers import ErrorContext
from tidemill.operators.record import Record
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.state_step import StepState
from tidemill.steps.step_spec import NodeSpec, SinkSpec
from tidemill.topology.operations import UserFunction
from tidemill.topology.partitioning import Partitioning, partition_of_key
from tidemill.topology.values import Serde

log = logging.getLogger("tidemill.operators")

_partition_of = lru_cache(maxsize=1 << 16)(partition_of_key)
"""The windows of a key come again and again, and the hash takes microseconds."""


def chooses_partitions(partitioner: UserFunction | None, partitioning: Partitioning, key_serde: Serde | None) -> bool:
    """Does such a sink say where its records go, in place of the producer?"""
    if partitioner is not None or partitioning is Partitioning.BY_SUBSCRIPTION:
        return True
    return partitioning is Partitioning.BY_WINDOWED_KEY and window_bytes_of(key_serde) > 0


def as_its_serdes_write(sink: str, node: NodeSpec, records: Records, state: StepState) -> Records:
    """A node's records as a sink of the same step writes them, where its serdes are others than the node's.

    Raises:
        RecordError: one can't be written, and ``production.exception.handler`` does not pass over it.
    """
    key_serde, value_serde = node.rewritten.get(sink, (None, None))
    if key_serde is None and value_serde is None:
        return records
    written = replace(records, keys=list(records.keys), values=list(records.values))
    refused: list[int] = []
    for at in range(len(records)):
        key, value = records.keys[at], records.values[at]
        try:
            if key_serde is not None:
                written.keys[at] = key_serde.serialize(node.out_key_serde.deserialize(key))
            if value_serde is not None:
                written.values[at] = value_serde.serialize(node.out_value_serde.deserialize(value))
        except Exception as problem:
            _pass_over(sink, node, records, at, problem, state)
            refused.append(at)
    return written.without(refused) if refused else written


def _pass_over(sink: str, node: NodeSpec, records: Records, at: int, problem: Exception, state: StepState) -> None:
    task, topic, offset = TaskId(node.subtopology, records.parts[at]), "|".join(node.topics), records.offsets[at]
    key, value, headers = records.keys[at], records.values[at], tuple(records.header(at) or ())
    context = ErrorContext(
        task=task, node=sink, topic=topic, partition=task.partition, offset=offset, timestamp=records.timestamps[at],
        headers=headers,
    )  # fmt: skip
    record = Record(node.out_key_serde.deserialize(key), node.out_value_serde.deserialize(value), context.timestamp, headers)
    refused = state.handlers.judge(context, record, problem, in_sink=True)
    if refused is None:
        raise RecordError(
            f"{sink}: {problem}", task=str(task), topic=topic, partition=task.partition, offset=-1 if offset is None else offset
        ) from problem
    state.dropped += 1
    state.passed_over.add(refused, key, value)


def by_topic_of(sink: SinkSpec, records: Records) -> dict[str, Records]:
    """The records of a sink by topic.

    Raises:
        RecordError: the topic extractor failed, or gave no topic.
    """
    if sink.topic_extractor is None:
        return {sink.topic: records}
    found: dict[str, list[int]] = {}
    for at in range(len(records)):
        key, value = sink.key_serde.deserialize(records.keys[at]), sink.value_serde.deserialize(records.values[at])
        record = Record(key, value, records.timestamps[at], tuple(records.header(at) or ()))
        topic = _called(sink, "topic extractor", records, at, partial(sink.topic_extractor, key, value, record))
        if not isinstance(topic, str) or not topic:
            raise _failed(sink, records, at, f"the topic extractor gave {topic!r}, expected the name of a topic")
        found.setdefault(topic, []).append(at)
    return {topic: records.only(places) for topic, places in found.items()}


def placed(sink: SinkSpec, topic: str, records: Records, partitions_of: Callable[[str], int]) -> tuple[Records, int]:
    """The records with the partitions of ``topic`` that they go to, and how many of them go to none.

    ``records`` stay as they are: another sink may have the same ones.

    Raises:
        RecordError: the partitioner failed, or there is no such partition.
    """
    if not chooses_partitions(sink.partitioner, sink.partitioning, sink.key_serde):
        return records, 0
    count = partitions_of(topic)
    if sink.partitioner is not None:
        return _placed_by_function(sink, topic, records, count)
    if sink.partitioning is Partitioning.BY_SUBSCRIPTION:
        _check_answers(sink, topic, records, count)
        return records, 0
    window = window_bytes_of(sink.key_serde)
    partitions = [ANY_PARTITION if key is None else _partition_of(key[:-window], count) for key in records.keys]
    return replace(records, partitions=partitions), 0


def _placed_by_function(sink: SinkSpec, topic: str, records: Records, count: int) -> tuple[Records, int]:
    places: list[int] = []
    dropped = 0
    partitions: list[int] = []
    assert sink.partitioner is not None
    for at in range(len(records)):
        key, value = sink.key_serde.deserialize(records.keys[at]), sink.value_serde.deserialize(records.values[at])
        given = _called(sink, "partitioner", records, at, partial(sink.partitioner, topic, key, value, count))
        found = _partitions(sink, topic, records, at, given, count)
        if not found:
            dropped += 1
            log.warning(
                LogEvent(
                    "record-dropped",
                    sink=sink.name,
                    topic=topic,
                    partition=records.parts[at],
                    offset=records.offsets[at],
                    reason="the partitioner gave no partition",
                )
            )
        places += [at] * len(found)
        partitions += found
    chosen = records if places == list(range(len(records))) else records.only(places)
    return replace(chosen, partitions=partitions), dropped


def _partitions(sink: SinkSpec, topic: str, records: Records, at: int, given: object, count: int) -> Collection[int]:
    if given is None:
        return (ANY_PARTITION,)
    found: list[int] = []
    for to in sorted(set(given)) if isinstance(given, (set, frozenset, list, tuple, range)) else (given,):
        if isinstance(to, int) and not isinstance(to, bool) and 0 <= to < count:
            found.append(to)
        else:
            what = f"the partitioner gave {given!r} for {topic}, which has the partitions 0 to {count - 1}"
            raise _failed(sink, records, at, f"{what}; expected one of them, several as a set, or None for the key's")
    return found


def _check_answers(sink: SinkSpec, topic: str, records: Records, count: int) -> None:
    for at, to in enumerate(records.partitions or ()):
        if to >= count:
            raise _failed(
                sink, records, at,
                f"the subscription came from partition {to} of the left table, but {topic} has the partitions 0 to {count - 1}:"
                " both need equally many, so set the application back after partitions were added",
            )  # fmt: skip


def _called(sink: SinkSpec, what: str, records: Records, at: int, call: Callable[[], object]) -> object:
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

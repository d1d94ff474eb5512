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
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import pyarrow as pa

from tidemill.dsl.serdes_windowed import window_bytes_of
from tidemill.errors import RecordError, RetriableError, SerdeError, StopError
from tidemill.ids import TaskId, why_no_topic
from tidemill.log_format import LogEvent
from tidemill.operators.exception_handlers import ErrorContext
from tidemill.operators.record import Record, SourceRecord
from tidemill.printable import repr_of, said_by
from tidemill.steps.rows.codecs_wire import from_the_jvm, in_transit
from tidemill.steps.rows.intake import as_handlers_get_it
from tidemill.steps.rows.order import topic_of
from tidemill.steps.rows.records import ANY_PARTITION, Records, from_rows
from tidemill.steps.step_spec import NodeSpec, SinkSpec
from tidemill.steps.step_state import StepState
from tidemill.topology.functions import UserFunction
from tidemill.topology.partitioning import Partitioning, partition_of_key
from tidemill.topology.values import Serde

log = logging.getLogger("tidemill.operators")

_partition_of = lru_cache(maxsize=1 << 16)(partition_of_key)
"""Cached, since a key has many windows, and the hash takes microseconds."""


def chooses_partitions(partitioner: UserFunction | None, partitioning: Partitioning, key_serde: Serde | None) -> bool:
    """True if such a sink chooses partitions itself, instead of the producer's partitioner."""
    if partitioner is not None or partitioning is Partitioning.BY_SUBSCRIPTION:
        return True
    return partitioning is Partitioning.BY_WINDOWED_KEY and window_bytes_of(key_serde) > 0


def as_its_serdes_write(to: str, node: NodeSpec, records: Records, state: StepState, place: str) -> Records:
    """A node's records as a sink of the same step writes them, or a node's store, where the serdes are others than the node's.
    ``place``: of ``to``, for messages.

    Raises:
        RecordError: one can't be written, and ``production.exception.handler`` does not pass over it.
    """
    key_serde, value_serde = node.rewritten.get(to, (None, None))
    if key_serde is None and value_serde is None:
        return records
    written = replace(records)
    if value_serde is not None and records.olds is not None:
        written.olds = [value_serde.serialize(node.out_value_serde.deserialize(old)) for old in records.olds]
    origin = _Origin(to, place, node.subtopology, node.topics, node.out_key_serde, node.out_value_serde)
    return _rewritten(
        origin,
        written,
        None if key_serde is None else lambda key: key_serde.serialize(node.out_key_serde.deserialize(key)),
        None if value_serde is None else lambda value: value_serde.serialize(node.out_value_serde.deserialize(value)),
        state,
    )


def from_columns(sink: SinkSpec, table: pa.Table, state: StepState) -> Records:
    """The rows that functions of Columns have handed to a sink, as its serdes write them.

    Raises:
        RecordError: one can't be written, and ``production.exception.handler`` does not pass over it.
    """
    key_serde, value_serde = in_transit(sink.key_serde), in_transit(sink.value_serde)
    return _rewritten(
        _Origin(sink.name, sink.place, sink.subtopology, sink.inputs, key_serde, value_serde),
        from_rows(table, key_serde, value_serde),
        None if key_serde is sink.key_serde else partial(from_the_jvm, sink.key_serde),
        None if value_serde is sink.value_serde else partial(from_the_jvm, sink.value_serde),
        state,
    )


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where the records of a sink come from, and the serdes of their bytes before it writes them."""

    sink: str
    place: str
    subtopology: int
    topics: tuple[str, ...]
    key_serde: Serde
    value_serde: Serde


_Write = Callable[["bytes | None"], "bytes | None"]


def _rewritten(
    origin: _Origin, records: Records, write_key: _Write | None, write_value: _Write | None, state: StepState
) -> Records:
    """``records``, whose columns stay as they are, in other bytes; None: this side's stay."""
    if write_key is None and write_value is None:
        return records
    written = replace(records, keys=list(records.keys), values=list(records.values))
    refused: list[int] = []
    for at in range(len(records)):
        try:
            if write_key is not None:
                written.keys[at] = write_key(records.keys[at])
            if write_value is not None:
                written.values[at] = write_value(records.values[at])
        except BaseException as problem:
            _pass_over(origin, records, at, problem, state)
            refused.append(at)
    return written.without(refused) if refused else written


def _pass_over(origin: _Origin, records: Records, at: int, problem: BaseException, state: StepState) -> None:
    context = _context(origin.sink, origin.subtopology, origin.topics, records, at)
    record = _as_handlers_get_it(origin.key_serde, origin.value_serde, records, at)
    said = said_by(problem)
    what = said if isinstance(problem, SerdeError) else f"a serde failed: {type(problem).__name__}: {said}"
    _judge(context, record, problem, state, f"{origin.place}: {what}", in_sink=True)


def _judge(
    context: ErrorContext, record: Record, problem: BaseException, state: StepState, what: str, *, in_sink: bool
) -> None:
    """Skips the record if the handler decides so; else RecordError with ``what``, or with the handler's own error."""
    try:
        refused = state.handlers.judge(context, record, problem, in_sink=in_sink)
    except RetriableError:
        raise
    except Exception as failure:
        raise _error(f"{context.node}: {failure}", context) from failure
    if refused is None:
        raise _error(what, context) from problem
    state.dropped += 1
    state.passed_over.add(refused)


def _error(what: str, context: ErrorContext) -> RecordError:
    return RecordError(
        what, task=str(context.task), topic=context.topic, partition=context.partition, offset=context.offset
    )


def by_topic_of(sink: SinkSpec, records: Records, state: StepState) -> dict[str, Records]:
    """The records of a sink by topic.

    Raises:
        RecordError: the topic extractor failed or gave no topic, and ``processing.exception.handler`` does not pass over it.
    """
    if sink.topic_extractor is None:
        return {sink.topic: records}
    found: dict[str, list[int]] = {}
    for at in range(len(records)):
        offset = records.offsets[at]
        source = topic_of(sink.inputs, records.sequences[at], offset)
        try:
            record = _decoded(sink, records, at)
            topic = sink.topic_extractor(
                record.key, record.value, SourceRecord.of(record, source, records.parts[at], offset)
            )
            if problem := why_no_topic(topic):
                raise _WrongResultError(f"the topic extractor gave {repr_of(topic)}, expected the name of a topic: {problem}")
        except BaseException as failure:
            _function_failed(sink, "topic extractor", records, at, failure, state)
            continue
        found.setdefault(topic, []).append(at)
    return {topic: records.only(places) for topic, places in found.items()}


def placed(sink: SinkSpec, topic: str, records: Records, state: StepState, partitions_of: Callable[[str], int]) -> Records:
    """The records with the partitions of ``topic`` that they go to.

    ``records`` stay as they are: another sink may have the same ones.

    Raises:
        RecordError: the partitioner failed or there is no such partition, and no exception handler passes over it.
    """
    if not chooses_partitions(sink.partitioner, sink.partitioning, sink.key_serde):
        return records
    count = partitions_of(topic)
    if sink.partitioner is not None:
        return _placed_by_function(sink, topic, records, state, count)
    if sink.partitioning is Partitioning.BY_SUBSCRIPTION:
        _check_answers(sink, topic, records, count)
        return records
    window = window_bytes_of(sink.key_serde)
    partitions = [ANY_PARTITION if key is None else _partition_of(key[:-window], count) for key in records.keys]
    return replace(records, partitions=partitions)


def _placed_by_function(sink: SinkSpec, topic: str, records: Records, state: StepState, count: int) -> Records:
    places: list[int] = []
    partitions: list[int] = []
    assert sink.partitioner is not None
    for at in range(len(records)):
        try:
            record = _decoded(sink, records, at)
            found = _partitions(topic, sink.partitioner(topic, record.key, record.value, count), count)
        except BaseException as problem:
            _function_failed(sink, "partitioner", records, at, problem, state)
            continue
        if not found:
            state.dropped += 1
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
    return replace(chosen, partitions=partitions)


def _partitions(topic: str, given: object, count: int) -> Collection[int]:
    """Raises _WrongResultError."""
    if given is None:
        return (ANY_PARTITION,)
    found: list[int] = []
    for to in sorted(set(given)) if isinstance(given, (set, frozenset, list, tuple, range)) else (given,):
        if not isinstance(to, int) or isinstance(to, bool) or not 0 <= to < count:
            what = f"the partitioner gave {repr_of(given)} for {topic}, which has the partitions 0 to {count - 1}"
            raise _WrongResultError(f"{what}; expected one of them, several as a set, or None for the key's")
        found.append(to)
    return found


def _check_answers(sink: SinkSpec, topic: str, records: Records, count: int) -> None:
    """StopError for a partition that there is not. The record that caused the answer is none to blame: a subscription may have
    been in the store for long."""
    for at, to in enumerate(records.partitions or ()):
        if to >= count:
            raise StopError(
                f"task {TaskId(sink.subtopology, records.parts[at])}: {sink.name}: a subscription says that it came from"
                f" partition {to} of the left table, but {topic} has the partitions 0 to {count - 1}. Partitions were added to"
                f" the left table, or something else has written to one of {', '.join(sink.inputs)}, or to the subscriptions'"
                " changelog: take its right to write away. Then reset the application (tidemill reset)"
            )


class _WrongResultError(ValueError):
    """A topic extractor or partitioner returned an invalid result."""


def _function_failed(sink: SinkSpec, what: str, records: Records, at: int, problem: BaseException, state: StepState) -> None:
    """Passes the error to the processing handler with the node above as its place: in Kafka Streams that node's ``forward``
    raises it. A source forwards outside of all handlers, so directly below a source the error ends the thread."""
    failed = "" if isinstance(problem, _WrongResultError) else f"the {what} failed: {type(problem).__name__}: "
    said = f"{sink.place}: {failed}{said_by(problem)}"
    if not sink.above:
        raise _error(said, _context(sink.name, sink.subtopology, sink.inputs, records, at)) from problem
    context = _context(" or ".join(sink.above), sink.subtopology, sink.inputs, records, at)
    record = _as_handlers_get_it(sink.key_serde, sink.value_serde, records, at)
    _judge(context, record, problem, state, said, in_sink=False)


def _decoded(sink: SinkSpec, records: Records, at: int) -> Record:
    key, value = sink.key_serde.deserialize(records.keys[at]), sink.value_serde.deserialize(records.values[at])
    return Record(key, value, records.timestamps[at], tuple(records.header(at) or ()))


def _as_handlers_get_it(key_serde: Serde, value_serde: Serde, records: Records, at: int) -> Record:
    key, value = as_handlers_get_it(key_serde, records.keys[at]), as_handlers_get_it(value_serde, records.values[at])
    return Record(key, value, records.timestamps[at], tuple(records.header(at) or ()))


def _context(node: str, subtopology: int, topics: tuple[str, ...], records: Records, at: int) -> ErrorContext:
    """The place of a record of ``topics`` on which ``node`` has failed."""
    task, offset = TaskId(subtopology, records.parts[at]), records.offsets[at]
    return ErrorContext(
        task=task, node=node, topic=topic_of(topics, records.sequences[at], offset), partition=task.partition, offset=offset,
        timestamp=records.timestamps[at], headers=tuple(records.header(at) or ()), source_raw_key=records.keys[at],
        source_raw_value=records.values[at],
    )  # fmt: skip

"""What a batch sends: sinks' records by topic and order, pre-summed repartition records, each store's changelog.

Decides the records, and that only records for topics of the user may be left out (``production.exception.handler``): a changelog
or a repartition topic without one would not say what the stores and the results do. When all are sent and committed is the last
step's, how is the producer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.errors import RecordRefusedError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ErrorContext
from tidemill.operators.record import Record
from tidemill.spark.records import Records, in_order
from tidemill.spark.rows import SUMMED_HEADER
from tidemill.spark.sinks import by_topic_of, place
from tidemill.spark.state_step import StepState, Written
from tidemill.spark.step_context import Output
from tidemill.spark.step_spec import SinkSpec, StepSpec, StoreSpec
from tidemill.task.batch import BatchRequest

Pending = Mapping[str, list[Records]]
"""Records by the sink, or by the topic, that they are for."""


def produce_batch(output: Output, spec: StepSpec, pending: Pending, state: StepState, request: BatchRequest) -> int:
    """Hands everything to the producer; how many records of sinks there are."""
    sinks = {sink.name: sink for sink in spec.sinks.values()}
    by_topic: dict[str, list[Records]] = {}
    count = 0
    for name, held in pending.items():
        sink = sinks.get(name)
        for records in held:
            if sink is not None and sink.summed:
                _produce_summed(output, sink, records)
                count += len(records)
                continue
            for topic, routed in (by_topic_of(sink, records) if sink else {name: records}).items():
                placing = sink or sinks.get(records.sink or "")
                if placing is not None:
                    place(placing, topic, routed, output.partitions_of)
                by_topic.setdefault(topic, []).append(routed)
    aside = state.handlers.dead_letter_topic
    sources = "|".join(sorted({topic for origin in spec.sources.values() for topic in origin.topics}))
    for topic, held in by_topic.items():
        may_lack = topic not in request.internal and topic != aside
        records = in_order(held)
        count += _send(output, topic, records, sources, state if may_lack else None)
    letters = state.passed_over.letters
    if aside and len(letters):
        count += _send(output, aside, letters, sources, None)
    _produce_logs(output, spec, state.written, request.now_ms)
    return count


def _send(output: Output, topic: str, records: Records, sources: str, state: StepState | None) -> int:
    """How many it has sent: all, unless ``state``'s handler goes on without those that client or broker refuse."""
    begin, left_out = 0, 0
    while begin < len(records):
        rest = records if begin == 0 else records.since(begin)
        try:
            output.produce(topic, rest.keys, rest.values, rest.timestamps, rest.partitions, rest.headers)
            break
        except RecordRefusedError as problem:
            at = begin + problem.at
            if state is None or not _is_passed_over(topic, records, at, sources, problem, state):
                raise
            begin, left_out = at + 1, left_out + 1
    return len(records) - left_out


def _is_passed_over(
    topic: str, records: Records, at: int, sources: str, problem: RecordRefusedError, state: StepState
) -> bool:
    """A letter of it has its key, but not the value, which would be too large for that topic as well."""
    key, value, headers = records.keys[at], records.values[at], tuple(records.header(at) or ())
    context = ErrorContext(
        task=None, node=f"the sink of {topic}", topic=sources, partition=records.parts[at], offset=records.offsets[at],
        timestamp=records.timestamps[at], headers=headers,
    )  # fmt: skip
    refused = state.handlers.judge(context, Record(key, value, context.timestamp, headers), problem, in_sink=True)
    if refused is not None:
        state.dropped += 1
        state.passed_over.add(refused, key, None)
    return refused is not None


def _produce_logs(output: Output, spec: StepSpec, written: Mapping[tuple[TaskId, str], Written], now_ms: int) -> None:
    for (task, name), of_store in written.items():
        store = spec.stores[name]
        if store.kept is not None:
            _produce_log(output, store, task, of_store, now_ms)
            continue
        if store.changelog is None or not of_store.rows:
            continue
        keys = list(of_store.rows)
        rows = list(of_store.rows.values())
        values = [None if row is None else row[8:] for row in rows] if store.timestamped else rows
        timestamps = [of_store.timestamps[key] for key in keys]
        output.produce(store.changelog, keys, values, timestamps, [task.partition] * len(keys))


def _produce_log(output: Output, store: StoreSpec, task: TaskId, written: Written, now_ms: int) -> None:
    """What operators have logged, in their order."""
    if store.changelog is None or not written.log:
        return
    keys, values, times, headers = (list(column) for column in zip(*written.log, strict=True))
    output.produce(
        store.changelog,
        keys,
        values,
        [now_ms if time is None else time for time in times],
        [task.partition] * len(keys),
        headers if any(headers) else None,
    )


def _produce_summed(output: Output, sink: SinkSpec, records: Records) -> None:
    """Rows without an offset were summed in the JVM: the record says in a header that its value is their number."""
    values: list[bytes | None] = []
    headers: list[Any] = []
    for at in range(len(records)):
        if records.offsets[at] is None:
            count = 1 if records.counts is None else records.counts[at]
            values.append(count.to_bytes(8, "big", signed=True))
            headers.append(_SUMMED)
        else:
            values.append(records.values[at])
            headers.append(records.header(at))
    output.produce(sink.topic, records.keys, values, records.timestamps, None, headers)


_SUMMED = [(SUMMED_HEADER, b"")]

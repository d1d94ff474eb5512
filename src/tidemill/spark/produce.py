"""What a batch sends: sinks' records by topic and order, pre-summed repartition records, each store's changelog.

Decides the records; when they are sent and committed is the last step's, how is the producer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemill.ids import TaskId
from tidemill.spark.records import Records, in_order
from tidemill.spark.rows import SUMMED_HEADER
from tidemill.spark.sinks import by_topic_of, place
from tidemill.spark.state_step import Written
from tidemill.spark.step_context import Output
from tidemill.spark.step_spec import SinkSpec, StepSpec, StoreSpec

Pending = Mapping[str, list[Records]]
"""Records by the sink, or by the topic, that they are for."""


def produce_batch(
    output: Output, spec: StepSpec, pending: Pending, written: Mapping[tuple[TaskId, str], Written], now_ms: int
) -> int:
    """Hands everything to the producer; how many records of sinks there are. ``now_ms``: the time of what has none."""
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
    for topic, held in by_topic.items():
        records = in_order(held)
        output.produce(topic, records.keys, records.values, records.timestamps, records.partitions, records.headers)
        count += len(records)
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
    return count


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

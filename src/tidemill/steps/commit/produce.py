"""Records that a batch sends: sinks' records by topic and order, pre-summed repartition records, each store's changelog.

Decides the records, and that only records for topics of the user may be left out (``production.exception.handler``): a changelog
or a repartition topic without one would not say what the stores and the results do. When all are sent and committed is the last
step's, how is the producer's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidemill.errors import RecordRefusedError, StopError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ErrorContext
from tidemill.operators.record import Record
from tidemill.steps.commit.sinks import by_topic_of, placed
from tidemill.steps.outputs import Outputs, ToDeadLetters, ToNode, ToSink, ToTopic
from tidemill.steps.rows.records import ANY_PARTITION, Records, in_order
from tidemill.steps.rows.schema import SUMMED_HEADER
from tidemill.steps.step_context import Output
from tidemill.steps.step_spec import StepSpec
from tidemill.steps.step_state import StepState, Written
from tidemill.task.batch import BatchRequest
from tidemill.task.raw_records import RecordColumns


def produce_results(output: Output, spec: StepSpec, outputs: Outputs, state: StepState, request: BatchRequest) -> int:
    """Hands sinks' records and dead letters to the producer; how many there are."""
    by_topic, letters = _routed(output, spec, outputs, state)
    summing = {sink.topic: sink.summed for sink in spec.sinks.values() if sink.is_repartition}
    count = 0
    for topic, held in by_topic.items():
        records = in_order(held)
        if topic in summing:
            records = _with_sums(records) if summing[topic] else _without_summed_header(records)
        count += _send(output, topic, records, _read_for(topic, spec), None if topic in request.internal else state)
    for topic, own in state.passed_over.letters.by_topic.items():
        letters.setdefault(topic, []).append(own)
    for topic, held in letters.items():
        for records in held:
            _check_partitions(topic, records, output)
            count += _send(output, topic, records, "", None)
    return count


def _check_partitions(topic: str, letters: Records, output: Output) -> None:
    """StopError for a dead letter to a partition that there is not."""
    highest = max(letters.partitions or (), default=ANY_PARTITION)
    if highest != ANY_PARTITION and highest >= (count := output.partitions_of(topic)):
        raise StopError(
            f"an exception handler returned a dead letter for partition {highest} of {topic}, which has the partitions 0 to"
            f" {count - 1}; expected one of them, or None for the key's"
        )


def produce_changelogs(
    output: Output,
    spec: StepSpec,
    written: Mapping[tuple[TaskId, str], Written],
    now_ms: int,
    confirm: Callable[[], None],
) -> None:
    """Hands what the stores have written to the producer. ``confirm`` raises if another instance may own the tasks by now."""
    for (task, name), of_store in written.items():
        store = spec.stores[name]
        if store.changelog is None or not (of_store.rows if store.kept is None else of_store.log):
            continue
        confirm()
        if store.kept is not None:
            _produce_log(output, store.changelog, task, of_store, now_ms)
            continue
        keys = list(of_store.rows)
        rows = list(of_store.rows.values())
        # A stored row begins with its timestamp; in the changelog that is the record's own, as in Kafka Streams.
        values = [None if row is None else row[8:] for row in rows] if store.timestamped else rows
        timestamps = [of_store.timestamps[key] for key in keys]
        headers = [of_store.headers.get(key) for key in keys] if any(of_store.headers.values()) else None
        output.produce(store.changelog, RecordColumns(keys, values, timestamps, [task.partition] * len(keys), headers))


def _read_for(topic: str, spec: StepSpec) -> str:
    """The topics from which records of ``topic`` may come."""
    sinks = [sink for sink in spec.sinks.values() if sink.topic == topic or sink.topic_extractor is not None]
    return "|".join(sorted({read for sink in sinks for read in sink.inputs}))


ByTopic = dict[str, list[Records]]


def _routed(output: Output, spec: StepSpec, outputs: Outputs, state: StepState) -> tuple[ByTopic, ByTopic]:
    """The records of sinks, with their partitions, and the dead letters, by topic."""
    sinks = {sink.name: sink for sink in spec.sinks.values()}
    by_topic: ByTopic = {}
    letters: ByTopic = {}
    for to, records in outputs:
        match to:
            case ToSink(name, topic):
                sink = sinks[name]
                for chosen, routed in (by_topic_of(sink, records, state) if topic is None else {topic: records}).items():
                    by_topic.setdefault(chosen, []).append(placed(sink, chosen, routed, state, output.partitions_of))
            case ToTopic(topic):
                by_topic.setdefault(topic, []).append(records)
            case ToDeadLetters(topic):
                letters.setdefault(topic, []).append(records)
            case ToNode(name):
                raise AssertionError(f"records for the layer behind {name} are left, and no layer is")
    return by_topic, letters


def _send(output: Output, topic: str, records: Records, sources: str, state: StepState | None) -> int:
    """The number of records sent: all, unless ``state``'s handler skips records that client or broker refuse."""
    begin, left_out = 0, 0
    while begin < len(records):
        rest = records if begin == 0 else records.since(begin)
        try:
            output.produce(topic, RecordColumns(rest.keys, rest.values, rest.timestamps, rest.partitions, rest.headers))
            break
        except RecordRefusedError as problem:
            # Those before it are with the producer already, and the transaction is still open: only the rest is sent again.
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
        timestamp=records.timestamps[at], headers=headers, source_raw_key=key,
    )  # fmt: skip
    try:
        refused = state.handlers.judge(context, Record(key, value, context.timestamp, headers), problem, in_sink=True)
    except Exception as failure:
        raise StopError(f"{context.node}: {failure}") from failure
    if refused is not None:
        state.dropped += 1
        state.passed_over.add(refused)
    return refused is not None


def _produce_log(output: Output, changelog: str, task: TaskId, written: Written, now_ms: int) -> None:
    """Changelog records of operators, in their order."""
    log = written.log
    keys, values = [key for key, _, _, _ in log], [value for _, value, _, _ in log]
    timestamps = [now_ms if time is None else time for _, _, time, _ in log]
    headers = [own for _, _, _, own in log] if any(own for _, _, _, own in log) else None
    output.produce(changelog, RecordColumns(keys, values, timestamps, [task.partition] * len(log), headers))


def _with_sums(records: Records) -> Records:
    """Rows without an offset were summed in the JVM: the record says in a header that its value is their number."""
    sums = [at for at in range(len(records)) if records.offsets[at] is None]
    made = _without_summed_header(records)
    values, headers = list(made.values), [made.header(at) for at in range(len(made))]
    for at in sums:
        count = 1 if records.counts is None else records.counts[at]
        values[at], headers[at] = count.to_bytes(8, "big", signed=True), _SUMMED
    return replace(made, values=values, headers=headers)


def _without_summed_header(records: Records) -> Records:
    """Only this application may set the header: a record from a topic of the user's that has it would count as a sum."""
    if records.headers is None:
        return records
    kept = [own and ([header for header in own if header[0] != SUMMED_HEADER] or None) for own in records.headers]
    return replace(records, headers=kept)


_SUMMED = [(SUMMED_HEADER, b"")]

"""Batches after a failure take few records, and the search for the one to blame finds it, whatever the inputs are like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.steps.log_reader import LogReader
from tidemill.dsl.serdes import Serdes
from tidemill.errors import RecordError, StopError
from tidemill.ids import TopicPartition
from tidemill.operators.exception_handlers import ExceptionHandlers, ExceptionResponse
from tidemill.steps.alignment import AlignedReader
from tidemill.steps.commit.refused_records import pass_over_refused
from tidemill.steps.rows.order import sequence
from tidemill.steps.rows.schema import CHUNK, MARKER, REFUSED
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_spec import Origin, SourceSpec, SourceTopic
from tidemill.steps.step_state import StepState
from tidemill.task.batch import BatchRequest, RefusedRecord, SourceProgress
from tidemill.task.batch_size import MOST_DEATHS, BatchSize, Cause, Failure, failed, next_size, succeeded, tried
from tidemill.task.message_pack import pack, unpack
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import Message

BAD = Failure(cause=Cause.FUNCTION, error="org.apache.spark.SparkArithmeticException", message="Division by zero.")
REPARTITION = "again"


class Placed(Message):
    """A record of any partition."""

    def __init__(self, tp: TopicPartition, offset: int, timestamp: int, value: bytes = b"v") -> None:
        super().__init__(RawRecord(tp.topic, b"k", value, timestamp), offset)
        self._number = tp.partition

    def partition(self) -> int:
        return self._number


class Brokers(LogReader):
    """Each read gets the rest of all partitions, the last one first, within the request's limit."""

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        left = request.max_records
        for tp in sorted(self.placed, reverse=True):
            at = self.placed[tp]
            end = min(len(self.logs[tp]), at + left)
            if end > at:
                yield False, [Placed(tp, offset, self.logs[tp][offset]) for offset in range(at, end)]
            self.placed[tp], left = end, left - (end - at)


def spec_of(topics: Sequence[str]) -> SourceSpec:
    return SourceSpec(
        topics={
            name: SourceTopic(tag=2 * number, node=name, index=0, serdes=(Serdes.bytes(), Serdes.bytes()))
            for number, name in enumerate(topics)
        },
        changelogs={},
    )


@dataclass
class Run:
    """Batches of a plan that raises on some records, each sized by what became of the ones before."""

    logs: Mapping[TopicPartition, Sequence[int]]
    bad: frozenset[tuple[TopicPartition, int]]
    together: Mapping[str, int]
    usual: int = 50
    waits_from: tuple[TopicPartition, int] | None = None
    """This record and all behind it fail over what waits, unless that is deferred."""
    may_defer: bool = False
    processed: list[tuple[TopicPartition, int]] = field(default_factory=list)
    left_out: list[tuple[TopicPartition, int]] = field(default_factory=list)
    failures: int = 0
    trials: int = 0

    def __post_init__(self) -> None:
        self.reader = AlignedReader(Brokers(self.logs), self.together)
        self.at = dict.fromkeys(self.logs, 0)
        self.size = BatchSize()
        self.spec = spec_of(sorted({tp.topic for tp in self.logs}))

    def batch(self, number: int) -> None:
        size = self.size = next_size(self.size, self.at, set(self.at))
        request = BatchRequest(
            batch_id=number, inputs=dict(self.at), max_records=self.usual, max_inputs=size.most, until=size.until,
            refused=size.refused, internal=frozenset({REPARTITION}), defers=size.defers,
        )  # fmt: skip
        self.trials += request.defers
        told: list[SourceProgress] = []
        rows: list[dict[str, Any]] = []
        names = list(self.spec.topics)
        for made in source_rows(self.reader, unpack(pack(request), BatchRequest), self.spec, told.append):
            rows += made.to_pylist()
        data = [row for row in rows if row["node"] not in (MARKER, CHUNK)]
        if size.most is not None:
            assert len(data) <= size.most
        of_rows = [
            (TopicPartition(names[(row["n"] if row["node"] == REFUSED else row["node"] // 2)], row["part"]), row["off"])
            for row in data
        ]
        left_out = [record for record, row in zip(of_rows, data, strict=True) if row["node"] == REFUSED]
        processed = [record for record in of_rows if record not in left_out]
        tp, offset = self.waits_from or (None, 0)
        meets_what_waits = not request.defers and any(at == tp and found >= offset for at, found in processed)
        if meets_what_waits or self.bad.intersection(processed):
            self.failures += 1
            self.size = failed(size, BAD, told[-1], may_defer=self.may_defer)
            self.reader = AlignedReader(Brokers(self.logs), self.together)  # its worker is gone
            return
        if request.defers and processed:
            self.size = tried(size)
            self.reader = AlignedReader(Brokers(self.logs), self.together)
            return
        self.processed += processed
        self.left_out += left_out
        self.at = dict(self.reader.ends()[0])
        self.size = succeeded(size, len(data), took_s=0.1, limit_s=60, usual=self.usual)

    def to_the_end(self) -> None:
        number, bound = 0, 40 + 60 * (1 + len(self.bad)) + sum(map(len, self.logs.values()))
        while any(at < len(self.logs[tp]) for tp, at in self.at.items()):
            number += 1
            assert number < bound, "it does not end"
            self.batch(number)


PARTITIONS = [TopicPartition(topic, number) for topic in ("a", "b", REPARTITION) for number in (0, 1)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), is_ordered=st.booleans(), may_defer=st.booleans())
def test_exactly_the_records_to_blame_are_left_out_and_all_others_processed_once_in_order(
    data: Any, is_ordered: bool, may_defer: bool
) -> None:
    partitions = data.draw(st.lists(st.sampled_from(PARTITIONS), unique=True, min_size=1))
    logs = {tp: data.draw(st.lists(st.integers(0, 9), max_size=30)) for tp in partitions}
    everything = [(tp, offset) for tp, log in logs.items() for offset in range(len(log))]
    bad = frozenset(data.draw(st.lists(st.sampled_from(everything), max_size=4))) if everything else frozenset()
    run = Run(logs, bad, {"a": 0, "b": 0} if is_ordered else {}, may_defer=may_defer)
    run.to_the_end()
    assert set(run.left_out) == bad
    assert sorted([*run.processed, *run.left_out]) == sorted(everything)
    for tp in logs:
        offsets = [offset for at, offset in run.processed if at == tp]
        assert offsets == sorted(offsets)


def test_a_trial_for_which_the_record_has_not_come_yet_is_none() -> None:
    """Its worker is new: the first read gets so much of other partitions that none is left for this one, which is waited for."""
    logs = {PARTITIONS[0]: [0], PARTITIONS[1]: [0] * 3, PARTITIONS[2]: [0] * 29, PARTITIONS[3]: [0] * 20}
    run = Run(logs, frozenset({(PARTITIONS[0], 0)}), {"a": 0, "b": 0}, may_defer=True)
    run.to_the_end()
    assert run.left_out == [(PARTITIONS[0], 0)]


def test_for_what_waits_no_record_is_left_out_and_the_thread_ends() -> None:
    """Also where batches of another input, which succeed, come in between."""
    logs = {PARTITIONS[0]: [0] * 100, PARTITIONS[1]: [0] * 1_000}
    bad = frozenset({(PARTITIONS[0], 12)})
    run = Run(logs, bad, {}, waits_from=(PARTITIONS[0], 17), may_defer=True)
    with pytest.raises(StopError, match=r"on what a punctuator or a store forwards: .*Division by zero"):
        run.to_the_end()
    assert run.left_out == [*bad]
    assert [offset for tp, offset in run.processed if tp == PARTITIONS[0]] == [*range(12), *range(13, 17)]
    assert run.trials == 1 + MOST_DEATHS


def test_one_in_many_is_found_in_as_many_steps_as_there_are_halves() -> None:
    run = Run({TopicPartition("a", 0): [0] * 8_000}, frozenset({(TopicPartition("a", 0), 5_201)}), {}, usual=4_000)
    run.to_the_end()
    assert run.failures <= 14
    assert len(run.processed) == 7_999


def test_while_a_partition_holds_no_suspect_it_does_not_keep_the_search_from_its_end() -> None:
    """The other one has a backlog, and comes first in the order of names."""
    run = Run({PARTITIONS[0]: [0] * 5_000, PARTITIONS[1]: [0] * 5}, frozenset({(PARTITIONS[1], 2)}), {}, usual=20)
    for number in range(1, 40):
        run.batch(number)
    assert run.left_out == [(PARTITIONS[1], 2)]


def test_where_batches_are_small_another_input_is_first_each_time_and_repartition_topics_always_are() -> None:
    logs = {tp: [0] * 10 for tp in PARTITIONS[:2]}
    run = Run(logs, frozenset(), {})
    run.size = BatchSize(most=1, below=1)
    for number in range(4):
        run.batch(number)
    assert run.processed == [(PARTITIONS[0], 0), (PARTITIONS[1], 0), (PARTITIONS[0], 1), (PARTITIONS[1], 1)]
    both = Run({PARTITIONS[0]: [0] * 10, PARTITIONS[4]: [0] * 2}, frozenset(), {})
    both.size = BatchSize(most=1, below=1)
    for number in range(3):
        both.batch(number)
    assert both.processed == [(PARTITIONS[4], 0), (PARTITIONS[4], 1), (PARTITIONS[0], 0)]


def test_what_was_held_back_comes_when_batches_are_as_large_as_ever() -> None:
    run = Run({PARTITIONS[0]: [0] * 10}, frozenset(), {})
    run.size = BatchSize(most=3)
    run.batch(1)
    run.size = BatchSize()
    run.batch(2)
    assert run.processed == [(PARTITIONS[0], offset) for offset in range(10)]


def test_much_that_is_held_back_is_counted_in_bytes_too() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    reader = AlignedReader(Brokers({a: [1, 2, 3], b: [9]}), {"a": 0, "b": 0}, most_held_bytes=2)
    request = BatchRequest(batch_id=1, inputs={a: 0, b: 0}, max_inputs=1)
    reader.place(request)
    assert [m.offset() for _, messages in reader.read(request) for m in messages] == [0]
    reader.place(BatchRequest(batch_id=2, inputs=dict(reader.ends()[0])))
    assert reader.reader.placed == {}, "nothing more is read"  # type: ignore[attr-defined]


REFUSED_ONE = RefusedRecord(topic="in", partition=1, offset=7, error=BAD.error, message="by zero")
ORIGIN = Origin(
    subtopology=3, topics=("other", "in"), columns=("MAP-1", "FILTER-2"), key_serde=Serdes.string(), value_serde=Serdes.long()
)


def refused_rows() -> pa.Table:
    row = {"part": 1, "off": 7, "seq": sequence(4, 1), "ts": 5, "headers": None, "key": b"k", "value": b"?", "n": 0}
    return pa.Table.from_pylist([row])


def test_a_refused_record_stops_its_thread_with_nodes_task_place_and_what_spark_says() -> None:
    request = BatchRequest(batch_id=1, inputs={}, refused=(REFUSED_ONE,))
    state = StepState({}, {})
    with pytest.raises(RecordError, match=r"task 3_1, in-1 at offset 7: .* of MAP-1 or FILTER-2, failed: SparkArith"):
        pass_over_refused(refused_rows(), {0: ORIGIN}, request, state)


def test_the_handler_is_given_a_refused_record_and_its_letter_says_what_spark_raised() -> None:
    seen: list[Any] = []

    def look(context: Any, record: Any, error: Any) -> ExceptionResponse:
        seen.append((context.offset, record.key, record.value, error.error, str(error)))
        return ExceptionResponse.DEAD_LETTER

    state = StepState({}, {}, handlers=ExceptionHandlers(processing=look, dead_letter_topic="dead"))
    request = BatchRequest(batch_id=1, inputs={}, refused=(REFUSED_ONE,))
    pass_over_refused(refused_rows(), {0: ORIGIN}, request, state)
    assert seen == [(7, "k", b"?", REFUSED_ONE.error, "by zero")], "what can't be read stays bytes"
    assert (state.dropped, state.passed_over.count, state.passed_over.letters.by_topic["dead"].values) == (1, 1, [b"?"])
    [headers] = state.passed_over.letters.by_topic["dead"].headers or []
    assert dict(headers or [])["__streams.errors.exception"] == REFUSED_ONE.error.encode()

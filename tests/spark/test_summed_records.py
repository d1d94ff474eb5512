"""Pre-summed repartition records: only this application says which they are, and what it says is checked."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.operators.step_harness import PlacedOutput
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import RecordError
from tidemill.ids import TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.steps.commit.produce import produce_results
from tidemill.steps.commit.unreadable import Unreadable, unreadable_records
from tidemill.steps.outputs import Destination, Outputs, ToSink, ToTopic
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.schema import SUMMED_HEADER, UNREADABLE
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_spec import Origin, SinkSpec, SourceSpec, SourceTopic, StepSpec
from tidemill.steps.step_state import StepState
from tidemill.task.batch import BatchRequest
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import GivenReader

TOPIC = "app-counts-repartition"
FORGED = (SUMMED_HEADER, b"")


def produced(records: Records, to: Destination, *, summed: bool = True) -> list[RawRecord]:
    sink = SinkSpec(
        name="TO-COUNT", topic=TOPIC, key_serde=Serdes.string(), value_serde=Serdes.string(), summed=summed, is_repartition=True
    )
    spec = StepSpec(number=1, last=True, nodes={}, sinks={9: sink}, stores={})
    outputs, output = Outputs(), PlacedOutput(1)
    outputs.add(to, records)
    request = BatchRequest(batch_id=1, inputs={}, tasks=(), internal=frozenset({TOPIC}))
    assert produce_results(output, spec, outputs, StepState({}, {}), request) == len(records)
    return output.sent


COUNTED = SourceTopic(
    tag=4, node="SOURCE", index=0, serdes=(Serdes.string(), Serdes.long()), is_repartition=True, takes_sums=True
)  # fmt: skip


def read(records: list[RawRecord], source: SourceTopic = COUNTED) -> list[dict[str, Any]]:
    [topic] = {record.topic for record in records}
    reader = GivenReader(records)
    request = BatchRequest(batch_id=1, inputs={TopicPartition(topic, 0): 0}, tasks=())
    chunks = list(source_rows(reader, request, SourceSpec(topics={topic: source}, changelogs={})))
    return [row for chunk in chunks for row in chunk.to_pylist() if row["part"] == 0]


def single(value: bytes | None, *headers: tuple[str, bytes | None], offset: int | None = 3) -> Records:
    return Records([0], [b"k"], [value], [7], [offset], [1], headers=[list(headers) or None])


@pytest.mark.parametrize("to", [ToSink("TO-COUNT"), ToTopic(TOPIC)], ids=["columns", "operators"])
@pytest.mark.parametrize("summed", [True, False])
def test_a_record_that_came_with_the_header_is_sent_without_it(to: Destination, summed: bool) -> None:
    (sent,) = produced(single(struct.pack(">q", 1_000_000), ("trace", b"1"), FORGED), to, summed=summed)
    assert sent.headers == (("trace", b"1"),)
    (row,) = read([sent])
    assert (row["n"], row["value"]) == (None, struct.pack(">q", 1_000_000))


def test_the_records_of_another_sink_keep_the_header_that_they_came_with() -> None:
    records = single(b"v", FORGED)
    produced(records, ToSink("TO-COUNT"))
    assert records.headers == [[FORGED]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 1 << 62) | st.none(), st.booleans()), min_size=1, max_size=6))
def test_what_is_sent_as_a_sum_is_read_as_that_sum_and_nothing_else_is(rows: list[tuple[int | None, bool]]) -> None:
    count = len(rows)
    records = Records(
        [0] * count, [b"k"] * count, [b"8 bytes!"] * count, [7] * count,
        offsets=[None if summed else at for at, (summed, _) in enumerate(rows)],
        sequences=[*range(count)],
        headers=[[FORGED] if forged else None for _, forged in rows],
        counts=[summed or 1 for summed, _ in rows],
    )  # fmt: skip
    assert [row["n"] for row in read(produced(records, ToSink("TO-COUNT")))] == [summed for summed, _ in rows]


@pytest.mark.parametrize(
    "value", [None, b"", b"abc", bytes(8), struct.pack(">q", -5), bytes(9)], ids=["null", "empty", "short", "0", "-5", "long"]
)
def test_a_sum_that_is_none_is_a_record_that_can_not_be_read(value: bytes | None) -> None:
    rows = read([RawRecord(TOPIC, b"k", value, 7, (FORGED,)), RawRecord(TOPIC, b"k", b"v", 8, ())])
    assert [row["node"] for row in rows] == [UNREADABLE, 4]
    assert (rows[0]["key"], rows[0]["value"], rows[0]["n"]) == (b"k", value, 2)


def test_it_is_said_what_a_sum_has_to_be() -> None:
    policy = Unreadable(handler=ExceptionResponse.CONTINUE, topic=None, expected={2: "a key of string"})
    rows = pa.Table.from_pylist(read([RawRecord(TOPIC, b"k", b"abc", 7, (FORGED,))]))
    error, letters = unreadable_records(rows, {2: Origin(subtopology=1, topics=(TOPIC,))}, policy)
    assert not letters
    assert "3 bytes with the header tidemill.summed, expected a key of string, or with that header 8 bytes" in str(error)


@pytest.mark.parametrize("value", [b"abc", bytes(8), struct.pack(">q", 1_000_000)])
def test_in_a_topic_of_others_the_header_means_nothing(value: bytes) -> None:
    (row,) = read([RawRecord(TOPIC, b"k", value, 7, (FORGED,))], replace(COUNTED, is_repartition=False, takes_sums=False))
    assert (row["node"], row["n"], row["value"]) == (4, None, value)


@pytest.mark.spark
def test_a_sum_that_an_earlier_version_of_the_program_left_is_not_taken_for_one_record(spark: SparkSession) -> None:
    def source_of(*, with_reduce: bool) -> SourceTopic:
        builder = StreamsBuilder()
        words = builder.stream("in", key=Serdes.string(), value=Serdes.string()).group_by(lambda k, v: v, name="words")
        words.count(store="counts")
        if with_reduce:
            words.reduce(lambda old, new: new, store="last")
        compiled = compile_topology(spark, builder.build(), "app")
        [sink] = [sink for step in compiled.steps for sink in step.sinks.values()]
        assert sink.is_repartition  # so no other record has the header
        return compiled.source.topics["app-words-repartition"]

    left = RawRecord("app-words-repartition", b"k", struct.pack(">q", 1_000), 7, (FORGED,))
    (row,) = read([left], source_of(with_reduce=False))
    assert row["n"] == 1_000
    with pytest.raises(RecordError, match=r"app-words-repartition-0 at offset 0: .*stands for several records.*presum=false"):
        read([left], source_of(with_reduce=True))

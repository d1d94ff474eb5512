"""foreach_batch: what reached the node is handed over before the transaction, again after a crash, with the ranges it is of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from tests.steps.step_fixtures import COUNT_TAG, INPUT, Context, Crash, count_spec, word
from tidemill import BatchId, Serdes, StreamsBuilder
from tidemill.errors import StopError, TopologyError
from tidemill.ids import TopicPartition
from tidemill.spark.plan.planned_topology import with_batch_sinks
from tidemill.steps.step_spec import BatchSinkSpec, StepSpec
from tidemill.task.batch import Outcome
from tidemill.task.batch_id import OffsetRange
from tidemill.task.commit import CommitStep

WORDS = [word("a", 4, n=1), word("b", 5, n=1)]


@dataclass
class Handing(Context):
    """``handed``: node, rows, batch; ``fails``: what the function says."""

    handed: list[tuple[str, list[dict[str, Any]], BatchId]] = field(default_factory=list)
    fails: str = ""

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        assert self.output.open is None
        self.handed.append((node, rows.to_pylist(), offsets))
        if self.fails:
            raise StopError(self.fails)


def spec() -> StepSpec:
    """The counts go to a sink and to a function."""
    counting = count_spec()
    node = replace(counting.nodes[COUNT_TAG], inline=("SINK", "EACH"))
    sink = replace(next(iter(counting.sinks.values())), name="EACH", topic="foreach-batch:EACH")
    each = BatchSinkSpec(name="EACH", key_serde=Serdes.string(), value_serde=Serdes.long(), inputs=(INPUT.topic,))
    return replace(counting, nodes={COUNT_TAG: node}, sinks={**counting.sinks, 11: sink}, batch_sinks=(each,))


def test_records_are_handed_over_with_the_ranges_that_they_are_of() -> None:
    context = Handing()
    assert context.run(WORDS, start=4, spec=spec()).outcome is Outcome.COMMITTED
    [(node, rows, batch_id)] = context.handed
    assert node == "EACH"
    assert [(row["key"], row["value_num"], row["part"]) for row in rows] == [(b"a", 1, 0), (b"b", 1, 0)]
    assert batch_id.ranges == {INPUT: OffsetRange(4, 6)}
    assert {topic for topic, *_ in context.output.committed} == {"out", "app-counts-changelog"}


def test_a_batch_that_brings_nothing_calls_nothing() -> None:
    context = Handing()
    assert context.run([], spec=spec()).outcome is Outcome.COMMITTED
    assert context.handed == []


def test_what_fails_in_the_function_stops_the_thread_and_commits_nothing() -> None:
    context = Handing(fails="the function of EACH failed: no disk")
    report = context.run(WORDS, spec=spec())
    assert report.outcome is Outcome.STOPPED
    assert "no disk" in report.message
    assert not context.output.committed
    assert not context.output.offsets


@pytest.mark.parametrize(("crash", "calls"), [(CommitStep.RUN, 0), (CommitStep.FOREACH_BATCH, 1), (CommitStep.MEMBERSHIP, 1)])
def test_after_a_crash_before_the_commit_the_same_records_come_again(crash: CommitStep, calls: int) -> None:
    context = Handing(crash_at=crash)
    with pytest.raises(Crash):
        context.run(WORDS, spec=spec())
    assert len(context.handed) == calls
    again = Handing(stores=context.stores, handed=context.handed)
    again.run(WORDS[:1], spec=spec())  # cut otherwise
    assert [str(batch_id) for _, _, batch_id in again.handed] == [f"{INPUT.topic}-0:0-2"] * calls + [f"{INPUT.topic}-0:0-1"]


def test_a_batch_id_is_what_it_is_of() -> None:
    ranges = {TopicPartition("b", 1): OffsetRange(3, 5), TopicPartition("a", 0): OffsetRange(0, 9)}
    batch_id = BatchId(ranges)
    assert str(batch_id) == "a-0:0-9,b-1:3-5"
    assert BatchId.from_rows(batch_id.to_rows()) == batch_id
    assert hash(BatchId(dict(reversed(ranges.items())))) == hash(batch_id)


def test_it_is_described_as_foreach_is() -> None:
    def described(end: str) -> str:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=Serdes.string(), value=Serdes.string())
        getattr(stream, end)(lambda first, second: None)
        stream.to("out")
        return builder.build().describe()

    assert "Processor: KSTREAM-FOREACH-0000000001 (stores: [])" in described("foreach_batch")
    assert described("foreach_batch") == described("foreach")


def test_a_function_of_other_arguments_is_refused_and_a_topology_without_one_stays_as_it_is() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=Serdes.string(), value=Serdes.string())
    with pytest.raises(TopologyError, match=r"foreach_batch: .*\(dataframe, batch_id\)"):
        stream.foreach_batch(lambda frame: None)
    stream.to("out")
    topology = builder.build()
    assert with_batch_sinks(topology) is topology

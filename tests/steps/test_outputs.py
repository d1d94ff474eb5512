"""A sink's name is no topic and a topic no name: each record goes where its own sink says, whatever the others are called."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.step_harness import StepRun
from tidemill import Serdes, StreamsBuilder, per_record
from tidemill.errors import TopologyError
from tidemill.operators.exception_handlers import ExceptionHandlers, ExceptionResponse
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.outputs import Destination, Outputs, ToDeadLetters, ToSink, ToTopic
from tidemill.steps.rows.records import ANY_PARTITION, Records
from tidemill.steps.rows.schema import OUTPUT, SCHEMA
from tidemill.steps.rows.writes import outputs_as_rows, take_outputs

STRING = Serdes.string()
EXPECTED = dict.fromkeys(range(20), "other bytes")
INPUTS: list[tuple[Any, ...]] = [("a", b"k", b"1", 0, ()), ("b", b"k", b"2", 1, ())]


def marked(builder: StreamsBuilder, topic: str) -> Any:
    function = per_record(lambda value: f"{topic}:{int(value)}", serde=STRING)
    return builder.stream(topic, key=STRING, value=STRING).map_values(function)


def two_sinks(name: str, topic: str = "raw") -> StreamsBuilder:
    builder = StreamsBuilder()
    marked(builder, "a").to(topic, key=STRING, value=STRING, name=name)
    marked(builder, "b").to("clean", key=STRING, value=STRING, name="second")
    return builder


def sink_and_function(name: str) -> StreamsBuilder:
    builder = StreamsBuilder()
    marked(builder, "a").foreach_batch(lambda frame, batch: None, name=name)
    marked(builder, "b").to("clean", key=STRING, value=STRING, name="second")
    return builder


def written(run: StepRun) -> list[tuple[str, bytes | None]]:
    return sorted((topic, value) for topic, _key, value, *_ in run.written)


def with_dead_letters(builder: StreamsBuilder, topic: str) -> StepRun:
    run = StepRun(builder.build())
    aside = ExceptionHandlers(processing=ExceptionResponse.DEAD_LETTER, dead_letter_topic=topic)
    for worker in run.workers:
        worker.unreadable = Unreadable(handler=ExceptionResponse.DEAD_LETTER, topic=topic, expected=EXPECTED, handlers=aside)
        worker.graphs = KeptGraphs(aside)
    return run


@pytest.mark.parametrize("name", ["first", "clean", "raw"])
def test_a_sink_may_have_the_name_of_any_topic(name: str) -> None:
    run = StepRun(two_sinks(name).build())
    run.pipe(INPUTS)
    assert written(run) == [("clean", b"b:2"), ("raw", b"a:1")]


def test_sinks_may_have_each_others_topics_as_names() -> None:
    builder = StreamsBuilder()
    marked(builder, "a").to("one", key=STRING, value=STRING, name="two")
    marked(builder, "b").to("two", key=STRING, value=STRING, name="one", partitioner=lambda topic, key, value, count: 0)
    run = StepRun(builder.build())
    run.pipe(INPUTS)
    assert written(run) == [("one", b"a:1"), ("two", b"b:2")]


@pytest.mark.parametrize("name", ["batches", "clean"])
def test_a_function_of_batches_gets_its_own_records_alone(name: str) -> None:
    run = StepRun(sink_and_function(name).build())
    run.pipe(INPUTS)
    assert [(node, rows.column("value").to_pylist()) for node, rows in run.handed_over] == [(name, [b"a:1"])]
    assert written(run) == [("clean", b"b:2")]


@pytest.mark.parametrize("topic", ["dead", "batches", "second", "clean"])
def test_a_dead_letter_goes_to_its_topic_whatever_has_that_name(topic: str) -> None:
    """``batches``: the node of a function; ``second``: a sink; ``clean``: the topic of that sink. One record fails in a function,
    one can't be read."""
    builder = sink_and_function("batches")
    numbers = builder.stream("c", key=STRING, value=Serdes.long())
    numbers.map_values(per_record(lambda value: value + 1, Serdes.long())).to("numbers", key=STRING, value=Serdes.long())
    run = with_dead_letters(builder, topic)
    run.pipe([*INPUTS, ("a", b"bad", b"none", 2, ()), ("c", b"bad", b"five5", 3, ())])
    assert [rows.column("value").to_pylist() for _node, rows in run.handed_over] == [[b"a:1"]]
    assert written(run) == sorted([("clean", b"b:2"), (topic, b"none"), (topic, b"five5")])


@pytest.mark.parametrize("end", ["to", "foreach_batch"])
def test_two_nodes_of_one_name_are_refused(end: str) -> None:
    builder = StreamsBuilder()
    marked(builder, "a").to("raw", key=STRING, value=STRING, name="clean")
    stream = marked(builder, "b")
    if end == "to":
        stream.to("other", key=STRING, value=STRING, name="clean")
    else:
        stream.foreach_batch(lambda frame, batch: None, name="clean")
    with pytest.raises(TopologyError, match="'clean'"):
        builder.build()


NAMES = st.sampled_from(["a", "b", "sink", "topic", "letters"])
DESTINATIONS = st.one_of(
    st.builds(ToTopic, NAMES), st.builds(ToDeadLetters, NAMES), st.builds(ToSink, NAMES, st.none() | NAMES)
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(DESTINATIONS, st.lists(st.sampled_from([ANY_PARTITION, 0, 7]), min_size=1, max_size=3), max_size=6))
def test_what_an_earlier_step_sends_arrives_at_the_last_one_with_where_it_goes(given: dict[Destination, list[int]]) -> None:
    outputs, number = Outputs(), 0
    expected = {}
    for to, partitions in given.items():
        count = len(partitions)
        records = Records([3] * count, [b"k"] * count, [None] * count, [5] * count, [8] * count, [*range(count)], headers=[
            [("topic", b"own")] if at else None for at in range(count)
        ])  # fmt: skip
        if isinstance(to, ToSink):
            records.partitions = partitions
        outputs.add(to, records)
        expected[to] = records
        number += count
    rows = list(outputs_as_rows(outputs, 1))
    assert sum(batch.num_rows for batch in rows) == number
    assert dict(take_outputs({OUTPUT: pa.Table.from_batches(rows, SCHEMA)})) == expected


def test_every_name_can_be_every_topic() -> None:
    for first, second in product(("x", "y"), repeat=2):
        builder = StreamsBuilder()
        marked(builder, "a").to(first, key=STRING, value=STRING, name="x")
        marked(builder, "b").to(second, key=STRING, value=STRING, name="y")
        run = StepRun(builder.build())
        run.pipe(INPUTS)
        assert written(run) == sorted([(first, b"a:1"), (second, b"b:2")])

"""What a worker keeps of its operators: they go on after a batch that counted, and are made anew after one that did not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from step_harness import StepRun

from tidemill import Serdes, SessionWindows, StreamsBuilder, TimeWindows, per_record

STRING = Serdes.string()


class Clocked:
    """Says how many of these have been made and closed, and how many records each has seen."""

    made = closed = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.seen = 0

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self.seen += 1
        self._context.forward(record.with_value(f"{record.value}{self.seen}"))

    def close(self) -> None:
        type(self).closed += 1


@pytest.fixture
def run() -> StepRun:
    Clocked.made = Clocked.closed = 0
    builder = StreamsBuilder()
    builder.stream("in").process(Clocked).to("out")
    return StepRun(builder.build())


def pipe(run: StepRun, value: str) -> bytes | None:
    run.pipe([("in", b"k", value.encode(), 0, ())])
    return run.written[-1][2]


def test_operators_go_on_in_the_next_batch(run: StepRun) -> None:
    assert [pipe(run, "a"), pipe(run, "b")] == [b"a1", b"b2"]
    assert (Clocked.made, Clocked.closed) == (1, 0)


def test_operators_are_made_anew_after_a_batch_that_did_not_count(run: StepRun) -> None:
    assert pipe(run, "a") == b"a1"
    run.follows = 0
    assert pipe(run, "b") == b"b1"
    assert (Clocked.made, Clocked.closed) == (2, 1)


def test_operators_are_made_anew_for_another_owner_of_the_task(run: StepRun) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().process(Clocked).to("out", value=STRING)
    run = StepRun(builder.build())
    assert pipe(run, "a") == b"11"
    run.epoch = "another"
    assert pipe(run, "b") == b"21"
    assert (Clocked.made, Clocked.closed) == (2, 1)


@pytest.mark.parametrize("windows", [TimeWindows.of_size(1_000), SessionWindows.of_inactivity_gap(1_000)], ids=["time", "gap"])
def test_a_restored_store_goes_on_where_its_changelog_ended(windows: Any) -> None:
    builder = StreamsBuilder()
    counted = builder.stream("in", key=STRING, value=STRING).group_by_key().windowed_by(windows).count(store="c")
    counted.to_stream().map(per_record(lambda k, n: (k.key, str(n)), (STRING, STRING))).to("out")
    first = StepRun(builder.build())
    assert [pipe(first, "a"), pipe(first, "b")] == [b"1", b"2"]
    second = StepRun(builder.build())
    second.restore({topic: (key, value, timestamp) for topic, key, value, timestamp, *_ in first.logged})
    assert pipe(second, "c") == b"3"


def test_what_a_request_follows_is_the_last_batch_that_counted() -> None:
    from tidemill.task.batch import BatchRequest, request_from_json, request_to_json

    request = replace(BatchRequest(batch_id=7, inputs={}), follows=5)
    assert request_from_json(request_to_json(request)) == request

"""Test drivers whose workers end with a batch, since a function of Columns has failed, or can't begin."""

from __future__ import annotations

import contextlib
import os
import sys
from types import ModuleType
from typing import Any

import pytest

from tidemill import Materialized, ProcessorContext, Record, Serdes, SourceRecord, Stores, StreamsBuilder, per_record
from tidemill.errors import RecordError, StopError
from tidemill.testing import TestRecord

pytestmark = pytest.mark.spark
TEXT, LONG = Serdes.string(), Serdes.long()


class Counting:
    def init(self, context: ProcessorContext) -> None:
        self.context, self.counts = context, context.store("counts")

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_stores_in_memory_and_global_ones_outlast_a_function_of_columns_that_fails(
    topology_test_driver: Any, handler: str
) -> None:
    builder = StreamsBuilder()
    names = builder.global_table("names", key=TEXT, value=TEXT, store="names")
    read = builder.stream("in", key=TEXT, value=TEXT)
    read.map_values(lambda value: value.cast("bigint")).to("numbers", value=LONG)
    read.join(names, selector=lambda key, _: key, joiner=lambda value, name: f"{value} {name}").to("named", value=TEXT)
    builder.add_state_store(Stores.key_value_store("counts", key=TEXT, value=LONG, persistent=False))
    read.process(Counting, "counts", key=TEXT, value=LONG).to("counted", value=LONG)
    joined = read.group_by_key().reduce(lambda old, new: old + new, store=Materialized(name="texts", persistent=False))
    joined.to_stream().to("joined", value=TEXT)
    driver = topology_test_driver(builder, {"processing.exception.handler": handler})
    driver.create_input_topic("names", TEXT, TEXT).pipe_key_values([("k", "old"), ("k", "K")])
    source = driver.create_input_topic("in", TEXT, TEXT)
    source.pipe_input("k", "1")
    with contextlib.nullcontext() if handler == "continue" else pytest.raises(StopError, match="'bad'"):
        source.pipe_input("k", "bad")
    driver.create_input_topic("names", TEXT, TEXT).pipe_input("l", "L")
    source.pipe_key_values([("k", "2"), ("l", "3")])
    assert driver.create_output_topic("named", TEXT, TEXT).read_values() == ["1 K", "2 K", "3 L"]
    assert driver.create_output_topic("counted", TEXT, LONG).read_values() == [1, 2, 1]
    assert driver.create_output_topic("joined", TEXT, TEXT).read_values() == ["1", "12", "3"]
    assert driver.store("counts").get("k") == 2
    assert driver.store("names").get("k") == ("K", 0)


def test_what_was_dropped_of_global_records_is_counted_once(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    builder.global_table("numbers", key=TEXT, value=LONG, store="numbers")
    builder.stream("in", key=TEXT, value=TEXT).map_values(lambda value: value.cast("bigint")).to("out", value=LONG)
    what = ("deserialization", "processing")
    driver = topology_test_driver(builder, {f"{each}.exception.handler": "continue" for each in what})
    driver.create_input_topic("numbers", TEXT, TEXT).pipe_input("k", "no number")
    driver.create_input_topic("numbers", TEXT, LONG).pipe_input("l", 5)
    assert (driver.dropped, driver.skipped) == (1, 1)
    source = driver.create_input_topic("in", TEXT, TEXT)
    source.pipe_key_values([("k", "1"), ("k", "bad"), ("k", "2")])
    assert (driver.dropped, driver.skipped) == (2, 2)
    assert driver.create_output_topic("out", TEXT, LONG).read_values() == [1, 2]
    assert driver.store("numbers").get("l") == (5, 0)


def test_the_error_of_a_step_has_its_whole_text_whatever_the_text_is(topology_test_driver: Any) -> None:
    """PySpark sends no text that UTF-8 can't hold: the worker would seem to have died, and the record to be too large."""

    def failing(record: SourceRecord, partition_time: int) -> int:
        raise ValueError("half a pair: \ud83d\nin two lines")

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT, timestamp_extractor=failing).to("out")
    source = topology_test_driver(builder).create_input_topic("in", TEXT, TEXT)
    with pytest.raises(RecordError, match=r"in-0 at offset 0: .* ValueError: half a pair: \\ud83d\nin two lines$") as raised:
        source.pipe_input("k", "a")
    assert (raised.value.topic, raised.value.offset) == ("in", 0)


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture
def not_importable(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that only this process has, as one that was imported from a path."""
    made = ModuleType("only_here")
    exec("def shout(text):\n    return text.upper()", made.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", made)
    return made


def test_functions_that_workers_cannot_import_are_an_error_and_no_hang(
    topology_test_driver: Any, not_importable: ModuleType
) -> None:
    for function, expected in ((not_importable.shout, None), (shout, ["A"])):
        builder = StreamsBuilder()
        builder.stream("in", key=TEXT, value=TEXT).map_values(per_record(function, TEXT)).to("out", value=TEXT)
        driver = topology_test_driver(builder)
        source = driver.create_input_topic("in", TEXT, TEXT)
        if expected is None:
            with pytest.raises(StopError, match=r"can't load the program's functions: ModuleNotFoundError: .*'only_here'"):
                source.pipe_input("k", "a")
        else:
            source.pipe_input("k", "a")
            assert driver.create_output_topic("out", TEXT, TEXT).read_values() == expected


def test_a_record_whose_function_ends_its_process_is_named(topology_test_driver: Any) -> None:
    builder = StreamsBuilder()
    ends = per_record(lambda value: os._exit(3) if value == "bad" else value, serde=TEXT)
    builder.stream("in", key=TEXT, value=TEXT).map_values(ends).to("out")
    driver = topology_test_driver(builder)
    source = driver.create_input_topic("in", TEXT, TEXT)
    source.pipe_input("k", "good")
    with pytest.raises(StopError, match=r"in-0 at offset 1 has ended the worker \(a Python worker died: .*os._exit"):
        source.pipe_input("k", "bad")
    with pytest.raises(StopError, match=r"in-0 at offset 1, or one of the 1 behind it in its batch, has ended the worker"):
        source.pipe_records([TestRecord("k", "good"), TestRecord("k", "bad")], batch=None)
    source.pipe_input("k", "better")
    assert driver.create_output_topic("out", TEXT, TEXT).read_values() == ["good", "better"]

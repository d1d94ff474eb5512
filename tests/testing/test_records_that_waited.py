"""A function of Columns that fails: on the record that was read, which a handler may skip, or on one that had waited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column

from tidemill import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    per_record,
)
from tidemill.dsl.stream import KStream
from tidemill.errors import StopError
from tidemill.testing import TestRecord

pytestmark = pytest.mark.spark
TEXT, INT = Serdes.string(), Serdes.integer()
Function = Callable[[Column], Column]
CONTINUE = {"processing.exception.handler": "continue"}


class Later:
    """Forwards what it has got before."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.got = context, context.store("got")
        context.schedule(10, PunctuationType.STREAM_TIME, self.forward)

    def process(self, record: Record) -> None:
        self.got.put(record.timestamp, f"{record.key}{record.value}")

    def forward(self, now: int) -> None:
        for at, text in [(at, text) for at, text in self.got.all() if at < now]:
            self.got.delete(at)
            self.context.forward(Record(text[0], text[1:], at))


def punctuated(stream: KStream, builder: StreamsBuilder) -> KStream:
    builder.add_state_store(Stores.key_value_store("got", key=Serdes.long(), value=TEXT))
    return stream.process(Later, "got", key=TEXT, value=TEXT)


def closed(stream: KStream, suppressed: Suppressed | None) -> KStream:
    windows = stream.group_by_key().windowed_by(TimeWindows.of_size(10))
    if suppressed is None:
        table = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).reduce(lambda _, new: new)
    else:
        table = windows.reduce(lambda _, new: new).suppress(suppressed)
    return table.to_stream().map(lambda key, value: (key["key"], value), name="unwindowed")


def unmatched(stream: KStream, builder: StreamsBuilder) -> KStream:
    never = builder.stream("never", key=TEXT, value=TEXT)
    return stream.left_join(never, per_record(lambda left, right: left, TEXT), JoinWindows.of_time_difference(5))


def with_grace(stream: KStream, builder: StreamsBuilder) -> KStream:
    table = builder.table("never", key=TEXT, value=TEXT, store=Materialized(name="rows", history_retention=1_000))
    return stream.left_join(table, per_record(lambda left, right: left, TEXT), joined=Joined(grace=5))


HOLDERS: dict[str, Callable[[KStream, StreamsBuilder], KStream]] = {
    "a punctuator": punctuated,
    "suppress until the window closes": lambda s, b: closed(s, Suppressed.until_window_closes()),
    "emission on close": lambda s, b: closed(s, None),
    "suppress until a time limit": lambda s, b: s.to_table().suppress(Suppressed.until_time_limit(5)).to_stream(),
    "a join without a match": unmatched,
    "a join with a grace period": with_grace,
}


def given(topology_test_driver: Any, holder: str, of_read: Function, of_waited: Function) -> Any:
    builder = StreamsBuilder()
    read = builder.stream("in", key=TEXT, value=TEXT)
    read.map_values(of_read).to("read", value=INT)
    HOLDERS[holder](read, builder).map_values(of_waited).to("waited", value=INT)
    return topology_test_driver(builder, CONTINUE)


def length(value: Column) -> Column:
    return value.cast("binary").cast("string").substr(1, 1).isNotNull().cast("int")


@pytest.mark.parametrize("holder", HOLDERS)
def test_for_what_has_waited_no_record_is_skipped(topology_test_driver: Any, holder: str) -> None:
    driver = given(topology_test_driver, holder, length, lambda value: value.cast("int"))
    source, read = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("read", TEXT, INT)
    source.pipe_records([TestRecord("a", "1", 1), TestRecord("b", "2", 12), TestRecord("c", "bad", 23)])
    assert driver.create_output_topic("waited", TEXT, INT).read_key_values()[0] == ("a", 1)
    for key, at in [("d", 34), ("e", 45)]:
        with pytest.raises(StopError, match=r"on what a punctuator or a store forwards: .*'bad'"):
            source.pipe_input(key, "3", at)
    assert [key for key, _ in read.read_key_values()] == ["a", "b", "c"]
    assert (driver.dropped, driver.skipped) == (0, 0)


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_record_that_fails_itself_is_skipped_and_what_has_waited_comes_with_the_next(
    topology_test_driver: Any, holder: str
) -> None:
    driver = given(topology_test_driver, holder, lambda value: value.cast("int"), length)
    source, waited = driver.create_input_topic("in", TEXT, TEXT), driver.create_output_topic("waited", TEXT, INT)
    source.pipe_records([TestRecord("a", "1", 1), TestRecord("b", "bad", 12), TestRecord("c", "3", 23), TestRecord("d", "4", 34)])
    assert [key for key, _ in driver.create_output_topic("read", TEXT, INT).read_key_values()] == ["a", "c", "d"]
    assert [key for key, _ in waited.read_key_values()][:2] == ["a", "c"]
    assert driver.skipped == 1

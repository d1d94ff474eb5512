"""Bytes that a serde can't read, nulls and empty bytes, through real applications."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.runtime.local_application import LIMIT_S, Place
from tests.waiting import until
from tidemill import DeadLetter, ErrorContext, Record, Serdes, StreamsBuilder, Suppressed, per_record
from tidemill.embedded.broker import EmbeddedBroker
from tidemill.runtime.instance.application import State

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]

LONG_7 = (7).to_bytes(8, "big")
GOOD_JSON = b'{"name": "ada"}'
HANDLER = "deserialization.exception.handler"


@pytest.fixture
def place(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, unique_name: Callable[[str], str]) -> Place:
    return Place(broker.bootstrap_servers, spark, tmp_path, unique_name("bad-records"))


def longs_and_documents(place: Place) -> StreamsBuilder:
    """Two inputs, two outputs; what is read is written again."""
    place.create("longs", "documents", "sums", "names", "dead")
    builder = StreamsBuilder()
    numbers = builder.stream(place.topic("longs"), key=Serdes.string(), value=Serdes.long())
    numbers.map_values(lambda v: v + 1).to(place.topic("sums"))
    documents = builder.stream(place.topic("documents"), key=Serdes.string(), value=Serdes.json("name string"))
    documents.map_values(lambda v: v["name"]).to(place.topic("names"))
    return builder


def send_good_and_bad(place: Place) -> None:
    place.send("longs", [(b"good", LONG_7), (b"short", b"abc"), (b"empty", b""), (b"good", LONG_7)])
    place.send("documents", [(b"good", GOOD_JSON), (b"cut", b'{"name": "ad'), (b"good", GOOD_JSON)])


def the_good_ones_came_through(place: Place) -> None:
    assert [m.value() for m in place.received("sums", 2)] == [(8).to_bytes(8, "big")] * 2
    assert [m.value() for m in place.received("names", 2)] == [b"ada", b"ada"]


@pytest.mark.parametrize(("topic", "offset"), [("longs", 1), ("documents", 1)])
def test_fail_stops_the_application_with_task_topic_partition_offset_and_reason(place: Place, topic: str, offset: int) -> None:
    builder = longs_and_documents(place)
    with place.running(builder) as streams:
        place.send(topic, [(b"good", LONG_7 if topic == "longs" else GOOD_JSON), (b"bad", b"{no")])
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    message = str(streams.error)
    assert f"{place.topic(topic)}-0 at offset {offset}" in message
    assert "task " in message
    assert "3 bytes" in message
    assert HANDLER in message


def test_continue_passes_unreadable_records_over_counts_them_and_says_so(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    builder = longs_and_documents(place)
    with caplog.at_level(logging.WARNING), place.running(builder, **{HANDLER: "continue"}) as streams:
        send_good_and_bad(place)
        the_good_ones_came_through(place)
        assert until(lambda: sum(thread.metrics.skipped for thread in streams.threads) == 3)
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
    assert [line for line in caplog.messages if "event=records-skipped" in line]


def test_dead_letter_puts_unreadable_records_aside_with_their_bytes_and_where_they_came_from(place: Place) -> None:
    builder = longs_and_documents(place)
    settings = {HANDLER: "dead-letter", "errors.dead.letter.queue.topic.name": place.topic("dead")}
    with place.running(builder, **settings):
        send_good_and_bad(place)
        the_good_ones_came_through(place)
        letters = place.received("dead", 3)
    assert {(m.key(), m.value()) for m in letters} == {(b"short", b"abc"), (b"empty", b""), (b"cut", b'{"name": "ad')}
    headers = {m.key(): dict(m.headers()) for m in letters}
    assert headers[b"short"]["__streams.errors.topic"] == place.topic("longs").encode()
    assert headers[b"short"]["__streams.errors.partition"] == b"0"
    assert headers[b"short"]["__streams.errors.offset"] == b"1"
    assert b"3 bytes" in headers[b"short"]["__streams.errors.message"]
    assert headers[b"cut"]["__streams.errors.topic"] == place.topic("documents").encode()


def test_a_handler_writes_letters_itself_to_topics_of_its_choice(place: Place) -> None:
    place.create("in", "out", "unreadable", "failed", "reasons")
    unreadable, failed, reasons = (place.topic(name) for name in ("unreadable", "failed", "reasons"))

    def on_unreadable(context: ErrorContext, record: Record | None, error: Exception) -> DeadLetter:
        return DeadLetter.of(context, error, unreadable)

    def on_failure(context: ErrorContext, record: Record | None, error: Exception) -> list[DeadLetter]:
        whole = DeadLetter(topic=failed, key=context.source_raw_key, value=context.source_raw_value, timestamp=5, partition=0)
        return [whole, DeadLetter(topic=reasons, value=type(error).__name__.encode(), headers=(("node", context.node.encode()),))]

    builder = StreamsBuilder()
    numbers = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.long())
    numbers.map_values(per_record(lambda v: 14 // v, Serdes.long()), name="divides").to(place.topic("out"))
    with place.running(builder, **{HANDLER: on_unreadable, "processing.exception.handler": on_failure}):
        place.send("in", [(b"short", b"abc"), (b"zero", bytes(8)), (b"good", LONG_7)])
        assert [m.value() for m in place.received("out", 1)] == [(2).to_bytes(8, "big")]
        (letter,), (whole,), (reason,) = (place.received(name, 1) for name in ("unreadable", "failed", "reasons"))
    assert (letter.key(), letter.value()) == (b"short", b"abc")
    assert dict(letter.headers())["__streams.errors.offset"] == b"0"
    assert (whole.key(), whole.value(), whole.timestamp()[1]) == (b"zero", bytes(8), 5)
    assert (reason.key(), reason.value(), reason.headers()) == (None, b"ZeroDivisionError", [("node", b"divides")])


def test_a_letter_to_a_topic_that_does_not_exist_ends_the_thread_and_names_it(place: Place) -> None:
    place.create("in", "out")
    nowhere = place.topic("nowhere")
    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.long()).to(place.topic("out"))
    handler = {HANDLER: lambda context, record, error: DeadLetter(topic=nowhere, value=b"v")}
    with place.running(builder, **handler) as streams:
        place.send("in", [(b"short", b"abc")])
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    assert nowhere in str(streams.error)
    assert "does not exist" in str(streams.error)


def test_nulls_and_empty_bytes_are_what_kafka_streams_makes_of_them(place: Place) -> None:
    """A null key or value is not counted; empty text is a key and a value like any other; a null passes as a null."""
    place.create("in", "same", "counts")
    builder = StreamsBuilder()
    records = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
    records.to(place.topic("same"))
    records.group_by_key().count().to_stream().to(place.topic("counts"))
    sent = [(None, b"v"), (b"k", None), (b"", b"v"), (b"", b""), (b"k", b""), (b"k", b"v"), (None, None)]
    with place.running(builder) as streams:
        place.send("in", sent)
        assert [(m.key(), m.value()) for m in place.received("same", len(sent))] == sent
        counted: dict[bytes, int] = {}

        def both_are_counted() -> bool:
            for message in place.received("counts", 10, limit_s=1):
                counted[message.key()] = int.from_bytes(message.value(), "big")
            return counted == {b"": 2, b"k": 2}

        assert until(both_are_counted), counted
        assert until(lambda: sum(thread.metrics.dropped for thread in streams.threads) == 3)


def test_records_that_a_function_fails_on_or_that_are_too_large_are_put_aside_in_the_batchs_transaction(place: Place) -> None:
    place.create("in", "out", "dead")
    builder = StreamsBuilder()
    texts = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
    texts.map_values(per_record(lambda v: "x" * int(v), Serdes.string())).to(place.topic("out"), value=Serdes.string())
    settings = {
        "processing.exception.handler": "dead-letter",
        "production.exception.handler": "AlwaysContinueProductionExceptionHandler",
        "errors.dead.letter.queue.topic.name": place.topic("dead"),
        "producer.max.request.size": 2_000,
    }
    with place.running(builder, **settings) as streams:
        place.send("in", [(b"a", b"1"), (b"b", b"two"), (b"c", b"3000"), (b"d", b"4")])
        assert [(m.key(), m.value()) for m in place.received("out", 2)] == [(b"a", b"x"), (b"d", b"xxxx")]
        letters = {m.key(): m for m in place.received("dead", 2)}
        assert until(lambda: sum(thread.metrics.skipped for thread in streams.threads) == 2)
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
    assert {key: letter.value() for key, letter in letters.items()} == {b"b": b"two", b"c": None}
    said = dict(letters[b"b"].headers())
    assert said["__streams.errors.exception"] == b"builtins.ValueError"
    assert said["__streams.errors.topic"] == place.topic("in").encode()
    assert said["__streams.errors.offset"] == b"1"
    assert b"larger than allowed" in dict(letters[b"c"].headers())["__streams.errors.message"]


def numbers(place: Place) -> StreamsBuilder:
    """Casts before and behind a count: in the layer above the step, and in the one below it."""
    builder = StreamsBuilder()
    texts = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
    texts.map_values(lambda v: v.cast("int").cast("string")).to(place.topic("out"))
    counted = texts.group_by_key().count(store="counts").to_stream()
    counted.map(lambda k, n: (k, F.when(k == "poison", F.lit("p")).otherwise("1").cast("int") + n)).to(
        place.topic("counted"), key=Serdes.string(), value=Serdes.long()
    )
    return builder


def test_a_record_on_which_a_function_of_columns_raises_is_put_aside_and_all_others_go_on(place: Place) -> None:
    place.create("in", "out", "counted", "dead", partitions=2)
    settings = {
        "processing.exception.handler": "dead-letter",
        "errors.dead.letter.queue.topic.name": place.topic("dead"),
    }
    with place.running(numbers(place), **settings) as streams:
        good = [(f"k{n}".encode(), str(n).encode()) for n in range(40)]
        place.send("in", [*good[:20], (b"bad", b"abc"), *good[20:]], partition=0)
        place.send("in", [(b"poison", b"7")], partition=1)
        assert sorted(m.value() for m in place.received("out", 40)) == sorted(value for _, value in good)
        assert {m.key() for m in place.received("counted", 40)} == {key for key, _ in good}
        letters = {m.key(): m for m in place.received("dead", 2)}
        assert until(lambda: sum(thread.metrics.skipped for thread in streams.threads) == 2)
        assert sum(thread.metrics.dropped for thread in streams.threads) == 2
        assert streams.wait(State.RUNNING, timeout=LIMIT_S) is State.RUNNING
        assert until(lambda: not any(thread.lost_in_a_row.count for thread in streams.threads))
    said = dict(letters[b"bad"].headers())
    assert (letters[b"bad"].value(), letters[b"poison"].value()) == (b"abc", b"7")
    assert said["__streams.errors.exception"] == b"org.apache.spark.SparkNumberFormatException"
    assert (said["__streams.errors.partition"], said["__streams.errors.offset"]) == (b"0", b"20")
    assert b"'abc'" in said["__streams.errors.message"]
    assert b"== " not in said["__streams.errors.message"]


def test_a_function_of_columns_that_raises_stops_the_application_with_its_node_and_the_record(place: Place) -> None:
    place.create("in", "out", "counted")
    with place.running(numbers(place)) as streams:
        place.send("in", [(b"k", b"1"), (b"bad", b"abc"), (b"k", b"2")])
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
        assert [m.value() for m in place.received("out", 1)] == [b"1"]
    message = str(streams.error)
    assert f"{place.topic('in')}-0 at offset 1" in message
    assert "KSTREAM-MAPVALUES" in message
    assert "CAST_INVALID_INPUT" in message
    assert "processing.exception.handler" in message


def test_for_a_record_that_suppress_has_held_no_other_is_skipped_and_the_thread_ends(place: Place) -> None:
    place.create("in", "out", "pushed-out")
    builder = StreamsBuilder()
    read = builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string())
    read.map_values(F.upper).to(place.topic("out"))
    held = read.to_table().suppress(Suppressed.until_time_limit(3_600_000, max_records=1))
    held.to_stream().map_values(lambda v: v.cast("bigint")).to(place.topic("pushed-out"), value=Serdes.long())
    with place.running(builder, **{"processing.exception.handler": "continue"}) as streams:
        place.send("in", [(b"bad", b"abc"), *((f"k{n}".encode(), b"1") for n in range(8))])
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
        assert [m.key() for m in place.received("out", 1)] == [b"bad"]
        assert sum(thread.metrics.skipped for thread in streams.threads) == 0
    assert "on what a punctuator or a store forwards" in str(streams.error)
    assert "'abc'" in str(streams.error)


def test_functions_that_workers_cannot_import_stop_the_application_and_nothing_hangs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ModuleType("only_here")
    exec("def shout(text):\n    return text.upper()", made.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", made)
    place.create("in", "out")
    builder = StreamsBuilder()
    builder.stream(place.topic("in"), key=Serdes.string(), value=Serdes.string()).map_values(
        per_record(made.shout, Serdes.string())
    ).to(place.topic("out"))
    with place.application(builder) as streams:
        assert streams.wait(State.ERROR, timeout=LIMIT_S) is State.ERROR
    assert "can't load the program's functions: ModuleNotFoundError: No module named 'only_here'" in str(streams.error)

"""Joiners of a stream with a global table: with neither key, the stream's, or both (KIP-1340)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.harness import start
from tidemill import Serdes, StreamsBuilder, of_columns, per_record
from tidemill.errors import TopologyError

STRING = Serdes.string()


def results(joiner: Callable[..., Any], *, left: bool, records: list[tuple[str, str]]) -> list[str]:
    """The joined values of records whose selected key is the value's first part; the global table has the row ``a: row``."""
    builder = StreamsBuilder()
    table = builder.global_table("reference", key=STRING, value=STRING)
    stream = builder.stream("in", key=STRING, value=STRING)

    def selected(_key: str, value: str) -> str | None:
        return value.split()[0] if " " in value else None

    join = stream.left_join if left else stream.join
    join(table, per_record(joiner, STRING), selector=selected).to("out")
    run = start(builder.build())
    run.pipe(0, "reference", b"a", b"row", 1)
    for at, (key, value) in enumerate(records, start=1):
        run.pipe(at, "in", key.encode(), value.encode(), at)
    return [value.decode() for _topic, _key, value, *_rest in run.written if value is not None]


RECORDS = [("k", "a 1"), ("l", "b 2"), ("m", "3")]


def test_a_joiner_of_four_arguments_gets_the_selected_key() -> None:
    def both(key: str, selected: str | None, left: str, right: str | None) -> str:
        return f"{key}|{selected}|{left}|{right}"

    assert results(both, left=False, records=RECORDS) == ["k|a|a 1|row"]
    assert results(both, left=True, records=RECORDS) == ["k|a|a 1|row", "l|b|b 2|None", "m|None|3|None"]


def test_joiners_of_two_and_three_arguments_stay_as_they_were() -> None:
    assert results(lambda left, right: f"{left}|{right}", left=False, records=RECORDS) == ["a 1|row"]
    assert results(lambda key, left, right: f"{key}|{left}|{right}", left=False, records=RECORDS) == ["k|a 1|row"]
    assert results(lambda *given: str(len(given)), left=False, records=RECORDS) == ["2"]
    assert results(lambda left, right, a="x", b="y": a + b, left=False, records=RECORDS) == ["xy"]


def test_a_function_of_columns_does_not_get_both_keys() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("reference", key=STRING, value=STRING)
    stream = builder.stream("in", key=STRING, value=STRING)
    with pytest.raises(TopologyError, match=r"left_join: of_columns\(\.\.\.\) gets \(left, right\) or \(key, left, right\)"):
        stream.left_join(
            table, of_columns(lambda key, selected, left, right: selected), selector=lambda key, value: value
        )


def test_five_arguments_are_refused() -> None:
    builder = StreamsBuilder()
    table = builder.global_table("reference", key=STRING, value=STRING)
    with pytest.raises(TopologyError, match="can't be called with"):
        builder.stream("in").join(table, lambda a, b, c, d, e: a, selector=lambda key, value: value)


def test_a_timestamp_extractor_of_a_global_table_is_not_called() -> None:
    """As in Kafka Streams 4.3: one that gives a negative time drops no row."""
    builder, seen = StreamsBuilder(), list[Any]()

    def extracted(record: Any, _partition_time: int) -> int:
        seen.append(record)
        return -1

    builder.global_table("reference", key=STRING, value=STRING, store="kept", timestamp_extractor=extracted)
    run = start(builder.build())
    run.pipe(0, "reference", b"a", b"row", 7)
    assert run.graph.store("kept").get("a") == ("row", 7)
    assert run.dropped_at == seen == []
    with pytest.raises(TopologyError, match="timestamp_extractor"):
        builder.global_table("more", timestamp_extractor=7)  # type: ignore[arg-type]

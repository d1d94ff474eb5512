"""What a read of ``KafkaStreams`` is asked with reaches the queries: stale copies, one partition, a position, a partitioner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemill import KafkaStreams, Position, StreamsBuilder

SEEN = Position.parse("2:17")


class AskedError(Exception):
    """Its arguments are what the queries were asked."""


class Queries:
    def view(self, name: str, *, stale: bool, partition: int | None, position: Position | None) -> None:
        raise AskedError(name, stale, partition, position)

    def dataframe(self, name: str, *, stale: bool, partition: int | None) -> None:
        raise AskedError(name, stale, partition)

    def metadata_for_key(self, store: str, key: object, partitioner: object) -> None:
        raise AskedError(store, key, partitioner)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    made = KafkaStreams(builder, {"application.id": "app", "bootstrap.servers": "localhost:9092"})
    monkeypatch.setattr(made, "_queries", Queries)
    return made


def place(key: bytes, partitions: int) -> int:
    return len(key) % partitions


@pytest.mark.parametrize(
    ("read", "asked"),
    [
        *(
            (lambda streams, kind=kind, given=given: getattr(streams, kind)("s", **given), ("s", *expected))
            for kind in ("store", "window_store", "session_store", "versioned_store")
            for given, expected in (
                ({}, (False, None, None)),
                ({"allow_stale": True, "partition": 2, "position": SEEN}, (True, 2, SEEN)),
            )
        ),
        (lambda streams: streams.store_dataframe("s"), ("s", False, None)),
        (lambda streams: streams.store_dataframe("s", allow_stale=True, partition=2), ("s", True, 2)),
        (lambda streams: streams.query_metadata_for_key("s", "k"), ("s", "k", None)),
        (lambda streams: streams.query_metadata_for_key("s", "k", place), ("s", "k", place)),
    ],
)
def test_a_read_is_asked_as_the_program_says(
    read: Callable[[KafkaStreams], object], asked: tuple[Any, ...], streams: KafkaStreams
) -> None:
    with pytest.raises(AskedError) as error:
        read(streams)
    assert error.value.args == asked

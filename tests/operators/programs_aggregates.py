"""The vectors' programs of aggregations by key."""

from __future__ import annotations

from tidemill import Serdes, StreamsBuilder


def count_by_key(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count(store="counts").to_stream().to("out", value=Serdes.long())

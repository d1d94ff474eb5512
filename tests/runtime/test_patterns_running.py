"""On an instance: a stream of all topics that match a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.runtime.local_application import Place
from tidemill import Serdes, StreamsBuilder

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()


def test_all_topics_that_match_are_read(bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("patterns"))
    place.create("in-a", "counts", partitions=1)
    place.create("in-b", "out-in-c", partitions=3)
    for end, partition in (("in-a", 0), ("in-b", 0), ("in-b", 2), ("out-in-c", 1)):
        place.send(end, [(b"k", f"{end}-{partition}".encode())], partition=partition)
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(place.topic("in-")) + ".*"), key=TEXT, value=TEXT)
    stream.group_by(lambda key, value: value, key=TEXT, value=TEXT).count(store="n").to_stream().to(
        place.topic("counts"), key=TEXT, value=LONG
    )
    with place.running(builder):
        counts = sorted(message.key() for message in place.received("counts", 3))
    assert counts == [b"in-a-0", b"in-b-0", b"in-b-2"]

"""On an instance: it is closed while its Python workers still load the program's functions, however long that takes."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from tests.runtime.local_application import Place
from tests.waiting import until
from tidemill import Processor, ProcessorContext, Record, Serdes, StreamsBuilder
from tidemill.deadline import Deadline
from tidemill.runtime.instance.application import KafkaStreams

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()
CLOSE_LIMIT_S = 60.0
SETTINGS = {"tidemill.batch.timeout.ms": 240_000, "kafka.metadata.max.age.ms": 300}
"""Workers that don't begin are ended after this time in any case."""


class Passing(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        self._context.forward(record)


class LoadedOnce:
    """Makes processors; a Python worker loads it once the file exists."""

    def __init__(self, file: Path) -> None:
        self.file = str(file)

    def __call__(self) -> Processor:
        return Passing()

    def __setstate__(self, state: dict[str, str]) -> None:
        self.file = state["file"]
        limit = Deadline.after(300)
        while TaskContext.get() is not None and not Path(self.file).exists() and not limit.is_over:
            time.sleep(0.05)


def program(place: Place, file: Path) -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile(re.escape(place.topic("in-")) + ".*"), key=TEXT, value=TEXT)
    counts = stream.process(LoadedOnce(file), key=TEXT, value=TEXT).group_by_key(key=TEXT, value=TEXT).count(store="n")
    counts.to_stream().to(place.topic("counts"), key=TEXT, value=LONG)
    return builder


def source_has_begun(streams: KafkaStreams) -> bool:
    engine = streams.threads[0].engine
    return engine is not None and "source" in engine.worker_pids


@pytest.fixture
def place(bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path) -> Place:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("loading"))
    place.create("in-b", "counts")
    place.send("in-b", [(b"k", b"")] * 3)
    return place


def test_workers_that_load_functions_are_not_waited_for(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "loaded"
    streams = place.application(program(place, file), **SETTINGS).start()
    try:
        assert until(lambda: source_has_begun(streams))
        assert streams.close(CLOSE_LIMIT_S), "it waits for a batch that no record has been processed in"
    finally:
        file.touch()
        streams.close()
    with place.running(program(place, file)):
        assert count_reaches(place, 3)


def test_nor_are_those_of_a_plan_that_reads_more_topics(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "loaded"
    file.touch()
    with place.running(program(place, file), **SETTINGS) as streams:
        assert count_reaches(place, 3)
        before = streams.threads[0].engine
        file.unlink()
        place.create("in-a")
        place.send("in-a", [(b"k", b"")] * 2)
        try:
            assert until(lambda: streams.threads[0].engine is not before and source_has_begun(streams))
            assert streams.close(CLOSE_LIMIT_S), "it waits for a batch that no record has been processed in"
        finally:
            file.touch()
    with place.running(program(place, file)):
        assert count_reaches(place, 5)


def test_nor_is_one_that_takes_the_place_of_a_dead_one(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "loaded"
    file.touch()
    with place.running(program(place, file), **SETTINGS) as streams:
        assert count_reaches(place, 3)
        engine = streams.threads[0].engine
        assert engine is not None
        before = dict(engine.worker_pids)
        file.unlink()
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        place.send("in-b", [(b"k", b"")] * 2)
        try:
            assert until(lambda: engine.worker_pids["source"] != before["source"])
            assert streams.close(CLOSE_LIMIT_S), "it waits for a batch that no record has been processed in"
        finally:
            file.touch()
    with place.running(program(place, file)):
        assert count_reaches(place, 5)


def count_reaches(place: Place, wanted: int) -> bool:
    """Exactly: no count is beyond it."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [int.from_bytes(message.value(), "big") for message in place.received("counts", wanted + 1, limit_s=2)]
        return max(found, default=0) >= wanted

    return until(look) and max(found) == wanted

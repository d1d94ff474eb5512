"""On an instance: a store as a DataFrame, foreach_batch across a crash before the commit, a join whose DataFrame changes."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.runtime.local_application import Place
from tests.waiting import until
from tidemill import BatchId, Serdes, StreamsBuilder

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]
TEXT, LONG = Serdes.string(), Serdes.long()
WORDS = [(word.encode(), b"x") for word in "abacab"]


class Sink:
    """A table that takes rows and how far it is in one transaction, as a data base would: what docs/dataframes.md says."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self.ends: dict[Any, int] = {}
        self.calls: list[str] = []
        self.kill_at_first: Any = None

    def take(self, frame: DataFrame, batch_id: BatchId) -> None:
        self.calls.append(str(batch_id))
        found = [(row.key, row.partition, row.offset) for row in frame.collect()]
        done = {tp.partition: self.ends.get(tp, 0) for tp in batch_id.ranges}
        self.rows += [row for row in found if row[2] >= done[row[1]]]
        self.ends.update({tp: max(at.end, self.ends.get(tp, 0)) for tp, at in batch_id.ranges.items()})
        if self.kill_at_first is not None:
            pid, self.kill_at_first = self.kill_at_first(), None
            os.kill(pid, signal.SIGKILL)


def test_stores_batches_and_static_data(bootstrap_servers: str, spark: SparkSession, unique_name: Any, tmp_path: Path) -> None:
    place = Place(bootstrap_servers, spark, tmp_path, unique_name("frames"))
    place.create("in", "joined", partitions=2)
    names, sink = [("a", "one"), ("b", "one")], Sink()
    builder = StreamsBuilder()
    stream = builder.stream(place.topic("in"), key=TEXT, value=TEXT)
    stream.group_by_key().count(store="counts")
    stream.foreach_batch(sink.take)
    stream.join_dataframe(
        lambda session: session.createDataFrame(names, "id string, name string"),
        lambda _, row: F.coalesce(row["name"], F.lit("none")), on="id", how="left", refresh_interval=1_000,
    ).to(place.topic("joined"), key=TEXT, value=TEXT)  # fmt: skip
    with place.running(builder) as streams:
        sink.kill_at_first = lambda: streams.threads[0].engine.worker_pids["step-1"]
        place.send("in", WORDS, partition=0)
        place.send("in", WORDS, partition=1)
        joined = place.received("joined", 12)
        assert sorted((m.key(), m.value()) for m in joined) == sorted(
            [(b"a", b"one")] * 6 + [(b"b", b"one")] * 4 + [(b"c", b"none")] * 2
        )

        # The worker died behind the first call, so its records came again; the sink has each once.
        assert sorted(sink.rows) == sorted((key.decode(), part, at) for part in (0, 1) for at, (key, _) in enumerate(WORDS))
        starts = [call.split(":")[1].split("-")[0] for call in sink.calls]
        assert starts.count("0") >= 2, sink.calls

        def counts() -> dict[tuple[str, int], int]:
            return {(row.key, row.partition): row.value for row in streams.store_dataframe("counts").dataframe.collect()}

        assert until(lambda: sum(counts().values()) == 12)
        frame, offsets = streams.store_dataframe("counts")
        assert counts() == {(key, part): n for part in (0, 1) for key, n in (("a", 3), ("b", 2), ("c", 1))}
        assert {part: at > 0 for part, at in offsets.items()} == {0: True, 1: True}

        names[:] = [("a", "two")]

        def sees_the_new_rows() -> bool:
            place.send("in", [(b"a", b"x")])
            return any(message.value() == b"two" for message in place.received("joined", 10_000, limit_s=1.0))

        assert until(sees_the_new_rows)
        assert {row.key: row.value for row in frame.where("partition = 1").collect()} == {"a": 3, "b": 2, "c": 1}

"""The vectorised count of windows leaves what the operator leaves, record by record, whatever the batches."""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from tidemill import Serdes
from tidemill.dsl.serdes_windowed import TimeWindowedSerde
from tidemill.ids import TaskId
from tidemill.operators.context import Origin
from tidemill.operators.record import Record
from tidemill.operators.task_graph import TaskGraph
from tidemill.spark.headers import packed
from tidemill.spark.rows import SCHEMA
from tidemill.spark.state_step import StepState
from tidemill.spark.step_spec import NodeSpec, StoreSpec
from tidemill.spark.window_count import count_windows, counts_windows
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, StoreKind, Topology
from tidemill.topology.operations import Counting, TableToStream, WindowAggregate
from tidemill.topology.windows import TimeWindows, UnlimitedWindows

STRING, LONG = Serdes.string(), Serdes.long()
WINDOWS = {
    "tumbling": TimeWindows.of_size(10_000),
    "tumbling with grace": TimeWindows.of_size(7000, grace=5000),
    "hopping": TimeWindows.of_size(10_000, advance=4000, grace=2000),
    "hopping, even": TimeWindows.of_size(9000, advance=3000),
    "unlimited": UnlimitedWindows.of(start=60_000),
}


class Reader:
    """The rows of one store, sorted."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def get_many(self, _store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.rows.get(key) for key in keys]

    def get(self, _store: str, key: bytes) -> bytes | None:
        return self.rows.get(key)

    def scan(
        self, _store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        first, last = bisect_left(self.keys, low or b""), len(self.keys) if high is None else bisect_left(self.keys, high)
        found = [(key, self.rows[key]) for key in self.keys[first:last]]
        return reversed(found) if reverse else iter(found)

    @contextmanager
    def snapshot(self) -> Iterator[Reader]:
        yield self

    def apply(self, rows: dict[bytes, bytes | None]) -> None:
        for key, row in rows.items():
            if row is None:
                if self.rows.pop(key, None) is not None:
                    self.keys.remove(key)
            else:
                if key not in self.rows:
                    insort(self.keys, key)
                self.rows[key] = row


class OneStore:
    """The same rows as an operator's, written at once; what is logged is remembered by key."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.logged: dict[bytes, tuple[bytes | None, int | None]] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._reader.rows.get(key)

    def put(self, key: bytes, row: bytes | None) -> None:
        self._reader.apply({key: row})

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._reader.scan("w", low, high, reverse=reverse)

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, _headers: Any = ()) -> None:
        self.logged[key] = value, timestamp


Input = tuple[int, "str | None", int, "bytes | None"]
"""(partition, key, timestamp, value of a header)"""


def _inputs(chance: random.Random, count: int) -> list[Input]:
    now, found = 100_000, []
    for _ in range(count):
        now += chance.choice((0, 1, 500, 3000)) + (chance.random() < 0.01) * 200_000
        behind = chance.choice((0, 0, 0, 2000, 9000, 30_000))
        key = None if chance.random() < 0.05 else f"k{chance.randrange(5)}" + "x" * chance.randrange(2)
        header = b"%d" % len(found) if chance.random() < 0.3 else None
        found.append((chance.randrange(2), key, max(0, now - behind), header))
    return found


def _topology(windows: TimeWindows, retention: int | None) -> Topology:
    store = Store(
        name="w", kind=StoreKind.TIMESTAMPED_WINDOW, key_serde=STRING, value_serde=LONG, window_size_ms=windows.size,
        retention_ms=windows.retention if retention is None else retention,
    )
    return Topology(
        nodes={
            "in": SourceNode(name="in", topics=("in",), key_serde=STRING, value_serde=STRING),
            "count": ProcessorNode(name="count", operation=WindowAggregate("w", windows, Counting()), stores=("w",)),
            "stream": ProcessorNode(name="stream", operation=TableToStream()),
            "out": SinkNode(name="out", topic="out", key_serde=TimeWindowedSerde(STRING, 1), value_serde=LONG),
        },
        parents={"in": (), "count": ("in",), "stream": ("count",), "out": ("stream",)},
        stores={"w": store},
        repartition_topics={},
    )


def _headers(header: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    return () if header is None else (("h", header),)


class PerRecord:
    """The operator's graph, one for each partition."""

    def __init__(self, topology: Topology) -> None:
        self.readers = {part: Reader() for part in (0, 1)}
        self.stores = {part: OneStore(reader) for part, reader in self.readers.items()}
        self.graphs = {
            part: TaskGraph(topology, TaskId(0, part), rows=lambda _name, s=store: s, key_serde=STRING, value_serde=STRING)
            for part, store in self.stores.items()
        }
        self.sent: dict[tuple[int, bytes | None], tuple[Any, ...]] = {}

    def pipe(self, given: Input) -> None:
        part, key, timestamp, header = given
        record = Record(key, "v", timestamp, _headers(header))
        self.graphs[part].process("in", record, Origin("in", part, 0))
        for made in self.graphs[part].take_produced():
            self.sent[part, made.key] = made.value, made.record.timestamp, made.record.headers

    def end(self) -> None:
        for graph in self.graphs.values():
            graph.flush()

    @property
    def dropped(self) -> int:
        return sum(graph.dropped for graph in self.graphs.values())


class Vectorised:
    """The step, fed with Arrow tables."""

    def __init__(self, topology: Topology) -> None:
        self.operation = topology.nodes["count"].operation  # type: ignore[union-attr]
        self.node = NodeSpec(
            name="count", subtopology=0, operation=self.operation, key_serde=STRING, value_serde=STRING,
            out_key_serde=TimeWindowedSerde(STRING, 1), out_value_serde=LONG, inline=(), tag=None,
        )
        self.store = StoreSpec(
            name="w", tag=-100, subtopology=0, changelog="w-changelog", timestamped=False, persistent=True, logged=True,
            key_serde=STRING, value_serde=LONG, kept=topology.stores["w"],
        )
        self.readers = {part: Reader() for part in (0, 1)}
        self.logged: dict[int, dict[bytes, tuple[bytes | None, int | None]]] = {0: {}, 1: {}}
        self.sent: dict[tuple[int, bytes | None], tuple[Any, ...]] = {}
        self.dropped = 0

    def batch(self, given: Sequence[Input]) -> None:
        tasks = {TaskId(0, part): reader for part, reader in self.readers.items()}
        state = StepState(readers=tasks, stores={"w": self.store})  # type: ignore[arg-type]
        made = count_windows(self.node, self.operation, _table(given), state)
        order = [(part, (key or b"")[-8:], key) for part, key in zip(made.parts, made.keys, strict=True)]
        assert order == sorted(order), "windows go on in the order of their starts"
        assert len(set(zip(made.parts, made.keys, strict=True))) == len(made), "a key and window goes on once"
        for at in range(len(made)):
            sent = made.values[at], made.timestamps[at], tuple(made.header(at) or ())
            self.sent[made.parts[at], made.keys[at]] = sent
        for (task, _store), written in state.written.items():
            self.readers[task.partition].apply(written.rows)
            self.logged[task.partition].update({key: (value, time) for key, value, time, _ in written.log})
        self.dropped += state.dropped


def _table(given: Sequence[Input]) -> pa.Table:
    columns: dict[str, pa.Array] = {name: pa.nulls(len(given), SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["part"] = pa.array([part for part, *_ in given], pa.int32())
    columns["key"] = pa.array([None if key is None else key.encode() for _, key, _, _ in given], pa.binary())
    columns["ts"] = pa.array([timestamp for _, _, timestamp, _ in given], pa.int64())
    columns["off"] = columns["seq"] = pa.array(range(len(given)), pa.int64())
    columns["headers"] = pa.array([packed(_headers(header)) or None for *_, header in given], pa.binary())
    return pa.table(columns)


@pytest.mark.parametrize("retention", [None, 100_000], ids=["least retention", "longer retention"])
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
def test_rows_changelog_drops_and_last_results_are_the_operators(windows: TimeWindows, retention: int | None) -> None:
    for seed in range(6):
        chance = random.Random(seed)
        topology = _topology(windows, None if windows.size is None else retention)
        one, other = PerRecord(topology), Vectorised(topology)
        inputs = _inputs(chance, 300)
        while inputs:
            batch, inputs = inputs[: (size := chance.choice((1, 7, 100)))], inputs[size:]
            for given in batch:
                one.pipe(given)
            one.end()
            other.batch(batch)
            assert other.dropped == one.dropped
        assert other.sent == one.sent
        for part in (0, 1):
            assert other.readers[part].rows == one.readers[part].rows
            assert other.logged[part] == one.stores[part].logged


def test_the_operator_goes_on_where_the_step_has_ended() -> None:
    windows = WINDOWS["tumbling with grace"]
    topology = _topology(windows, None)
    inputs = _inputs(random.Random(9), 200)
    unbroken, step = PerRecord(topology), Vectorised(topology)
    for given in inputs:
        unbroken.pipe(given)
    unbroken.end()
    step.batch(inputs[:100])
    after = PerRecord(topology)
    for part, reader in step.readers.items():
        after.stores[part]._reader.apply(dict(reader.rows))
    after.graphs = {
        part: TaskGraph(topology, TaskId(0, part), rows=lambda _name, s=store: s, key_serde=STRING, value_serde=STRING)
        for part, store in after.stores.items()
    }
    for given in inputs[100:]:
        after.pipe(given)
    after.end()
    assert step.dropped + after.dropped == unbroken.dropped
    assert {part: reader.rows for part, reader in after.readers.items()} == {
        part: reader.rows for part, reader in unbroken.readers.items()
    }


def test_what_is_no_count_of_time_windows_is_left_to_the_operators() -> None:
    windows = WINDOWS["hopping"]
    assert counts_windows(WindowAggregate("w", windows, Counting()))
    assert not counts_windows(WindowAggregate("w", windows, Counting(), emit_final=True))
    assert not counts_windows(TableToStream())

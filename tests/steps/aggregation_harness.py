"""One windowed aggregation run twice: record by record by its operator, and in batches by a vectorised step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from tests.steps.memory_stores import MemoryStores
from tidemill import Serdes
from tidemill.dsl.serdes_windowed import SessionWindowedSerde, TimeWindowedSerde
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.record import Record
from tidemill.operators.task_graph import TaskGraph
from tidemill.steps.rows.headers import packed
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.step_spec import NodeSpec, StoreSpec
from tidemill.steps.step_state import StepState
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, StoreKind, Topology
from tidemill.topology.operations import Counting, SessionAggregate, TableToStream, WindowAggregate

STRING, LONG = Serdes.string(), Serdes.long()
PARTITIONS = (0, 1)
Input = tuple[int, "str | None", "str | None", int, "bytes | None"]
"""(partition, key, value, timestamp, value of a header)"""
Step = Callable[[NodeSpec, Any, pa.Table, StepState], Records]


class OneStore:
    """The same rows as an operator's, written at once; what is logged is remembered by key."""

    def __init__(self, reader: MemoryStores) -> None:
        self._reader = reader
        self.logged: dict[bytes, tuple[bytes | None, int | None]] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._reader.get("w", key)

    def put(self, key: bytes, row: bytes | None) -> None:
        self._reader.apply({"w": {key: row}}, {})

    def scan(
        self, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._reader.scan("w", low, high, reverse=reverse)

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, _headers: Any = ()) -> None:
        self.logged[key] = value, timestamp


def inputs(chance: random.Random, count: int, *, jump: int = 200_000) -> list[Input]:
    """Records of few keys and two partitions: out of order, late, with null keys, null values and jumps of time."""
    now, found = 100_000, []
    for number in range(count):
        now += chance.choice((0, 1, 500, 3000)) + (chance.random() < 0.01) * jump
        behind = chance.choice((0, 0, 0, 2000, 9000, 30_000))
        key = None if chance.random() < 0.05 else f"k{chance.randrange(5)}" + "x" * chance.randrange(2)
        value = None if chance.random() < 0.05 else f"v{number}"
        header = b"%d" % number if chance.random() < 0.3 else None
        found.append((chance.choice(PARTITIONS), key, value, max(0, now - behind), header))
    return found


LATEST = 2**63 - 1
ENDS_OF_TIME = {
    "first": (0, 1, 2, 5, 100),
    "last": (LATEST, LATEST - 1, LATEST - 5, LATEST - 100, 0),
    "all": (0, 7, 2**40, LATEST),
}


def inputs_at(chance: random.Random, count: int, timestamps: Sequence[int]) -> list[Input]:
    """Records of few keys, each at one of a few times."""
    return [(0, chance.choice(("a", "b", None)), "v", chance.choice(timestamps), None) for _ in range(count)]


def topology_of(
    operation: WindowAggregate | SessionAggregate, retention: int | None = None, *, persistent: bool = True
) -> Topology:
    """Source, aggregation, stream, sink."""
    sessions = isinstance(operation, SessionAggregate)
    value_serde = LONG if isinstance(operation.aggregation, Counting) else STRING
    store = Store(
        name="w", kind=StoreKind.SESSION if sessions else StoreKind.TIMESTAMPED_WINDOW, key_serde=STRING,
        value_serde=value_serde, retention_ms=operation.windows.retention if retention is None else retention,
        reach_ms=operation.windows.reach, persistent=persistent,
    )
    windowed = SessionWindowedSerde(STRING) if sessions else TimeWindowedSerde(STRING, 1)
    return Topology(
        nodes={
            "in": SourceNode(name="in", topics=("in",), key_serde=STRING, value_serde=STRING),
            "made": ProcessorNode(name="made", operation=operation, stores=("w",)),
            "stream": ProcessorNode(name="stream", operation=TableToStream()),
            "out": SinkNode(name="out", topic="out", key_serde=windowed, value_serde=value_serde),
        },
        parents={"in": (), "made": ("in",), "stream": ("made",), "out": ("stream",)},
        stores={"w": store},
        repartition_topics={},
    )


Sent = tuple["bytes | None", int, Any]
"""(value, timestamp, headers)"""


class PerRecord:
    """The operator's graph, one for each partition."""

    def __init__(self, topology: Topology, rows: dict[int, dict[bytes, bytes]] | None = None) -> None:
        self.readers = {
            part: MemoryStores(TaskId(0, part), {"w": {} if rows is None else dict(rows[part])}) for part in PARTITIONS
        }
        self.stores = {part: OneStore(reader) for part, reader in self.readers.items()}
        self.graphs = {
            part: TaskGraph(
                topology, TaskId(0, part), rows=lambda _name, s=store: s, default_serdes=KeyValueSerdes(key=STRING, value=STRING)
            )
            for part, store in self.stores.items()
        }
        self.sent: dict[tuple[int, bytes | None], Sent] = {}

    def pipe(self, given: Sequence[Input]) -> None:
        for part, key, value, timestamp, header in given:
            graph = self.graphs[part]
            graph.process("in", Record(key, value, timestamp, _headers(header)), RecordMetadata("in", part, 0))
        for part, graph in self.graphs.items():
            graph.flush()
            for made in graph.take_produced():
                self.sent[part, made.key] = made.value, made.record.timestamp, made.record.headers

    @property
    def dropped(self) -> int:
        return sum(graph.dropped for graph in self.graphs.values())


class InBatches:
    """The step, fed with Arrow tables."""

    def __init__(self, topology: Topology, step: Step) -> None:
        node = topology.nodes["made"]
        assert isinstance(node, ProcessorNode)
        self._step, self._operation, store = step, node.operation, topology.stores["w"]
        self._node = NodeSpec(
            name="made", subtopology=0, operation=node.operation, key_serde=STRING, value_serde=STRING, out_key_serde=None,
            out_value_serde=store.value_serde, inline=(), tag=None,
        )
        self._store = StoreSpec(
            name="w", tag=-100, subtopology=0, changelog="w-changelog", timestamped=False, persistent=True, logged=True,
            key_serde=STRING, value_serde=store.value_serde, kept=store,
        )
        self.readers = {part: MemoryStores(TaskId(0, part), {"w": {}}) for part in PARTITIONS}
        self.logged: dict[int, dict[bytes, tuple[bytes | None, int | None]]] = {part: {} for part in PARTITIONS}
        self.sent: dict[tuple[int, bytes | None], Sent] = {}
        self.dropped = 0
        self.memory: dict[tuple[TaskId, str], Any] = {}
        """What the step remembers; another worker remembers nothing."""

    def pipe(self, given: Sequence[Input]) -> Records:
        """Runs a batch; what it forwards is noted and given back."""
        tasks = {TaskId(0, part): reader for part, reader in self.readers.items()}
        state = StepState(readers=tasks, stores={"w": self._store}, memory=self.memory)
        made = self._step(self._node, self._operation, table_of(given), state)
        for at in range(len(made)):
            self.sent[made.parts[at], made.keys[at]] = made.values[at], made.timestamps[at], tuple(made.header(at) or ())
        for (task, store), written in state.written.items():
            self.readers[task.partition].apply({store: written.rows}, {})
            self.logged[task.partition].update({key: (value, time) for key, value, time, _ in written.log})
        self.dropped += state.dropped
        return made


def _headers(header: bytes | None) -> tuple[tuple[str, bytes | None], ...]:
    return () if header is None else (("h", header),)


def table_of(given: Sequence[Input]) -> pa.Table:
    """Records as the rows that reach a Python step."""
    columns: dict[str, pa.Array] = {name: pa.nulls(len(given), SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["part"] = pa.array([part for part, *_ in given], pa.int32())
    columns["key"] = pa.array([None if key is None else key.encode() for _, key, *_ in given], pa.binary())
    columns["value"] = pa.array([None if value is None else value.encode() for _, _, value, *_ in given], pa.binary())
    columns["ts"] = pa.array([timestamp for *_, timestamp, _ in given], pa.int64())
    columns["off"] = columns["seq"] = pa.array(range(len(given)), pa.int64())
    columns["headers"] = pa.array([packed(_headers(header)) or None for *_, header in given], pa.binary())
    return pa.table(columns)


def batches(chance: random.Random, given: list[Input]) -> Iterator[list[Input]]:
    """The records cut at random."""
    while given:
        size = chance.choice((1, 7, 100))
        yield given[:size]
        given = given[size:]

"""A batch of stream records joined at once gives, record for record, what the operators give."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import functions as F

from tests.steps.memory_stores import MemoryStores
from tidemill import Serdes, StreamsBuilder
from tidemill.errors import RecordError
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.record import Record
from tidemill.operators.task_graph import TaskGraph
from tidemill.steps.rows.codecs_wire import PairSerde
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import NodeSpec, StoreSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.table_lookup import join_with_table
from tidemill.steps.vector.vector_step import run_on_records
from tidemill.topology.join_operations import StreamTableJoin
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import TableSource
from tidemill.topology.spark_operations import both_sides

STRING, LONG = Serdes.string(), Serdes.long()
PAIRS = PairSerde(LONG, STRING)
PARTITIONS = (0, 1)
Input = tuple[str, int, "bytes | None", "bytes | None", int, int]
"""(topic, partition, key, value, timestamp, sequence)"""


def _joiner(key: str | None, left: int, right: str | None) -> str:
    return f"{key}:{left}/{right}"


def _pair(left: int, right: str | None) -> bytes:
    return PAIRS.serialize((left, right))


def _topology(left: bool, joiner: Any = _joiner) -> Topology:
    builder = StreamsBuilder()
    stream, table = builder.stream("events", key=STRING, value=LONG), builder.table("users", store="users-store")
    (stream.left_join if left else stream.join)(table, joiner).to("out", value=Serdes.bytes() if joiner is _pair else None)
    return builder.build()


def _operation(topology: Topology, kind: type) -> tuple[str, Any]:
    return next(
        (name, node.operation) for name, node in topology.nodes.items()
        if isinstance(node, ProcessorNode) and isinstance(node.operation, kind)
    )


def _node(topology: Topology, kind: type, value_serde: Any) -> NodeSpec:
    name, operation = _operation(topology, kind)
    return NodeSpec(
        name=name, subtopology=0, operation=operation, key_serde=STRING, value_serde=value_serde, out_key_serde=STRING,
        out_value_serde=STRING, inline=(), tag=1, topics=("events", "users"), lookup_store="users-store",
    )


def _inputs(chance: random.Random, count: int) -> list[Input]:
    made: list[Input] = []
    for sequence in range(count):
        topic = chance.choice(["events", "users"])
        key = None if chance.random() < 0.1 else f"k{chance.randrange(6)}".encode()
        value = None if chance.random() < 0.2 else LONG.serialize(sequence) if topic == "events" else f"u{sequence}".encode()
        made.append((topic, chance.choice(PARTITIONS), key, value, 1000 + chance.randrange(5000), sequence))
    return made


def _columns(inputs: list[Input]) -> Records:
    return Records(
        parts=[i[1] for i in inputs], keys=[i[2] for i in inputs], values=[i[3] for i in inputs],
        timestamps=[i[4] for i in inputs], offsets=[i[5] for i in inputs], sequences=[i[5] for i in inputs],
        headers=[(("h", b"x"),) if i[5] % 3 else None for i in inputs],
    )


def _state(readers: dict[int, MemoryStores], value_serde: Any = STRING) -> StepState:
    store = StoreSpec(
        name="users-store", tag=9, subtopology=0, changelog="c", timestamped=True, persistent=True, logged=True,
        key_serde=STRING, value_serde=value_serde,
    )
    return StepState({TaskId(0, part): reader for part, reader in readers.items()}, {"users-store": store})


def _one_user() -> MemoryStores:
    return MemoryStores(TaskId(0, 0), {"users-store": {b"k": bytes(8) + b"u"}})


Result = tuple[int, "bytes | None", "bytes | None", int, Any, "int | None"]


def _by_batches(topology: Topology, batches: list[list[Input]], *, in_pairs: bool = False) -> tuple[list[Result], int]:
    readers = {part: MemoryStores(TaskId(0, part)) for part in PARTITIONS}
    found: list[Result] = []
    dropped = 0
    table, join = _node(topology, TableSource, STRING), _node(topology, StreamTableJoin, LONG)
    operation = join.operation
    assert isinstance(operation, StreamTableJoin)
    if in_pairs:
        operation, join = replace(operation, joiner=both_sides, takes_key=False), replace(join, out_value_serde=PAIRS)
    for batch in batches:
        state = _state(readers)
        state.forwarded[table.name] = run_on_records(table, _columns([i for i in batch if i[0] == "users"]), state)
        records = _columns([i for i in batch if i[0] == "events"])
        out = join_with_table(join, operation, records, state)
        assert out.headers is not None
        rows = zip(out.parts, out.keys, out.values, out.timestamps, out.headers, out.sequences, strict=True)
        found += sorted(rows, key=lambda row: row[5] or 0)
        dropped += state.dropped
        for (task, name), written in state.written.items():
            assert name == "users-store"
            readers[task.partition].apply({name: written.rows}, {})
    return found, dropped


def _by_operators(topology: Topology, inputs: list[Input]) -> tuple[list[Result], int]:
    source_of = {node.topics[0]: node.name for node in topology.nodes.values() if isinstance(node, SourceNode)}
    graphs = {}
    for part in PARTITIONS:
        rows = TaskRows("users-store", logged=True)
        graphs[part] = TaskGraph(
            topology, TaskId(0, part), rows=lambda _store, rows=rows: rows,
            default_serdes=KeyValueSerdes(key=STRING, value=STRING),
        )
    found: list[Result] = []
    for topic, part, key, value, timestamp, sequence in inputs:
        headers = (("h", b"x"),) if sequence % 3 else ()
        serde: Any = LONG if topic == "events" else STRING
        record = Record(STRING.deserialize(key), serde.deserialize(value), timestamp, headers)
        graphs[part].process(source_of[topic], record, RecordMetadata(topic, part, sequence))
        found += [
            (part, made.key, made.value, made.record.timestamp, made.record.headers or None, sequence)
            for made in graphs[part].take_produced()
        ]
    return found, sum(graph.dropped for graph in graphs.values())


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_each_record_sees_the_table_as_of_its_own_place(seed: int, left: bool) -> None:
    chance = random.Random(seed)
    topology, inputs = _topology(left), _inputs(chance, 400)
    batches, at = [], 0
    while at < len(inputs):
        size = chance.choice([1, 7, 60, 200])
        batches.append(inputs[at : at + size])
        at += size
    assert _by_batches(topology, batches) == _by_operators(topology, inputs)
    in_pairs = _by_batches(topology, batches, in_pairs=True)
    assert in_pairs == _by_operators(_topology(left, _pair), inputs)


def test_a_row_that_the_joiner_changes_is_as_it_is_stored_for_the_next_record() -> None:
    def joiner(_event: int, user: dict[str, int]) -> str:
        user["seen"] += 1
        return str(user["seen"])

    topology = _topology(left=False, joiner=joiner)
    _, operation = _operation(topology, StreamTableJoin)
    events = _columns([("events", 0, b"k", LONG.serialize(at), 5, at) for at in range(3)])
    users = MemoryStores(TaskId(0, 0), {"users-store": {b"k": bytes(8) + b'{"seen":0}'}})
    joined = join_with_table(
        _node(topology, StreamTableJoin, LONG), operation, events, _state({0: users}, Serdes.json("seen bigint"))
    )
    assert joined.values == [b"1"] * 3


def test_what_the_joiner_raises_says_the_node_and_the_record() -> None:
    topology = _topology(left=False)
    name, operation = _operation(topology, StreamTableJoin)
    join = _node(topology, StreamTableJoin, STRING)
    failing = StreamTableJoin(table=operation.table, joiner=lambda left, right: 1 // 0)
    records = _columns([("events", 0, b"k", b"v", 5, 0)])
    with pytest.raises(RecordError, match=f"the function of {name} failed: ZeroDivisionError") as caught:
        join_with_table(join, failing, records, _state({0: _one_user()}))
    assert (caught.value.topic, caught.value.offset) == ("events", 0)


def test_a_joiner_that_makes_columns_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # a worker has none, whatever ran here before
    topology = _topology(left=False)
    name, operation = _operation(topology, StreamTableJoin)
    join = _node(topology, StreamTableJoin, STRING)
    wrong = StreamTableJoin(table=operation.table, joiner=lambda left, right: F.concat(F.lit("|"), F.lit(right)))
    records = _columns([("events", 0, b"k", b"v", 5, 0)])
    with pytest.raises(RecordError, match=rf"the function of {name} failed: \w+: it is called with Python values, not Columns"):
        join_with_table(join, wrong, records, _state({0: _one_user()}))

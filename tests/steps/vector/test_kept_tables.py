"""A batch of a table's changes kept at once forwards, change for change, what the operators and their record caches forward."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.operators.answered_programs import PassesOn
from tests.steps.memory_stores import MemoryStores
from tidemill import Serdes, StreamsBuilder
from tidemill.ids import TaskId
from tidemill.operators.context import RecordMetadata
from tidemill.operators.record import Change, Record
from tidemill.operators.task_graph import TaskGraph
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.task_rows import NO_STATE, TaskRows
from tidemill.steps.step_spec import NodeSpec, StoreSpec
from tidemill.steps.step_state import StepState, Written
from tidemill.steps.vector.vector_step import run_on_records
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, Topology
from tidemill.topology.operations import TableSource

STRING = Serdes.string()
TASK, TABLE = TaskId(0, 0), "KTABLE-SOURCE-0000000001"
Given = tuple[bytes | None, bytes | None, int]
Forwarded = tuple[bytes | None, bytes | None, bytes | None, int, Any]
"""(key, new value, old value, timestamp, headers)"""
Logged = tuple[bytes | None, int | None]
"""(value, timestamp) of a key's last changelog record"""


def _topology(*, sends_old: bool, caching: bool, needs_each: bool) -> Topology:
    builder = StreamsBuilder()
    made = builder.table("in", store="rows").to_stream()
    (made.process(PassesOn) if needs_each else made).to("out")
    topology = builder.build()
    table = topology.nodes[TABLE]
    assert isinstance(table, ProcessorNode)
    stores = {"rows": replace(topology.stores["rows"], caching=caching)}
    return replace(topology, nodes={**topology.nodes, TABLE: replace(table, sends_old=sends_old)}, stores=stores)


def _headers(at: int) -> Any:
    return (("h", str(at).encode()),) if at % 3 else None


class _Operators:
    def __init__(self, topology: Topology) -> None:
        (child,) = topology.children(TABLE)
        rows, serdes = TaskRows("rows", logged=True), KeyValueSerdes(key=STRING, value=STRING)
        self._written, self.logged = Written(), dict[bytes, Logged]()
        rows.begin(NO_STATE, self._written)
        self.graph = TaskGraph(
            topology, TASK, rows=lambda _store: rows, default_serdes=serdes, nodes={TABLE}, exits={child: serdes}
        )

    def batch(self, given: list[Given]) -> list[Forwarded]:
        for at, (key, value, timestamp) in enumerate(given):
            record = Record(STRING.deserialize(key), STRING.deserialize(value), timestamp, _headers(at) or ())
            self.graph.process(TABLE, record, RecordMetadata("in", 0, at))
        self.graph.flush()
        self.logged = {key: (value, timestamp) for key, value, timestamp, _headers in self._written.log}
        self._written.log.clear()
        changes = [(made.key, made.record.value, made.record) for made in self.graph.take_handed_over()]
        return [
            (key, STRING.serialize(change.new), STRING.serialize(change.old), record.timestamp, record.headers or None)
            for key, change, record in changes
            if isinstance(change, Change)
        ]


class _Step:
    def __init__(self, *, sends_old: bool, caching: bool, forwards_last: bool) -> None:
        self._caching = caching
        self.stores = MemoryStores(TASK)
        self.node = NodeSpec(
            name=TABLE, subtopology=0, operation=TableSource("rows"), key_serde=STRING, value_serde=STRING, out_key_serde=STRING,
            out_value_serde=STRING, inline=(), tag=1, topics=("in",), sends_old=sends_old, forwards_last=forwards_last,
        )
        self.dropped = 0
        self.logged: dict[bytes, Logged] = {}

    def batch(self, given: list[Given]) -> list[Forwarded]:
        store = StoreSpec(
            name="rows", tag=9, subtopology=0, changelog="c", timestamped=True, persistent=True, logged=True, key_serde=STRING,
            value_serde=STRING, caching=self._caching,
        )
        state, places = StepState({TASK: self.stores}, {"rows": store}), [*range(len(given))]
        keys, values, timestamps = ([one[side] for one in given] for side in range(3))
        records = Records([0] * len(given), keys, values, timestamps, places, places, [_headers(at) for at in places])
        out = run_on_records(self.node, records, state)
        self.dropped += state.dropped
        self.logged = {}
        for written in state.written.values():
            values = {key: None if row is None else row[8:] for key, row in written.rows.items()}
            self.logged = {key: (value, written.timestamps[key]) for key, value in values.items()}
            self.stores.apply({"rows": written.rows}, {})
        assert out.sequences == sorted(out.sequences)
        olds = [None] * len(out) if out.olds is None else out.olds
        return list(zip(out.keys, out.values, olds, out.timestamps, out.headers or (), strict=True))


@pytest.mark.parametrize("sends_old", [False, True])
@pytest.mark.parametrize(("caching", "needs_each"), [(False, False), (True, False), (True, True)])
def test_a_table_s_step_forwards_and_logs_what_its_operator_does(caching: bool, needs_each: bool, sends_old: bool) -> None:
    chance = random.Random(f"{caching} {needs_each} {sends_old}")
    operators = _Operators(_topology(sends_old=sends_old, caching=caching, needs_each=needs_each))
    step = _Step(sends_old=sends_old, caching=caching, forwards_last=caching and not needs_each)
    forwarded = given = 0
    for _ in range(40):
        batch: list[Given] = [
            (
                None if chance.random() < 0.05 else f"k{chance.randrange(8)}".encode(),
                None if chance.random() < 0.5 else f"v{chance.randrange(100)}".encode(),
                chance.randrange(1000),
            )
            for _ in range(chance.choice([1, 3, 30]))
        ]
        found = step.batch(batch)
        assert found == operators.batch(batch)
        assert step.logged == operators.logged
        forwarded, given = forwarded + len(found), given + len(batch)
    assert step.dropped == operators.graph.dropped > 0
    kept = given - step.dropped
    if needs_each:
        assert kept / 2 < forwarded < kept
    else:
        assert forwarded < kept / 2 if caching else forwarded == kept

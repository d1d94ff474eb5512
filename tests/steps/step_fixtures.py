"""A last step without Spark, broker or disk: specs by hand, stores in memory, an output that remembers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.steps.memory_stores import MemoryStores
from tidemill.dsl.serdes import Serdes
from tidemill.errors import BatchLostError
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.rows.order import sequence
from tidemill.steps.rows.packed_rows import PACKED_SCHEMA, packed
from tidemill.steps.rows.schema import CHANGELOG, CHUNK, MARKER, SCHEMA
from tidemill.steps.step_spec import NodeSpec, Origin, SinkSpec, StepSpec, StoreSpec
from tidemill.task.batch import BatchReport, BatchRequest, CommittingMember, Marker, Positions, TaskRun
from tidemill.task.commit import CommitStep
from tidemill.task.message_pack import pack
from tidemill.task.partition_time import PartitionTime, Times
from tidemill.task.raw_records import RecordColumns
from tidemill.topology.operations import Count, Operation

INPUT = TopicPartition("app-counts-repartition", 0)
COUNT_TAG, SINK_TAG = 7, 9
TASK = TaskId(1, 0)


def count_spec(operation: Operation | None = None, value_serde: Any = None) -> StepSpec:
    stored = Serdes.long() if operation is None else value_serde
    return StepSpec(
        number=1,
        last=True,
        nodes={
            COUNT_TAG: NodeSpec(
                name="COUNT",
                subtopology=1,
                operation=operation or Count("counts"),
                key_serde=Serdes.string(),
                value_serde=value_serde,
                out_key_serde=Serdes.string(),
                out_value_serde=stored,
                inline=("SINK",),
                tag=None,
            )
        },
        sinks={
            SINK_TAG: SinkSpec(name="SINK", topic="out", key_serde=Serdes.string(), value_serde=stored),
        },
        stores={
            "counts": StoreSpec(
                name="counts",
                tag=CHANGELOG,
                subtopology=1,
                changelog="app-counts-changelog",
                timestamped=True,
                persistent=True,
                logged=True,
                key_serde=Serdes.string(),
                value_serde=stored,
            )
        },
        sources={0: Origin(subtopology=0, topics=("in",), node="source")},
    )


def counts_stores() -> MemoryStores:
    """The task's, with nothing counted yet."""
    return MemoryStores(TASK, {"counts": {}})


@dataclass
class MemoryOutput:
    """What a broker would hold: committed transactions only."""

    committed: list[tuple[str, bytes | None, bytes | None, int]] = field(default_factory=list)
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    times: dict[TopicPartition, PartitionTime] = field(default_factory=dict)
    open: list[tuple[str, bytes | None, bytes | None, int]] | None = None
    aborted: int = 0
    fails: Exception | None = None
    is_transactional: bool = True
    flushed: list[tuple[str, bytes | None, bytes | None, int]] = field(default_factory=list)
    """What had been written when the batch was flushed for its changelogs."""
    written: list[tuple[str, bytes | None, bytes | None, int]] = field(default_factory=list)
    """By the batch, whether it was committed or not."""
    refuses_to_flush: Exception | None = None
    logged: dict[TopicPartition, int] = field(default_factory=dict)
    pending: dict[TopicPartition, int] = field(default_factory=dict)
    counts: Counter[TopicPartition] = field(default_factory=Counter)
    """How many records the batch has written."""

    def prepare(self) -> None: ...

    def begin(self) -> None:
        self.open, self.pending, self.counts = [], {}, Counter()

    def produce(self, topic: str, records: RecordColumns) -> None:
        assert self.open is not None
        rows = zip(records.keys, records.values, records.timestamps, strict=True)
        self.open += [(topic, key, value, timestamp) for key, value, timestamp in rows]
        self.written = list(self.open)
        for partition in records.partitions or ():
            tp = TopicPartition(topic, partition)
            self.pending[tp] = self.pending.get(tp, self.logged.get(tp, 0)) + 1
            self.counts[tp] += 1

    def flush(self) -> None:
        assert self.open is not None
        self.flushed = list(self.open)
        if self.refuses_to_flush is not None:
            raise self.refuses_to_flush

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        assert self.open is not None
        if self.fails is not None:
            self.open = None
            raise self.fails
        self.committed += self.open
        self.offsets.update(offsets)
        self.times.update({tp: times[tp] for tp in offsets if tp in times})
        self.logged.update(self.pending)
        self.open = None
        return dict(self.pending)

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        return position + self.counts[changelog] == self.logged[changelog]

    def partitions_of(self, topic: str) -> int:
        return 1

    def abort(self) -> None:
        if self.open is not None:
            self.aborted += 1
            self.open = None


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Context:
    """A worker. ``crash_at``: dies when it has reached this step."""

    stores: MemoryStores = field(default_factory=counts_stores)
    output: MemoryOutput = field(default_factory=MemoryOutput)
    continuity: dict[TopicPartition, int] = field(default_factory=dict)
    graphs: KeptGraphs = field(default_factory=KeptGraphs)
    unreadable: Unreadable = field(
        default_factory=lambda: Unreadable(handler=ExceptionResponse.FAIL, topic=None, expected={0: "a long"})
    )
    now: BatchRequest | None = None
    incarnation: int = 0
    may_commit: bool = True
    confirmed_for_s: Iterator[float] = field(default_factory=lambda: itertools.repeat(math.inf))
    """Of the group's answers; with the last one it has forgotten the member."""
    crash_at: CommitStep | None = None

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, MemoryStores]:
        return {run.task: self.stores for run in runs}

    def membership(self) -> CommittingMember:
        left_s = next(self.confirmed_for_s, None)
        return CommittingMember(
            generation=1, member_id="m", instance_id=None, incarnation=self.incarnation,
            may_commit=self.may_commit and left_s is not None, confirmed_for_s=left_s or 0.0,
        )  # fmt: skip

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {tp: self.output.offsets[tp] for tp in partitions if tp in self.output.offsets}

    def reached(self, step: CommitStep, batch_id: int) -> None:
        if step is self.crash_at:
            raise Crash(step.name)

    def run(self, held: Sequence[Mapping[str, Any]], start: int = 0, spec: StepSpec | None = None, **marker: Any) -> BatchReport:
        """One batch of these rows that begins at ``start``; ``marker`` overrides what the source says."""
        self.now = BatchRequest(
            batch_id=1, inputs={INPUT: start}, tasks=(TaskRun(task=TASK, directory="d", epoch="e"),), incarnation=0
        )
        return self.take(batch(held, start, **marker), spec)

    def take(self, batches: Sequence[pa.RecordBatch], spec: StepSpec | None = None) -> BatchReport:
        assert self.now is not None
        return run_last_step(self.now, batches, spec or count_spec(), self)


def word(key: str | None, offset: int, n: int | None = None, **columns: Any) -> dict[str, Any]:
    """A row that waits for the count."""
    key_bytes = None if key is None else key.encode()
    row = {"node": COUNT_TAG, "part": 0, "off": offset, "seq": sequence(offset, 0), "ts": 100 + offset, "key": key_bytes, "n": n}
    return {**row, **columns}


def packed_record(**record: Any) -> dict[str, Any]:
    """The row of a changelog record for the first store; ``record``: columns of ``PACKED_SCHEMA``."""
    [value] = packed(pa.RecordBatch.from_pylist([record], PACKED_SCHEMA))
    return {"node": CHANGELOG, "part": -1, "off": 0, "seq": 0, "ts": 0, "value": value}


def rows_batch(rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in SCHEMA.names} for row in rows], schema=SCHEMA)


def batch(held: Sequence[Mapping[str, Any]], start: int, **marker: Any) -> list[pa.RecordBatch]:
    """The batch as the source step sends it: one chunk and the marker."""
    end = start + len(held)
    said = {
        "batch_id": 1,
        "starts": {INPUT: start},
        "ends": {INPUT: end},
        "changelog_ends": {},
        "chunks": 1,
        "rows": len(held),
        **marker,
    }
    text = pack(Marker(**said))
    return [
        rows_batch([*held, {"node": CHUNK, "part": -1, "off": 0, "seq": 0, "ts": len(held)}]),
        rows_batch([{"node": MARKER, "part": -1, "off": 1, "seq": 0, "ts": 0, "value": text}]),
    ]


LOST = BatchLostError("the broker went away")

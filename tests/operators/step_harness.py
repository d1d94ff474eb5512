"""Runs programs of plain Python functions through the very steps of a worker, with no JVM and no broker, in batches.

Source step, Python steps and commit are the real ones; what stands around them is in memory: a reader that hands out given
records, stores as sorted rows, an output that remembers. Records of repartition topics are read again in batches of their
own, in the order in which they were sent, before the next input. All inputs are of one partition, 0 if nothing else is said.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.operators.harness import Case, Program, WaitingTopics, outputs_of, topology_of
from tests.operators.vector_values import writer
from tests.steps.memory_stores import MemoryStores
from tidemill import Serdes
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.operators.stores import store_of
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.spark.plan.compiled_topology import CompiledTopology, compile_topology
from tidemill.steps.commit.restored import restored_writes
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.middle_step import run_middle_step
from tidemill.steps.rows.headers import packed
from tidemill.steps.rows.records import ANY_PARTITION
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_state import Written
from tidemill.task.batch import (
    BatchReport,
    BatchRequest,
    CommittingMember,
    Outcome,
    Positions,
    TaskRun,
    times_after,
)
from tidemill.task.batch_id import BatchId
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import PartitionTime, Times, from_metadata, keeping, metadata_of
from tidemill.task.raw_records import RecordColumns
from tidemill.testing.topics import RawRecord
from tidemill.testing.worker import GivenReader, KeptOutput, Message
from tidemill.topology.graph import subtopologies
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Topology

APPLICATION = "app"
Written6 = tuple[str, "bytes | None", "bytes | None", int, Any, int]


@dataclass(frozen=True)
class SortedRows:
    """The rows of a store, to be looked at."""

    rows: Mapping[bytes, bytes]

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.rows.items())


class PartitionReader(GivenReader):
    """Hands out the records of one partition."""

    def __init__(self, records: Sequence[RawRecord], partition: int) -> None:
        super().__init__(records)
        self._partition = partition

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[Any]]]:
        messages = []
        for record in self._records:
            tp = TopicPartition(record.topic, self._partition)
            messages.append(PartitionMessage(record, self._ends[tp], self._partition))
            self._ends[tp] += 1
        if messages:
            yield False, messages


class PartitionMessage(Message):
    def __init__(self, record: RawRecord, offset: int, partition: int) -> None:
        super().__init__(record, offset)
        self._partition = partition

    def partition(self) -> int:
        return self._partition


class PlacedOutput(KeptOutput):
    """Remembers partitions, too: topic, key and what the producer was given, None where it is to choose. ``partitions``: how
    many each topic has."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self._partitions = partitions
        self.committed: dict[TopicPartition, str] = {}
        """The metadata of committed offsets."""
        self.placed: list[tuple[str, bytes | None, int | None]] = []

    def produce(self, topic: str, records: RecordColumns) -> None:
        super().produce(topic, records)
        given = records.partitions
        chosen = [None] * len(records) if given is None else [None if to == ANY_PARTITION else to for to in given]
        self.placed += [(topic, key, to) for key, to in zip(records.keys, chosen, strict=True)]

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        self.committed |= {tp: metadata_of(times.get(tp, PartitionTime())) for tp in offsets}
        return super().commit(offsets, times, membership)

    def partitions_of(self, topic: str) -> int:
        return self._partitions


@dataclass
class Worker:
    """What a step needs from outside."""

    stores: dict[TaskId, MemoryStores]
    output: PlacedOutput = field(default_factory=lambda: PlacedOutput(1))
    continuity: dict[TopicPartition, int] = field(default_factory=dict)
    graphs: KeptGraphs = field(default_factory=KeptGraphs)
    unreadable: Unreadable = field(default_factory=lambda: Unreadable(handler=ExceptionResponse.FAIL, topic=None, expected={}))
    handed_over: list[tuple[str, pa.Table]] = field(default_factory=list)
    may_commit: bool = True

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, MemoryStores]:
        return {run.task: self.stores.setdefault(run.task, MemoryStores(run.task)) for run in runs}

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=1, member_id="m", instance_id=None, incarnation=0, may_commit=self.may_commit)

    def committed(self, partitions: Any) -> Mapping[TopicPartition, int]:
        return {}

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        self.handed_over.append((node, rows))

    def reached(self, step: CommitStep, batch_id: int) -> None: ...


def set_emit_interval(compiled: CompiledTopology, emit_interval_ms: int) -> None:
    """What Kafka Streams has an internal setting for, with which answers were recorded."""
    compiled.steps = tuple(
        replace(step, graphs=tuple(replace(graph, emit_interval_ms=emit_interval_ms) for graph in step.graphs))
        for step in compiled.steps
    )


def mixes_waiting_records(topology: Topology) -> bool:
    """Records that have waited in a repartition topic meet others that have not, or global tables are read ahead: batches
    decide which come first."""
    parts = subtopologies(topology, APPLICATION)
    return bool(global_topics(topology)) or any(len(p.source_topics) > 1 and p.repartition_source_topics for p in parts)


class StepRun:
    """A topology that runs in batches; has what ``harness.compare`` asks for."""

    def __init__(
        self, topology: Topology, wall_clock: int = 0, emit_interval_ms: int = 0, *, partition: int = 0, partitions: int = 1
    ) -> None:
        self.topology = topology
        self._partition = partition
        default_serdes = KeyValueSerdes(key=Serdes.string(), value=Serdes.string())
        self.compiled = compile_topology(None, topology, APPLICATION, default_serdes=default_serdes)
        set_emit_interval(self.compiled, emit_interval_ms)
        self._parts = subtopologies(topology, APPLICATION)
        self._internal = {topic for part in self._parts for topic in part.repartition_source_topics}
        self._globals = global_topics(topology)
        topics = [*self._globals, *(topic for part in self._parts for topic in part.source_topics)]
        self.positions = {TopicPartition(topic, partition): 0 for topic in topics}
        self.stores: dict[TaskId, MemoryStores] = {}
        self.workers = [Worker(self.stores, PlacedOutput(partitions)) for _ in self.compiled.steps]
        self._batch = 0
        self.times: Times = {}
        """How far each input has come; emptied by who wants it unknown."""
        self.wall_clock = wall_clock
        self.epoch, self.demotions = "e", 0
        self.follows: int | None = None
        """What the next batch follows, if not the one before it."""
        self.written: list[Written6] = []
        self.logged: list[Written6] = []
        self.dropped = 0
        self.graph = self  # where the harness looks for stores

    @property
    def rows(self) -> Mapping[str, SortedRows]:
        """The rows of all stores, as the harness of task graphs has them."""
        of_store = {name: TaskId(spec.subtopology, self._partition) for name, spec in self.compiled.steps[-1].stores.items()}
        return {name: SortedRows(dict(self.stores[task].scan(name))) for name, task in of_store.items() if task in self.stores}

    @property
    def placed(self) -> list[tuple[str, bytes | None, int | None]]:
        """Topic, key and partition of all that was sent, changelogs included; None where the producer is to choose."""
        return self.workers[-1].output.placed

    @property
    def handed_over(self) -> list[tuple[str, pa.Table]]:
        """What functions of ``foreach_batch`` got: node and rows."""
        return self.workers[-1].handed_over

    def store(self, name: str) -> Any:
        """A store as operators see it, as of now."""
        last = self.compiled.steps[-1]
        if name not in last.stores:
            shared = self.workers[-1].graphs.shared.rows(name)
            described = next(graph.topology.stores[name] for graph in last.graphs if graph.is_global)
            return store_of(described, shared, KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))
        spec = last.stores[name]
        rows = TaskRows(name, logged=False)
        task = TaskId(spec.subtopology, self._partition)
        rows.begin(self.stores.setdefault(task, MemoryStores(task)), Written())
        return store_of(spec.kept or self.topology.stores[name], rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.string()))

    def pipe(self, records: Sequence[tuple[Any, ...]], *, one_by_one: bool = False) -> None:
        """The records in one batch, then what goes through repartition topics: all that waits, or the oldest first."""
        self.run_at(records, self.wall_clock)
        waiting = WaitingTopics()
        while True:
            made = [record for held in self.take_internal().values() for record in held]
            for record in made if one_by_one else ():
                waiting.add(record)
            again = [waiting.take()] if waiting else [] if one_by_one else made
            if not again:
                return
            self.run_at(again, self.wall_clock)

    def run_batch(self, records: Sequence[tuple[Any, ...]]) -> BatchReport:
        """The records in one batch; what it sends to repartition topics is left to ``take_internal``."""
        return self.run_at(records, self.wall_clock)

    def restore(self, changelogs: Mapping[str, tuple[bytes, bytes | None, int]]) -> None:
        """Brings a record of each changelog into its store."""
        last = self.compiled.steps[-1]
        for topic, (key, value, timestamp) in changelogs.items():
            store = next(spec for spec in last.stores.values() if spec.changelog == topic)
            task = TaskId(store.subtopology, self._partition)
            rows = self.stores.setdefault(task, MemoryStores(task))
            columns: dict[str, Any] = {
                "node": store.tag, "part": self._partition, "off": 0, "ts": timestamp, "key": key, "value": value,
            }  # fmt: skip
            table = pa.Table.from_pylist([{name: columns.get(name) for name in SCHEMA.names}], schema=SCHEMA)
            _, found = restored_writes(table, store, {task: rows})[task]
            rows.apply({store.name: found}, {})

    def restore_all(self, sizes: Iterator[int]) -> None:
        """Empties all stores that have a changelog and restores them from it, so many records at a time, as new owners of the
        tasks do: they have the committed offsets besides."""
        last = self.compiled.steps[-1]
        self.times = {tp: from_metadata(text)[0] for tp, text in self.workers[-1].output.committed.items()}
        for store in last.stores.values():
            if store.changelog is None:
                continue
            task = TaskId(store.subtopology, self._partition)
            rows = self.stores.setdefault(task, MemoryStores(task))
            rows.empty(store.name)
            at_store = {"node": store.tag, "part": self._partition}
            log = [
                {**at_store, "off": at, "ts": timestamp, "key": key, "value": value, "headers": packed(headers)}
                for at, (_, key, value, timestamp, headers, _) in enumerate(r for r in self.logged if r[0] == store.changelog)
            ]
            while log:
                size = next(sizes)
                full = [{name: columns.get(name) for name in SCHEMA.names} for columns in log[:size]]
                _, found = restored_writes(pa.Table.from_pylist(full, schema=SCHEMA), store, {task: rows})[task]
                rows.apply({store.name: found}, {})
                log = log[size:]

    def replace_workers(self) -> None:
        """Others take their places, as after a crash: they find the stores, and nothing else."""
        self.workers = [Worker(self.stores, worker.output) for worker in self.workers]

    def lose(self, records: Sequence[tuple[Any, ...]]) -> None:
        """Runs a batch that does not count, since the group has moved on when it is to be committed."""
        positions, times, batch = self.positions, self.times, self._batch
        for worker in self.workers:
            worker.may_commit = False
        try:
            self.run_at(records, self.wall_clock, expected=Outcome.FENCED)
        finally:
            self.positions, self.times, self.follows = positions, times, batch
            for worker in self.workers:
                worker.may_commit = True
                worker.output.sent = []
                worker.continuity.clear()

    def advance_wall_clock(self, by_ms: int, *, one_by_one: bool = False) -> None:
        self.wall_clock += by_ms
        self.pipe([], one_by_one=one_by_one)

    def take_internal(self) -> dict[str, deque[Any]]:
        """What was sent to repartition topics since the last call, by topic."""
        found: dict[str, deque[Any]] = {}
        for topic, key, value, timestamp, headers, _ in self.written[self._seen :]:
            if topic in self._internal:
                found.setdefault(topic, deque()).append((topic, key, value, timestamp, headers))
        self._seen = len(self.written)
        return {topic: deque((t, k, v, ts, h) for t, k, v, ts, h in held) for topic, held in found.items()}

    _seen = 0

    def run_at(
        self, records: Sequence[tuple[Any, ...]], now_ms: int, expected: Outcome = Outcome.COMMITTED
    ) -> BatchReport:
        """Runs one micro-batch at this wall-clock time, in ms."""
        self._batch += 1
        request = BatchRequest(
            batch_id=self._batch,
            inputs={tp: at for tp, at in self.positions.items() if tp.topic not in self._globals},
            globals={tp: at for tp, at in self.positions.items() if tp.topic in self._globals},
            reset_globals=self._batch == 1,
            internal=frozenset(self._internal),
            tasks=tuple(
                TaskRun(task=TaskId(part.id, self._partition), directory="", epoch=self.epoch, demotions=self.demotions)
                for part in self._parts
                if part.state_stores and not part.is_global
            ),
            now_ms=now_ms,
            last_committed_batch=self._batch - 1 if self.follows is None else self.follows,
            times=self.times,
        )
        self.follows = None
        reader = PartitionReader([RawRecord(*record) for record in records], self._partition)
        rows: Any = list(source_rows(reader, request, self.compiled.source))
        self.positions = {**reader.ends()[0], **reader.global_ends()}
        for worker, spec in zip(self.workers[:-1], self.compiled.steps[:-1], strict=True):
            rows = list(run_middle_step(request, rows, spec, worker))
        report = run_last_step(request, rows, self.compiled.steps[-1], self.workers[-1])
        if report.outcome is not Outcome.COMMITTED:
            assert report.outcome is expected, f"{report.outcome.value}: {report.message}"
            return report
        stats = {tp: found for tp, found in report.partition_stats.items() if tp.topic not in self._globals}
        self.times = times_after(self.times, stats)
        for part in self._parts:
            inputs = [TopicPartition(topic, self._partition) for topic in part.source_topics]
            self.times = keeping(self.times, inputs, report.emitted.get(TaskId(part.id, self._partition), {}))
        self.dropped += report.dropped
        output = self.workers[-1].output
        changelogs = {spec.changelog for spec in self.compiled.steps[-1].stores.values()}
        for sent in output.sent:
            made = (sent.topic, sent.key, sent.value, sent.timestamp, sent.headers, self._batch)
            (self.logged if sent.topic in changelogs else self.written).append(made)
        output.sent = []
        return report


def run_in_steps(program: Program, case: Case, sizes: Iterator[int]) -> StepRun:
    """Pipes all inputs of a case through a program's steps in batches of ``sizes``; the wall clock ends a batch."""
    config = case["config"]
    run = StepRun(topology_of(program, config), config["wall_clock_start_ms"], config["emit_interval_ms"])
    batch: list[tuple[Any, ...]] = []
    size = next(sizes)
    alone = size == 1
    for given in case["inputs"]:
        if "advance_wall_clock_ms" in given:
            run.pipe(batch, one_by_one=alone)
            batch = []
            run.advance_wall_clock(given["advance_wall_clock_ms"], one_by_one=alone)
            continue
        batch.append(_record(given, case))
        if len(batch) >= size:
            run.pipe(batch, one_by_one=alone)
            batch, size = [], next(sizes)
    run.pipe(batch, one_by_one=alone)
    return run


def _record(given: dict[str, Any], case: Case) -> tuple[Any, ...]:
    kinds = case["serdes"]["inputs"].get(given["topic"], {"key": "String", "value": "String"})
    headers = tuple((name, text.encode()) for name, text in given.get("headers", {}).items())
    return (
        given["topic"], writer(kinds["key"])(given["key"]), writer(kinds["value"])(given["value"]), given["timestamp"], headers,
    )  # fmt: skip


def outputs(run: StepRun, case: Case) -> dict[str, list[dict[str, Any]]]:
    """What the run sent to the case's output topics, without what caused it."""
    found = outputs_of(run, case)  # type: ignore[arg-type]
    return {topic: [{k: v for k, v in record.items() if k != "at"} for record in records] for topic, records in found.items()}

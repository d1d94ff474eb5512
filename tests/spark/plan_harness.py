"""Programs run on their real Spark plans without a broker: topics are lists, the last step's output is collected.

The plan is the one that an application executes; only what lies beyond Kafka's clients is replaced: the reader hands
out the given records, and the report row carries what was committed.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tests.operators.step_harness import set_emit_interval
from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.runtime.worker.read_stores import ReadTasks
from tidemill.runtime.worker.task_store import OpenTasks
from tidemill.runtime.worker.worker import run_of_task
from tidemill.spark.engine import BatchEngine
from tidemill.spark.plan.compiled_topology import CompiledTopology, compile_topology
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.micro_batch_rows import micro_batches, source_run, step_run
from tidemill.steps.middle_step import run_middle_step
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_context import TaskStore
from tidemill.steps.step_spec import SourceSpec, StepSpec
from tidemill.task.batch import (
    BatchReport,
    BatchRequest,
    CommittingMember,
    Outcome,
    Positions,
    TaskRun,
    times_after,
)
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import Times
from tidemill.testing.driver_service import THREAD, shared_driver_service
from tidemill.testing.topics import RawRecord, data, from_json, text, to_json
from tidemill.testing.worker import GivenReader, KeptOutput, Place, control_of
from tidemill.topology.graph import subtopologies
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Topology

APPLICATION = "app"


@dataclass(frozen=True)
class Record:
    """A record of a topic's only partition."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


class WorkerContext:
    """Kept in the worker's process; ``address`` is a file that holds the batch's records."""

    def __init__(self, address: str, spec: StepSpec | None, handler: str, sources: Mapping[int, str]) -> None:
        self._address = address
        self.tasks = None if spec is None else OpenTasks(spec.stores) if spec.last else ReadTasks(spec.stores)
        self.output = KeptOutput()
        self.continuity: dict[TopicPartition, int] = {}
        self.graphs = KeptGraphs()
        self.unreadable = Unreadable(handler=ExceptionResponse(handler), topic="dead-letters", expected=sources)

    def records(self) -> list[RawRecord]:
        with open(self._address) as file:
            return [from_json(row) for row in json.load(file)["records"]]

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, TaskStore]:
        assert self.tasks is not None
        return self.tasks.open(runs)

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=1, member_id="m", instance_id=None, incarnation=0, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {}

    def reached(self, step: CommitStep, batch_id: int) -> None: ...


def _context(
    address: str, step: str, spec: StepSpec | None = None, handler: str = "fail", sources: Mapping[int, str] | None = None
) -> WorkerContext:
    place = sys.modules.setdefault("plan_harness_kept", ModuleType("kept"))  # outlives a task
    kept: dict[tuple[str, str], tuple[int, WorkerContext]] = place.__dict__.setdefault("by", {})
    with open(address) as file:
        run = json.load(file)["run"]
    if (address, step) not in kept or kept[address, step][0] != run:
        kept[address, step] = run, WorkerContext(address, spec, handler, sources or {})
    return kept[address, step][1]


def source(place: Place, spec: SourceSpec, steps: int) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        number, is_standing = run_of_task()

        def rows_of(request: BatchRequest) -> Iterator[pa.RecordBatch]:
            return source_rows(GivenReader(_context(place.records, "source").records()), request, spec)

        asked = partial(control_of(place, "source", number).next_request, number)
        yield from source_run(asked, rows_of, is_standing=is_standing, steps=steps)

    return read


def step(
    place: Place, spec: StepSpec, handler: str, sources: Mapping[int, str], steps: int
) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    name = f"step-{spec.number}"

    def context() -> WorkerContext:
        return _context(place.records, name, spec, handler, sources)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, is_standing = run_of_task()
        control = control_of(place, name, number)
        if not spec.last:

            def middle(request: BatchRequest, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                return run_middle_step(request, rows, spec, context())

            served = partial(control.wait_served, number)
            yield from step_run(batches, middle, served, is_standing=is_standing, next_is_last=spec.number + 1 == steps)
            return
        for request, rows in micro_batches(batches):
            here = context()
            report = run_last_step(request, rows, spec, here)
            stores = [
                [str(task), name, text(key), text(value)]
                for task, held in here.open_stores(request.tasks).items()
                for name in spec.stores
                if spec.stores[name].subtopology == task.subtopology
                for key, value in held.scan(name)
            ]
            sent = [to_json(record) for record in here.output.sent]
            here.output.sent = []
            said = json.dumps({"said": report.message, "sent": sent, "stores": stores})
            control.report(number, replace(report, message=said))

    return run


class Program:
    """A compiled program on one session; every topic has one partition."""

    def __init__(
        self, session: SparkSession, topology: Topology, folder: Any, *, handler: str = "fail", presum: bool = True,
        default: Any = None, emit_interval_ms: int = 0,
    ) -> None:  # fmt: skip
        self.topology = topology
        self.compiled: CompiledTopology = compile_topology(
            session, topology, APPLICATION, presum=presum, default_serdes=KeyValueSerdes(key=default, value=default)
        )
        set_emit_interval(self.compiled, emit_interval_ms)
        self._folder = Path(tempfile.mkdtemp(prefix="program-", dir=folder))
        self._address = str(self._folder / "batch")
        expected = {
            i: f"a key of {e.key.name} and a value of {e.value.name}"
            for i, n in enumerate(topology.nodes)
            if (e := self.compiled.compiler.serdes.leaving.get(n)) is not None and e.value is not None
        }
        self._service, server = shared_driver_service()
        place, count = Place(records=self._address, server=server.address, key=server.key), len(self.compiled.steps)
        self.engine = BatchEngine(
            session,
            self.compiled,
            THREAD,  # all programs share the workers; each has a context of its own in them
            source(place, self.compiled.source, count),
            [step(place, s, handler, expected, count) for s in self.compiled.steps],
            limit_s=240,
        )
        self._parts = subtopologies(topology, APPLICATION)
        self._internal = {t for part in self._parts for t in part.repartition_source_topics}
        self._restarts = 0
        self._begin()

    def restart(self) -> None:
        """From the beginning on the same plan: nothing is kept."""
        self._restarts += 1
        self._begin()

    def _begin(self) -> None:
        self._globals = global_topics(self.topology)
        topics = [*self._globals, *(t for part in self._parts for t in part.source_topics)]
        self._positions = {TopicPartition(t, 0): 0 for t in topics}
        self._times: Times = {}
        self._batch = 0
        self.wall_clock: int | None = None
        """None: a second later at each batch."""
        self.outputs: dict[str, list[Record]] = {}
        self.stores: dict[str, dict[bytes, bytes]] = {}
        self.dropped = 0
        self.skipped = 0

    def pipe(self, records: Sequence[tuple[str, Record]]) -> BatchReport:
        """The records in one batch, in this order, and whatever goes through repartition topics in batches after it."""
        report = self._run(records)
        while again := [(t, r) for t in sorted(self._internal) for r in self.outputs.pop(t, [])]:
            report = self._run(again)
        return report

    def _run(self, records: Sequence[tuple[str, Record]]) -> BatchReport:
        self._batch += 1
        request = BatchRequest(
            batch_id=self._batch,
            inputs={tp: at for tp, at in self._positions.items() if tp.topic not in self._globals},
            globals={tp: at for tp, at in self._positions.items() if tp.topic in self._globals},
            reset_globals=self._batch == 1,
            tasks=tuple(
                TaskRun(task=TaskId(part.id, 0), directory=str(self._folder / f"{self._restarts}-{part.id}_0"), epoch="e")
                for part in self._parts
                if part.state_stores and not part.is_global
            ),
            now_ms=1_000 * self._batch if self.wall_clock is None else self.wall_clock,
            last_committed_batch=self._batch - 1,
            times=self._times,
        )
        rows = []
        for topic, record in records:
            rows.append(to_json(RawRecord(topic, record.key, record.value, record.timestamp, record.headers)))
            self._positions[TopicPartition(topic, 0)] += 1
        with open(self._address, "w") as file:
            json.dump({"run": self._restarts, "records": rows}, file)
        report = self._service.run(self.engine, request)
        carried = json.loads(report.message)
        if report.outcome is not Outcome.COMMITTED:
            raise AssertionError(f"{report.outcome}: {carried['said']}")
        stats = {tp: found for tp, found in report.partition_stats.items() if tp.topic not in self._globals}
        self._times = times_after(self._times, stats)
        for sent in map(from_json, carried["sent"]):
            record = Record(sent.key, sent.value, sent.timestamp, tuple((name, held or b"") for name, held in sent.headers))
            self.outputs.setdefault(sent.topic, []).append(record)
        self.stores = {}
        for _, name, key, value in carried["stores"]:
            self.stores.setdefault(name, {})[data(key) or b""] = data(value) or b""
        self.dropped += report.dropped
        self.skipped += report.skipped
        return report


__all__ = ["Program", "Record"]

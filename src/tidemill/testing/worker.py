"""Stand-ins for Kafka's clients in the workers of a driver's plan: given records in, a list out.

A batch's records come in a file, which the driver writes before it asks for the batch; what a batch sent goes back in another
one. Everything between is what an instance runs: source step, Python steps, stores.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType, ModuleType
from typing import Any

import pyarrow as pa

from tidemill.control.channel import ControlClient
from tidemill.documents import Document
from tidemill.ids import TaskId, TopicPartition
from tidemill.runtime.worker.read_stores import ReadTasks
from tidemill.runtime.worker.step_code import StepCode
from tidemill.runtime.worker.task_store import OpenTasks
from tidemill.runtime.worker.worker import run_of_task
from tidemill.steps.alignment import by_time
from tidemill.steps.commit.batch_file import write_batch
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.micro_batch_rows import micro_batches, source_run, step_run
from tidemill.steps.middle_step import run_middle_step
from tidemill.steps.source_step import source_rows
from tidemill.steps.step_context import TaskStore
from tidemill.steps.step_spec import SourceSpec, StepSpec, StoreSpec
from tidemill.task.batch import BatchRequest, CommittingMember, Positions, TaskRun
from tidemill.task.batch_id import BatchId
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import Times
from tidemill.task.raw_records import FetchedRecord, RecordColumns
from tidemill.testing.driver_service import THREAD
from tidemill.testing.topics import RawRecord, from_json, text, to_json

_KEPT = "tidemill_testing_kept"
"""A module that outlives a task: Spark unpickles the step's function for each."""


class Message:
    """A record as confluent-kafka shows it."""

    def __init__(self, record: RawRecord, offset: int) -> None:
        self._record, self._offset = record, offset

    def topic(self) -> str:
        return self._record.topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._record.key

    def value(self) -> bytes | None:
        return self._record.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._record.headers) or None

    def __len__(self) -> int:
        return len(self._record.value or b"")


class GivenReader:
    """Hands out one batch's records, from where the batch begins: in the order given, but where operators meet records of
    several topics, which may be what one batch sent to several repartition topics, by their times as in an instance."""

    is_full = False
    has_read_sources = True

    def __init__(self, records: Sequence[RawRecord], together: Mapping[str, int] = MappingProxyType({})) -> None:
        self._records, self._together = records, together

    def place(self, request: BatchRequest) -> None:
        self._ends = {**request.inputs, **request.globals}
        self._globals = request.globals

    def read(self, request: BatchRequest) -> Iterator[tuple[bool, Sequence[FetchedRecord]]]:
        del request
        messages = []
        for record in self._records:
            partition = TopicPartition(record.topic, 0)
            messages.append(Message(record, self._ends[partition]))
            self._ends[partition] += 1
        if messages:
            yield False, by_time(messages, self._together)

    def ends(self) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
        return {tp: at for tp, at in self._ends.items() if tp not in self._globals}, {}

    def global_ends(self) -> Mapping[TopicPartition, int]:
        return {tp: at for tp, at in self._ends.items() if tp in self._globals}

    def truncated(self) -> dict[TopicPartition, int]:
        return {}

    def out_of_range(self) -> tuple[TopicPartition, ...]:
        return ()

    def high_watermarks(self) -> Mapping[TopicPartition, int]:
        return {}


@dataclass(slots=True)
class KeptOutput:
    """Keeps what is sent."""

    sent: list[RawRecord] = field(default_factory=list)
    is_transactional: bool = True

    def prepare(self) -> None: ...

    def begin(self) -> None:
        self.sent = []

    def produce(self, topic: str, records: RecordColumns) -> None:
        for at, key in enumerate(records.keys):
            own = tuple(records.headers[at] or ()) if records.headers else ()
            self.sent.append(RawRecord(topic, key, records.values[at], records.timestamps[at], own))

    def flush(self) -> None: ...

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        del offsets, times, membership
        return {}

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        del changelog, position
        return True

    def partitions_of(self, topic: str) -> int:
        del topic
        return 1

    def abort(self) -> None:
        self.sent = []


def on_disk(stores: Mapping[str, StoreSpec]) -> Mapping[str, StoreSpec]:
    """Those of a driver, whose workers end when a function of Columns fails: no changelog would bring back those in memory."""
    return {name: replace(store, persistent=True) for name, store in stores.items()}


class _Worker:
    """One step of one driver, in the worker's process."""

    def __init__(
        self, address: str, control: ControlClient, spec: SourceSpec | StepSpec, unreadable: Unreadable
    ) -> None:
        self._address, self.control, self.spec = address, control, spec
        self._tasks: OpenTasks | ReadTasks | None = None
        if isinstance(spec, StepSpec):
            self._tasks = OpenTasks(on_disk(spec.stores)) if spec.last else ReadTasks(on_disk(spec.stores))
        self.output = KeptOutput()
        self.continuity: dict[TopicPartition, int] = {}
        self.handed_over: list[list[object]] = []
        """Node, file and batch id of what is for functions of ``foreach_batch``."""
        self.graphs = KeptGraphs(unreadable.handlers)
        self.unreadable = unreadable

    def records(self) -> list[RawRecord]:
        return [from_json(row) for row in self._batch()["records"]]

    def shown(self) -> list[list[str | None]]:
        """The rows of the global store that the batch asks for."""
        store = self._batch()["show"]
        if store is None:
            return []
        return [[text(key), text(row)] for key, row in self.graphs.shared.rows(store).scan()]

    def _batch(self) -> Document:
        with open(self._address, encoding="utf-8") as file:
            found: Document = json.load(file)
        return found

    def open_stores(self, runs: Sequence[TaskRun]) -> Mapping[TaskId, TaskStore]:
        assert self._tasks is not None
        return self._tasks.open(runs)

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=1, member_id="driver", instance_id=None, incarnation=0, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        del partitions
        return {}

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        del batch_id  # the driver has one batch under way
        path = f"{self._address}.{node}.parquet"
        write_batch(rows, path)
        self.handed_over.append([node, path, offsets.to_rows()])

    def reached(self, step: CommitStep, batch_id: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Place of a driver: the file of its batches' records, and the address of the server for its workers."""

    records: str
    server: str
    key: bytes = field(repr=False)


def write_sent(records: str, sent: Iterable[RawRecord]) -> None:
    """One line for each record, so that no text is as large as all of them. ``records``: the file of the batch's records."""
    with open(f"{records}.sent", "w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(to_json(record))}\n" for record in sent)


def read_sent(records: str) -> list[RawRecord]:
    """What the batch sent whose records are in this file."""
    with open(f"{records}.sent", encoding="utf-8") as file:
        return [from_json(json.loads(line)) for line in file]


def control_of(place: Place, step: str, run: int) -> ControlClient:
    """This process's end of the channel, one for all drivers."""
    clients: dict[tuple[str, str], ControlClient] = _kept_here().setdefault("clients", {})
    if (place.server, step) not in clients:
        clients[place.server, step] = ControlClient(place.server, place.key, THREAD, step, run)
    return clients[place.server, step]


def _kept_here() -> dict[str, Any]:
    return sys.modules.setdefault(_KEPT, ModuleType(_KEPT)).__dict__


def _kept(place: Place, code: StepCode, control: ControlClient) -> _Worker:
    workers: dict[tuple[str, str], _Worker] = _kept_here().setdefault("workers", {})
    if (place.records, code.step) not in workers:
        spec, unreadable = code.loaded()
        workers[place.records, code.step] = _Worker(place.records, control, spec, unreadable)
    return workers[place.records, code.step]


def _code(place: Place, step: str, spec: SourceSpec | StepSpec, unreadable: Unreadable) -> StepCode:
    return StepCode.of((spec, unreadable), address=place.server, key=place.key, thread=THREAD, step=step)


def source_of(
    place: Place, spec: SourceSpec, unreadable: Unreadable, steps: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The source step of a driver, with ``steps`` later steps."""

    code = _code(place, "source", spec, unreadable)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        number, is_standing = run_of_task()
        with (control := control_of(place, code.step, number)).leaving_on_failure(number):
            worker = _kept(place, code, control)

            def rows_of(request: BatchRequest) -> Iterator[pa.RecordBatch]:
                assert isinstance(worker.spec, SourceSpec)
                return source_rows(GivenReader(worker.records(), worker.spec.together), request, worker.spec)

            yield from source_run(partial(control.next_request, number), rows_of, is_standing=is_standing, steps=steps)

    return read


def step_of(
    place: Place, spec: StepSpec, unreadable: Unreadable, steps: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A Python step; the last one writes what was sent to the file that ``read_sent`` reads."""

    code = _code(place, f"step-{spec.number}", spec, unreadable)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number, is_standing = run_of_task()
        with (control := control_of(place, code.step, number)).leaving_on_failure(number):
            worker = _kept(place, code, control)
            spec = worker.spec
            assert isinstance(spec, StepSpec)
            if not spec.last:
                middle = partial(run_middle_step, spec=spec, context=worker)
                served, next_is_last = partial(worker.control.wait_served, number), spec.number + 1 == steps
                yield from step_run(batches, middle, served, is_standing=is_standing, next_is_last=next_is_last)
                return
            for request, rows in micro_batches(batches):
                report = run_last_step(request, rows, spec, worker)
                write_sent(place.records, worker.output.sent)
                found = {"said": report.message, "rows": worker.shown(), "handed_over": worker.handed_over}
                worker.output.sent, worker.handed_over = [], []
                worker.control.report(number, replace(report, message=json.dumps(found)))

    return run

"""What the driver, the source step and the commit step of one stream thread tell each other about a micro-batch.

Decides the values and their JSON (the control channel carries nothing else); who sends what when is the engine's and the
steps'. Invariant: every value here is complete in itself, so that a replaced worker needs no memory of earlier batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from tidemill.ids import TaskId, TopicPartition
from tidemill.task.partition_time import PartitionTime, Times

Positions = Mapping[TopicPartition, int]


class Outcome(Enum):
    """How a batch ended. Only COMMITTED moves the input positions."""

    COMMITTED = "committed"
    LOST = "lost"
    """Aborted or of unknown fate: read the committed offsets and start again there."""
    REFUSED = "refused"
    """The group counts another generation than the offsets were sent in, so the transaction was aborted before its commit:
    nothing of the batch counts, reader and stores stand where they did before it, and it is run again."""
    FENCED = "fenced"
    """The group or another producer has moved on: rejoin."""
    STOPPED = "stopped"
    """A record or a store makes going on impossible; the message says which."""


class Arrived(NamedTuple):
    """What was read of an input partition: records, and timestamps of those that have one."""

    records: int
    timed: int
    oldest_ms: int
    newest_ms: int
    sum_ms: int

    def plus(self, other: Arrived) -> Arrived:
        if not (self.timed and other.timed):
            times = self if self.timed else other
            return times._replace(records=self.records + other.records)
        return Arrived(
            self.records + other.records,
            self.timed + other.timed,
            min(self.oldest_ms, other.oldest_ms),
            max(self.newest_ms, other.newest_ms),
            self.sum_ms + other.sum_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A task in this batch: where its store is, who owns it, and where its stores stand.

    ``changelog``: per store the position that the driver knows; None while it knows none, so that the worker tells it.
    """

    task: TaskId
    directory: str
    epoch: str
    changelog: Mapping[str, int] | None = None
    wipe: bool = False
    """Empty the stores first: they can't be brought to the changelog's end."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Per store the id of its changelog topic, where it is known: a store that has followed another is emptied."""
    inspect: bool = False
    """Look through their whole files first: batches have failed in a way that broken files may cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoresAt:
    """Where a task's stores stand after a batch. ``note``: what had to be done to open them (wiped after a power cut ...)."""

    task: TaskId
    changelog: Mapping[str, int]
    is_behind: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """An input record on which a function of Columns raises: ``error``, the class of what it raised, and what that says."""

    topic: str
    partition: int
    offset: int
    error: str
    message: str

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the source step has handed over of a batch so far: input records, the first of them, and restored ones."""

    records: int = 0
    first: tuple[TopicPartition, int] | None = None
    ends: Positions = field(default_factory=dict)
    """Behind the last record of each input."""
    restored: int = 0
    has_run: bool = False
    """The functions are done with it, those of ``foreach_batch`` too; told of batches of one record only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """One micro-batch as the driver wants it.

    ``inputs`` and ``changelogs`` say where reading starts, per partition; a partition that is absent is not read.
    ``internal`` names the inputs that are repartition topics, which are read first (correctness.md, rule 24). ``changelogs``
    are those of active tasks that are being restored, ``standbys`` those of standby tasks; no record at or behind its
    partition's ``limits`` is taken of either.
    """

    batch_id: int
    inputs: Positions
    internal: frozenset[str] = frozenset()
    changelogs: Positions = field(default_factory=dict)
    standbys: Positions = field(default_factory=dict)
    limits: Positions = field(default_factory=dict)
    tasks: tuple[TaskRun, ...] = ()
    max_records: int = 100_000
    max_restore_records: int = 100_000
    max_standby_records: int = 20_000
    max_bytes: int = 64 << 20
    """Of all values; a batch is closed when it has as many, so it may hold some more."""
    max_inputs: int | None = None
    """After a failure: no more input records than these are taken, of all inputs together."""
    until: Positions = field(default_factory=dict)
    """If there are any: only records before these offsets are taken, of these inputs only."""
    refused: tuple[RefusedRecord, ...] = ()
    """Records that are not to be processed."""
    wait_ms: int = 100
    """A batch for which nothing comes is closed after it."""
    sources_rest_ms: int = 0
    """So long source topics are left alone; what comes of other topics meanwhile is a batch without them."""
    internal_rest_ms: int = 0
    """So long repartition topics are."""
    reads: bool = True
    """False: nothing is read, and what earlier batches have placed and fetched stays for the next one; there are no positions."""
    now_ms: int = 0
    incarnation: int = 0
    fences: int = 0
    """How often the driver has fenced the thread's own producer: one that a worker has from before is of no use any more."""
    follows: int = 0
    """The last batch that counted, 0 before the first: what workers keep in memory from another one is no longer true."""
    globals: Positions = field(default_factory=dict)
    """Where reading starts in the topics of global stores, all partitions of them."""
    globals_anew: bool = False
    """That is where they begin: what is held of them is to be forgotten."""
    times: Times = field(default_factory=dict)
    """The partition times of the inputs, where they are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The source's last row: proof that the batch is whole, and where it begins and ends (rules 1 and 3).

    ``changelog_ends``: of all changelogs that were read, whether for an active or a standby task.
    """

    batch_id: int
    starts: Positions
    ends: Positions
    changelog_ends: Positions
    chunks: int
    rows: int
    out_of_range: tuple[TopicPartition, ...] = ()
    high_watermarks: Positions = field(default_factory=dict)
    global_ends: Positions = field(default_factory=dict)
    arrived: Mapping[TopicPartition, Arrived] = field(default_factory=dict)
    is_full: bool = False
    """More is there, but the batch holds as many bytes as it may."""
    has_read_sources: bool = True
    """False: repartition topics alone, while source topics rested."""
    source_ms: Mapping[str, float] = field(default_factory=dict)
    """What the source step has spent on reading (waits and rests included), converting and handing on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What the last step says when it is done."""

    batch_id: int
    outcome: Outcome
    message: str = ""
    ends: Positions = field(default_factory=dict)
    changelog_ends: Positions = field(default_factory=dict)
    out_of_range: tuple[TopicPartition, ...] = ()
    high_watermarks: Positions = field(default_factory=dict)
    stores: tuple[StoresAt, ...] = ()
    """Of every task in the request; one that is behind must restore before it runs again."""
    records_in: int = 0
    records_restored: int = 0
    restored: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """The same by task and store, standbys included."""
    records_out: int = 0
    dropped: int = 0
    skipped: int = 0
    """Records that could not be read, processed or written, and that were passed over or put aside."""
    arrived: Mapping[TopicPartition, Arrived] = field(default_factory=dict)
    """What was read of each input."""
    written: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """How many keys of each task's stores were written."""
    globals: Positions = field(default_factory=dict)
    """Where the worker's global stores stand now, whatever became of the batch."""
    is_full: bool = False
    has_read_sources: bool = True
    source_ms: Mapping[str, float] = field(default_factory=dict)
    """As the marker says, all three."""
    is_misfit: bool = False
    """LOST for a reason that no broker or process can mend by coming back: what arrived does not fit together."""
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The group's word on this thread, read just before offsets are sent (rule 5)."""

    generation: int
    member_id: str
    instance_id: str | None
    incarnation: int
    may_commit: bool


def times_after(times: Times, arrived: Mapping[TopicPartition, Arrived]) -> dict[TopicPartition, PartitionTime]:
    """The partition times when what has arrived is taken."""
    after = dict(times)
    for tp, found in arrived.items():
        if found.timed:
            before = times.get(tp)
            if before is None or found.newest_ms > before.ms:
                after[tp] = PartitionTime(found.newest_ms, () if before is None else before.processors)
    return after


def positions_to_json(positions: Positions) -> list[list[Any]]:
    return [[tp.topic, tp.partition, offset] for tp, offset in positions.items()]


def positions_from_json(rows: list[list[Any]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for topic, partition, offset in rows}


def _arrived_to_json(arrived: Mapping[TopicPartition, Arrived]) -> list[list[Any]]:
    return [[*partition, *found] for partition, found in arrived.items()]


def _arrived_from_json(rows: list[list[Any]]) -> dict[TopicPartition, Arrived]:
    return {TopicPartition(*row[:2]): Arrived(*row[2:]) for row in rows}


def _partitions_from_json(rows: list[list[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, partition) for topic, partition in rows)


def request_to_json(request: BatchRequest) -> str:
    return json.dumps(
        {
            "batch_id": request.batch_id,
            "inputs": positions_to_json(request.inputs),
            "internal": sorted(request.internal),
            "changelogs": positions_to_json(request.changelogs),
            "standbys": positions_to_json(request.standbys),
            "limits": positions_to_json(request.limits),
            "tasks": [
                {
                    "task": str(run.task),
                    "directory": run.directory,
                    "epoch": run.epoch,
                    "changelog": None if run.changelog is None else dict(run.changelog),
                    "wipe": run.wipe,
                    "topic_ids": dict(run.topic_ids),
                    "inspect": run.inspect,
                }
                for run in request.tasks
            ],
            "max_records": request.max_records,
            "max_restore_records": request.max_restore_records,
            "max_standby_records": request.max_standby_records,
            "max_bytes": request.max_bytes,
            "max_inputs": request.max_inputs,
            "until": positions_to_json(request.until),
            "refused": [[r.topic, r.partition, r.offset, r.error, r.message] for r in request.refused],
            "wait_ms": request.wait_ms,
            "sources_rest_ms": request.sources_rest_ms,
            "internal_rest_ms": request.internal_rest_ms,
            "reads": request.reads,
            "now_ms": request.now_ms,
            "incarnation": request.incarnation,
            "fences": request.fences,
            "follows": request.follows,
            "globals": positions_to_json(request.globals),
            "globals_anew": request.globals_anew,
            "times": [(*tp, *time) if time.processors else (*tp, time.ms) for tp, time in request.times.items()],
        }
    )


def request_from_json(text: str | bytes) -> BatchRequest:
    fields = json.loads(text)
    for name in ("inputs", "changelogs", "standbys", "limits", "globals", "until"):
        fields[name] = positions_from_json(fields[name])
    fields["internal"] = frozenset(fields["internal"])
    fields["times"] = {TopicPartition(row[0], row[1]): _time_from_json(*row[2:]) for row in fields["times"]}
    fields["tasks"] = tuple(TaskRun(**{**run, "task": TaskId.parse(run["task"])}) for run in fields["tasks"])
    fields["refused"] = tuple(
        RefusedRecord(topic=topic, partition=partition, offset=offset, error=error, message=message)
        for topic, partition, offset, error, message in fields["refused"]
    )
    return BatchRequest(**fields)


def _time_from_json(ms: int, processors: Iterable[tuple[str, int]] = ()) -> PartitionTime:
    return PartitionTime(ms, tuple((name, value) for name, value in processors))


def taken_to_json(taken: Taken) -> dict[str, Any]:
    return {
        "records": taken.records,
        "first": None if taken.first is None else [*taken.first[0], taken.first[1]],
        "ends": positions_to_json(taken.ends),
        "restored": taken.restored,
    }


def taken_from_json(fields: Mapping[str, Any]) -> Taken:
    first = fields["first"]
    return Taken(
        records=fields["records"],
        first=None if first is None else (TopicPartition(first[0], first[1]), first[2]),
        ends=positions_from_json(fields["ends"]),
        restored=fields["restored"],
    )


def marker_to_json(marker: Marker) -> str:
    return json.dumps(
        {
            "batch_id": marker.batch_id,
            "starts": positions_to_json(marker.starts),
            "ends": positions_to_json(marker.ends),
            "changelog_ends": positions_to_json(marker.changelog_ends),
            "chunks": marker.chunks,
            "rows": marker.rows,
            "out_of_range": [list(tp) for tp in marker.out_of_range],
            "high_watermarks": positions_to_json(marker.high_watermarks),
            "global_ends": positions_to_json(marker.global_ends),
            "arrived": _arrived_to_json(marker.arrived),
            "is_full": marker.is_full,
            "has_read_sources": marker.has_read_sources,
            "source_ms": dict(marker.source_ms),
        }
    )


def marker_from_json(text: str | bytes) -> Marker:
    fields = json.loads(text)
    for name in ("starts", "ends", "changelog_ends", "high_watermarks", "global_ends"):
        fields[name] = positions_from_json(fields[name])
    fields["out_of_range"] = _partitions_from_json(fields["out_of_range"])
    fields["arrived"] = _arrived_from_json(fields["arrived"])
    return Marker(**fields)


def report_to_json(report: BatchReport) -> str:
    return json.dumps(
        {
            "batch_id": report.batch_id,
            "outcome": report.outcome.value,
            "message": report.message,
            "ends": positions_to_json(report.ends),
            "changelog_ends": positions_to_json(report.changelog_ends),
            "out_of_range": [list(tp) for tp in report.out_of_range],
            "high_watermarks": positions_to_json(report.high_watermarks),
            "stores": [[str(at.task), dict(at.changelog), at.is_behind, at.note] for at in report.stores],
            "records_in": report.records_in,
            "records_restored": report.records_restored,
            "restored": {str(task): dict(stores) for task, stores in report.restored.items()},
            "records_out": report.records_out,
            "dropped": report.dropped,
            "skipped": report.skipped,
            "arrived": _arrived_to_json(report.arrived),
            "written": {str(task): dict(stores) for task, stores in report.written.items()},
            "globals": positions_to_json(report.globals),
            "is_full": report.is_full,
            "has_read_sources": report.has_read_sources,
            "source_ms": dict(report.source_ms),
            "is_misfit": report.is_misfit,
            "timings_ms": dict(report.timings_ms),
        }
    )


def report_from_json(text: str | bytes) -> BatchReport:
    fields = json.loads(text)
    fields["outcome"] = Outcome(fields["outcome"])
    for name in ("ends", "changelog_ends", "high_watermarks", "globals"):
        fields[name] = positions_from_json(fields[name])
    fields["out_of_range"] = _partitions_from_json(fields["out_of_range"])
    for name in ("restored", "written"):
        fields[name] = {TaskId.parse(task): stores for task, stores in fields[name].items()}
    fields["arrived"] = _arrived_from_json(fields["arrived"])
    fields["stores"] = tuple(
        StoresAt(task=TaskId.parse(task), changelog=changelog, is_behind=is_behind, note=note)
        for task, changelog, is_behind, note in fields["stores"]
    )
    return BatchReport(**fields)

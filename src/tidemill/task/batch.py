"""A micro-batch as the driver, the source step and the last step of one stream thread see it: request, marker, report.

Decides the values, which travel as they are (``message_pack``); who sends what when is the engine's and the
steps'. Invariant: every value here is complete in itself, so that a replaced worker needs no memory of earlier batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tidemill.errors import FailedRecord
from tidemill.ids import TaskId, TopicPartition
from tidemill.task.partition_time import PartitionTime, Times

Positions = Mapping[TopicPartition, int]


class Outcome(Enum):
    """The outcome of a batch. Only COMMITTED moves the input positions."""

    COMMITTED = "committed"
    LOST = "lost"
    """Aborted or of unknown fate: read the committed offsets and start again there."""
    REFUSED = "refused"
    """The group counts another generation than the offsets were sent in, so the transaction was aborted before its commit:
    nothing of the batch counts, reader and stores stand where they did before it, and it is run again."""
    TRIED = "tried"
    """A trial (``BatchRequest.defers``) in which nothing fails. As after REFUSED, nothing of the batch counts, and it is run
    again."""
    FENCED = "fenced"
    """The group or another producer has moved on: rejoin."""
    STOPPED = "stopped"
    """A record or a store makes going on impossible; the message says which."""


class PartitionStats(NamedTuple):
    """Statistics of the records read of an input partition; timestamps are of those that have one."""

    records: int
    timed: int
    oldest_ms: int
    newest_ms: int
    sum_ms: float
    """Not an int: timestamps are any 64 bits, and their sum has more."""

    def plus(self, other: PartitionStats) -> PartitionStats:
        if not (self.timed and other.timed):
            times = self if self.timed else other
            return times._replace(records=self.records + other.records)
        return PartitionStats(
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
    """The stores stay open from batch to batch as long as their epoch is the same."""
    demotions: int = 0
    """How often the task has become a standby in this epoch. What operators keep in memory is not what the stores hold then."""
    changelog: Mapping[str, int] | None = None
    wipe: bool = False
    """Empty the stores first: they can't be brought to the changelog's end."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Per store the id of its changelog topic, where it is known: a store that has followed another is emptied."""
    inspect: bool = False
    """Look through their whole files first: batches have failed in a way that broken files may cause."""

    @property
    def owner(self) -> str:
        """The owner of what operators keep in memory: another one for a copy and for the active task that it becomes."""
        return f"{self.epoch}/{self.demotions}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePositions:
    """Positions of a task's stores after a batch. ``note``: the measures that opening them took (wiped after a power cut ...)."""

    task: TaskId
    changelog: Mapping[str, int]
    is_behind: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """An input record on which a function of Columns raises, or a node's serde: ``error``, the class of what it raised, and
    what that says. ``node``: the one with the serde; empty if a function raised."""

    topic: str
    partition: int
    offset: int
    error: str
    message: str
    node: str = ""

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The source step's progress in a batch: input records handed over or being converted, their first, and restored ones."""

    records: int = 0
    first: tuple[TopicPartition, int] | None = None
    ends: Positions = field(default_factory=dict)
    """Behind the last record of each input."""
    restored: int = 0
    has_run: bool = False
    """The functions are done with it, those of ``foreach_batch`` too; known of batches of one record only."""


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
    """Limit of the values' bytes: a batch is closed when it has reached it, so it may have some more."""
    max_inputs: int | None = None
    """After a failure: no more input records than these are taken, of all inputs together."""
    until: Positions = field(default_factory=dict)
    """If there are any: only records before these offsets are taken, of these inputs only."""
    refused: tuple[RefusedRecord, ...] = ()
    """Records that are not to be processed."""
    defers: bool = False
    """A trial, which is not committed: no operator forwards what waits in it, and no punctuator is called."""
    wait_ms: int = 100
    """A batch for which nothing comes is closed after it."""
    sources_rest_ms: int = 0
    """Milliseconds for which source topics are not read; records of other topics meanwhile make a batch without them."""
    internal_rest_ms: int = 0
    """Milliseconds for which repartition topics are not read."""
    reads: bool = True
    """False: nothing is read, and what earlier batches have placed and fetched stays for the next one; there are no positions."""
    now_ms: int = 0
    incarnation: int = 0
    fences: int = 0
    """The number of times that the driver has fenced the thread's own producer: a worker discards one from before."""
    created_again: int = 0
    """The number of times that the driver has found topics that were deleted and created again: consumers from before may never
    read them."""
    last_committed_batch: int = 0
    """Id of the last committed batch, 0 before the first. Workers discard in-memory state that derives from any other."""
    globals: Positions = field(default_factory=dict)
    """Start positions in the topics of global stores, of all partitions."""
    reset_globals: bool = False
    """True if these are the topics' beginnings: workers discard what they hold of them."""
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
    truncated: Positions = field(default_factory=dict)
    """Those of them of which a leader has lost the end: up to where its records are those that were read, -1 if unknown."""
    high_watermarks: Positions = field(default_factory=dict)
    global_ends: Positions = field(default_factory=dict)
    partition_stats: Mapping[TopicPartition, PartitionStats] = field(default_factory=dict)
    is_full: bool = False
    """More is there, but the batch holds as many bytes as it may."""
    has_read_sources: bool = True
    """False: repartition topics alone, while source topics rested."""
    source_ms: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of the source step for reading (waits and rests included), converting and handing on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCalls:
    """Calls of one node's function of batches or async function in a micro-batch."""

    calls: int
    """Number of calls, those with parts of a batch included."""
    records: int
    """Records that the function got."""
    failures: int
    """Records on which it raised, timeouts included."""
    calls_ms: float
    """The sum of the calls' times."""
    longest_ms: float
    took_ms: float
    """Time from the first call to the end of the last, as far as the step has waited for them."""
    most_in_flight: int = 0
    """Most calls at the same time; 0: the function is not async."""
    timeouts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """The last step's report of a batch."""

    batch_id: int
    outcome: Outcome
    message: str = ""
    record: FailedRecord | None = None
    """The one over which the batch was STOPPED."""
    ends: Positions = field(default_factory=dict)
    changelog_ends: Positions = field(default_factory=dict)
    out_of_range: tuple[TopicPartition, ...] = ()
    truncated: Positions = field(default_factory=dict)
    high_watermarks: Positions = field(default_factory=dict)
    stores: tuple[StorePositions, ...] = ()
    """Positions of the stores of every task in the request; one that is behind must restore before it runs again."""
    records_in: int = 0
    records_restored: int = 0
    restored: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """Restored records by task and store, standbys included."""
    records_out: int = 0
    dropped: int = 0
    skipped: int = 0
    """Records that could not be read, processed or written, and that were skipped, with or without a dead letter."""
    partition_stats: Mapping[TopicPartition, PartitionStats] = field(default_factory=dict)
    """Statistics of the records of each input."""
    written: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """The number of keys written, by task and store."""
    emitted: Mapping[TaskId, Mapping[str, int]] = field(default_factory=dict)
    """Up to which close time the windows of a store were emitted, by task and store, where the batch has emitted any."""
    functions: Mapping[str, FunctionCalls] = field(default_factory=dict)
    """Function calls by node."""
    globals: Positions = field(default_factory=dict)
    """Positions of the worker's global stores, whatever became of the batch."""
    is_full: bool = False
    has_read_sources: bool = True
    source_ms: Mapping[str, float] = field(default_factory=dict)
    """Sent with the marker, like the two fields before."""
    is_misfit: bool = False
    """LOST for a reason that no broker or process can mend by coming back: what arrived does not fit together."""
    timings_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittingMember:
    """The membership of this thread, read just before offsets are sent (rule 5)."""

    generation: int
    member_id: str
    instance_id: str | None
    incarnation: int
    may_commit: bool
    confirmed_for_s: float = math.inf
    """Seconds from the question on for which no one else gets the partitions from the group; infinite where the broker fences."""


def times_after(times: Times, stats: Mapping[TopicPartition, PartitionStats]) -> dict[TopicPartition, PartitionTime]:
    """The partition times when what has arrived is taken."""
    after = dict(times)
    for tp, found in stats.items():
        if found.timed:
            before = times.get(tp)
            if before is None or found.newest_ms > before.ms:
                after[tp] = PartitionTime(found.newest_ms, () if before is None else before.processors)
    return after

"""The size of the next batch after batches that failed because of a record in them.

Decides, from how far a failed batch had come, how many input records the next one gets, so that no batch is run again unchanged:

    what failed                    the next batch
    a function of Columns raised   half of the records; each batch that succeeds halves what is left of those under suspicion,
                                   until a batch of one record fails: that record is left out from then on (``refused``),
                                   unless it succeeds if nothing that waits is forwarded (``defers``)
    a worker died                  half of the records; of one record: the same again, ``MOST_DEATHS`` times
    it took too long               half of the records; of one record: twice the time
    the thread ended over it       half of the records, in the thread that replaces it

What tasks restore is halved as well. After batches that succeed all of it grows again: not to where a batch died or took too
long, unless it has succeeded ``RELAX_AFTER`` times since. Leaves to ``pacing`` how long transactions may take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.task.batch import Positions, RefusedRecord, SourceProgress

MOST_DEATHS = 5
"""Limit of worker deaths with one and the same record, and of function errors for which no record is to blame."""
MOST_PATIENCE = 64
"""Times the usual limit."""
TO_START = 4
"""``MOST_PATIENCE`` with a batch that has not begun to read: its workers may be slow to start, or brokers be away."""
RELAX_AFTER = 20
_ROOM = 3
"""A batch may be twice as large as the last one if that took less than this part of its time."""


Record: TypeAlias = tuple[TopicPartition, int]


class Cause(Enum):
    """Why a batch failed."""

    FUNCTION = "function"
    """A function raised in the JVM, or in a Python function of Columns (UDF)."""
    WORKER = "worker"
    """A Python worker died, or had no memory left."""
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """``error``: the class of what was raised; ``message``: what it says, without a stack; ``node``: as of a RefusedRecord."""

    cause: Cause
    error: str
    message: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSize:
    """``most``: input records of the next batch, of all inputs together; None: nothing has failed lately."""

    most: int | None = None
    suspects: int = 0
    """One of this many next records of the inputs in ``until`` makes a function raise."""
    until: Positions = field(default_factory=dict)
    below: int | None = None
    """The workers of a batch of this many records have died or taken too long."""
    restored: int | None = None
    """``most`` for what tasks restore, and standbys follow."""
    patience: int = 1
    """Factor of the time limit of a batch."""
    refused: tuple[RefusedRecord, ...] = ()
    in_vain: int = 0
    """Failures in a row of functions in batches without a record to blame."""
    deaths: Mapping[Record, int] = field(default_factory=dict)
    """Workers that batches of one record have ended, by record: with several inputs such batches take turns."""
    since: int = 0
    """Batches that have succeeded since the last failure."""
    defers: bool = False
    """The next batch is a trial of the one record before ``until``, in which no operator forwards what waits in it: is that
    record to blame?"""
    trials: int = 0
    """Trials in which no record was to blame, until ``RELAX_AFTER`` batches in a row have succeeded."""

    @property
    def is_usual(self) -> bool:
        return self.most is None and self.restored is None and self.patience == 1 and not self.trials

    def refuses(self, record: Record) -> bool:
        return any((found.at, found.offset) == record for found in self.refused)


def failed(size: BatchSize, failure: Failure, progress: SourceProgress, *, may_defer: bool = False) -> BatchSize:
    """After a batch with this progress. ``may_defer``: operators may forward other records than those that were read.

    Raises:
        StopError: nothing is left to be made smaller.
    """
    size = replace(size, since=0)
    if failure.cause is Cause.FUNCTION:
        return _function_raised(size, failure, progress, may_defer)
    size = replace(size, defers=False)
    if progress.restored:
        size = replace(size, restored=max(1, progress.restored // 2))
    if progress.records > 1:
        return replace(size, most=progress.records // 2, suspects=0, until={}, below=progress.records)
    if failure.cause is Cause.TIME:
        is_empty = not progress.records and not progress.restored  # its workers may take so long to start
        is_stuck = not progress.has_run and (is_empty or progress.records == 1 or progress.restored == 1)
        most = max(size.patience, TO_START) if is_empty else MOST_PATIENCE
        patience = min(most, size.patience * 2) if is_stuck else size.patience
        return replace(size, most=1 if progress.records else size.most, patience=patience)
    return _one_has_ended_its_worker(size, failure, progress)


def _function_raised(size: BatchSize, failure: Failure, progress: SourceProgress, may_defer: bool) -> BatchSize:
    if progress.records > 1:
        return replace(size, most=progress.records // 2, suspects=progress.records, until=progress.ends, in_vain=0)
    if progress.first is not None and not size.refuses(progress.first):
        tp, offset = progress.first
        if may_defer and not size.defers:
            if size.trials >= MOST_DEATHS:
                raise StopError(of_no_record(failure.error, failure.message))
            return replace(size, most=1, suspects=0, until={tp: offset + 1}, defers=True)
        found = RefusedRecord(
            topic=tp.topic, partition=tp.partition, offset=offset, error=failure.error, message=failure.message, node=failure.node
        )  # fmt: skip
        return replace(size, most=1, suspects=0, until={}, refused=(*size.refused, found), in_vain=0, defers=False)
    if size.in_vain + 1 >= MOST_DEATHS:
        raise StopError(of_no_record(failure.error, failure.message))
    return replace(size, in_vain=size.in_vain + 1)


def of_no_record(error: str, message: str) -> str:
    """The error about a function that fails in batches, and for which no record can be left out."""
    return (
        f"a function of Columns fails on what a punctuator or a store forwards: {error}: {message}; no record that was read can "
        "be skipped for it: give it an expression that does not fail (F.try_divide, try_cast, F.when), or wrap it in "
        "per_record(...)"
    )


def _one_has_ended_its_worker(size: BatchSize, failure: Failure, progress: SourceProgress) -> BatchSize:
    if progress.first is None:
        return size
    deaths = size.deaths.get(progress.first, 0) + 1
    if deaths >= MOST_DEATHS:
        tp, offset = progress.first
        raise StopError(
            f"{tp} at offset {offset}: a batch of this record alone has ended its worker {deaths} times "
            f"({failure.message}): give the workers more memory, or mend the function that it goes to"
        )
    return replace(size, most=1, suspects=0, until={}, below=1, deaths={**size.deaths, progress.first: deaths})


def tried(size: BatchSize) -> BatchSize:
    """After a trial that has succeeded: its record is tried once more as it is."""
    return replace(size, until={}, defers=False, trials=size.trials + 1)


def of_replacement(size: BatchSize, progress: SourceProgress) -> BatchSize:
    """The size for a thread that replaces one which this batch has ended: half of its records, so that what precedes the one that
    fails is committed, and a backlog gets through although now and then one fails. All are tried again: none is refused any
    more."""
    if progress.records > 1:
        return BatchSize(most=progress.records // 2, below=progress.records)
    return BatchSize(most=size.most, below=size.below)


def succeeded(
    size: BatchSize, records: int, *, restored: int = 0, took_s: float, limit_s: float, usual: int
) -> BatchSize:
    """After a batch that has committed ``records`` input records in ``took_s``; ``limit_s``: the setting, ``usual``: how many a
    batch may take if nothing has failed. One that held nothing says nothing."""
    if records and not size.refused:  # with one left out these may be of other inputs, while that one fails again
        size = replace(size, in_vain=0)
    if size.is_usual or not (records or restored):
        return size
    is_quick = took_s * _ROOM < limit_s
    since = size.since + 1
    size = replace(
        size,
        restored=_grown(size.restored, usual) if is_quick and restored else size.restored,
        patience=max(1, size.patience // 2) if is_quick and records else size.patience,
        since=since,
        below=None if since >= RELAX_AFTER else size.below,
        trials=0 if since >= RELAX_AFTER else size.trials,
    )
    if size.most is None or not records:
        return size
    if size.suspects > records:
        left = size.suspects - records
        return replace(size, suspects=left, most=max(1, left // 2))
    most = size.most * 2 if is_quick else size.most
    if size.below is not None:
        most = max(1, min(most, size.below // 2))
    return replace(size, most=None if most >= usual else most, suspects=0, until={})


def _grown(most: int | None, usual: int) -> int | None:
    return None if most is None or most * 2 >= usual else most * 2


def next_size(size: BatchSize, inputs: Positions, held: Collection[TopicPartition]) -> BatchSize:
    """The size for a batch that reads these inputs from these positions. It forgets records before these positions, and those of
    partitions that are not ``held`` any more; it keeps those of inputs that are held, but not read by the batch."""
    if not (size.refused or size.until or size.deaths):
        return size

    def is_passed(tp: TopicPartition, offset: int) -> bool:
        return tp not in held or inputs.get(tp, offset) > offset

    is_over = all(is_passed(tp, end - 1) for tp, end in size.until.items())
    return replace(
        size,
        refused=tuple(record for record in size.refused if not is_passed(record.at, record.offset)),
        suspects=0 if is_over else size.suspects,
        until={} if is_over else size.until,
        defers=size.defers and not is_over,
        deaths={record: count for record, count in size.deaths.items() if not is_passed(*record)},
    )

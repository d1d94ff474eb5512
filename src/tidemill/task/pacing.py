"""When a batch begins, and how many records it may hold, so that its transaction ends long before the broker ends it (rule 8).

Decides the cap by what the last batches took from their first record produced to the end of the transaction: above a quarter
of ``transaction.timeout.ms`` it is halved, also after a batch that got so far and was refused or lost, whose transaction may
have been too slow; well below, it grows again up to what the settings allow. A batch is a transaction, so ``commit.interval.ms``
is how far apart batches begin.
"""

from __future__ import annotations

from tidemill.task.batch import BatchReport, Outcome
from tidemill.task.commit import CommitStep

FEWEST = 100
"""Records in a batch, however slow they are."""
AS_THEY_COME_MS = 100
"""``commit.interval.ms`` of exactly once where it is not set; batches that each follow the one before commit about as often."""
BACKLOG = 5_000
"""Records of a batch from which on there is a backlog."""
_CAUGHT_UP = 1_000
_SHARE = 4
_ROOM = 4
"""The cap grows only while a batch of twice the size would stay clear of the limit."""
_IN_TRANSACTION = tuple(
    step.value for step in (CommitStep.PRODUCE, CommitStep.ROOM, CommitStep.MEMBERSHIP, CommitStep.COMMIT)
)


def next_cap(cap: int, report: BatchReport, *, transaction_timeout_ms: int, most: int) -> int:
    """The cap for the batch after the reported one, which had ``cap``."""
    began = CommitStep.RUN.value in report.timings_ms
    took_ms = sum(report.timings_ms.get(step, 0.0) for step in _IN_TRANSACTION)
    limit_ms = transaction_timeout_ms / _SHARE
    if took_ms > limit_ms or (began and report.outcome is not Outcome.COMMITTED):
        return max(min(FEWEST, most), cap // 2)
    if took_ms * _ROOM < limit_ms:
        return min(most, cap * 2)
    return cap


def rest_ms(report: BatchReport, took_ms: float, *, commit_interval_ms: int, cap: int, standby_cap: int) -> float:
    """How long to wait before the batch after the reported one, which had ``cap`` and ``standby_cap`` and took ``took_ms``: until
    ``commit_interval_ms`` after it began, but not at all where records wait already, or it did not count."""
    is_full = report.is_full or report.records_in >= cap or report.records_restored >= standby_cap
    if commit_interval_ms <= AS_THEY_COME_MS or is_full or report.outcome is not Outcome.COMMITTED:
        return 0.0
    return max(0.0, commit_interval_ms - took_ms)


def has_backlog(report: BatchReport, *, before: bool) -> bool:
    """Whether so much waits behind a batch that the next one is better run as a job of its own; ``before``: as this one was."""
    records = report.records_in + report.records_restored
    return report.is_full or records >= (_CAUGHT_UP if before else BACKLOG)

"""Start time and size of the next batch, so that its transaction ends long before the broker's time-out (rule 8).

Decides the cap by the time that the last batches took from their first record produced to the end of the transaction. Above a
quarter of ``transaction.timeout.ms`` the cap is halved, also after a batch that was refused or lost in its transaction, which may
have been too slow. Well below, it grows again up to what the settings allow, but only by batches that had as many records as they
might: how long those would take, no smaller or empty batch says. Batches of source topics begin ``ThreadConfig.rest_ms`` apart:
with exactly-once each of them is a transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.task.batch import BatchReport, Outcome
from tidemill.task.commit import CommitStep

FEWEST = 100
"""Records in a batch, however slow they are."""
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
    has_run = CommitStep.RUN.value in report.timings_ms
    took_ms = sum(report.timings_ms.get(step, 0.0) for step in _IN_TRANSACTION)
    limit_ms = transaction_timeout_ms / _SHARE
    if took_ms > limit_ms or (has_run and report.outcome not in (Outcome.COMMITTED, Outcome.TRIED)):  # a trial commits nothing
        return max(min(FEWEST, most), cap // 2)
    if report.outcome is Outcome.COMMITTED and report.records_in >= cap and took_ms * _ROOM < limit_ms:
        return min(most, cap * 2)
    return cap


@dataclass(frozen=True, slots=True)
class Due:
    """Times (of one clock, in seconds) from which the next batch reads source topics and repartition topics."""

    sources_s: float = 0.0
    internal_s: float = 0.0


def next_due(
    due: Due, report: BatchReport, asked_s: float, now_s: float, *, rest_ms: int, cap: int, standby_cap: int
) -> Due:
    """After the reported batch, which was asked for at ``asked_s`` when ``due`` held, and had ``cap`` and ``standby_cap``.

    Batches that read source topics begin ``rest_ms`` apart. What such a batch has written to repartition topics the
    next one may read at once, and from then on they are read twice as often: a record that passes several sub-topologies waits
    for the rest once, not in each of them. Nothing rests where records wait already, or after a batch that did not count."""
    is_full = report.is_full or report.records_in >= cap or report.records_restored >= standby_cap
    if is_full or report.outcome is not Outcome.COMMITTED:
        return Due(now_s, now_s)
    interval_s = rest_ms / 1e3
    if report.has_read_sources:
        # Also a batch that did not rest, as while a task restores: many of these in a row must not put the next one off further
        # and further, since batches that repartition topics end would then read no source topic for minutes.
        read_s = min(max(asked_s, due.sources_s), now_s)
        return Due(read_s + interval_s, now_s)
    return Due(due.sources_s, now_s + interval_s / 2)


def has_backlog(report: BatchReport, *, before: bool) -> bool:
    """True if enough records wait behind a batch for the next one to be a job of its own; ``before``: this one was.

    Restored records don't count: they pass the JVM packed, so such a job would gain nothing, and costs its start."""
    return report.is_full or report.records_in >= (_CAUGHT_UP if before else BACKLOG)

"""Batches adapt to how long their transactions take (correctness.md, rule 8)."""

from __future__ import annotations

import pytest

from tidemill.task.batch import BatchReport, Outcome
from tidemill.task.commit import CommitStep
from tidemill.task.pacing import BACKLOG, FEWEST, Due, has_backlog, next_cap, next_due

TIMEOUT_MS = 10_000
MOST = 100_000


def report(
    produce_ms: float, commit_ms: float = 0, outcome: Outcome = Outcome.COMMITTED, *, records: int = MOST
) -> BatchReport:
    timings = {CommitStep.RUN.value: 9_000.0, CommitStep.PRODUCE.value: produce_ms, CommitStep.COMMIT.value: commit_ms}
    return BatchReport(batch_id=1, outcome=outcome, records_in=records, timings_ms=timings)


def after(cap: int, last: BatchReport) -> int:
    return next_cap(cap, last, transaction_timeout_ms=TIMEOUT_MS, most=MOST)


def test_a_transaction_of_more_than_a_quarter_of_its_time_halves_the_next_batch() -> None:
    assert after(MOST, report(2_000, 501)) == MOST // 2


def test_work_before_the_transaction_begins_does_not_count() -> None:
    assert after(MOST, report(100)) == MOST


def test_quick_transactions_let_batches_grow_again_up_to_the_setting() -> None:
    assert after(1_000, report(100)) == 2_000
    assert after(MOST - 1, report(100)) == MOST


def test_batches_that_were_not_full_say_nothing_of_those_that_are() -> None:
    """A record takes 1 ms, and 1,000 fit: after an idle while a backlog begins with as many, not with what is lost."""
    assert after(1_000, report(0, records=0)) == 1_000
    assert after(1_000, report(1, records=999)) == 1_000
    assert after(1_000, report(100, records=1_000)) == 2_000


def test_in_between_the_size_stays() -> None:
    assert after(1_000, report(1_000)) == 1_000


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FENCED])
def test_a_batch_that_was_refused_at_its_commit_is_not_tried_again_at_the_same_size(outcome: Outcome) -> None:
    assert after(1_000, report(1, outcome=outcome)) == 500


def test_a_batch_that_was_lost_before_it_ran_says_nothing_about_its_size() -> None:
    lost = BatchReport(batch_id=1, outcome=Outcome.LOST)
    assert after(1_000, lost) == 1_000


def test_a_trial_which_commits_nothing_says_nothing_about_the_size_either() -> None:
    assert after(1_000, report(0, outcome=Outcome.TRIED)) == 1_000


def test_batches_never_shrink_to_nothing() -> None:
    assert after(FEWEST, report(9_000)) == FEWEST
    assert next_cap(10, report(9_000), transaction_timeout_ms=TIMEOUT_MS, most=10) == 10


def test_from_any_size_batches_become_short_enough_when_time_grows_with_records() -> None:
    """A record takes 1 ms: 2,500 fit in a quarter of the time."""
    cap = MOST
    for _ in range(20):
        cap = after(cap, report(cap * 1.0))
    assert cap <= TIMEOUT_MS // 4
    assert cap == after(cap, report(cap * 1.0))


def due(
    before: Due, asked_s: float, now_s: float, *, records: int = 5, restored: int = 0, sources: bool = True,
    outcome: Outcome = Outcome.COMMITTED,
) -> Due:  # fmt: skip
    """After a batch, with a commit interval of one second."""
    last = BatchReport(
        batch_id=1, outcome=outcome, records_in=records, records_restored=restored, has_read_sources=sources
    )
    return next_due(before, last, asked_s, now_s, rest_ms=1_000, cap=1_000, standby_cap=200)


def test_batches_that_read_source_topics_begin_a_commit_interval_apart() -> None:
    first = due(Due(), asked_s=100.0, now_s=100.06)
    assert first.sources_s == 101.0
    # The next one was asked for at once, rested until then, and read.
    assert due(first, asked_s=100.06, now_s=101.06).sources_s == 102.0


def test_a_batch_that_took_longer_than_the_interval_is_followed_at_once() -> None:
    assert due(Due(), asked_s=100.0, now_s=101.5).sources_s < 101.5


def test_batches_that_read_before_it_was_due_put_source_topics_off_by_one_interval_at_most() -> None:
    """As while tasks wait for their offsets or restore: batches don't rest, and there are hundreds in a second."""
    now_s, next_one = 100.0, Due()
    for _ in range(1_000):
        next_one = due(next_one, asked_s=now_s, now_s=now_s + 0.003, records=0)
        now_s += 0.003
    assert next_one.sources_s <= now_s + 1.0


def test_what_was_written_to_repartition_topics_is_read_at_once_and_then_twice_an_interval() -> None:
    first = due(Due(), asked_s=100.0, now_s=100.06)
    assert first.internal_s == 100.06
    second = due(first, asked_s=100.06, now_s=100.1, sources=False)
    assert second == Due(first.sources_s, 100.6)
    third = due(second, asked_s=100.1, now_s=100.7, sources=False)
    assert third == Due(first.sources_s, 101.2)


def test_records_that_wait_already_do_not_wait_for_the_interval() -> None:
    assert due(Due(), 100.0, 100.06, records=1_000) == Due(100.06, 100.06)
    assert due(Due(), 100.0, 100.06, restored=200) == Due(100.06, 100.06)


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FENCED])
def test_a_batch_that_did_not_count_is_run_again_at_once(outcome: Outcome) -> None:
    assert due(Due(), 100.0, 100.06, outcome=outcome) == Due(100.06, 100.06)


@pytest.mark.parametrize(
    ("before", "records", "is_full", "expected"),
    [
        (False, BACKLOG - 1, False, False),
        (False, BACKLOG, False, True),
        (False, 1, True, True),
        (True, BACKLOG - 1, False, True),
        (True, 1_000, False, True),
        (True, 999, False, False),
        (True, 0, False, False),
    ],
)
def test_a_backlog_begins_with_a_large_batch_and_ends_with_a_much_smaller_one(
    before: bool, records: int, is_full: bool, expected: bool
) -> None:
    last = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_in=records, is_full=is_full)
    assert has_backlog(last, before=before) is expected


def test_restored_records_are_no_backlog() -> None:
    half = BACKLOG // 2
    mixed = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_in=half, records_restored=10 * BACKLOG)
    assert [has_backlog(mixed, before=before) for before in (False, True)] == [False, True]
    restored = BatchReport(batch_id=1, outcome=Outcome.COMMITTED, records_restored=10 * BACKLOG)
    assert [has_backlog(restored, before=before) for before in (False, True)] == [False, False]

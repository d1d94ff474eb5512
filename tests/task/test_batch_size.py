"""What a batch that failed makes of the next one: smaller, with more time, without a record, or the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.errors import StopError
from tidemill.ids import TopicPartition
from tidemill.task.batch import RefusedRecord, SourceProgress
from tidemill.task.batch_size import (
    MOST_DEATHS,
    MOST_PATIENCE,
    RELAX_AFTER,
    BatchSize,
    Cause,
    Failure,
    failed,
    next_size,
    of_replacement,
    succeeded,
    tried,
)
from tidemill.task.message_pack import pack, unpack

IN, OTHER = TopicPartition("in", 0), TopicPartition("other", 0)
LIMIT_S, USUAL = 60.0, 200_000
BAD = Failure(cause=Cause.FUNCTION, error="org.apache.spark.SparkArithmeticException", message="Division by zero.")
DEAD = Failure(cause=Cause.WORKER, error="WorkerDiedError", message="a Python worker died")
SLOW = Failure(cause=Cause.TIME, error="BatchTimeoutError", message="it took longer than 60 s")


def taken(records: int, start: int = 0, restored: int = 0) -> SourceProgress:
    first = (IN, start) if records else None
    return SourceProgress(records=records, first=first, ends={IN: start + records} if records else {}, restored=restored)


def after(size: BatchSize, records: int, took_s: float = 0.1, restored: int = 0) -> BatchSize:
    return succeeded(size, records, restored=restored, took_s=took_s, limit_s=LIMIT_S, usual=USUAL)


def test_a_function_that_raises_halves_what_is_under_suspicion_until_one_record_is_left_and_is_left_out() -> None:
    size = failed(BatchSize(), BAD, taken(8))
    assert (size.most, size.suspects, size.until) == (4, 8, {IN: 8})
    size = after(size, 4)
    assert (size.most, size.suspects) == (2, 4)
    size = failed(size, BAD, taken(2, 4))
    assert (size.most, size.suspects, size.until) == (1, 2, {IN: 6})
    size = failed(size, BAD, taken(1, 4))
    assert size.refused == (RefusedRecord(topic="in", partition=0, offset=4, error=BAD.error, message=BAD.message),)
    assert (size.most, size.suspects, size.until) == (1, 0, {})


def test_when_the_suspects_are_through_batches_grow_to_what_they_were() -> None:
    size, grown = failed(BatchSize(), BAD, taken(1, 3)), 0
    while size.most is not None:
        size, grown = after(size, size.most), grown + 1
    assert size.is_usual
    assert grown < 20


def test_what_is_refused_stays_until_it_is_passed_or_gone_to_another_even_while_its_task_does_not_read() -> None:
    size = failed(BatchSize(), BAD, taken(1, 7))
    assert next_size(size, {IN: 7}, {IN}) == size
    assert next_size(size, {}, {IN}) == size
    assert not next_size(size, {IN: 8}, {IN}).refused
    assert not next_size(size, {}, set()).refused


def test_a_search_is_over_when_all_that_is_suspect_was_read() -> None:
    size = failed(BatchSize(), BAD, taken(10))
    assert next_size(size, {IN: 9}, {IN}) == size
    assert next_size(size, {IN: 10}, {IN}).until == {}


def test_a_function_that_fails_with_nothing_to_process_ends_the_thread_with_what_it_said() -> None:
    size = BatchSize()
    for _ in range(MOST_DEATHS - 1):
        size = failed(size, BAD, taken(0))
        assert size.is_usual
    with pytest.raises(StopError, match=r"on what a punctuator or a store forwards: .*Division by zero"):
        failed(size, BAD, taken(0))


def test_a_record_that_fails_while_nothing_that_waits_is_forwarded_is_to_blame() -> None:
    size = failed(BatchSize(), BAD, taken(1, 4), may_defer=True)
    assert (size.most, size.until, size.defers, size.refused) == (1, {IN: 5}, True, ())
    size = failed(size, BAD, taken(1, 4), may_defer=True)
    assert (size.most, size.until, size.defers, len(size.refused)) == (1, {}, False, 1)


def test_a_record_that_is_not_to_blame_is_tried_again_as_it_is_and_if_it_stays_so_the_thread_ends() -> None:
    size = BatchSize()
    for trials in range(1, MOST_DEATHS + 1):
        size = tried(failed(size, BAD, taken(1, 4), may_defer=True))
        assert (size.most, size.until, size.defers, size.trials, size.refused) == (1, {}, False, trials, ())
    with pytest.raises(StopError, match=r"on what a punctuator or a store forwards: .*Division by zero"):
        failed(size, BAD, taken(1, 4), may_defer=True)


def test_trials_are_forgotten_when_batches_have_succeeded_for_a_while() -> None:
    size = tried(failed(BatchSize(), BAD, taken(1, 4), may_defer=True))
    for _ in range(RELAX_AFTER):
        assert not size.is_usual
        size = after(size, USUAL)
    assert size.is_usual


@pytest.mark.parametrize("failure", [DEAD, SLOW], ids=["died", "slow"])
def test_a_record_that_dies_or_is_slow_while_it_is_tried_alone_is_sized_as_others_are(failure: Failure) -> None:
    size = failed(failed(BatchSize(), BAD, taken(1), may_defer=True), failure, taken(1), may_defer=True)
    assert not size.defers


def test_a_record_whose_partition_is_gone_is_not_tried_alone() -> None:
    size = failed(BatchSize(), BAD, taken(1, 4), may_defer=True)
    assert next_size(size, {OTHER: 0}, {OTHER}).defers is False
    assert next_size(size, {IN: 4}, {IN}) == size


def test_functions_that_fail_with_nothing_to_process_now_and_then_end_no_thread() -> None:
    size = BatchSize()
    for _ in range(MOST_DEATHS):
        size = after(failed(size, BAD, taken(0)), 100)
    assert size.is_usual


def test_a_record_that_is_left_out_already_is_not_blamed_again() -> None:
    size = failed(BatchSize(), BAD, taken(1))
    assert len(failed(size, BAD, taken(1)).refused) == 1


@pytest.mark.parametrize("failure", [DEAD, SLOW], ids=["died", "slow"])
def test_a_batch_that_died_or_took_too_long_is_halved_down_to_one_record(failure: Failure) -> None:
    size = failed(BatchSize(), failure, taken(1_000))
    assert (size.most, size.patience) == (500, 1)
    sizes = [500]
    while size.most != 1:
        assert size.most is not None
        size = failed(size, failure, taken(size.most))
        assert size.most is not None
        sizes.append(size.most)
    assert sizes == [500, 250, 125, 62, 31, 15, 7, 3, 1]


def test_one_record_that_takes_too_long_gets_more_time_until_it_is_through() -> None:
    size = failed(BatchSize(), SLOW, taken(1))
    assert (size.most, size.patience) == (1, 2)
    assert after(size, 0).patience == 2, "a batch without records, which opens stores, says nothing"
    size = failed(size, SLOW, taken(1))
    assert size.patience == 4
    assert after(size, 1, took_s=200).patience == 4
    assert after(after(size, 1), 1).patience == 1
    for _ in range(20):
        size = failed(size, SLOW, taken(1))
    assert size.patience == MOST_PATIENCE


def test_workers_that_are_slow_to_start_get_more_time_too_but_not_much() -> None:
    size = BatchSize()
    for expected in (2, 4, 4):
        size = failed(size, SLOW, taken(0))
        assert (size.most, size.patience) == (None, expected)


def test_a_commit_that_takes_too_long_says_nothing_about_the_record() -> None:
    assert failed(BatchSize(), SLOW, replace(taken(1), has_run=True)).patience == 1


def test_what_is_restored_is_halved_too_and_only_restoring_brings_it_back() -> None:
    size = failed(failed(BatchSize(), SLOW, taken(0, restored=200_000)), DEAD, taken(0, restored=100_000))
    assert (size.restored, size.most, size.patience) == (50_000, None, 1)
    assert after(size, 0).restored == 50_000
    assert after(size, 0, restored=50_000).restored == 100_000
    assert after(size, 0, restored=50_000, took_s=LIMIT_S).restored == 50_000
    assert after(after(size, 0, restored=50_000), 0, restored=100_000).is_usual
    assert failed(BatchSize(), SLOW, taken(0, restored=1)).patience == 2


def test_a_record_that_ends_its_worker_each_time_ends_the_thread_with_its_place() -> None:
    size = BatchSize()
    for _ in range(MOST_DEATHS - 1):
        size = next_size(failed(size, DEAD, taken(1, 7)), {}, {IN})
        size = next_size(after(size, 3), {IN: 7}, {IN})  # of other partitions
    with pytest.raises(StopError, match=r"in-0 at offset 7: a batch of this record alone has ended its worker 5 times"):
        failed(size, DEAD, taken(1, 7))
    passed = next_size(size, {IN: 8}, {IN})
    assert failed(passed, DEAD, taken(1, 8)).deaths == {(IN, 8): 1}


def test_records_of_several_inputs_that_each_end_their_worker_end_the_thread_too() -> None:
    size = BatchSize()
    for _ in range(MOST_DEATHS - 1):
        for tp in (IN, OTHER):  # small batches take from one input after the other
            size = next_size(failed(size, DEAD, SourceProgress(records=1, first=(tp, 7))), {IN: 7, OTHER: 7}, {IN, OTHER})
    with pytest.raises(StopError, match=r"other-0 at offset 7: a batch of this record alone has ended its worker 5 times"):
        failed(size, DEAD, SourceProgress(records=1, first=(OTHER, 7)))


def test_after_a_death_batches_stay_below_that_size_for_a_while_and_then_grow_again() -> None:
    size = failed(BatchSize(), DEAD, taken(1_000))
    for _ in range(RELAX_AFTER - 1):
        size = after(size, 500)
        assert size.most == 500
    for _ in range(10):
        size = after(size, 500)
    assert size.is_usual


def test_batches_grow_only_while_one_of_twice_the_size_stays_clear_of_the_limit() -> None:
    size = BatchSize(most=100)
    assert after(size, 100, took_s=LIMIT_S / 2).most == 100
    assert after(size, 100, took_s=LIMIT_S / 4).most == 200


def test_a_function_of_a_millisecond_behind_a_backlog_gets_on() -> None:
    """20,000 records of 1 ms, 10 s for a batch."""
    size, done, lost, spent_s = BatchSize(), 0, 0, 0.0
    while done < 20_000:
        size = next_size(size, {IN: done}, {IN})
        records = min(20_000 - done, size.most or USUAL)
        if records / 1e3 + 0.5 > 10:
            size, lost, spent_s = failed(size, SLOW, taken(records, done)), lost + 1, spent_s + 10
            continue
        took_s = records / 1e3 + 0.5
        size = succeeded(size, records, took_s=took_s, limit_s=10, usual=USUAL)
        done, spent_s = done + records, spent_s + took_s
    assert lost == 2
    assert spent_s < 50


def test_what_was_taken_travels_as_it_is() -> None:
    for told in (taken(0), taken(5, 3, restored=2)):
        assert unpack(pack(told), SourceProgress) == told


def test_a_thread_that_replaces_one_begins_smaller_so_that_what_precedes_the_record_that_fails_gets_through() -> None:
    size, at, bad = BatchSize(), 0, 700
    for _ in range(40):  # each batch that has the record in it ends a thread
        count = min(size.most or USUAL, 10_000 - at)
        size = of_replacement(size, taken(count, at)) if at + count > bad else after(size, count)
        at = at if at + count > bad else at + count
    assert at == bad


def test_a_backlog_of_which_now_and_then_a_record_fails_gets_through_and_what_no_longer_fails_gets_large_batches_again() -> None:
    at, size, calls, ended = 0, BatchSize(), 0, 0
    while at < 20_000:
        count = min(size.most or USUAL, 20_000 - at)
        until_one_fails = 499 - calls % 500
        if count > until_one_fails:
            size, calls, ended = of_replacement(size, taken(count, at)), calls + until_one_fails + 1, ended + 1
        else:
            size, calls, at = after(size, count), calls + count, at + count
    assert ended < 100, "of 20,000 calls 40 fail, and records are given to functions again after each"
    for _ in range(2 * RELAX_AFTER):
        size = after(size, size.most or 1)
    assert size.is_usual


def test_a_thread_that_replaces_one_tries_again_what_was_refused() -> None:
    refusing = failed(failed(BatchSize(), BAD, taken(2)), BAD, taken(1))
    assert refusing.refused
    assert of_replacement(refusing, taken(1)) == BatchSize(most=1)
    assert of_replacement(BatchSize(), taken(0)) == BatchSize()

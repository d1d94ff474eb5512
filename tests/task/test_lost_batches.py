"""Batches lost in a row: said now and then, given up only where nothing outside can mend it."""

from __future__ import annotations

from tidemill.task.lost_batches import MOST_MISFITS, WORTH_SAYING, LostInARow


def row(*misfits: bool) -> list[LostInARow]:
    found = [LostInARow()]
    for is_misfit in misfits:
        found.append(found[-1].and_another("it did not fit", is_misfit=is_misfit))
    return found


def test_what_brokers_cause_is_tried_forever_and_said_more_and_more_rarely() -> None:
    lost = row(*[False] * 200)
    assert [at.count for at in lost if at.is_to_be_said] == [5, 10, 20, 40, 80, 160]
    assert not any(at.is_given_up for at in lost)
    assert [at.is_lasting for at in lost[: WORTH_SAYING + 1]] == [*[False] * WORTH_SAYING, True]


def test_what_does_not_fit_together_is_given_up() -> None:
    assert [at.is_given_up for at in row(*[True] * MOST_MISFITS)][-2:] == [False, True]


def test_another_cause_in_between_begins_the_count_again() -> None:
    assert not any(at.is_given_up for at in row(*[True] * (MOST_MISFITS - 1), False, *[True] * (MOST_MISFITS - 1)))

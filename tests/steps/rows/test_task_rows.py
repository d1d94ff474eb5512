"""The rows of a store as a batch sees them: its own writes over what was there."""

from __future__ import annotations

import random

import pytest

from tests.steps.memory_stores import MemoryStores
from tidemill.ids import TaskId
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_state import Written


def _stores(rows: dict[bytes, bytes]) -> MemoryStores:
    return MemoryStores(TaskId(0, 0), {"s": rows})


def _key(number: int) -> bytes:
    return number.to_bytes(2, "big")


@pytest.mark.parametrize("seed", range(20))
def test_a_scan_shows_the_batch_s_writes_over_the_rows_before_it(seed: int) -> None:
    chance = random.Random(seed)
    before = {_key(chance.randrange(200)): b"old" for _ in range(chance.randrange(150))}
    rows, expected = TaskRows("s", logged=False), dict(before)
    rows.begin(_stores(before), Written())
    for number in range(300):
        key = _key(chance.randrange(200))
        if chance.random() < 0.4:
            rows.put(key, None)
            expected.pop(key, None)
        else:
            rows.put(key, b"%d" % number)
            expected[key] = b"%d" % number
        if number % 10 == 0:
            low, high = _key(chance.randrange(200)), chance.choice([None, _key(chance.randrange(200))])
            reverse = chance.random() < 0.5
            inside = sorted(((k, row) for k, row in expected.items() if low <= k and (high is None or k < high)), reverse=reverse)
            assert list(rows.scan(low, high, reverse=reverse)) == inside


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_may_be_deleted_while_they_are_scanned(reverse: bool) -> None:
    rows = TaskRows("s", logged=False)
    rows.begin(_stores({_key(n): b"old" for n in range(0, 200, 2)}), Written())
    for n in range(1, 200, 2):
        rows.put(_key(n), b"new")
    seen = []
    for key, _row in rows.scan(reverse=reverse):
        seen.append(key)
        rows.put(key, None)
    assert seen == sorted(map(_key, range(200)), reverse=reverse)
    assert list(rows.scan()) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_scan_shows_the_rows_as_they_were_when_it_began_whatever_is_written_meanwhile(seed: int) -> None:
    chance = random.Random(seed)
    before = {_key(chance.randrange(200)): b"old" for _ in range(chance.choice([0, 50]))}
    rows, now = TaskRows("s", logged=False), dict(before)
    rows.begin(_stores(before), Written())
    open_scans = []
    for number in range(400):
        key, row = _key(chance.randrange(200)), chance.choice([None, b"%d" % number])
        if chance.random() < 0.05:
            rows.put_many([(key, row)])
        else:
            rows.put(key, row)
        now[key] = row
        if number % 10 == 0:
            reverse = chance.random() < 0.5
            expected = sorted(((k, found) for k, found in now.items() if found is not None), reverse=reverse)
            open_scans.append((rows.scan(reverse=reverse), iter(expected)))
        for scan, expected_rows in open_scans:
            if chance.random() < 0.3:
                assert next(scan, None) == next(expected_rows, None)
    for scan, expected_rows in open_scans:
        assert list(scan) == list(expected_rows)


def test_who_adds_a_row_for_each_that_a_scan_gives_comes_to_an_end() -> None:
    rows = TaskRows("s", logged=False)
    rows.begin(_stores({}), Written())
    for n in range(100):
        rows.put(b"k%d" % n, b"new")
    for key, _row in rows.scan():
        rows.put(key + b"x", b"newer")
        assert len(key) < 4
    assert len(list(rows.scan())) == 200


def test_with_a_cache_the_last_record_of_each_key_and_batch_goes_to_the_changelog() -> None:
    rows = TaskRows("s", logged=True, logs_last=True)
    for _ in range(2):  # a batch forgets those of the one before
        written = Written()
        rows.begin(_stores({}), written)
        rows.log(b"a", b"1", 5)
        rows.log(b"b", b"2", 6)
        rows.log(b"a", None, 7, (("h", b"x"),))
        assert written.log == [(b"a", None, 7, (("h", b"x"),)), (b"b", b"2", 6, ())]
    each = TaskRows("s", logged=True)
    each.begin(_stores({}), every := Written())
    each.log(b"a", b"1", 5)
    each.log(b"a", b"2", 6)
    assert every.log == [(b"a", b"1", 5, ()), (b"a", b"2", 6, ())]

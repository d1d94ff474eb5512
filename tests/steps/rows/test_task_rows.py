"""The rows of a store as a batch sees them: its own writes over what was there."""

from __future__ import annotations

import random
from itertools import islice

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


@pytest.mark.parametrize("seed", range(40))
def test_the_first_rows_of_a_range_are_found_whatever_was_taken_before(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.choice((10, 60))
    before = {_key(number): b"old" for number in range(count) if chance.random() < 0.5}
    rows, expected = TaskRows("s", logged=False), dict(before)
    rows.begin(_stores(before), Written())
    for number in range(600):
        low, high = (chance.choice((None, _key(chance.randrange(count)))) for _ in range(2))
        reverse = chance.random() < 0.3
        inside = sorted((key for key in expected if (low or b"") <= key and (high is None or key < high)), reverse=reverse)
        taken = [key for key, _ in islice(rows.scan(low, high, reverse=reverse), chance.randrange(4))]
        assert taken == inside[: len(taken)]
        assert taken or not inside or next(rows.scan(low, high, reverse=reverse))[0] == inside[0]
        for key in taken:
            rows.put(key, None)
            expected.pop(key)
        for key in (_key(chance.randrange(count)) for _ in range(chance.randrange(3))):
            expected[key] = b"%d" % number
            if chance.random() < 0.05:
                rows.put_many([(key, expected[key])])
            else:
                rows.put(key, expected[key])
    assert dict(rows.scan()) == expected


class _CountedRows(dict[bytes, "bytes | None"]):
    looked_at = 0

    def __getitem__(self, key: bytes) -> bytes | None:
        self.looked_at += 1
        return super().__getitem__(key)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("held", [0, 500])
def test_who_takes_the_nearest_row_again_and_again_meets_those_taken_before_no_more(held: int, reverse: bool) -> None:
    rows, written = TaskRows("s", logged=False), Written(rows=_CountedRows())
    rows.begin(_stores({_key(number): b"old" for number in range(held)}), written)
    for number in range(500, 1000):
        rows.put(_key(number), b"new")
    taken = []
    while (nearest := next(rows.scan(reverse=reverse), None)) is not None:
        taken.append(nearest[0])
        rows.put(nearest[0], None)
    assert taken == sorted(map(_key, (*range(held), *range(500, 1000))), reverse=reverse)
    assert written.rows.looked_at < 20 * 1000  # type: ignore[attr-defined]


def test_an_iterator_that_is_open_costs_a_write_no_more_than_that() -> None:
    rows, written = TaskRows("s", logged=False), Written(rows=_CountedRows())
    rows.begin(_stores({}), written)
    for number in range(1000):
        due = rows.scan()
        next(due, None)
        rows.put(_key(number), b"new")
    assert written.rows.looked_at < 20 * 1000  # type: ignore[attr-defined]
    assert len(list(due)) == 998


@pytest.mark.parametrize("seed", range(10))
def test_the_rows_are_counted_once_a_batch_and_then_with_each_write(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    before = {_key(number): b"old" for number in range(100) if chance.random() < 0.5}
    rows, expected = TaskRows("s", logged=False), dict(before)
    rows.begin(_stores(before), Written())
    monkeypatch.setattr(TaskRows, "scan", None)
    for number in range(300):
        key, row = _key(chance.randrange(100)), None if chance.random() < 0.5 else b"%d" % number
        if row is None:
            expected.pop(key, None)
        else:
            expected[key] = row
        if chance.random() < 0.05:
            rows.put_many([(key, row)])
        else:
            rows.put(key, row)
        if chance.random() < 0.5:
            assert rows.entries() == len(expected)

"""From where rows come: the owner, a standby within the bound, after a rebalance; and never by more than one hop."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.query.stand_ins import COUNTS, PARTITIONS, StandInDirectory, StandInInstances, host_map, router
from tidemill.errors import InvalidStateStoreError, RetriableError
from tidemill.membership.wire import HostInfo
from tidemill.query.position import Position
from tidemill.query.routing import Router
from tidemill.query.rows import FoundRows, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.topology.partitioning import partition_of_key

ONE, TWO, THREE = HostInfo("one", 1), HostInfo("two", 2), HostInfo("three", 3)
ENTRIES = {f"word{number}": number for number in range(12)}
SHARED = host_map({ONE: (0,), TWO: (1,), THREE: (2,)}, {TWO: (0,), THREE: (1,), ONE: (2,)})
ALL = RowsQuestion(partitions=frozenset(range(PARTITIONS)), limit=100)


def directory(host: HostInfo, copies: dict[int, int | None]) -> StandInDirectory:
    return StandInDirectory(own_host=host, hosts=SHARED, copies=copies, entries=ENTRIES)


def others(**copies: dict[int, int | None]) -> StandInInstances:
    hosts = {"two": TWO, "three": THREE}
    return StandInInstances({hosts[name]: directory(hosts[name], held) for name, held in copies.items()})


def key_question(key: str) -> RowsQuestion:
    data = key.encode()
    return RowsQuestion(partitions=frozenset({partition_of_key(data, PARTITIONS)}), key=data)


def key_of(partition: int) -> str:
    return next(key for key in ENTRIES if partition_of_key(key.encode(), PARTITIONS) == partition)


def read(through: Router, question: RowsQuestion, max_lag: int = 100) -> FoundRows:
    return asyncio.run(through.read(COUNTS, question, max_lag=max_lag))


def words(found: FoundRows) -> list[str]:
    return [row.key.decode() for row in found.rows]


def test_what_is_here_is_answered_without_asking_anyone() -> None:
    remote = others()
    found = read(router(directory(ONE, {0: None}), remote), key_question(key_of(0)))
    assert (words(found), found.covered, remote.asked) == ([key_of(0)], {0: 0}, [])


def test_a_key_of_another_comes_from_its_owner() -> None:
    remote = others(two={1: None})
    found = read(router(directory(ONE, {0: None}), remote), key_question(key_of(1)))
    assert (words(found), found.covered) == ([key_of(1)], {1: 0})
    assert remote.asked == [(TWO, frozenset({1}), None)]


def test_a_range_is_put_together_from_all_owners_in_the_order_of_keys() -> None:
    remote = others(two={1: None}, three={2: None})
    found = read(router(directory(ONE, {0: None}), remote), ALL)
    assert words(found) == sorted(ENTRIES)
    assert sorted(found.covered) == [0, 1, 2]
    first = read(router(directory(ONE, {0: None}), remote), RowsQuestion(partitions=ALL.partitions, limit=5))
    assert words(first) == sorted(ENTRIES)[:5]


def test_a_range_that_is_too_many_bytes_ends_where_all_owners_have_told_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.routing._LEAST_BYTES", 1)
    remote = others(two={1: None}, three={2: None})
    through = router(directory(ONE, {0: None}), remote)
    found, low, pages = [], None, 0
    while True:
        page = read(through, replace(ALL, low=low, most_bytes=60))
        found += words(page)
        pages += 1
        if page.more_from is None:
            break
        assert page.rows
        assert page.rows[-1].key < page.more_from
        low = page.more_from
    assert found == sorted(ENTRIES)
    assert pages > 3


def test_a_standby_within_the_bound_answers_while_the_owner_is_away() -> None:
    remote = others(three={1: 40})
    found = read(router(directory(ONE, {0: None}), remote), key_question(key_of(1)))
    assert (words(found), found.covered) == ([key_of(1)], {1: 40})
    assert remote.asked == [(TWO, frozenset({1}), None), (THREE, frozenset({1}), 100)]


def test_a_standby_here_is_asked_before_one_elsewhere() -> None:
    remote = others(three={})
    found = read(router(directory(ONE, {2: 3}), remote), key_question(key_of(2)))
    assert found.covered == {2: 3}
    assert [host for host, _, _ in remote.asked] == [THREE]


def test_a_standby_too_far_behind_does_not_answer_and_the_refusal_says_who_was_asked() -> None:
    remote = others(three={1: 101})
    with pytest.raises(InvalidStateStoreError) as error:
        read(router(directory(ONE, {0: None}), remote, timeout_s=1.0), key_question(key_of(1)))
    assert "no copy of partition 1 could be read in 1 s" in str(error.value)
    assert "two:2: does not answer" in str(error.value)
    assert "three:3: has no copy to answer from of partition 1" in str(error.value)
    assert len(remote.asked) < 20  # with a pause after each round


def test_a_partition_on_its_way_is_waited_for() -> None:
    """Its owner to be does not have it yet; a moment later it does."""
    remote = others(two={})

    def after_a_while() -> None:
        if len(remote.asked) == 3:
            remote.directories[TWO].copies = {1: None}

    remote.on_question = after_a_while
    found = read(router(directory(ONE, {0: None}), remote, timeout_s=5), key_question(key_of(1)))
    assert found.covered == {1: 0}
    assert len([1 for host, _, _ in remote.asked if host == TWO]) >= 2


def test_a_new_map_of_hosts_is_followed() -> None:
    remote = others(three={1: None})
    here = directory(ONE, {0: None})

    def rebalanced() -> None:
        here.hosts = host_map({ONE: (0,), THREE: (1, 2)})

    remote.on_question = rebalanced
    found = read(router(here, remote, timeout_s=5), key_question(key_of(1)))
    assert found.covered == {1: 0}


def test_what_was_answered_is_not_asked_again_in_the_next_round() -> None:
    remote = others(two={1: None}, three={})

    def later() -> None:
        if len(remote.asked) > 3:
            remote.directories[THREE].copies = {2: None}

    remote.on_question = later
    found = read(router(directory(ONE, {0: None}), remote, timeout_s=5), ALL)
    assert words(found) == sorted(ENTRIES)
    assert [partitions for host, partitions, _ in remote.asked if host == TWO] == [frozenset({1})]


def test_the_own_address_is_never_asked() -> None:
    remote = others()
    here = StandInDirectory(own_host=ONE, hosts=host_map({ONE: (0, 1, 2)}, {ONE: (0,)}), copies={})
    with pytest.raises(InvalidStateStoreError):
        read(router(here, remote, timeout_s=1.0), ALL)
    assert remote.asked == []


@pytest.mark.parametrize(("two", "three"), [(9, 4), (4, 9)])
def test_of_two_standbys_the_one_less_behind_counts_and_nothing_comes_twice(two: int, three: int) -> None:
    here = StandInDirectory(own_host=ONE, hosts=host_map({}, {TWO: (1,), THREE: (1,)}), copies={}, entries=ENTRIES)
    found = read(router(here, others(two={1: two}, three={1: three})), key_question(key_of(1)))
    assert (words(found), found.covered) == ([key_of(1)], {1: 4})


def test_a_range_from_two_standbys_lacks_no_rows_behind_a_limit() -> None:
    """Most rows of the first answer are of a partition that the second one has, whose keys were deleted there meanwhile."""
    shared = frozenset(key for key in ENTRIES if partition_of_key(key.encode(), PARTITIONS) == 2)
    two = StandInDirectory(own_host=TWO, hosts=SHARED, copies={1: 1, 2: 50}, entries=ENTRIES)
    left = {key: number for key, number in ENTRIES.items() if key not in shared or key == max(shared)}
    three = StandInDirectory(own_host=THREE, hosts=SHARED, copies={2: 4}, entries=left)
    here = StandInDirectory(own_host=ONE, hosts=host_map({}, {TWO: (1, 2), THREE: (2,)}), copies={})
    through = router(here, StandInInstances({TWO: two, THREE: three}))
    partitions = frozenset({1, 2})
    everything = words(read(through, RowsQuestion(partitions=partitions, limit=100)))
    assert everything == [key for key in sorted(left) if partition_of_key(key.encode(), PARTITIONS) in partitions]
    for limit in range(2, 7):
        found: list[str] = []
        low: bytes | None = None
        while True:
            page = read(through, RowsQuestion(partitions=partitions, low=low, limit=limit))
            shown = page.rows[: limit - 1]  # as pages do: one row more says where the next one begins
            found += [row.key.decode() for row in shown]
            low = page.rows[limit - 1].key if len(page.rows) == limit else page.more_from
            if low is None:
                break
        assert found == everything, limit


def test_rows_that_nobody_asked_for_are_left_out() -> None:
    class Talkative(StandInInstances):
        def read(
            self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
        ) -> FoundRows:
            return self.directories[host].read(store, ALL, max_lag=max_lag)

    remote = Talkative({TWO: directory(TWO, {0: None, 1: None, 2: None})})
    found = read(router(directory(ONE, {}), remote), RowsQuestion(partitions=frozenset({1}), limit=100))
    assert found.covered == {1: 0}
    assert {partition_of_key(row.key, PARTITIONS) for row in found.rows} == {1}


def test_an_owner_that_kept_someone_waiting_is_asked_last_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.routing._AWAY_S", 60.0)
    remote = others(three={1: 5})
    through = router(directory(ONE, {}), remote)
    question = key_question(key_of(1))

    async def three_times() -> None:
        for _ in range(3):
            assert (await through.read(COUNTS, question, max_lag=100)).covered == {1: 5}
        remote.directories[THREE].copies = {}
        remote.directories[TWO] = directory(TWO, {1: None})
        for _ in range(2):
            assert (await through.read(COUNTS, question, max_lag=100)).covered == {1: 0}

    asyncio.run(three_times())
    assert [host for host, _, _ in remote.asked] == [TWO, THREE, THREE, THREE, THREE, TWO, TWO]


def test_after_a_while_it_is_asked_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.routing._AWAY_S", 0.0)
    remote = others(three={1: 5})
    through = router(directory(ONE, {}), remote)
    for _ in range(2):
        assert read(through, key_question(key_of(1))).covered == {1: 5}
    assert [host for host, _, _ in remote.asked] == [TWO, THREE, TWO, THREE]


def test_files_and_brokers_are_read_by_threads_of_their_own_and_long_questions_by_others() -> None:
    threads = []

    class Noting(StandInDirectory):
        def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return super().read(store, question, max_lag=max_lag)

    class NotingInstances(StandInInstances):
        def read(self, *args: Any, **kwargs: Any) -> FoundRows:
            threads.append(threading.current_thread().name.rpartition("_")[0])
            return super().read(*args, **kwargs)

    noting = Noting(own_host=ONE, hosts=SHARED, copies={2: 3}, entries=ENTRIES)
    through = router(noting, NotingInstances())
    key = key_question(key_of(2))
    for question in (key, replace(key, times=(0, 9), limit=1_001)):
        through.away_until.clear()
        assert read(through, question).covered == {2: 3}
        assert threads == ["here", "there", "there"]  # the copies here, the owner, the standby here, which a broker knows of
        threads.clear()
    for question in (replace(key, times=(0, 9), limit=1_002), replace(key, key=None)):
        through.away_until.clear()
        assert read(through, question).covered == {2: 3}
        assert threads == ["pages_here", "pages_there", "pages_there"]
        threads.clear()


def test_what_is_here_does_not_wait_for_brokers_that_are_asked_for_others() -> None:
    begun, answered = threading.Event(), threading.Event()

    class Slow(StandInDirectory):
        def read(self, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None) -> FoundRows:
            if max_lag is not None:
                begun.set()
                answered.wait(30)
            return super().read(store, question, max_lag=max_lag)

    through = router(Slow(own_host=ONE, hosts=SHARED, copies={0: None}, entries=ENTRIES), timeout_s=30)

    async def still_waiting() -> int:
        waiting = [asyncio.create_task(through.read(COUNTS, key_question(key_of(1)), max_lag=9)) for _ in range(10)]
        while not begun.is_set():
            await asyncio.sleep(0.01)
        await through.read(COUNTS, key_question(key_of(0)), max_lag=9)
        found = sum(not task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        answered.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        return found

    assert asyncio.run(still_waiting()) == 10


def test_one_that_hangs_costs_its_time_and_not_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.query.routing._ATTEMPT_S", 0.3)

    class Hanging(StandInInstances):
        def read(
            self, host: HostInfo, store: StoreInfo, question: RowsQuestion, *, max_lag: int | None, timeout_s: float
        ) -> FoundRows:
            if host == TWO:
                time.sleep(timeout_s)
                raise RetriableError("does not answer (TimeoutError)")
            return super().read(host, store, question, max_lag=max_lag, timeout_s=timeout_s)

    remote = Hanging({THREE: directory(THREE, {1: 5})})
    found = read(router(directory(ONE, {}), remote, timeout_s=30), key_question(key_of(1)))
    assert found.covered == {1: 5}


def test_reads_are_never_older_than_what_was_seen_wherever_they_are_answered() -> None:
    """A client that keeps the position of each answer: the owner first, then, while it is away, only a standby that is as far."""
    remote = others(two={1: None}, three={1: 40})
    remote.directories[TWO].position, remote.directories[THREE].position = Position({1: 7}), Position({1: 5})
    through = router(directory(ONE, {0: None}), remote)
    seen = Position().merged(read(through, key_question(key_of(1))).position)
    assert seen == Position({1: 7})
    del remote.directories[TWO]
    question = replace(key_question(key_of(1)), position=seen)
    assert read(through, key_question(key_of(1))).position == Position({1: 5})
    with pytest.raises(InvalidStateStoreError, match="three:3: has no copy to answer from of partition 1"):
        read(replace(through, timeout_s=1.0), question)
    remote.directories[THREE].position = Position({1: 9})
    assert read(through, question).position == Position({1: 9})

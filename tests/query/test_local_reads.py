"""Copies in real files, read while a writer works: what is answered, and what is refused with which words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.query.stand_ins import COUNTS, PARTITIONS, StandInDirectory, ask, host_map, store_info, stored
from tests.query.stand_ins import router as router_of
from tidemill.dsl.serdes import Serdes
from tidemill.errors import (
    InvalidStateStoreError,
    QueryError,
    RetriableError,
    StateError,
    StreamsNotStartedError,
    UnknownStoreError,
)
from tidemill.ids import TaskId, TopicPartition
from tidemill.membership.member_state import Role
from tidemill.membership.wire import HostInfo
from tidemill.operators.stores import store_of
from tidemill.query.http_app import ReadsApp
from tidemill.query.local_copies import CopyReader, LocalCopies, LocalCopy
from tidemill.query.metadata import HostMap
from tidemill.query.position import Position
from tidemill.query.rows import FoundRows, Row, RowsQuestion
from tidemill.query.store_info import StoreInfo
from tidemill.query.store_queries import Broker, OwnInstance, StoreQueries
from tidemill.query.versioned_view import versioned_view
from tidemill.state.lmdb import TaskState, wipe_files
from tidemill.state.store import Positions
from tidemill.steps.rows.task_rows import TaskRows, opened
from tidemill.steps.step_state import Written
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.partitioning import partition_of_key
from tidemill.topology.values import ValueAndTimestamp

HERE, THERE = HostInfo("here", 1), HostInfo("there", 2)


@dataclass
class Instance:
    """Its files, what it holds, and what the broker would say."""

    folder: Path
    stores: tuple[StoreInfo, ...] = (COUNTS,)
    held: dict[int, LocalCopy] = field(default_factory=dict)
    writers: dict[int, TaskState] = field(default_factory=dict)
    hosts: HostMap = field(default_factory=lambda: host_map({HERE: (0, 1), THERE: (2,)}))
    ends: dict[int, int] = field(default_factory=dict)
    uncommitted: dict[int, int] = field(default_factory=dict)
    """Offsets behind the end that an open transaction has taken."""
    is_broker_away: bool = False
    started: bool = True
    now_s: float = 0.0
    partitions: int = PARTITIONS
    asked_for_counts: int = 0
    frames: Any = None
    """Makes DataFrames of stores."""

    def __post_init__(self) -> None:
        self.copies = LocalCopies(lambda wanted: [copy for copy in self.held.values() if wanted(copy.task)])
        self.queries = StoreQueries(
            {store.name: store for store in self.stores},
            self.copies,
            OwnInstance(own_host=HERE, hosts=lambda: self.hosts, require_started=self._require_started),
            Broker(
                partitions=self._partitions,
                end_offsets=self._high_watermarks,
                stable_end_offsets=self._ends,
            ),
            frames=self.frames,
            now_s=lambda: self.now_s,
        )

    def _require_started(self) -> None:
        if not self.started:
            raise StreamsNotStartedError("the instance is CREATED")

    def _partitions(self, topics: Any) -> dict[str, int | None]:
        self.asked_for_counts += 1
        if self.is_broker_away:
            raise RetriableError("no broker answers")
        return dict.fromkeys(topics, self.partitions)

    def _ends(self, partitions: Any) -> dict[TopicPartition, int]:
        if self.is_broker_away:
            raise RetriableError("no broker answers")
        return {tp: self.ends[tp.partition] for tp in partitions}

    def _high_watermarks(self, partitions: Any) -> dict[TopicPartition, int]:
        return {tp: end + self.uncommitted.get(tp.partition, 0) for tp, end in self._ends(partitions).items()}

    def take(
        self, partition: int, role: Role = Role.ACTIVE, *, is_running: bool = True, is_confirmed: bool = False,
        applied: threading.Event | None = None,
    ) -> None:
        directory = self.folder / f"1_{partition}"
        if partition not in self.writers:
            self.writers[partition] = TaskState.open(directory, [store.name for store in self.stores])
            self.writers[partition].claim("e")
        self.held[partition] = LocalCopy(
            task=TaskId(1, partition), role=role, directory=directory, is_running=is_running, epoch="e", positions={},
            is_confirmed=is_confirmed, applied=applied,
        )

    def write(self, entries: dict[Any, Any], partition: int, position: int, store: StoreInfo = COUNTS) -> None:
        """As a batch does; the driver hears of it."""
        state = self.writers[partition]
        before = state.positions()
        rows = [(store.key_bytes(key), None if value is None else stored(store, value)) for key, value in entries.items()]
        after = Positions(changelog={store.name: position}, epoch=before.epoch)
        state.apply(expected=before, new=after, writes={store.name: rows})
        self.held[partition] = replace(self.held[partition], positions={store.name: position})

    def get(self, key: Any, **how: Any) -> Any:
        return self.queries.view("counts", **{"stale": False, "partition": None, **how}).get(key)

    def all(self, **how: Any) -> list[tuple[Any, Any]]:
        return list(self.queries.view("counts", **{"stale": False, "partition": None, **how}).all())


def keys_of(partition: int, count: int = 3) -> list[str]:
    words = (f"word{number}" for number in range(1000))
    return [word for word in words if partition_of_key(word.encode(), PARTITIONS) == partition][:count]


A, B, C = keys_of(0), keys_of(1), keys_of(2)


def test_partitions_that_a_source_topic_has_got_are_read_from_the_next_assignment_on(make: Callable[..., Instance]) -> None:
    """A store without a changelog of its own goes on with them: its keys would be looked up where they were before."""
    instance = make()
    instance.hosts = host_map({HERE: (0, 1, 2)})
    moved = next(word for word in map(str, range(1000)) if partition_of_key(word.encode(), 5) == 4)
    for partition in range(5):
        instance.take(partition)
    instance.write({moved: 1}, 4, 1)
    assert instance.get(moved) is None
    assert instance.get(moved) is None
    assert instance.asked_for_counts == 1
    instance.partitions = 5
    assert instance.get(moved) is None
    instance.hosts = host_map({HERE: (0, 1, 2, 3, 4)})
    assert instance.get(moved) == 1
    assert instance.queries.metadata_for_key("counts", moved, None).partition == 4
    assert instance.queries.known_partition_count(COUNTS) == 5
    assert instance.asked_for_counts == 2


def test_a_count_that_no_broker_says_at_a_new_assignment_is_the_one_before_and_asked_for_again(
    make: Callable[..., Instance]
) -> None:
    instance = make()
    assert instance.queries.partition_count(COUNTS) == PARTITIONS
    instance.hosts, instance.is_broker_away, instance.partitions = host_map({HERE: (0, 1, 2)}), True, 5
    for _ in range(3):
        assert instance.queries.partition_count(COUNTS) == PARTITIONS
    assert instance.asked_for_counts == 2
    instance.is_broker_away, instance.now_s = False, 5.0
    assert instance.queries.partition_count(COUNTS) == 5


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    made: list[Instance] = []

    def one(**fields: Any) -> Instance:
        made.append(Instance(tmp_path, **fields))
        return made[-1]

    yield one
    for instance in made:
        instance.copies.close()
        for state in instance.writers.values():
            state.close(clean=False)


@pytest.fixture
def instance(make: Callable[..., Instance]) -> Instance:
    """Active of the partitions 0 and 1 of three; 2 is elsewhere."""
    found = make()
    for partition, keys in ((0, A), (1, B)):
        found.take(partition)
        found.write({key: number for number, key in enumerate(keys)}, partition, 10)
    return found


def test_what_is_committed_is_read_key_by_key_and_in_ranges(instance: Instance) -> None:
    assert [instance.get(key) for key in (*A, *B)] == [0, 1, 2, 0, 1, 2]
    everything = sorted([*zip(A, range(3), strict=True), *zip(B, range(3), strict=True)])
    assert instance.all() == everything
    view = instance.queries.view("counts", stale=False, partition=None)
    low, high = everything[1][0], everything[4][0]
    assert list(view.range(low, high)) == everything[1:5]
    assert list(view.range(high, low)) == []
    assert list(view.range(high=low)) == everything[:2]
    assert view.approximate_num_entries == 6
    assert list(instance.queries.view("counts", stale=False, partition=1).all()) == sorted(zip(B, range(3), strict=True))


def test_keys_are_found_by_how_they_begin(instance: Instance) -> None:
    view, text = instance.queries.view("counts", stale=False, partition=None), Serdes.string()
    every = instance.all()
    for prefix in ("", "w", "word", A[0], A[0] + "x", "\U0010ffff"):
        expected = [entry for entry in every if entry[0].startswith(prefix)]
        assert list(view.prefix_scan(prefix, text)) == expected
        assert list(view.prefix_scan(prefix, text, reverse=True)) == expected[::-1]
    assert next(view.timestamped.prefix_scan(A[0], text)) == (A[0], ValueAndTimestamp(0, 7))
    for wrong in (None, 5):
        with pytest.raises(QueryError, match="prefix"):
            view.prefix_scan(wrong, text)
    makes_one: Any = Serdes.string
    with pytest.raises(QueryError, match=r"counts: prefix_scan: .* is not a serde but a function; give what it makes"):
        view.prefix_scan("w", makes_one)


def test_a_prefix_of_bytes_that_nothing_comes_behind(make: Callable[..., Instance]) -> None:
    """It has no next prefix to end before."""
    store = store_info("bytes", key=Serdes.bytes(), is_placed=False)
    instance = make(stores=(store,))
    instance.take(0)
    instance.write({key: n for n, key in enumerate((b"\xfe\xff", b"\xff", b"\xff\xff", b"\xff\xff\xff"))}, 0, 4, store=store)
    view = instance.queries.view("bytes", stale=False, partition=0)
    assert [n for _, n in view.prefix_scan(b"\xff\xff", Serdes.bytes())] == [2, 3]
    assert [n for _, n in view.prefix_scan(b"\xfe", Serdes.bytes())] == [0]


def test_a_view_outlives_batches(instance: Instance) -> None:
    view = instance.queries.view("counts", stale=False, partition=None)
    assert view.get(A[0]) == 0
    instance.write({A[0]: 100, A[1]: None}, 0, 11)
    assert (view.get(A[0]), view.get(A[1])) == (100, None)
    assert view.approximate_num_entries == 5


def test_an_open_transaction_is_not_seen(instance: Instance) -> None:
    state = instance.writers[0]
    with state._environment.write(b"store:counts") as (transaction, (handle,)):
        transaction.put(b"k" + A[0].encode(), stored(COUNTS, 99), db=handle)
        assert instance.get(A[0]) == 0
    assert instance.get(A[0]) == 99


def test_timestamps_are_there_for_those_who_ask(instance: Instance) -> None:
    view = instance.queries.view("counts", stale=False, partition=None)
    assert view.timestamped.get(A[1]) == ValueAndTimestamp(1, 7)
    assert dict(view.timestamped.all())[A[2]] == ValueAndTimestamp(2, 7)


def test_a_key_that_is_not_there_is_none_and_one_that_is_elsewhere_says_where(instance: Instance) -> None:
    assert instance.get(keys_of(0, 4)[-1]) is None
    with pytest.raises(InvalidStateStoreError, match="needs partition 2, and it is not here; it is assigned to there:2") as error:
        instance.get(C[0])
    assert error.value.hosts == ("there:2",)


@pytest.mark.parametrize("stale", [False, True])
def test_a_range_where_nothing_of_the_store_is_is_refused_and_not_empty(make: Callable[..., Instance], stale: bool) -> None:
    view = make().queries.view("counts", stale=stale, partition=None)
    for read in (view.all, view.range, lambda: view.approximate_num_entries, lambda: view.position):
        with pytest.raises(InvalidStateStoreError, match=r"partitions that are here, and none is; ask .* there:2") as error:
            read()
        assert error.value.hosts == ("there:2",)


def test_a_range_where_only_a_standby_is_is_refused_unless_stale_answers_are_taken(instance: Instance) -> None:
    for partition in (0, 1):
        instance.held[partition] = replace(instance.held[partition], role=Role.STANDBY, is_running=False)
    with pytest.raises(InvalidStateStoreError, match="none is"):
        instance.all()
    assert len(instance.all(stale=True)) == 6


def test_a_record_that_a_foreign_client_put_elsewhere_is_found_too(make: Callable[..., Instance]) -> None:
    source = store_info(is_placed=False)
    instance = make(stores=(source,))
    for partition in (0, 1):
        instance.take(partition)
    instance.write({C[0]: 5}, 1, 1)
    assert instance.get(C[0]) == 5
    for nowhere_here in (C[1], A[1]):
        with pytest.raises(InvalidStateStoreError, match="needs partition 2"):
            instance.get(nowhere_here)
    assert instance.get(A[1], partition=0) is None
    instance.take(2)
    assert instance.get(A[1]) is None


def test_a_task_that_is_being_restored_is_refused_unless_stale_answers_are_taken(instance: Instance) -> None:
    instance.take(2, is_running=False)
    instance.writers[2].apply(
        expected=Positions(epoch="e"), new=Positions(epoch="e"), writes={"counts": [(C[0].encode(), stored(COUNTS, 8))]}
    )
    with pytest.raises(InvalidStateStoreError, match="task 1_2 is being restored here"):
        instance.get(C[0])
    with pytest.raises(InvalidStateStoreError, match="a whole range needs partition 2"):
        instance.all()
    assert instance.get(C[0], stale=True) == 8
    assert len(instance.all(stale=True)) == 7


def test_a_standby_is_for_those_who_take_stale_answers(instance: Instance) -> None:
    instance.take(2, Role.STANDBY, is_running=False)
    instance.write({C[0]: 8}, 2, 3)
    assert len(instance.all()) == 6
    with pytest.raises(InvalidStateStoreError, match="it is not here"):
        instance.get(C[0])
    assert instance.get(C[0], stale=True) == 8


def test_after_a_lost_batch_what_was_committed_goes_on_being_read(instance: Instance) -> None:
    instance.copies.refresh()
    instance.take(0, is_running=False)
    assert instance.get(A[1]) == 1


def test_files_that_were_wiped_are_not_believed_until_they_hold_again_what_they_held(instance: Instance) -> None:
    instance.copies.refresh()
    instance.writers.pop(0).close(clean=True)
    wipe_files(instance.folder / "1_0")
    with pytest.raises(InvalidStateStoreError):
        instance.get(A[1])
    instance.take(0, is_running=False)
    instance.write({A[1]: 1}, 0, 9)
    with pytest.raises(InvalidStateStoreError, match=r"wiped and are being restored \(offset 9 of 10\)"):
        instance.get(A[1])
    instance.write({A[1]: 3}, 0, 10)
    assert instance.get(A[1]) == 3


def test_a_scan_over_files_that_are_wiped_and_restored_meanwhile_has_no_holes(instance: Instance) -> None:
    keys = [f"word{number:03}" for number in range(200)]
    instance.write(dict.fromkeys(keys, 1), 0, 200)
    entries = instance.queries.view("counts", stale=False, partition=0).all()
    found = [next(entries)]
    instance.writers[0].wipe()
    instance.write(dict.fromkeys(keys[1::2], 1), 0, 150)
    with pytest.raises(InvalidStateStoreError, match="wiped and are being restored"):
        found += [next(entries) for _ in range(50)]
    assert [key for key, _ in found] == sorted([*A, *keys])[: len(found)]


def test_files_that_are_wiped_and_restored_during_a_read_are_not_believed(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.copies.refresh()
    instance.writers.pop(0).close(clean=True)
    wipe_files(instance.folder / "1_0")
    instance.take(0, is_running=False)
    instance.write({A[0]: 0}, 0, 9)
    get = TaskState.get_many

    def before_the_rest_is_restored(state: TaskState, store: str, keys: list[bytes]) -> list[bytes | None]:
        found = get(state, store, keys)
        instance.write({A[1]: 1}, 0, 10)
        return found

    monkeypatch.setattr(TaskState, "get_many", before_the_rest_is_restored)
    with pytest.raises(InvalidStateStoreError, match="wiped and are being restored"):
        instance.get(A[1])


def test_files_that_are_wiped_during_a_read_are_not_believed(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    instance.copies.refresh()
    get = TaskState.get_many

    def after_a_wipe(state: TaskState, store: str, keys: list[bytes]) -> list[bytes | None]:
        instance.writers[0].wipe()
        return get(state, store, keys)

    monkeypatch.setattr(TaskState, "get_many", after_a_wipe)
    with pytest.raises(InvalidStateStoreError, match="wiped and are being restored"):
        instance.get(A[1])


def test_a_task_of_another_sub_topology_has_none_of_the_store(instance: Instance) -> None:
    instance.held[2] = replace(instance.held[1], task=TaskId(2, 2))
    with pytest.raises(InvalidStateStoreError, match="needs partition 2, and it is not here"):
        instance.get(C[0])


def test_all_files_are_closed_with_the_instance(instance: Instance) -> None:
    opened: list[TaskState] = []

    def noted(folder: Path) -> TaskState:
        opened.append(TaskState.open_to_read(folder))
        return opened[-1]

    copies = LocalCopies(lambda wanted: [copy for copy in instance.held.values() if wanted(copy.task)], noted)
    assert copies.open(COUNTS, stale=False).readers.keys() == {0, 1}
    copies.close()
    for state in opened:
        with pytest.raises(StateError, match="is closed"):
            state.positions()
    assert len(opened) == 2


def test_a_standby_that_is_wiped_does_not_answer_for_what_it_was_when_its_age_was_taken(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance.take(0, Role.STANDBY, is_running=False)
    instance.ends[0] = 10
    get = CopyReader.get

    def after_a_wipe(reader: CopyReader, key: bytes) -> bytes | None:
        instance.writers[0].wipe()
        return get(reader, key)

    assert asked(instance, A[0], max_lag=0).covered == {0: 0}
    monkeypatch.setattr(CopyReader, "get", after_a_wipe)
    assert asked(instance, A[0], max_lag=0).covered == {}


def test_a_demoted_and_promoted_task_is_not_believed_for_what_it_was(instance: Instance) -> None:
    instance.copies.refresh()
    instance.take(0, Role.STANDBY, is_running=False)
    instance.copies.refresh()
    instance.take(0, is_running=False)
    with pytest.raises(InvalidStateStoreError, match="being restored"):
        instance.get(A[0])


def test_what_is_given_up_is_closed_and_elsewhere(instance: Instance) -> None:
    assert instance.get(B[0]) == 0
    scan = instance.queries.view("counts", stale=False, partition=None).all()
    del instance.held[1]
    instance.copies.refresh()
    with pytest.raises(InvalidStateStoreError, match="needs partition 1"):
        instance.get(B[0])
    with pytest.raises(InvalidStateStoreError, match="closed"):
        list(scan)


def test_questions_that_can_not_be_are_refused_with_a_sentence(instance: Instance) -> None:
    with pytest.raises(UnknownStoreError, match="there is no store 'count'; the topology's stores are counts"):
        instance.queries.view("count", stale=False, partition=None)
    with pytest.raises(QueryError, match="the partitions 0 to 2: there is no 3"):
        instance.queries.view("counts", stale=False, partition=3)
    with pytest.raises(UnknownStoreError, match=r"there is no store \['counts'\]"):
        instance.queries.view(["counts"], stale=False, partition=None)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="the partitions 0 to 2: there is no True"):
        instance.queries.view("counts", stale=False, partition=True)
    wrong: Any = "1"
    with pytest.raises(QueryError, match="the partitions 0 to 2: there is no '1'"):
        instance.queries.view("counts", stale=False, partition=wrong)
    with pytest.raises(QueryError, match="position is '1', expected a Position"):
        instance.queries.view("counts", stale=False, partition=None, position=wrong)
    with pytest.raises(QueryError, match=r"^counts: 5 is no key of this store: string: .*, expected str; give one that the"):
        instance.get(5)
    with pytest.raises(QueryError, match="null is no key"):
        instance.get(None)
    instance.started = False
    with pytest.raises(StreamsNotStartedError):
        instance.queries.view("counts", stale=False, partition=None)
    with pytest.raises(StreamsNotStartedError):
        instance.queries.metadata_for_key("counts", A[0], None)
    with pytest.raises(StreamsNotStartedError):
        instance.queries.lags()


def test_a_dataframe_of_an_instance_that_closes_is_refused_and_not_pyspark_s_error(make: Callable[..., Instance]) -> None:
    class Frames:
        closes = False

        def of(self, *_: object) -> None:
            if self.closes:
                instance.copies.close()
            raise ConnectionRefusedError("the JVM has gone")

    frames = Frames()
    instance = make(frames=frames)
    instance.take(0)
    with pytest.raises(ConnectionRefusedError):
        instance.queries.dataframe("counts", stale=False, partition=None)
    frames.closes = True
    with pytest.raises(InvalidStateStoreError, match="this instance is closing"):
        instance.queries.dataframe("counts", stale=False, partition=None)


def test_a_store_without_timestamps_says_so(make: Callable[..., Instance]) -> None:
    plain = store_info(timestamped=False)
    instance = make(stores=(plain,))
    instance.take(0)
    instance.write({A[0]: 5}, 0, 1, plain)
    view = instance.queries.view("counts", stale=False, partition=None)
    assert view.get(A[0]) == 5
    with pytest.raises(QueryError, match="keeps no timestamps"):
        _ = view.timestamped


def test_keys_of_other_types_are_found(make: Callable[..., Instance]) -> None:
    numbers = store_info(key=Serdes.long(), value=Serdes.string())
    instance = make(stores=(numbers,))
    for partition in range(PARTITIONS):
        instance.take(partition)
    keys = [-1, 0, 1, 1 << 40]
    for key in keys:
        instance.write({key: str(key)}, partition_of_key(numbers.key_bytes(key), PARTITIONS), key & 0xFF, numbers)
    assert [instance.get(key) for key in keys] == [str(key) for key in keys]
    assert [key for key, _ in instance.all()] == [0, 1, 1 << 40, -1]


def test_metadata_of_a_key_names_partition_and_hosts(instance: Instance) -> None:
    found = instance.queries.metadata_for_key("counts", C[0], None)
    assert (found.active_host, found.partition) == (THERE, 2)
    assert instance.queries.metadata_for_key("counts", C[0], lambda key, count: 1).active_host == HERE
    for wrong in ({0, 1}, None, "0", True, 3, -1):
        with pytest.raises(QueryError, match=r"counts: the partitioner gave .*, expected one of the partitions 0 to 2"):
            instance.queries.metadata_for_key("counts", A[0], lambda key, count, wrong=wrong: wrong)
    with pytest.raises(QueryError, match=r"counts: the partitioner is .*, expected a function of .* no serde is needed"):
        instance.queries.metadata_for_key("counts", C[0], Serdes.string())  # type: ignore[arg-type]


def test_lags_are_those_of_the_files_and_none_for_a_running_active(instance: Instance) -> None:
    instance.take(2, Role.STANDBY, is_running=False)
    instance.write({C[0]: 8}, 2, 3)
    instance.ends = {0: 50, 1: 60, 2: 5}
    lags = instance.queries.lags()["counts"]
    assert {partition: lag.offset_lag for partition, lag in lags.items()} == {0: 0, 1: 0, 2: 2}
    assert (lags[2].current_offset_position, lags[2].end_offset_position) == (3, 5)
    instance.take(0, is_running=False)  # it is restored
    instance.take(2, Role.STANDBY, is_running=True)  # the thread has not demoted it yet
    assert {partition: lag.offset_lag for partition, lag in instance.queries.lags()["counts"].items()} == {0: 40, 1: 0, 2: 2}


def test_an_answer_says_what_it_covers_and_a_standby_too_far_behind_is_left_out(instance: Instance) -> None:
    instance.take(2, Role.STANDBY, is_running=False)
    instance.write({C[0]: 8}, 2, 3)
    instance.ends = {2: 5}
    question = RowsQuestion(partitions=frozenset(range(PARTITIONS)), limit=100)
    assert instance.queries.read(COUNTS, question, max_lag=None).covered == {0: 0, 1: 0}
    assert instance.queries.read(COUNTS, question, max_lag=1).covered == {0: 0, 1: 0}
    found = instance.queries.read(COUNTS, question, max_lag=2)
    assert found.covered == {0: 0, 1: 0, 2: 2}
    assert [row.key.decode() for row in found.rows] == sorted([*A, *B, C[0]])


def test_a_standby_whose_lag_nobody_tells_does_not_answer(instance: Instance) -> None:
    instance.take(2, Role.STANDBY, is_running=False)
    instance.is_broker_away = True
    question = RowsQuestion(partitions=frozenset({0, 2}), key=C[0].encode())
    assert instance.queries.read(COUNTS, question, max_lag=1000).covered == {0: 0}


def test_a_range_of_all_copies_here_is_read_no_further_than_its_page(instance: Instance) -> None:
    question = RowsQuestion(partitions=frozenset(range(PARTITIONS)), limit=100, most_bytes=1)
    found, low = [], None
    for _ in range(len([*A, *B])):
        page = instance.queries.read(COUNTS, replace(question, low=low), max_lag=None)
        assert len(page.rows) == 1
        assert page.covered == {0: 0, 1: 0}
        found += [row.key.decode() for row in page.rows]
        low = page.more_from
    assert low is None
    assert found == sorted([*A, *B])


def test_rows_travel_as_they_are() -> None:
    rows = FoundRows(rows=(Row(b"", b"\0\xff", 0), Row(b"k", b"", 2)), covered={0: 0, 2: 17})
    assert FoundRows.from_bytes(rows.to_bytes()) == rows
    assert FoundRows.from_bytes(FoundRows().to_bytes()) == FoundRows()
    for garbage in (b"", b"hello", rows.to_bytes()[:-20], b"\xff" * 100):
        with pytest.raises(ValueError):  # noqa: PT011  # any sentence
            FoundRows.from_bytes(garbage)


# --- bounds to where copies are (KIP-796's PositionBound) and how old they are -------------------------------------------


def asked(instance: Instance, key: str, *, max_lag: int | None = None, **bounds: Any) -> FoundRows:
    data = key.encode()
    partition = partition_of_key(data, PARTITIONS)
    question = RowsQuestion(partitions=frozenset({partition}), key=data, **bounds)
    return instance.queries.read(COUNTS, question, max_lag=max_lag)


def test_an_answer_says_where_its_copies_are(instance: Instance) -> None:
    assert asked(instance, A[0]).position == Position({0: 10})
    instance.write({A[0]: 5}, 0, 17)
    everything = RowsQuestion(partitions=frozenset({0, 1, 2}), limit=100)
    assert str(instance.queries.read(COUNTS, everything, max_lag=None).position) == "0:17,1:10"
    assert str(instance.queries.view("counts", stale=False, partition=None).position) == "0:17,1:10"


@pytest.mark.parametrize("role", [Role.ACTIVE, Role.STANDBY])
def test_a_copy_before_the_position_that_was_seen_does_not_answer_until_it_is_there(instance: Instance, role: Role) -> None:
    instance.take(0, role, is_running=role is Role.ACTIVE)
    instance.ends[0] = 30
    seen = Position({0: 12, 1: 99})
    assert asked(instance, A[0], max_lag=100, position=seen).covered == {}
    instance.write({A[0]: 5}, 0, 12)
    assert asked(instance, A[0], max_lag=100, position=seen).position == Position({0: 12})


def test_a_running_active_that_the_group_knows_is_never_older_than_what_others_have_read(instance: Instance) -> None:
    """A standby's position counts the marker of the transaction, which the active's does not."""
    instance.take(0, is_confirmed=True)
    assert asked(instance, A[0], position=Position({0: 11})).position == Position({0: 10})
    instance.take(0, is_running=False, is_confirmed=True)
    assert asked(instance, A[0], max_lag=None, position=Position({0: 11})).covered == {}
    instance.ends[0] = 11
    instance.take(0, Role.STANDBY, is_running=True, is_confirmed=True)  # the thread has not demoted it yet
    assert asked(instance, A[0], max_lag=9, position=Position({0: 11})).covered == {}


def test_a_running_active_that_commits_does_not_answer_with_what_is_older_than_standbys_have(instance: Instance) -> None:
    """They read the changelog as soon as it is committed, which may be before the owner has written its store."""
    seen, applied = Position({0: 11}), threading.Event()
    instance.take(0, is_confirmed=True, applied=applied)
    assert asked(instance, A[0], position=seen).covered == {}
    with pytest.raises(InvalidStateStoreError, match="it is at offset 10, expected 11 or later"):
        instance.get(A[0], position=seen)
    reader = instance.queries.copies.open(instance.stores[0], stale=False, partitions=[0]).readers[0]

    def applies() -> None:
        instance.write({A[0]: 8}, 0, 11)
        applied.set()

    batch = threading.Thread(target=applies)
    batch.start()
    with suppress(InvalidStateStoreError):  # on a machine that is busy enough
        reader.require(11)
        assert reader.reached == 11
    batch.join()
    assert asked(instance, A[0], position=seen).position == seen
    assert instance.get(A[0], position=seen) == 8
    assert instance.get(A[0], position=Position({0: 12})) == 8, "a transaction's marker, of a batch that its store has"


def test_a_view_refuses_what_is_older_than_its_position(instance: Instance) -> None:
    seen = Position.parse("0:12")
    with pytest.raises(InvalidStateStoreError, match="it is at offset 10, expected 12 or later"):
        instance.get(A[0], position=seen)
    with pytest.raises(InvalidStateStoreError, match="expected 12 or later"):
        instance.all(position=seen)
    assert instance.get(B[1], position=seen) == 1
    instance.write({A[0]: 7}, 0, 13)
    assert instance.get(A[0], position=seen) == 7


def test_the_position_of_what_was_read_counts_copies_that_are_gone_or_were_wiped_since(instance: Instance) -> None:
    instance.write({A[0]: 7}, 0, 13)
    view = instance.queries.view("counts", stale=False, partition=None)
    assert view.get(A[0]) == 7
    gone = instance.held.pop(0)
    assert view.position.offsets[0] == 13
    assert view.get(B[1]) == 1
    instance.held[0] = replace(gone, positions={})
    assert view.timestamped.position == view.position
    fresh = instance.queries.view("counts", stale=False, partition=1)
    assert fresh.position.offsets.keys() == {1}


def test_a_store_without_changelog_has_no_positions(make: Callable[..., Instance]) -> None:
    instance = make(stores=(replace(COUNTS, changelog=None),))
    instance.take(0)
    instance.write({A[0]: 1}, 0, 1)
    store = instance.stores[0]
    question = RowsQuestion(partitions=frozenset({0}), key=A[0].encode(), position=Position({0: 1}))
    for refused in (
        lambda: instance.queries.read(store, question, max_lag=None), lambda: instance.get(A[0], position=Position({0: 1})),
    ):
        with pytest.raises(QueryError, match="counts has no changelog, so there are no positions of it"):
            refused()
    found = instance.queries.read(store, replace(question, position=Position()), max_lag=None)
    assert (found.covered, found.position) == ({0: 0}, Position())


def test_a_standby_answers_while_it_is_young_enough(instance: Instance) -> None:
    """Its age is the time since the last question to the broker whose answer it has reached."""
    instance.take(0, Role.STANDBY, is_running=False)
    instance.ends[0] = 12

    def answers(most_age_ms: int) -> bool:
        return bool(asked(instance, A[0], max_lag=100, most_age_ms=most_age_ms).covered)

    assert not answers(60_000)  # at 10 of 12, and what it had before nobody has asked
    assert asked(instance, A[0], max_lag=100).covered == {0: 2}
    instance.write({}, 0, 12)  # what was there at 0 s
    instance.now_s, instance.ends[0] = 3.0, 20
    assert answers(3_000)
    assert not answers(2_999)
    instance.write({}, 0, 20)
    assert answers(0)
    instance.now_s = 4.0
    assert answers(100)  # asked again: nothing has come since


def test_what_an_owner_left_in_an_open_transaction_makes_a_standby_no_older(instance: Instance) -> None:
    instance.take(0, Role.STANDBY, is_running=False)
    instance.ends, instance.uncommitted = {0: 10, 1: 10}, {0: 7}
    assert asked(instance, A[0], max_lag=0, most_age_ms=0).covered == {0: 0}
    assert instance.queries.lags()["counts"][0].offset_lag == 7  # in Kafka's sense


def test_an_active_is_never_too_old(instance: Instance) -> None:
    assert asked(instance, A[0], max_lag=100, most_age_ms=0).covered == {0: 0}


def test_of_many_answers_of_the_broker_the_newest_count_to_the_moment(instance: Instance) -> None:
    instance.take(0, Role.STANDBY, is_running=False)
    for second in range(500):
        instance.now_s, instance.ends[0] = float(second), 10 + second
        asked(instance, A[0], max_lag=0)
    instance.write({}, 0, 10 + 498)
    assert bool(asked(instance, A[0], max_lag=100, most_age_ms=1_000).covered)
    assert not asked(instance, A[0], max_lag=100, most_age_ms=999).covered
    instance.write({}, 0, 10 + 100)
    ages = [age for age in range(390_000, 500_000, 1_000) if asked(instance, A[0], max_lag=1_000, most_age_ms=age).covered]
    assert 399_000 <= ages[0] <= 499_000  # of old answers few are kept: an age may be too high, never too low


def test_the_position_of_an_answer_is_taken_behind_the_read(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that comes between is in the position, so that no later read can be older than what was found of it."""
    read = CopyReader.get

    def after_a_batch(reader: CopyReader, key: bytes) -> bytes | None:
        instance.write({A[0]: 77}, 0, 15)
        return read(reader, key)

    monkeypatch.setattr(CopyReader, "get", after_a_batch)
    found = asked(instance, A[0], position=Position({0: 10}))
    assert (COUNTS.value(found.rows[0].stored), found.position) == (77, Position({0: 15}))


def test_a_position_is_text_that_can_be_handed_back() -> None:
    seen = Position({2: 103, 0: 57})
    assert str(seen) == "0:57,2:103"
    assert Position.parse(str(seen)) == seen
    assert seen.merged(Position({0: 60, 1: 1}), Position({2: 7})) == Position({0: 60, 1: 1, 2: 103})
    assert Position.parse("0:5,0:9") == Position({0: 9})
    for wrong in ("", "0", "0:", "a:1", "0:1;1:2", "0:-1", "0:1,", "٣:1", "0:" + "9" * 30):
        with pytest.raises(QueryError, match="expected partition:offset with commas"):
            Position.parse(wrong)


def test_rows_travel_with_their_position() -> None:
    rows = FoundRows(rows=(Row(b"k", b"v", 1),), covered={1: 4}, position=Position({1: 7}))
    assert FoundRows.from_bytes(rows.to_bytes()) == rows
    asked_for = RowsQuestion(partitions=frozenset({1}), key=b"k", position=Position({1: 5}))
    rows.require_answer(asked_for)
    with pytest.raises(ValueError, match="rows of copies whose position is not said"):
        replace(rows, position=Position()).require_answer(asked_for)


# --- versioned stores, and stores of other kinds ---


VERSIONED = Store(
    name="prices", kind=StoreKind.VERSIONED, key_serde=Serdes.string(), value_serde=Serdes.long(), retention_ms=1_000
)


@pytest.fixture
def prices(make: Callable[..., Instance]) -> Instance:
    """Three keys of partition 0: two versions; one; one and a deletion."""
    found = make(stores=(store_info("prices", store=VERSIONED),))
    found.take(0)
    state, rows, written = found.writers[0], TaskRows("prices", logged=False), Written()
    with opened(state) as view:
        rows.begin(view, written)
        kept = store_of(VERSIONED, rows, KeyValueSerdes(key=Serdes.string(), value=Serdes.long()))
        for key, value, at in ((A[0], 10, 100), (A[0], 20, 200), (A[1], 7, 150), (A[2], 5, 100), (A[2], None, 300)):
            kept.put(key, value, at)
        kept.flush()
    before = state.positions()
    after = Positions(changelog={"prices": 5}, epoch=before.epoch)
    state.apply(expected=before, new=after, writes={"prices": list(written.rows.items())})
    found.held[0] = replace(found.held[0], positions={"prices": 5})
    return found


def test_of_a_versioned_store_the_newest_versions_are_read(prices: Instance) -> None:
    view = prices.queries.view("prices", stale=False, partition=0)
    assert [view.get(key) for key in A] == [20, 7, None]
    assert view.timestamped.get(A[0]) == ValueAndTimestamp(20, 200)
    assert dict(view.all()) == {A[0]: 20, A[1]: 7}
    assert dict(view.range(A[1], A[1])) == dict(view.prefix_scan(A[1], Serdes.string())) == {A[1]: 7}
    assert list(view.prefix_scan("", Serdes.string(), reverse=True)) == list(view.all(reverse=True))
    assert view.approximate_num_entries == 2


def test_rows_of_a_versioned_store_are_its_newest_versions(prices: Instance) -> None:
    store = prices.stores[0]
    asked = RowsQuestion(partitions=frozenset({0}), limit=10)
    rows = prices.queries.read(store, asked, max_lag=None).rows
    assert {store.key(row.key): (store.value(row.stored), store.timestamp_ms(row.stored)) for row in rows} == {
        A[0]: (20, 200), A[1]: (7, 150),
    }  # fmt: skip
    one = prices.queries.read(store, replace(asked, key=A[0].encode()), max_lag=None).rows
    assert [(row.key, store.value(row.stored)) for row in one] == [(A[0].encode(), 20)]


def test_older_versions_are_found_by_time(prices: Instance) -> None:
    view = versioned_view(prices.queries.view("prices", stale=False, partition=0))
    assert view.get(A[0]) == ValueAndTimestamp(20, 200)
    assert [view.get_as_of(A[0], at) for at in (99, 100, 199, 200)] == [
        None, ValueAndTimestamp(10, 100), ValueAndTimestamp(10, 100), ValueAndTimestamp(20, 200),
    ]  # fmt: skip
    assert view.get_as_of(A[2], 299) == ValueAndTimestamp(5, 100)
    assert view.get_as_of(A[2], 300) is None
    assert view.history(A[0]) == [ValueAndTimestamp(10, 100), ValueAndTimestamp(20, 200)]
    assert view.history(A[0], 200) == [ValueAndTimestamp(20, 200)]
    assert dict(view.all()) == {A[0]: ValueAndTimestamp(20, 200), A[1]: ValueAndTimestamp(7, 150)}


def test_older_versions_are_those_of_versioned_stores(instance: Instance) -> None:
    with pytest.raises(QueryError, match="counts is not a versioned store"):
        versioned_view(instance.queries.view("counts", stale=False, partition=None))


@pytest.mark.parametrize(
    "kind", [StoreKind.SUPPRESS_BUFFER, StoreKind.GRACE_BUFFER, StoreKind.OUTER_JOIN, StoreKind.SUBSCRIPTIONS]
)
def test_what_operators_keep_for_themselves_is_refused(make: Callable[..., Instance], kind: StoreKind) -> None:
    waiting = store_info("waiting", store=Store(name="waiting", kind=kind))
    with pytest.raises(QueryError, match=f"waiting is a {kind.value.replace('_', ' ')}, which an operator keeps for itself"):
        make(stores=(waiting,)).queries.view("waiting", stale=False, partition=None)
    router = StandInDirectory(own_host=None, hosts=host_map({}), copies={}, stores={"waiting": waiting})
    for target in ("/stores/waiting/key", "/stores/waiting"):
        reply = ask(ReadsApp(router=router_of(router), application_id="app"), target)
        assert (reply.status, "which an operator keeps" in reply.json["error"]) == (400, True)


def test_a_global_store_is_told_from_one_that_is_not_there(instance: Instance) -> None:
    queries = StoreQueries(
        {}, instance.copies, OwnInstance(own_host=None, hosts=lambda: instance.hosts, require_started=lambda: None),
        Broker(partitions=dict, end_offsets=dict, stable_end_offsets=dict),  # type: ignore[arg-type]
        shared=["names"],
    )  # fmt: skip
    with pytest.raises(QueryError, match="names is a global store"):
        queries.view("names", stale=False, partition=None)
    with pytest.raises(UnknownStoreError):
        queries.view("others", stale=False, partition=None)


# --- in a notebook ---


def test_a_view_shows_its_name_and_its_first_rows(instance: Instance) -> None:
    instance.write({A[0]: 1_234}, 0, 11)
    view = instance.queries.view("counts", stale=False, partition=0)
    assert repr(view) == "ReadOnlyStore('counts')"
    shown = view._repr_html_()
    assert "<b>counts</b>, 3 rows of the partitions that are here" in shown
    assert f"<td>{A[0]}</td><td>1234</td>" in shown


def test_a_view_shows_no_more_than_a_screen_and_escapes_what_it_shows(instance: Instance) -> None:
    instance.write({f"<b>{number:03}": number for number in range(100)}, 0, 11)
    shown = instance.queries.view("counts", stale=False, partition=0)._repr_html_()
    assert "the first 20 rows" in shown
    assert shown.count("<tr>") == 21
    assert "<td>&lt;b&gt;000</td>" in shown


def test_a_view_that_can_not_be_read_shows_why(instance: Instance) -> None:
    assert "partition 2" in instance.queries.view("counts", stale=False, partition=2)._repr_html_()


# --- from the end ---


@pytest.mark.parametrize("bounds", [(None, None), ("<b>010", "<b>090"), ("<b>095", None), (None, "<b>004")])
def test_a_range_can_be_read_from_its_end(instance: Instance, bounds: tuple[str | None, str | None]) -> None:
    instance.write({f"<b>{number:03}": number for number in range(0, 100, 2)}, 0, 11)
    instance.write({f"<b>{number:03}": number for number in range(1, 100, 2)}, 1, 11)
    view = instance.queries.view("counts", stale=False, partition=None)
    forward = list(view.range(*bounds))
    assert len(forward) > 4
    assert list(view.range(*bounds, reverse=True)) == forward[::-1]
    assert list(view.all(reverse=True)) == list(view.all())[::-1]


def test_versions_can_be_read_from_the_newest_on(prices: Instance) -> None:
    view = versioned_view(prices.queries.view("prices", stale=False, partition=0))
    assert view.history(A[0], reverse=True) == view.history(A[0])[::-1]
    assert list(view.copies.all(reverse=True)) == list(view.copies.all())[::-1]


def test_a_key_that_a_serde_of_the_programs_own_fails_on_is_refused(make: Callable[..., Instance]) -> None:
    class Upper:
        name, sql_type = "upper", "string"

        def serialize(self, value: Any) -> bytes | None:
            return None if value is None else value.upper().encode()  # type: ignore[no-any-return]

        def deserialize(self, data: bytes | None) -> str | None:
            return None if data is None else data.decode().lower()

    instance = make(stores=(store_info("upper", key=Upper()),))
    with pytest.raises(QueryError, match=r"^upper: 5 is no key of this store: AttributeError: .*; give one that the serde"):
        instance.queries.view("upper", stale=False, partition=None).get(5)

"""The contract of a task's state: a dictionary per store, and positions that are written with it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidemill.errors import StateBehindError, StateError
from tidemill.ids import TopicPartition
from tidemill.state.keys import SHORT_LIMIT
from tidemill.state.lmdb import TaskState
from tidemill.state.store import Positions, TaskStores

STORES = ("a", "b")
INPUT = TopicPartition("in", 0)
_numbers = count()


def _opened(folder: Path) -> TaskState:
    return TaskState.open(folder / str(next(_numbers)), STORES)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[TaskStores]:
    opened = _opened(tmp_path)
    yield opened
    opened.close(clean=False)


def _at(offset: int, epoch: str = "") -> Positions:
    return Positions(changelog={"a": offset}, inputs={INPUT: offset}, epoch=epoch)


def _apply(state: TaskStores, store: str, **changes: bytes | None) -> None:
    before = state.positions()
    offset = before.changelog.get("a", 0) + 1
    writes = {store: [(key.encode(), value) for key, value in changes.items()]}
    state.apply(expected=before, new=_at(offset, before.epoch), writes=writes)


def test_a_new_state_is_empty_and_at_no_position(state: TaskStores) -> None:
    assert state.positions() == Positions()
    assert state.get_many("a", [b"", b"k"]) == [None, None]
    assert list(state.scan("a")) == []
    assert state.stores == STORES


def test_values_come_in_the_order_of_the_keys_asked_for(state: TaskStores) -> None:
    _apply(state, "a", x=b"1", y=b"", z=b"3")
    assert state.get_many("a", [b"z", b"nope", b"x", b"z", b"y"]) == [b"3", None, b"1", b"3", b""]
    assert state.get_many("b", [b"x"]) == [None]


def test_none_deletes_and_the_last_of_two_changes_of_a_key_counts(state: TaskStores) -> None:
    writes = {"a": [(b"k", b"1"), (b"k", None), (b"j", None), (b"j", b"2")]}
    state.apply(expected=Positions(), new=_at(4), writes=writes)
    assert list(state.scan("a")) == [(b"j", b"2")]


def test_a_batch_moves_all_stores_and_positions_at_once(state: TaskStores) -> None:
    new = Positions(changelog={"a": 7, "b": 3}, inputs={INPUT: 9, TopicPartition("in", 1): 2})
    state.apply(expected=Positions(), new=new, writes={"a": [(b"k", b"1")], "b": [(b"k", b"2")]})
    assert state.positions() == new
    assert (state.get_many("a", [b"k"]), state.get_many("b", [b"k"])) == ([b"1"], [b"2"])


def test_a_position_that_a_batch_leaves_out_is_forgotten(state: TaskStores) -> None:
    state.apply(expected=Positions(), new=Positions(changelog={"a": 1, "b": 1}), writes={})
    state.apply(expected=state.positions(), new=Positions(changelog={"b": 1}), writes={})
    assert state.positions() == Positions(changelog={"b": 1})


def test_a_batch_computed_from_another_position_is_refused_whole(state: TaskStores) -> None:
    _apply(state, "a", k=b"1")
    before = state.positions()
    for expected in (_at(0), _at(2), Positions(), Positions(changelog={"a": 1, "b": 5})):
        with pytest.raises(StateBehindError) as refusal:
            state.apply(expected=expected, new=_at(9), writes={"a": [(b"k", b"2")], "b": [(b"n", b"2")]})
        assert refusal.value.found_offsets == {"a": 1}
        assert refusal.value.found_epoch == refusal.value.expected_epoch
    assert state.positions() == before
    assert (list(state.scan("a")), list(state.scan("b"))) == ([(b"k", b"1")], [])


def test_input_positions_do_not_refuse_a_batch(state: TaskStores) -> None:
    _apply(state, "a", k=b"1")
    state.apply(expected=Positions(changelog={"a": 1}), new=_at(2), writes={"a": [(b"k", b"2")]})
    assert state.get_many("a", [b"k"]) == [b"2"]


def test_a_store_without_a_position_counts_as_at_0(state: TaskStores) -> None:
    state.apply(expected=Positions(changelog={"a": 0, "b": 0}), new=_at(1), writes={})
    assert state.positions() == _at(1)


def test_the_owner_before_the_last_claim_is_refused(state: TaskStores) -> None:
    assert state.claim("thread-1").epoch == "thread-1"
    old = state.positions()
    _apply(state, "a", k=b"1")
    assert state.claim("thread-2") == replace(_at(1), epoch="thread-2")
    with pytest.raises(StateBehindError, match="Another owner has claimed the task") as refusal:
        state.apply(expected=replace(_at(1), epoch=old.epoch), new=_at(2, old.epoch), writes={"a": [(b"k", b"2")]})
    assert refusal.value.found_epoch != refusal.value.expected_epoch
    assert state.get_many("a", [b"k"]) == [b"1"]


def test_a_batch_can_not_change_the_owner(state: TaskStores) -> None:
    with pytest.raises(ValueError, match="use claim"):
        state.apply(expected=Positions(), new=_at(1, "thief"), writes={})
    assert state.positions() == Positions()


def test_an_unknown_store_is_refused_with_those_that_exist(state: TaskStores) -> None:
    for use in (
        lambda: state.get_many("c", []),
        lambda: list(state.scan("c")),
        lambda: state.check({"c": []}),
        lambda: state.apply(expected=Positions(), new=_at(1), writes={"a": [(b"k", b"1")], "c": []}),
        lambda: state.wipe("c"),
    ):
        with pytest.raises(StateError, match=r"no store 'c'; its stores are a, b"):
            use()
    assert list(state.scan("a")) == []


def test_checked_writes_are_applied_as_they_were_checked(state: TaskStores) -> None:
    checked = state.check({"a": [(b"k", b"1"), (b"", b"2"), (b"gone", None)]})
    assert list(state.scan("a")) == []
    state.apply(expected=Positions(), new=_at(1), writes=checked)
    assert list(state.scan("a")) == [(b"", b"2"), (b"k", b"1")]


def test_wiping_a_store_forgets_its_position_and_keeps_the_rest(state: TaskStores) -> None:
    state.claim("me")
    new = Positions(changelog={"a": 1, "b": 1}, inputs={INPUT: 1}, epoch="me")
    state.apply(expected=state.positions(), new=new, writes={"a": [(b"k", b"1")], "b": [(b"k", b"1")]})
    state.wipe("a")
    assert (list(state.scan("a")), list(state.scan("b"))) == ([], [(b"k", b"1")])
    assert state.positions() == Positions(changelog={"b": 1}, inputs={INPUT: 1}, epoch="me")
    state.wipe()
    assert list(state.scan("b")) == []
    assert state.positions() == Positions(epoch="me")


def test_a_scan_takes_its_low_bound_and_leaves_its_high_one(state: TaskStores) -> None:
    _apply(state, "a", **dict.fromkeys("abcde", b""))
    for chunk in (1, 2, 1000):
        assert [key for key, _ in state.scan("a", b"b", b"d", chunk=chunk)] == [b"b", b"c"]
        assert [key for key, _ in state.scan("a", b"bb", None, reverse=True, chunk=chunk)] == [b"e", b"d", b"c"]
        assert list(state.scan("a", b"d", b"b", chunk=chunk)) == []


def test_a_batch_applied_during_a_scan_shows_in_the_rest_of_it(state: TaskStores) -> None:
    _apply(state, "a", a=b"1", b=b"1", c=b"1", d=b"1")
    scan = state.scan("a", chunk=2)
    assert next(scan) == (b"a", b"1")
    _apply(state, "a", b=b"2", c=None, d=b"2", e=b"2")
    assert list(scan) == [(b"b", b"1"), (b"d", b"2"), (b"e", b"2")]


def test_a_closed_state_refuses_to_answer(state: TaskStores) -> None:
    state.close(clean=True)
    state.close(clean=True)
    for use in (state.positions, lambda: state.get_many("a", [b"k"]), lambda: state.claim("x"), lambda: list(state.scan("a"))):
        with pytest.raises(StateError, match="closed"):
            use()


_HEAD = b"h" * SHORT_LIMIT
_KEYS = st.sampled_from(
    [b"", b"\0", b"h", b"i", b"\xff", _HEAD[:-1], _HEAD, _HEAD + b"\0", *(_HEAD + bytes([i, 7 * i]) for i in range(9)), _HEAD * 3]
    + [b"\xff" * SHORT_LIMIT + tail for tail in (b"", b"\0", b"\xff", b"\xff\xff")]
)


@pytest.mark.parametrize("length", [0, 1, SHORT_LIMIT - 1, SHORT_LIMIT, SHORT_LIMIT + 1, 2 * SHORT_LIMIT])
def test_a_key_of_any_length_is_found_in_a_snapshot(state: TaskState, length: int) -> None:
    key, others = b"k" * length, [b"k" * other for other in (2, SHORT_LIMIT + 2)]
    before = state.positions()
    state.apply(expected=before, new=_at(1), writes={"a": [(key, b"found"), *((other, b"another") for other in others)]})
    with state.snapshot() as view:
        assert view.get("a", key) == b"found"
        assert view.get_many("a", [key + b"k" * 7, key, others[1]]) == [None, b"found", b"another"]
        assert view.get("b", key) is None


@pytest.mark.parametrize("reverse", [False, True])
def test_a_snapshot_is_scanned_whole_and_between_bounds(state: TaskState, reverse: bool) -> None:
    long = [b"1" * SHORT_LIMIT + b"%03d" % number for number in range(200)]
    keys = sorted([*(b"%05d" % number for number in range(1500)), b"1" * SHORT_LIMIT, *long, b"2"])
    state.apply(expected=state.positions(), new=_at(1), writes={"a": [(key, b"") for key in keys]})
    bounds = [(None, None), (keys[70], None), (None, long[90]), (long[20], long[150]), (b"00064", b"00065"), (b"3", None)]
    with state.snapshot() as view:
        for low, high in bounds:
            inside = [key for key in keys if (low is None or key >= low) and (high is None or key < high)]
            found = [key for key, _ in view.scan("a", low, high, reverse=reverse)]
            assert found == (inside[::-1] if reverse else inside)


class _AgainstDictionaries(RuleBasedStateMachine):
    """Random batches, scans, wipes and reopenings; a plain dictionary per store says what must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.model: dict[str, dict[bytes, bytes]] = {store: {} for store in STORES}
        self.at = Positions()

    @initialize()
    def open(self) -> None:
        self.state = _opened(Path(self.folder.name))

    @rule(
        changes=st.dictionaries(
            st.sampled_from(STORES),
            st.lists(st.tuples(_KEYS, st.none() | st.sampled_from([b"", b"v", b"w" * 5000])), max_size=6),
        )
    )
    def apply(self, changes: dict[str, list[tuple[bytes, bytes | None]]]) -> None:
        moved = {store: self.at.changelog.get(store, 0) + len(items) for store, items in changes.items()}
        new = replace(self.at, changelog={**self.at.changelog, **moved})
        self.state.apply(expected=self.at, new=new, writes=changes)
        self.at = new
        for store, items in changes.items():
            for key, value in items:
                if value is None:
                    self.model[store].pop(key, None)
                else:
                    self.model[store][key] = value

    @rule(
        store=st.sampled_from(STORES),
        low=st.none() | _KEYS,
        high=st.none() | _KEYS,
        reverse=st.booleans(),
        chunk=st.integers(1, 5),
    )
    def scan(self, store: str, low: bytes | None, high: bytes | None, reverse: bool, chunk: int) -> None:
        wanted = [
            (key, value)
            for key, value in sorted(self.model[store].items(), reverse=reverse)
            if (low is None or key >= low) and (high is None or key < high)
        ]
        assert list(self.state.scan(store, low, high, reverse=reverse, chunk=chunk)) == wanted

    @rule(store=st.sampled_from(STORES), keys=st.lists(_KEYS, max_size=8))
    def get(self, store: str, keys: list[bytes]) -> None:
        assert self.state.get_many(store, keys) == [self.model[store].get(key) for key in keys]

    @rule(store=st.sampled_from(STORES))
    def wipe(self, store: str) -> None:
        self.state.wipe(store)
        self.model[store].clear()
        self.at = replace(self.at, changelog={name: at for name, at in self.at.changelog.items() if name != store})

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        directory = self.state.directory
        self.state.close(clean=clean)
        self.state = TaskState.open(directory, STORES)

    @invariant()
    def stands_where_the_last_batch_left_it(self) -> None:
        assert self.state.positions() == self.at

    def teardown(self) -> None:
        self.state.close(clean=False)
        self.folder.cleanup()


class TestAgainstDictionaries(_AgainstDictionaries.TestCase):
    settings = settings(max_examples=60, stateful_step_count=25, deadline=None)

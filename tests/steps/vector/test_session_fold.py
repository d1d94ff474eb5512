"""Sessions folded in batches are the operator's, record by record, whatever the batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from tests.steps.aggregation_harness import (
    ENDS_OF_TIME,
    LATEST,
    PARTITIONS,
    InBatches,
    Input,
    PerRecord,
    batches,
    inputs,
    inputs_at,
    topology_of,
)
from tidemill.errors import RecordError
from tidemill.steps.vector import retained_rows, session_fold
from tidemill.steps.vector.session_fold import fold_sessions
from tidemill.topology.operations import Aggregating, Aggregation, Counting, Reducing, SessionAggregate
from tidemill.topology.windows import SessionWindows

WINDOWS = {
    "short gap": SessionWindows.of_inactivity_gap(700),
    "gap and grace": SessionWindows.of_inactivity_gap(2500, grace=8000),
    "long grace": SessionWindows.of_inactivity_gap(500, grace=100_000),
}


def _added(_key: str, value: str | None, aggregate: str) -> str | None:
    """Leaves a trace of what was added to what; some sums are nothing."""
    if value is not None and value.endswith("7"):
        return None
    return f"{aggregate}+{value}"[-60:]


AGGREGATIONS: dict[str, Aggregation] = {
    "count": Counting(),
    "reduce": Reducing(lambda aggregate, value: f"{aggregate}+{value}"[-60:]),
    "aggregate": Aggregating(lambda: "i", _added, lambda _key, first, second: f"({first}|{second})"[-60:]),
}


@pytest.mark.parametrize("persistent", [True, False], ids=["on disk", "in memory"])
@pytest.mark.parametrize("retention", [None, 200_000], ids=["least retention", "longer retention"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS.values(), ids=AGGREGATIONS.keys())
@pytest.mark.parametrize("windows", WINDOWS.values(), ids=WINDOWS.keys())
def test_rows_drops_and_last_results_are_the_operators(
    windows: SessionWindows, aggregation: Aggregation, retention: int | None, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        monkeypatch.setattr(retained_rows, "_SLACK", 0 if seed > 2 else 20_000)
        if seed == 5:  # key by key, as where there are too many rows to be remembered
            monkeypatch.setattr(session_fold, "ShownRows", partial(session_fold.ShownRows, limit=2))
        chance = random.Random(seed)
        topology = topology_of(SessionAggregate("w", windows, aggregation), retention, persistent=persistent)
        operator, step = PerRecord(topology), InBatches(topology, fold_sessions)
        for batch in batches(chance, inputs(chance, 300)):
            operator.pipe(batch)
            if seed % 2 and chance.random() < 0.2:
                step.memory.clear()
            made = step.pipe(batch)
            assert len(set(zip(made.parts, made.keys, strict=True))) == len(made), "each session once"
            for part in PARTITIONS:
                ends = [at for at, of in zip(made.timestamps, made.parts, strict=True) if of == part]
                assert ends == sorted(ends)
            assert step.dropped == operator.dropped
            for part in PARTITIONS:
                assert step.readers[part].rows == operator.readers[part].rows
        assert _living(step.sent) == _living(operator.sent)
        for part in PARTITIONS:
            last = {key: value for key, (value, _) in operator.stores[part].logged.items() if value is not None}
            assert {key: value for key, (value, _) in step.logged[part].items() if value is not None} == last


def _living(sent: dict) -> dict:  # type: ignore[type-arg]
    """A session that came and went within a batch is never seen: a missing one is as a deleted one."""
    return {session: made for session, made in sent.items() if made[0] is not None}


def test_a_session_that_ends_gets_one_tombstone_before_what_takes_its_place() -> None:
    topology = topology_of(SessionAggregate("w", SessionWindows.of_inactivity_gap(100, grace=1000), Counting()))
    step = InBatches(topology, fold_sessions)
    step.pipe([(0, "k", "a", 1000, b"a"), (0, "k", "b", 1150, None)])
    made = step.pipe([(0, "k", "c", 1075, b"c"), (0, "k", "d", 1160, b"d")])
    bounds = [(key[-8:], key[-16:-8]) for key in made.keys if key is not None]
    assert [(int.from_bytes(start, "big"), int.from_bytes(end, "big")) for start, end in bounds] == [
        (1000, 1000), (1150, 1150), (1000, 1160),
    ]
    assert made.values == [None, None, (4).to_bytes(8, "big")]
    assert made.timestamps == [1000, 1150, 1160]
    assert [[value for _, value in made.header(at) or ()] for at in range(3)] == [[b"c"], [b"c"], [b"d"]]


def test_an_error_of_a_function_names_the_node_and_where_the_key_began() -> None:
    topology = topology_of(SessionAggregate("w", WINDOWS["short gap"], Aggregating(lambda: "", _fails, _added)))
    with pytest.raises(RecordError, match=r"the function of made failed.*ZeroDivisionError"):
        InBatches(topology, fold_sessions).pipe([(0, "k", "a", 1000, None)])


def _fails(_key: str, _value: str, _aggregate: str) -> str:
    raise ZeroDivisionError("no")


def test_a_store_in_memory_keeps_a_session_on_the_last_millisecond_as_the_operator_s_does() -> None:
    windows = SessionWindows.of_inactivity_gap(100, grace=1000)
    topology = topology_of(SessionAggregate("w", windows, Counting()), persistent=False)
    operator, step = PerRecord(topology), InBatches(topology, fold_sessions)
    given: list[Input] = [(0, "k", "a", 5000, None), (0, "k", "b", 3900, None), (0, "l", "c", 3899, None)]
    operator.pipe(given)
    step.pipe(given)
    assert step.dropped == operator.dropped == 1
    assert step.sent == operator.sent
    assert step.readers[0].rows == operator.readers[0].rows
    assert step.logged[0] == operator.stores[0].logged


WIDE = {
    "endless grace": SessionWindows.of_inactivity_gap(10, grace=LATEST),
    "endless gap": SessionWindows.of_inactivity_gap(LATEST),
    "both long": SessionWindows.of_inactivity_gap(LATEST // 2, grace=LATEST),
}


@pytest.mark.parametrize("timestamps", ENDS_OF_TIME.values(), ids=ENDS_OF_TIME.keys())
@pytest.mark.parametrize("windows", WIDE.values(), ids=WIDE.keys())
def test_at_the_ends_of_time_no_number_overflows(windows: SessionWindows, timestamps: tuple[int, ...]) -> None:
    for seed in range(3):
        topology = topology_of(SessionAggregate("w", windows, Counting()))
        operator, step = PerRecord(topology), InBatches(topology, fold_sessions)
        given = inputs_at(random.Random(seed), 30, timestamps)
        for at in range(0, 30, 10):
            operator.pipe(given[at : at + 10])
            step.pipe(given[at : at + 10])
            assert (step.dropped, step.readers[0].rows) == (operator.dropped, operator.readers[0].rows)


class _Counted(list[Any]):
    """Sessions, with the number of those that were looked at."""

    looked_at = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.looked_at += len(found) if isinstance(at, slice) else 1
        return found

    def __iter__(self) -> Iterator[Any]:
        for each in super().__iter__():
            self.looked_at += 1
            yield each


def test_a_record_among_a_keys_sessions_looks_at_those_that_it_joins() -> None:
    sessions = _Counted((start + 1, start, 0, 1) for start in range(0, 10_000, 10))
    fold = SimpleNamespace(
        steps=(lambda: 0, lambda _key, _value, held: held + 1, lambda _key, one, other: one + other), gap=9, decode=None,
        values=None, shown_from=[-1], close_times=[-1], late=0,
    )  # fmt: skip
    session_fold._Fold._add(fold, "k", sessions, {}, 25, 0, 7)  # type: ignore[arg-type]
    looked_at = sessions.looked_at
    assert list(sessions)[1:4] == [(11, 10, 0, 1), (31, 20, 7, 3), (41, 40, 0, 1)]
    assert looked_at < 40

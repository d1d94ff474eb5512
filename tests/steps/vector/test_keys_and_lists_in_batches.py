"""map, select_key, flat_map and flat_map_values by vectorised and async functions: the same as record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.steps.vector.batch_nodes import LONG, TEXT, node, rows, state_of
from tidemill import Serdes, per_batch, per_record_async
from tidemill.errors import RecordError, StopError
from tidemill.operators.exception_handlers import ExceptionHandlers, ExceptionResponse
from tidemill.steps.rows.records import Records
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.vector_step import ON_ROWS
from tidemill.topology.batch_operations import (
    BatchFunction,
    FlatMapInBatches,
    FlatMapValuesInBatches,
    MapInBatches,
    SelectKeyInBatches,
)

ORDER = Serdes.json("name string, pieces bigint")
KEYS = st.sampled_from(["a", "b", "", "\u20ac", None])
TEXTS = st.sampled_from(["x", "x,y", "", ",", "\u00e9,zz,1", None])
PAIRS = st.lists(st.tuples(KEYS, TEXTS), max_size=20)
Pair = tuple[Any, Any]


def run(
    operation: Any, pairs: list[Pair], *, value: Any = TEXT, out_key: Any = TEXT, out: Any = TEXT, state: StepState | None = None,
) -> tuple[Records, list[Pair]]:
    """The records that a node makes, and their keys and values."""
    table = rows(value, [one for _, one in pairs], [key for key, _ in pairs])
    made = ON_ROWS[type(operation)](node(operation, value, out, out_key=out_key), operation, table, state or state_of())
    keys, values = map(out_key.deserialize, made.keys), map(out.deserialize, made.values)
    return made, list(zip(keys, values, strict=True))


def origins(made: Records) -> list[int]:
    """Of each record, the number of the one that it comes from, by all that it has kept of it."""
    for at, number in enumerate(made.timestamps):
        kept = made.parts[at], made.offsets[at], made.sequences[at], made.header(at)
        assert kept == (number % 2, 100 + number, number, [("at", str(number).encode())])
    return made.timestamps


def pieces(value: str | None) -> list[str]:
    return [] if value is None else value.split(",")


def label(key: str | None, value: str | None) -> str | None:
    return None if key is None or value is None else f"{key}={value}"


def labels(keys: Iterable[Any], values: Iterable[Any]) -> list[str | None]:
    return [label(_text(key), _text(value)) for key, value in zip(keys, values, strict=True)]


def _text(item: Any) -> Any:
    item = item.as_py() if isinstance(item, pa.Scalar) else item
    return item if isinstance(item, str) else None


def lists(values: Any) -> list[list[str]]:
    return [pieces(_text(value)) for value in values]


def in_forms(function: Callable[..., Any]) -> list[BatchFunction]:
    return [per_batch(function, form=form) for form in ("pandas", "pyarrow", "numpy")]


@given(PAIRS)
def test_keys_are_selected_as_record_by_record_of_null_values_too(pairs: list[Pair]) -> None:
    async def called(key: Any, value: Any) -> Any:
        return label(key, value)

    for function in [*in_forms(labels), per_record_async(called)]:
        made, found = run(SelectKeyInBatches(function), pairs)
        assert found == [(label(key, value), value) for key, value in pairs]
        assert origins(made) == [*range(len(pairs))]


@given(PAIRS)
def test_pairs_are_mapped_as_record_by_record_of_null_values_too(pairs: list[Pair]) -> None:
    async def called(key: Any, value: Any) -> Any:
        return label(key, value), len(pieces(value))

    def of_all(keys: Any, values: Any) -> Any:
        return labels(keys, values), np.array([len(one) for one in lists(values)], np.int64)

    for function in [*in_forms(of_all), per_record_async(called)]:
        made, found = run(MapInBatches(function), pairs, out=LONG)
        assert found == [(label(key, value), len(pieces(value))) for key, value in pairs]
        assert origins(made) == [*range(len(pairs))]


@given(PAIRS)
def test_values_are_flat_mapped_as_record_by_record_and_stay_behind_each_other(pairs: list[Pair]) -> None:
    async def called(value: Any) -> Any:
        return (piece for piece in pieces(value))

    expected = [(key, piece) for key, value in pairs for piece in pieces(value)]
    places = [at for at, (_, value) in enumerate(pairs) for _ in pieces(value)]
    vectorised: list[BatchFunction] = [
        per_batch(lambda values: values.str.split(",")),
        per_batch(lambda values: pc.split_pattern(values, ","), form="pyarrow"),
        per_batch(lambda values: np.array([*lists(values), None], dtype=object)[:-1], form="numpy"),
    ]
    for function in [*vectorised, *in_forms(lists), per_record_async(called)]:
        made, found = run(FlatMapValuesInBatches(function), pairs)
        assert found == expected
        assert origins(made) == places


@given(PAIRS)
def test_pairs_are_flat_mapped_as_record_by_record_of_null_values_too(pairs: list[Pair]) -> None:
    def of_one(key: Any, value: Any) -> list[Pair]:
        return [(None, 0), *((key, len(piece)) for piece in pieces(value))]

    async def called(key: Any, value: Any) -> Any:
        return iter(of_one(key, value))

    def of_all(keys: Any, values: Any) -> Any:
        found = [of_one(_text(key), _text(value)) for key, value in zip(keys, values, strict=True)]
        return [[key for key, _ in one] for one in found], [[value for _, value in one] for one in found]

    expected = [(at, *pair) for at, (key, value) in enumerate(pairs) for pair in of_one(key, value)]
    for function in [*in_forms(of_all), per_record_async(called)]:
        made, found = run(FlatMapInBatches(function), pairs, out=LONG)
        assert [(at, *pair) for at, pair in zip(origins(made), found, strict=True)] == expected


def test_a_function_of_values_gets_the_keys_too_if_it_takes_them() -> None:
    both = per_batch(lambda keys, values: [[key, value] for key, value in zip(keys, values, strict=True)])
    operation = FlatMapValuesInBatches(both, takes_key=True)
    assert run(operation, [("a", "x"), ("b", "y")])[1] == [("a", "a"), ("a", "x"), ("b", "b"), ("b", "y")]


def test_rows_of_two_dimensions_are_lists() -> None:
    best = per_batch(lambda values: np.arange(6).reshape(3, 2) * 10)
    assert run(FlatMapValuesInBatches(best), [("a", "x"), ("b", None), ("c", "y"), ("d", "z")], out=LONG)[1] == [
        ("a", 0), ("a", 10), ("c", 20), ("c", 30), ("d", 40), ("d", 50)
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["pandas", "pyarrow", "numpy"])
def test_a_null_struct_that_a_map_returns_is_null_again_and_a_struct_of_nulls_stays_one(form: Any) -> None:
    pairs: list[Pair] = [("a", {"name": "x", "pieces": 1}), ("b", None), (None, {"name": None, "pieces": None})]
    same = per_batch(lambda keys, values: (keys, values), form=form)
    assert run(MapInBatches(same), pairs, value=ORDER, out=ORDER)[1] == pairs


def test_structs_as_keys_and_in_lists() -> None:
    orders: list[Pair] = [("a", {"name": "x", "pieces": 2}), ("b", {"name": "y", "pieces": 0})]
    named = per_batch(lambda keys, values: pd.DataFrame({"name": values["name"], "pieces": values["pieces"]}))
    assert run(SelectKeyInBatches(named), orders, value=ORDER, out=ORDER, out_key=ORDER)[1] == [
        (order, order) for _, order in orders
    ]
    single = per_batch(lambda frame: [[{"name": one.name, "pieces": 1}] * one.pieces for one in frame.itertuples(index=False)])
    assert run(FlatMapValuesInBatches(single), orders, value=ORDER, out=ORDER)[1] == [("a", {"name": "x", "pieces": 1})] * 2


@pytest.mark.parametrize(("operation", "function", "problem"), [
    (MapInBatches, lambda keys, values: keys, r"it gave a Series, expected a pair \(keys, values\)"),
    (MapInBatches, lambda keys, values: (keys, values, values), "it gave a tuple, expected a pair"),
    (MapInBatches, lambda keys, values: (keys.head(1), values), "it gave 1 results for 3 records"),
    (SelectKeyInBatches, lambda keys, values: values.sort_values(ascending=False), "its rows are in another order"),
    (FlatMapValuesInBatches, lambda values: values.str.split(",").explode(), "it gave 4 results for 3 records"),
    (FlatMapValuesInBatches, lambda values: values, "it gave 'x' of type str for a record, expected a list"),
    (FlatMapValuesInBatches, lambda values: pd.DataFrame({"n": values}), "of type dict for a record, expected a list"),
    (FlatMapInBatches, lambda keys, values: values.str.split(","), r"expected a pair \(keys, values\)"),
    (FlatMapInBatches, lambda keys, values: ([["a"]] * 3, values.str.split(",")), "it gave 1 keys and 2 values for a record"),
])  # fmt: skip
def test_what_is_not_of_the_records_stops_whatever_the_handler_says(operation: Any, function: Any, problem: str) -> None:
    going_on = state_of(ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    with pytest.raises(StopError, match=f"the function of score: .*{problem}"):
        run(operation(per_batch(function)), [("a", "x"), ("b", "x,y"), ("c", "y")], state=going_on)


async def asked(key: Any, value: Any) -> Any:
    if value == "x,y":
        raise ValueError("a bad one")
    return [(key, value)]


def refusing(keys: Any, values: Any) -> Any:
    if (values == "x,y").any():
        raise ValueError("a bad one")
    return [[key] for key in keys], [[value] for value in values]


@pytest.mark.parametrize("function", [per_batch(refusing), per_record_async(asked)], ids=["per_batch", "per_record_async"])
def test_a_record_that_the_function_fails_on_is_the_handlers_and_the_others_go_on(function: BatchFunction) -> None:
    pairs: list[Pair] = [("a", "x"), ("b", "x,y"), ("c", None), ("d", "y")]
    with pytest.raises(RecordError, match="in-1 at offset 101: the function of score failed: ValueError: a bad one"):
        run(FlatMapInBatches(function), pairs)
    state = state_of(ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    made, found = run(FlatMapInBatches(function), pairs, state=state)
    assert (found, origins(made), state.dropped) == ([pairs[0], *pairs[2:]], [0, 2, 3], 1)
    assert state.functions["score"].failures == 1


def test_of_a_record_of_which_one_result_can_not_be_written_nothing_goes_on() -> None:
    state = state_of(ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    function = per_batch(lambda values: [[1, 2], [3, "four"], [5]])
    _, found = run(FlatMapValuesInBatches(function), [("a", "x"), ("b", "y"), ("c", "z")], out=LONG, state=state)
    assert (found, state.dropped) == ([("a", 1), ("a", 2), ("c", 5)], 1)


@pytest.mark.parametrize("result", [None, 5, ("a", "b", "c")])
def test_an_async_map_that_gives_no_pair_fails_on_its_record(result: Any) -> None:
    async def called(_key: Any, _value: Any) -> Any:
        return result

    with pytest.raises(RecordError, match="in-0 at offset 100: the function of score failed: "):
        run(MapInBatches(per_record_async(called)), [("a", "x")])

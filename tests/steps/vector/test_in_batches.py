"""map_values and filter by vectorised and async functions: each record has its result, whatever the batches and failures."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.steps.vector.batch_nodes import LONG, TEXT, node, rows, state_of
from tidemill import Serdes, per_batch, per_record_async
from tidemill.errors import RecordError, StopError
from tidemill.operators.exception_handlers import ErrorContext, ExceptionHandlers, ExceptionResponse
from tidemill.operators.record import Record
from tidemill.steps.rows.codecs_wire import transit_of
from tidemill.steps.step_state import StepState
from tidemill.steps.vector import async_calls
from tidemill.steps.vector.in_batches import filter_in_batches, map_values_in_batches, peek_in_batches
from tidemill.topology.batch_operations import FilterInBatches, MapValuesInBatches, PeekInBatches

DOUBLE = Serdes.double()
ORDER = Serdes.json(
    "name string, amount double, pieces int, at timestamp, price decimal(9,2), tags array<string>, m map<string,int>"
)


@dataclass
class Order:
    name: str
    amount: float = 1.5


def mapped(
    function: Any, value: Any, out: Any, values: list[Any], *, takes_key: bool = False, state: StepState | None = None
) -> list[Any]:
    operation = MapValuesInBatches(function, takes_key)
    made = map_values_in_batches(node(operation, value, out), operation, rows(value, values), state or state_of())
    return [out.deserialize(data) for data in made.values]


@given(st.lists(st.none() | st.integers(-(1 << 63), (1 << 63) - 1), max_size=20))
def test_each_value_has_its_result_and_null_stays_null_in_every_form(values: list[int | None]) -> None:
    half: Mapping[str, Callable[[Any], Any]] = {
        "pandas": lambda numbers: numbers // 2,
        "pyarrow": lambda numbers: pa.array([one.as_py() // 2 for one in numbers], pa.int64()),
        "numpy": lambda numbers: numbers // 2,
    }
    expected = [None if value is None else value // 2 for value in values]
    for form, function in half.items():
        assert mapped(per_batch(function, form=form), LONG, LONG, values) == expected  # type: ignore[arg-type]


def order(at: int) -> dict[str, Any]:
    return {
        "name": f"n{at}", "amount": at / 4, "pieces": None if at % 3 == 0 else at,
        "at": datetime(2026, 1, 1, at, tzinfo=timezone.utc),
        "price": Decimal(at).scaleb(-2) + Decimal("1.00"), "tags": ["a"] * at, "m": {"x": at} if at else {},
    }  # fmt: skip


@pytest.mark.parametrize("form", ["pandas", "pyarrow"])
def test_the_fields_of_a_struct_are_columns_and_come_back_as_they_went(form: Any) -> None:
    values = [order(at) for at in range(7)]
    assert mapped(per_batch(lambda frame: frame, form=form), ORDER, ORDER, values) == values


def test_fields_as_numpy_arrays() -> None:
    def scored(fields: dict[str, np.ndarray[Any, Any]]) -> Any:
        assert fields["amount"].dtype == np.float64
        return {"amount": fields["amount"] * 2, "name": fields["name"]}

    values = [{"name": "a", "amount": 1.0}, {"name": "b", "amount": 2.5}]
    assert mapped(per_batch(scored), ORDER, Serdes.json("name string, amount double"), values) == [
        {"name": "a", "amount": 2.0}, {"name": "b", "amount": 5.0}
    ]  # fmt: skip


def test_the_annotation_of_the_values_says_the_form() -> None:
    def of_arrow(keys: pa.Array, values: pa.Table) -> pa.Array:
        assert isinstance(values, pa.Table)
        return pa.array([f"{key}:{amount}" for key, amount in zip(keys, values["amount"], strict=True)])

    def of_pandas(values: pd.DataFrame) -> pd.Series[Any]:
        assert isinstance(values, pd.DataFrame)
        return values["amount"].round().astype("int64")

    assert mapped(per_batch(of_arrow), ORDER, TEXT, [{"amount": 1.5}], takes_key=True) == ["k0:1.5"]
    assert mapped(per_batch(of_pandas), ORDER, LONG, [{"amount": 1.6}]) == [2]


def test_instances_of_a_class_are_columns_defaults_included() -> None:
    orders = [Order("a"), Order("b", 2.0)]
    assert mapped(per_batch(lambda frame: frame["amount"]), Serdes.json(Order), DOUBLE, orders) == [1.5, 2.0]


def test_whole_numbers_among_which_some_are_null_keep_their_digits() -> None:
    large = (1 << 53) + 1
    serde = Serdes.json("n bigint")
    assert mapped(per_batch(lambda frame: frame), serde, serde, [{"n": large}, {"n": None}]) == [{"n": large}, {"n": None}]


def test_missing_values_of_pandas_are_null() -> None:
    serde = Serdes.json("t timestamp, n bigint, s string, d double, o array<double>")
    times = pd.to_datetime(["2026-01-01", None], utc=True)
    frame = pd.DataFrame({
        "t": times, "n": pd.Series([1, math.nan], dtype=object), "s": [math.nan, "b"], "d": pd.array([None, 1.0], "Float64"),
        "o": [np.array([1.0]), math.nan],
    })  # fmt: skip
    assert mapped(per_batch(lambda _values: frame), LONG, serde, [1, 2]) == [
        {"t": datetime(2026, 1, 1, tzinfo=timezone.utc), "n": 1, "s": None, "d": None, "o": [1.0]},
        {"t": None, "n": None, "s": "b", "d": 1.0, "o": None},
    ]


def test_times_of_numpy_have_no_zone_and_are_utc_both_ways() -> None:
    serde = Serdes.json("t timestamp, n timestamp_ntz, d date")
    at = datetime(1960, 2, 29, 23, 59, 59, 999999)
    given = [{"t": at.replace(tzinfo=timezone.utc), "n": at, "d": at.date()}]

    def same(fields: dict[str, np.ndarray[Any, Any]]) -> Any:
        assert fields["t"].dtype == fields["n"].dtype == np.dtype("datetime64[us]")
        return fields

    assert mapped(per_batch(same), serde, serde, given) == given
    rounded = per_batch(lambda fields: {"t": fields["t"].astype("datetime64[D]")}, form="numpy")
    assert mapped(rounded, serde, serde, given) == [{"t": datetime(1960, 2, 29, tzinfo=timezone.utc), "n": None, "d": None}]


def test_times_of_numpy_are_of_one_type_whether_or_not_a_null_is_among_them() -> None:
    serde = Serdes.json("t timestamp, n timestamp_ntz, d date")
    at = datetime(2026, 11, 30, 23, 59, 59, 5)
    given = [{"t": at.replace(tzinfo=timezone.utc), "n": at, "d": at.date()}, {"t": None, "n": None, "d": None}]
    later = per_batch(lambda fields: {name: column + np.timedelta64(1, "D") for name, column in fields.items()}, form="numpy")
    moved = at.replace(month=12, day=1)
    whole = {"t": moved.replace(tzinfo=timezone.utc), "n": moved, "d": moved.date()}
    assert mapped(later, serde, serde, given) == [whole, given[1]]
    assert mapped(later, serde, serde, given[:1]) == [whole]


def test_nulls_that_numpy_has_as_nan_are_null_again() -> None:
    serde = Serdes.json("n double")
    given = [{"n": 1.5}, {"n": None}]
    assert mapped(per_batch(lambda columns: columns, form="numpy"), serde, serde, given) == given


@pytest.mark.parametrize("result", [
    lambda zeros: zeros / zeros, lambda zeros: (zeros / zeros).to_numpy(), lambda zeros: list(zeros / zeros),
    lambda zeros: (zeros / zeros).astype(object), lambda zeros: zeros.astype("Float64") / zeros.astype("Float64"),
    lambda zeros: pa.array(zeros / zeros, from_pandas=False),
])  # fmt: skip
def test_a_nan_that_a_function_computes_is_a_number_in_every_form(result: Callable[[Any], Any]) -> None:
    [found] = mapped(per_batch(result), DOUBLE, DOUBLE, [0.0])
    assert found is not None
    assert math.isnan(found)


def test_a_nan_is_null_only_in_a_record_of_which_the_function_got_a_null() -> None:
    """pandas writes both alike, so what came decides."""
    ratio = Serdes.json("a double, b double, s string")

    def divided(frame: pd.DataFrame) -> pd.Series[Any]:
        return frame["a"] / frame["b"]

    values = [{"a": 0.0, "b": 0.0, "s": ""}, {"a": None, "b": 1.0, "s": ""}, {"a": 3.0, "b": 2.0, "s": None}]
    first, *others = mapped(per_batch(divided), ratio, DOUBLE, values)
    assert first is not None
    assert math.isnan(first)
    assert others == [None, 1.5]


@pytest.mark.parametrize("result", [
    lambda frame: frame, lambda frame: frame.to_dict("records"), lambda frame: {name: frame[name].to_numpy() for name in frame},
])  # fmt: skip
def test_a_nan_that_a_function_passes_on_stays_one_though_another_field_is_null(result: Callable[[Any], Any]) -> None:
    """As of Protobuf, where every field of a ``oneof`` but one is null."""
    serde = transit_of(Foreign())
    assert serde is not None
    given: list[Any] = [
        {"d": math.nan, "s": None, "in": {"f": math.nan, "g": None}}, {"d": None, "s": "", "in": {"f": None, "g": None}},
    ]  # fmt: skip
    found = mapped(per_batch(result), serde, serde, given)
    assert repr(found) == repr(given)


class Foreign:
    """A serde whose structs have numbers that JSON has not."""

    name = "foreign"
    sql_type = "struct<d:double,s:string,in:struct<f:double,g:double>>"

    def serialize(self, value: Any) -> bytes | None:
        raise NotImplementedError

    def deserialize(self, data: bytes | None) -> Any:
        raise NotImplementedError


def test_sparse_columns_are_values_and_periods_are_no_numbers() -> None:
    sparse = pd.Series(pd.arrays.SparseArray([0, 7, 0]))
    assert mapped(per_batch(lambda values: sparse), LONG, LONG, [1, 2, 3]) == [0, 7, 0]
    months = pd.Series(pd.period_range("2026-01", periods=1, freq="M"))
    with pytest.raises(RecordError, match=r"can't write a value of type pandas\._libs\.tslibs\.period\.Period, expected int"):
        mapped(per_batch(lambda values: months), LONG, LONG, [1])


def test_a_nan_in_a_record_stays_one_when_the_batch_is_halved_for_another() -> None:
    def divided(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if (values == 1).any():
            raise ValueError
        return values / 0.0

    going_on = state_of(ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    with np.errstate(all="ignore"):
        found = mapped(per_batch(divided, form="numpy"), DOUBLE, DOUBLE, [2.0, 1.0, 0.0], state=going_on)
    assert found[0] == math.inf
    assert math.isnan(found[1])


def test_a_nan_is_null_in_json_which_has_none() -> None:
    """What pandas' own ``to_json`` writes; a value that pandas finds nowhere (``map``, a left ``merge``) is NaN too."""
    serde = Serdes.json("d double, ds array<double>")
    result = per_batch(lambda values: pd.DataFrame({"d": values / values, "ds": [[math.nan, 1.0]]}))
    assert mapped(result, DOUBLE, serde, [0.0]) == [{"d": None, "ds": [None, 1.0]}]


@pytest.mark.parametrize(("function", "problem"), [
    (lambda values: values.head(1), "it gave 1 results for 3 records, expected one for each"),
    (lambda values: 5, "it gave a int, expected a pandas DataFrame"),
    (lambda values: values.sort_values(ascending=False), "its rows are in another order than it got them"),
    (lambda values: np.zeros((3, 2)), r"an array of the shape \(3, 2\)"),
    (lambda values: {"a": [1, 2]}, "its column 'a' has 2 values for 3 records"),
    (lambda values: pd.DataFrame([[1, 2]] * 3, columns=["a", "a"]), "expected each name once"),
    (lambda values: pd.DataFrame([[1, 2]] * 3, columns=["0", 0]), r"a DataFrame with the columns \['0', '0'\]"),
    (lambda values: {"0": [1, 2, 3], 0: [4, 5, 6]}, r"a dict with the columns \['0', '0'\]"),
    (lambda values: pa.table([pa.array([1, 2, 3]), pa.array([4, 5, 6])], ["a", "a"]), r"a Table with the columns \['a', 'a'\]"),
])  # fmt: skip
def test_what_is_no_value_for_each_record_stops_whatever_the_handler_says(function: Any, problem: str) -> None:
    going_on = ExceptionHandlers(processing=ExceptionResponse.CONTINUE)
    with pytest.raises(StopError, match=f"the function of score: .*{problem}"):
        mapped(per_batch(function), LONG, LONG, [1, 2, 3], state=state_of(going_on))


def test_a_result_that_the_serde_refuses_is_that_records() -> None:
    with pytest.raises(RecordError, match=r"in-1 at offset 101: the function of score failed: long: can.t write a value of type"):
        mapped(per_batch(lambda values: pd.Series([1, 2.5, 3], dtype=object)), LONG, LONG, [1, 2, 3])


def failing_on(bad: set[int], calls: list[int]) -> Callable[[Any], Any]:
    def function(values: Any) -> Any:
        calls.append(len(values))
        if bad & {int(value) for value in values}:
            raise ValueError("a bad one")
        return values * 10

    return function


@given(st.sets(st.integers(0, 19)))
def test_records_that_the_function_fails_on_are_found_and_the_others_have_their_results(bad: set[int]) -> None:
    seen: list[tuple[int | None, Any, str]] = []

    def handler(context: ErrorContext, record: Record | None, error: Exception) -> ExceptionResponse:
        assert record is not None
        seen.append((context.offset, record.value, str(error)))
        return ExceptionResponse.CONTINUE

    state, calls = state_of(ExceptionHandlers(processing=handler)), list[int]()
    made = mapped(per_batch(failing_on(bad, calls)), LONG, LONG, [*range(20)], state=state)
    assert made == [value * 10 for value in range(20) if value not in bad]
    assert seen == [(100 + value, value, "a bad one") for value in sorted(bad)]
    assert state.dropped == len(bad)
    assert calls[0] == 20


def test_without_a_handler_the_record_is_named_and_the_thread_stops() -> None:
    with pytest.raises(RecordError, match="in-1 at offset 103: the function of score failed: ValueError: a bad one"):
        mapped(per_batch(failing_on({3}, [])), LONG, LONG, [*range(6)])


def filtered(predicate: Any, values: list[Any], *, negate: bool = False) -> list[Any]:
    operation = FilterInBatches(predicate, negate)
    made = filter_in_batches(node(operation, LONG, LONG), operation, rows(LONG, values), state_of())
    return [LONG.deserialize(data) for data in made.values]


def test_a_filter_keeps_what_is_true_and_drops_null_values() -> None:
    values = [5, None, 1, 7]
    large = per_batch(lambda _keys, numbers: numbers > 4)
    assert filtered(large, values) == [5, 7]
    assert filtered(large, values, negate=True) == [1]
    with pytest.raises(StopError, match="it gave 5 of type int, expected a boolean"):
        filtered(per_batch(lambda _keys, numbers: numbers), [5])


def test_peek_sees_all_that_have_a_value_and_passes_every_record_on_but_those_it_fails_on() -> None:
    seen: list[list[Any]] = []
    batch = per_batch(lambda keys, numbers: seen.append([*zip(keys, numbers, strict=True)]))
    assert peeked(batch, [1, None, 3]) == [1, None, 3]
    assert seen == [[("k0", 1), ("k2", 3)]]

    async def send(_key: str, value: int | None) -> None:
        if value == 3:
            raise ValueError("no room")

    assert peeked(per_record_async(send), [1, None, 3], ExceptionHandlers(processing=ExceptionResponse.CONTINUE)) == [1, None]
    with pytest.raises(RecordError, match="in-0 at offset 102: the function of score failed: ValueError: no room"):
        peeked(per_record_async(send), [1, None, 3])


def peeked(function: Any, values: list[Any], handlers: ExceptionHandlers | None = None) -> list[Any]:
    operation = PeekInBatches(function)
    made = peek_in_batches(node(operation, LONG, LONG), operation, rows(LONG, values), state_of(handlers))
    return [LONG.deserialize(data) for data in made.values]


# --- async --------------------------------------------------------------------------------------------------------------


class Service:
    """Answers later calls first, and counts how many wait."""

    def __init__(self) -> None:
        self.waiting = self.most = 0

    async def answer(self, value: int | None) -> int | None:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        for _ in range(10 - (value or 0) % 10):
            await asyncio.sleep(0)
        self.waiting -= 1
        return None if value is None else value * 10


@given(st.lists(st.none() | st.integers(0, 1000), max_size=30), st.integers(1, 5))
def test_results_of_async_calls_keep_the_order_and_no_more_wait_than_may(values: list[int | None], limit: int) -> None:
    service = Service()

    async def call(value: int | None) -> int | None:
        return await service.answer(value)

    made = mapped(per_record_async(call, max_in_flight=limit), LONG, LONG, values)
    assert made == [None if value is None else value * 10 for value in values]
    assert service.most <= limit
    assert service.waiting == 0


def test_a_call_that_takes_too_long_is_cancelled_and_is_that_records_exception() -> None:
    ended: list[str] = []

    async def call(value: int) -> int:
        try:
            if value == 1:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return value

    function = per_record_async(call, timeout=200)
    with pytest.raises(RecordError, match=r"in-1 at offset 101: the function of score failed: TimeoutError: no answer within"):
        mapped(function, LONG, LONG, [0, 1, 2])
    state = state_of(ExceptionHandlers(processing=ExceptionResponse.CONTINUE))
    assert mapped(function, LONG, LONG, [0, 1, 2], state=state) == [0, 2]
    assert ended == ["cancelled"] * 2


def test_calls_of_all_batches_run_on_one_loop() -> None:
    async def loop_of(_key: str, _value: int) -> int:
        return id(asyncio.get_running_loop())

    function = per_record_async(loop_of)
    first, second = (mapped(function, LONG, LONG, [1, 2], takes_key=True) for _ in range(2))
    assert len({*first, *second}) == 1


def test_an_async_filter() -> None:
    async def is_known(key: str, value: int | None) -> bool:
        return key != "k1" and value is not None

    assert filtered(per_record_async(is_known), [1, 2, None, 4]) == [1, 4]


@pytest.mark.parametrize(("problem", "said"), [
    (TimeoutError("no route"), "TimeoutError: no route"),
    (asyncio.CancelledError(), "RuntimeError: the call was cancelled from within"),
])  # fmt: skip
def test_what_a_call_raises_itself_is_what_is_said(problem: BaseException, said: str) -> None:
    async def call(_value: int) -> int:
        raise problem

    with pytest.raises(RecordError, match=f"the function of score failed: {said}"):
        mapped(per_record_async(call), LONG, LONG, [1])


def test_a_function_that_blocks_the_loop_stops_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_calls, "_GRACE_S", 0.05)
    goes_on = threading.Event()

    async def call(value: int) -> int:
        goes_on.wait(30)
        return value

    try:
        with pytest.raises(StopError, match=r"2 calls were not done within .* the function blocks the event loop"):
            mapped(per_record_async(call, timeout=10), LONG, LONG, [1, 2])
    finally:
        goes_on.set()

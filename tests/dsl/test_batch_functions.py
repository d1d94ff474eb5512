"""per_batch and per_record_async: what they take, and where they may be given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tidemill import Serdes, StreamsBuilder, per_batch, per_record, per_record_async
from tidemill.errors import TopologyError
from tidemill.topology.batch_operations import BatchForm

TEXT, LONG, SHORT = Serdes.string(), Serdes.long(), Serdes.short()


def of_frame(values: pd.DataFrame) -> pd.Series[Any]: ...


def of_table(keys: Any, values: pa.Table) -> pa.Array: ...


def of_arrays(values: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]: ...


def of_array(values: np.ndarray[Any, Any]) -> Any: ...


def of_anything(values) -> Any: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(("function", "form"), [
    (of_frame, BatchForm.PANDAS), (of_table, BatchForm.ARROW), (of_arrays, BatchForm.NUMPY), (of_array, BatchForm.NUMPY),
    (of_anything, BatchForm.PANDAS), (len, BatchForm.PANDAS), (partial(of_table, None), BatchForm.ARROW),
])  # fmt: skip
def test_the_annotation_of_the_values_says_the_form(function: Any, form: BatchForm) -> None:
    assert per_batch(function).form is form


def test_a_form_that_is_said_wins() -> None:
    assert per_batch(of_frame, form="numpy").form is BatchForm.NUMPY


async def call(value: Any) -> Any: ...


def plain_with_key(key: Any, value: Any) -> None: ...


async def called_with_key(key: Any, value: Any) -> None: ...


class Client:
    async def __call__(self, value: Any) -> Any: ...


def test_coroutine_functions_of_all_kinds() -> None:
    for function in (call, Client(), Client().__call__, partial(call)):
        assert per_record_async(function).max_in_flight == 16


@pytest.mark.parametrize(("made", "problem"), [
    (lambda: per_batch(5), "per_batch: expected a function, got 5 of type int"),  # type: ignore[arg-type]
    (lambda: per_batch(len, form="polars"), "form is 'polars', expected one of pandas, pyarrow, numpy"),  # type: ignore[arg-type]
    (lambda: per_batch(len, "string"), "per_batch: serde: 'string' is not a serde"),  # type: ignore[arg-type]
    (lambda: per_batch(len, (TEXT, "string")), "per_batch: serde: 'string' is not a serde"),  # type: ignore[arg-type]
    (lambda: per_record_async(of_frame), "expected a function defined with async def, got of_frame"),
    (lambda: per_record_async(call, max_in_flight=0), "max_in_flight is 0, expected a number of calls from 1 on"),
    (lambda: per_record_async(call, timeout=0), "timeout is 0 ms"),
    (lambda: per_record_async(call, timeout=-5), "timeout: -5 ms is negative"),
])  # fmt: skip
def test_what_can_not_be_is_refused(made: Any, problem: str) -> None:
    with pytest.raises(TopologyError, match=problem):
        made()


WRONG_PLACES: dict[str, Any] = {
    "group_by": lambda stream, function: stream.group_by(function),
    "branch": lambda stream, function: stream.split().branch(function),
    "reduce": lambda stream, function: stream.group_by_key().reduce(function),
    "map_values": lambda stream, function: stream.to_table().map_values(function),
    "join": lambda stream, function: stream.join(stream.to_table(), function),
}


@pytest.mark.parametrize("operator", WRONG_PLACES)
@pytest.mark.parametrize("function", [per_batch(len), per_record_async(call)], ids=["per_batch", "per_record_async"])
def test_other_operators_refuse_them(operator: str, function: Any) -> None:
    stream = StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    with pytest.raises(TopologyError, match=rf"{operator}: per_batch\(...\) and per_record_async\(...\) are for map, map_v"):
        WRONG_PLACES[operator](stream, function)


class Called:
    async def __call__(self, key: Any, value: Any) -> None: ...


NEVER_AWAITED: dict[str, Callable[[Any, Any], Any]] = {
    "per_record": lambda stream, f: per_record(f),
    "peek": lambda stream, f: stream.peek(f),
    "foreach": lambda stream, f: stream.foreach(f),
    "filter": lambda stream, f: stream.filter(f),
    "map_values": lambda stream, f: stream.map_values(f),
    "reduce": lambda stream, f: stream.group_by_key().reduce(f),
    "group_by": lambda stream, f: stream.group_by(f),
    "to: topic": lambda stream, f: stream.to(f),
    "join": lambda stream, f: stream.join(stream.to_table(), f),
}


@pytest.mark.parametrize("place", NEVER_AWAITED)
@pytest.mark.parametrize("function", [called_with_key, Called()], ids=["function", "object"])
def test_a_coroutine_function_is_refused_where_nothing_awaits_it(place: str, function: Any) -> None:
    """As a predicate it would be true of every record, and ``peek`` would never run it."""
    stream = StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    with pytest.raises(TopologyError, match=rf"^{place}: .* is defined with async def, and nothing awaits it here"):
        NEVER_AWAITED[place](stream, function)


def test_arguments_are_checked_as_of_any_function() -> None:
    stream = StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    with pytest.raises(TopologyError, match=r"filter: .* can't be called with \(key, value\)"):
        stream.filter(per_batch(of_frame))
    for operator in ("map_values", "flat_map_values"):
        with pytest.raises(TopologyError, match=rf"{operator}: .* can't be called with \(value\) or \(key, value\)"):
            getattr(stream, operator)(per_batch(lambda a, b, c: a))
    for operator in ("map", "flat_map", "select_key", "peek", "foreach"):
        with pytest.raises(TopologyError, match=rf"{operator}: .* can't be called with \(key, value\)"):
            getattr(stream, operator)(per_record_async(call))


def test_serdes_and_the_need_to_repartition_are_as_with_per_record() -> None:
    stream = StreamsBuilder().stream("in", key=TEXT, value=TEXT)
    for wrap, function in ((per_record, plain_with_key), (per_batch, of_table), (per_record_async, called_with_key)):
        made = {
            "map": stream.map(wrap(function, (LONG, SHORT))),
            "map of a value's serde": stream.map(wrap(function, SHORT)),
            "flat_map": stream.flat_map(wrap(function, (LONG, SHORT))),
            "select_key": stream.select_key(wrap(function, LONG)),
            "flat_map_values": stream.flat_map_values(wrap(function, SHORT)),
        }
        found = {name: (at.key_serde, at.value_serde, at.repartition_required) for name, at in made.items()}
        assert found == {
            "map": (LONG, SHORT, True), "map of a value's serde": (None, SHORT, True), "flat_map": (LONG, SHORT, True),
            "select_key": (LONG, TEXT, True), "flat_map_values": (TEXT, SHORT, False),
        }  # fmt: skip


def test_a_topology_is_described_as_kafka_streams_describes_its_like() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.filter(per_batch(lambda keys, values: values == "x")).map_values(per_record_async(call, TEXT)).to("out")
    stream.peek(per_batch(lambda keys, values: None)).foreach(per_record_async(called_with_key))
    said = str(builder.build().describe())
    assert "Processor: KSTREAM-FILTER-0000000001" in said
    assert "Processor: KSTREAM-MAPVALUES-0000000002" in said
    assert "Processor: KSTREAM-PEEK-0000000004" in said
    assert "Processor: KSTREAM-FOREACH-0000000005" in said


def test_operators_that_change_keys_are_described_as_with_per_record() -> None:
    def described(wrap: Any, function: Any) -> str:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=TEXT, value=TEXT)
        stream.map(wrap(function, (TEXT, TEXT))).flat_map_values(wrap(function, TEXT)).group_by_key().count(store="mapped")
        stream.select_key(wrap(function, TEXT)).group_by_key().count(store="selected")
        stream.flat_map(wrap(function, (TEXT, TEXT))).to("out")
        return str(builder.build(optimization="all").describe())

    expected = described(per_record, plain_with_key)
    assert "-repartition" in expected
    assert described(per_batch, of_table) == described(per_record_async, called_with_key) == expected

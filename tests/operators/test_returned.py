"""Functions that return no pair or no list where one is expected: an error, and never a text's characters or a dict's keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.operators.test_exception_handlers import STRING, graph_of, send
from tidemill import StreamsBuilder
from tidemill.dsl.functions import per_record
from tidemill.errors import RecordError
from tidemill.operators.returned import several_of

PAIR = r"expected a pair \(key, value\)"
LIST = r"expected a list of what becomes of the record: \[result\] for one, \[\] for none"


def _mapped(stream: Any, result: object) -> Any:
    return stream.map(per_record(lambda _key, _value: result, (STRING, STRING)))


def _flat_mapped(stream: Any, result: object) -> Any:
    return stream.flat_map(per_record(lambda _key, _value: result, (STRING, STRING)))


def _values_flat_mapped(stream: Any, result: object) -> Any:
    return stream.flat_map_values(per_record(lambda _value: result, STRING))


def _table_grouped(stream: Any, result: object) -> Any:
    grouped = stream.to_table().group_by(per_record(lambda _key, _value: result, (STRING, STRING)), key=STRING, value=STRING)
    return grouped.reduce(max, min).to_stream()


@pytest.mark.parametrize(("make", "result", "said"), [
    (_mapped, "ab", rf"a value of type str, {PAIR}"),
    (_mapped, ("a", "b", "c"), rf"a tuple of 3, {PAIR}"),
    (_mapped, None, rf"returned None, {PAIR}"),
    (_flat_mapped, ("a", "b"), rf"a value of type str, {PAIR}"),
    (_flat_mapped, {"ab": 1}, rf"a value of type dict, {LIST}"),
    (_values_flat_mapped, "hello", rf"a value of type str, {LIST}"),
    (_values_flat_mapped, b"hello", rf"a value of type bytes, {LIST}"),
    (_values_flat_mapped, None, rf"returned None, {LIST}"),
    (_values_flat_mapped, 7, rf"a value of type int, {LIST}"),
    (_table_grouped, "ab", rf"a value of type str, {PAIR}"),
])  # fmt: skip
def test_what_is_no_pair_and_no_list_is_refused(make: Callable[[Any, object], Any], result: object, said: str) -> None:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING), result).to("out", key=STRING, value=STRING)
    with pytest.raises(RecordError, match=said):
        send(graph_of(builder), "value")


@pytest.mark.parametrize("make", [_mapped, _table_grouped])
def test_a_pair_may_be_a_list(make: Callable[[Any, object], Any]) -> None:
    builder = StreamsBuilder()
    make(builder.stream("in", key=STRING, value=STRING), ["a", "b"]).to("out", key=STRING, value=STRING)
    assert send(graph_of(builder), "value")


def test_whatever_else_can_be_iterated_counts_as_a_list() -> None:
    for several in (["a", "b"], ("a", "b"), iter("ab"), {"a": 1, "b": 2}.keys(), (letter for letter in "ab")):
        assert list(several_of(several)) == ["a", "b"]

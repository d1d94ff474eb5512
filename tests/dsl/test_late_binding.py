"""Functions made in a loop: each would use the loop's last value, without a word from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import functions as F

from tidemill import JoinWindows, KStream, Serdes, StreamsBuilder, TopologyBuilder, per_record
from tidemill.errors import TopologyError

TEXT = Serdes.string()
KINDS = ("large", "small")


def _stream() -> KStream:
    return StreamsBuilder().stream("in", key=TEXT, value=TEXT)


def _columns(stream: KStream) -> None:
    for kind in KINDS:
        stream.map_values(lambda v: F.lit(kind)).to(kind)


def _values(stream: KStream) -> None:
    for kind in KINDS:
        stream.map_values(per_record(lambda v: v + kind, TEXT)).to(kind)


def _branches(stream: KStream) -> None:
    branches = stream.split()
    for kind in KINDS:
        branches = branches.branch(lambda k, v: v == kind, name=kind)


def _inner_functions(stream: KStream) -> None:
    for kind in KINDS:
        stream.filter(lambda k, v: F.exists(F.split(v, " "), lambda word: word == kind)).to(kind)


def _joiners(stream: KStream) -> None:
    for kind in KINDS:
        stream.join(stream, lambda left, right: left + kind, JoinWindows.of_time_difference(10)).to(kind)


def _suppliers(stream: KStream) -> None:
    for kind in KINDS:
        stream.process(lambda: [kind])


def _topics(stream: KStream) -> None:
    for kind in KINDS:
        stream.to(lambda k, v, record: v + kind)


def _processors(_stream: KStream) -> None:
    topology = TopologyBuilder().add_source("in", "in")
    for kind in KINDS:
        topology.add_processor(kind, lambda: [kind], "in")


def _sinks(_stream: KStream) -> None:
    topology = TopologyBuilder().add_source("in", "in")
    for kind in KINDS:
        topology.add_sink(kind, lambda k, v, record: kind, "in")


def _sources(_stream: KStream) -> None:
    topology = TopologyBuilder()
    for kind in KINDS:
        topology.add_source(kind, kind, timestamp_extractor=lambda record, partition_time: len(kind))


@pytest.mark.parametrize(
    "program",
    [_columns, _values, _branches, _inner_functions, _joiners, _suppliers, _topics, _processors, _sinks, _sources],
)
def test_a_function_made_in_a_loop_is_refused_with_the_variable_and_what_to_write(program: Callable[[KStream], None]) -> None:
    with pytest.raises(TopologyError, match=r"test_late_binding\.py, line \d+\): .* kind, which is 'small' now and was 'large'"):
        program(_stream())


WORD = "large"


def test_a_variable_of_the_module_is_one_of_a_loop_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def program() -> None:
        stream.map_values(lambda v: F.lit(WORD))

    stream = _stream()
    program()
    program()
    monkeypatch.setitem(globals(), "WORD", "small")
    with pytest.raises(TopologyError, match=r"WORD=WORD"):
        program()


def _with_default(stream: KStream, kind: str) -> None:
    stream.map_values(lambda v, kind=kind: F.lit(kind)).to(kind)


def _with_a_call(stream: KStream, kind: str) -> None:
    stream.map_values(lambda v: F.lit(kind)).to(kind)


@pytest.mark.parametrize("operator", [_with_default, _with_a_call])
def test_a_value_that_each_function_keeps_is_no_mistake(operator: Callable[[KStream, str], Any]) -> None:
    stream = _stream()
    for kind in KINDS:
        operator(stream, kind)


def test_a_variable_that_does_not_change_is_no_mistake() -> None:
    stream, least, columns = _stream(), "".join(["a", "b"]), [F]
    for kind in KINDS:
        least = "".join(["a", "b"])  # equal, and another object
        stream.filter(lambda k, v: columns[0].length(v) > len(least)).to(kind)
        stream.filter(lambda k, v: later(v)).to(kind + "-later")

    def later(value: Any) -> Any:
        return value != ""

"""File and line of a sink in the program, for messages."""

from __future__ import annotations

import inspect

from tidemill import Serdes, StreamsBuilder, TopologyBuilder
from tidemill.topology.nodes import SinkNode

TEXT = Serdes.string()


def helper(builder: StreamsBuilder) -> None:
    builder.stream("in", key=TEXT, value=TEXT).to("out", name="sink")


def test_a_sink_knows_the_line_of_the_program_that_wrote_it_and_is_equal_to_one_of_another_line() -> None:
    builder, other = StreamsBuilder(), StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out", name="sink")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    helper(other)
    sinks = [each.build().nodes["sink"] for each in (builder, other)]
    assert [isinstance(sink, SinkNode) and sink.written_at for sink in sinks] == [
        f"{__file__}, line {line}", f"{__file__}, line {inspect.getsourcelines(helper)[1] + 1}",
    ]  # fmt: skip
    assert sinks[0] == sinks[1]


def test_a_sink_of_the_processor_api_does_too() -> None:
    topology = TopologyBuilder().add_source("in", "a").add_sink("out", "b", "in").build()
    sink = topology.nodes["out"]
    assert isinstance(sink, SinkNode)
    assert sink.written_at.startswith(f"{__file__}, line ")

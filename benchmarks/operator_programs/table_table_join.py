"""Rows of two tables that have the same key."""

from tidemill import Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
left, right = (builder.table(topic, key=STRING, value=STRING) for topic in ("left", "right"))
left.join(right, lambda one, other: one + other).to_stream().to("out", key=STRING, value=STRING)

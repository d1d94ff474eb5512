"""Rows of a table with the row of another one whose key their values name."""

from tidemill import Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
left, right = (builder.table(topic, key=STRING, value=STRING) for topic in ("left", "right"))
joined = left.join(right, lambda value, row: value + row, foreign_key=lambda value: value.split(" ")[2])
joined.to_stream().to("out", key=STRING, value=STRING)

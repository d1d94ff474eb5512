"""Records with the row of their key."""

from tidemill import Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
rows = builder.table("right", key=STRING, value=STRING, store="rows")
builder.stream("left", key=STRING, value=STRING).join(rows, lambda value, row: value + row).to("out", key=STRING, value=STRING)

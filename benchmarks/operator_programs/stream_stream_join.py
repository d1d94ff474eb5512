"""Records of two streams that are at most 100 ms apart."""

from tidemill import JoinWindows, Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
left.join(right, lambda one, other: one + other, JoinWindows.of_time_difference(100)).to("out", key=STRING, value=STRING)

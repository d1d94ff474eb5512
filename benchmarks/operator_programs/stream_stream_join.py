"""Records of two streams that are at most 100 ms apart, if one is not read more than ten seconds after the other."""

from tidemill import JoinWindows, Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
windows = JoinWindows.of_time_difference(100, grace=10_000)
left.join(right, lambda one, other: one + other, windows).to("out", key=STRING, value=STRING)

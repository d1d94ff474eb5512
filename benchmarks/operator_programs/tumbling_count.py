"""Counts by key in windows of a minute."""

from tidemill import Serdes, StreamsBuilder, TimeWindows

STRING = Serdes.string()
builder = StreamsBuilder()
windowed = builder.stream("left", key=STRING, value=STRING).group_by_key().windowed_by(TimeWindows.of_size(60_000))
windowed.count(store="counts").to_stream().to("out", value=Serdes.long())

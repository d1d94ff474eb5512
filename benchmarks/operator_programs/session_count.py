"""Counts by key in sessions that end after half a second."""

from tidemill import Serdes, SessionWindows, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
windowed = builder.stream("left", key=STRING, value=STRING).group_by_key().windowed_by(SessionWindows.of_inactivity_gap(500))
windowed.count(store="counts").to_stream().to("out", value=Serdes.long())

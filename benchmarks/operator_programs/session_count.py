"""Counts by key in sessions that end after half a second, and wait ten seconds for late records."""

from tidemill import Serdes, SessionWindows, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
sessions = SessionWindows.of_inactivity_gap(500, grace=10_000)
windowed = builder.stream("left", key=STRING, value=STRING).group_by_key().windowed_by(sessions)
windowed.count(store="counts").to_stream().to("out", value=Serdes.long())

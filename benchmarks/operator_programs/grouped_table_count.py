"""The number of a table's keys in each group; keys change their groups."""

from tidemill import Serdes, StreamsBuilder

STRING = Serdes.string()
builder = StreamsBuilder()
table = builder.table("left", key=STRING, value=STRING)
grouped = table.group_by(lambda key, value: (value.split(" ")[2], key), key=STRING, value=STRING)
grouped.count(store="counts").to_stream().to("out", key=STRING, value=Serdes.long())

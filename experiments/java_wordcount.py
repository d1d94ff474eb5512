"""Kafka's own WordCountDemo (kafka-streams-examples 4.3), node by node: the count has no name, so its store and its topics get
the numbers that Kafka Streams gives them, and a Java instance and this one read and write the same topics.

The demo's ``split`` gives an empty word for a line that begins with no letter; so does this one.
"""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

config = {"application.id": "streams-wordcount", "bootstrap.servers": "localhost:9092", "tidemill.presum": "false"}
builder = StreamsBuilder()

lines = builder.stream("streams-plaintext-input", key=Serdes.string(), value=Serdes.string())
counts = (
    lines.flat_map_values(lambda line: F.split(F.lower(line), r"\W+"))
    .group_by(lambda _, word: word, key=Serdes.string(), value=Serdes.string())
    .count()
)
counts.to_stream().to("streams-wordcount-output", key=Serdes.string(), value=Serdes.long())

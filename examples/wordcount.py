"""WordCount: the words of a topic of lines, counted.

    tidemill describe examples/wordcount.py
    tidemill run examples/wordcount.py
"""

from pyspark.sql import functions as F

from tidemill import Serdes, StreamsBuilder

config = {"application.id": "streams-wordcount", "bootstrap.servers": "localhost:9092"}
builder = StreamsBuilder()

lines = builder.stream("streams-plaintext-input", key=Serdes.string(), value=Serdes.string())
counts = (
    lines.flat_map_values(lambda line: F.array_remove(F.split(F.lower(line), r"\W+"), ""))
    .group_by(lambda _, word: word, key=Serdes.string(), value=Serdes.string())
    .count(store="counts-store")
)
counts.to_stream().to("streams-wordcount-output", key=Serdes.string(), value=Serdes.long())

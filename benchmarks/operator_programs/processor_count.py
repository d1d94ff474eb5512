"""Records of each key, counted by a processor of the Processor API in a key-value store."""

from tidemill import ProcessorContext, Record, Serdes, Stores, StreamsBuilder

STRING, LONG = Serdes.string(), Serdes.long()


class Counting:
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts = context.store("counts")

    def process(self, record: Record) -> None:
        count = (self.counts.get(record.key) or 0) + 1
        self.counts.put(record.key, count)
        self.context.forward(record.with_value(count))


builder = StreamsBuilder()
builder.add_state_store(Stores.key_value_store("counts", key=STRING, value=LONG))
builder.stream("left", key=STRING, value=STRING).process(Counting, "counts").to("out", key=STRING, value=LONG)

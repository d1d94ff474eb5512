import java.io.FileReader;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** The programs of operator_programs/ in Java: `java OperatorPrograms.java PROGRAM PROPERTIES`. */
public class OperatorPrograms {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[1])) {
            properties.load(reader);
        }
        var strings = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        var consumed = Consumed.with(strings, strings);
        switch (arguments[0]) {
            case "tumbling_count" -> builder.stream("left", consumed).groupByKey(Grouped.with(strings, strings))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1))).count(Materialized.as("counts")).toStream()
                .to("out", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000), Serdes.Long()));
            case "session_count" -> builder.stream("left", consumed).groupByKey(Grouped.with(strings, strings))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofMillis(500), Duration.ofSeconds(10)))
                .count(Materialized.as("counts")).toStream()
                .to("out", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
            case "stream_table_join" -> builder.stream("left", consumed)
                .join(builder.table("right", consumed, Materialized.as("rows")), (value, row) -> value + row)
                .to("out", Produced.with(strings, strings));
            case "stream_stream_join" -> builder.stream("left", consumed).join(builder.stream("right", consumed),
                (one, other) -> one + other, JoinWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(100), Duration.ofSeconds(10)),
                StreamJoined.with(strings, strings, strings)).to("out", Produced.with(strings, strings));
            case "table_table_join" -> builder.table("left", consumed)
                .join(builder.table("right", consumed), (one, other) -> one + other)
                .toStream().to("out", Produced.with(strings, strings));
            case "processor_count" -> {
                builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), strings, Serdes.Long()));
                builder.stream("left", consumed).process(Counting::new, "counts").to("out", Produced.with(strings, Serdes.Long()));
            }
            case "grouped_table_count" -> builder.table("left", consumed)
                .groupBy((key, value) -> KeyValue.pair(value.split(" ")[2], key), Grouped.with(strings, strings))
                .count(Materialized.as("counts")).toStream().to("out", Produced.with(strings, Serdes.Long()));
            case "foreign_key_join" -> builder.table("left", consumed)
                .join(builder.table("right", consumed), value -> value.split(" ")[2], (value, row) -> value + row)
                .toStream().to("out", Produced.with(strings, strings));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }

    private static class Counting implements Processor<String, String, String, Long> {
        private ProcessorContext<String, Long> context;
        private KeyValueStore<String, Long> counts;

        @Override
        public void init(ProcessorContext<String, Long> context) {
            this.context = context;
            counts = context.getStateStore("counts");
        }

        @Override
        public void process(Record<String, String> record) {
            Long before = counts.get(record.key());
            long count = before == null ? 1 : before + 1;
            counts.put(record.key(), count);
            context.forward(record.withValue(count));
        }
    }
}

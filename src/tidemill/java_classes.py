"""What is written instead of a class of Kafka Streams that the package does not have.

Decides the sentence only; ``lazy_names`` says it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_PROCESSOR = "a class of your own with process(record), and init(context) and close() if it needs them"
_SUPPLIER = "a class or a function that makes one: process(Spikes)"
_HANDLERS = "the setting processing.exception.handler, deserialization.exception.handler or production.exception.handler"
_EXTRACTOR = "timestamp_extractor= of a source, or the setting default.timestamp.extractor"
_STORES_OF = "store, window_store, session_store and versioned_store of KafkaStreams"
_RECORDS_OF_CLIENTS = "Record in processors, SourceRecord in extractors; clients of your own are those of confluent-kafka"
_INSTEAD = {
    "AggregationWithHeaders|ValueTimestampHeaders|HeadersBytesStore(Supplier)?|\\w+WithHeaders": "Materialized(headers=True)",
    "AssignmentConfigs": "AssignmentConfig",
    "AutoOffsetReset": "offset_reset= of builder.stream and builder.table",
    "Branched": "the arguments name=, function= and consumer= of branch",
    "(Eager|Strict)?BufferConfig": (
        "the arguments max_records= and max_bytes= of until_window_closes and until_time_limit of Suppressed"
    ),
    "(BuiltIn|InMemory|RocksDB)?DslStoreSuppliers|Dsl(KeyValue|Window|Session)Params|StoreType": (
        "the setting dsl.store.suppliers.class, or Materialized(persistent=False)"
    ),
    "ByteBuffer|Bytes": "bytes",
    "Cancellable": "a call of what schedule returned",
    "ClientInstanceIds": "nothing, since clients push no metrics to brokers",
    "CloseOptions|GroupMembershipOperation": "the arguments timeout= and leave_group= of close",
    "ConnectedStoreProvider": "the stores as arguments of process: process(Spikes, store)",
    "Consumed": "the arguments key=, value=, timestamp_extractor=, offset_reset= and name= of builder.stream and builder.table",
    "Consumer(Record|Records)|ProducerRecord": _RECORDS_OF_CLIENTS,
    "DslStoreFormat": "the setting dsl.store.format",
    "Duration": "milliseconds or a timedelta",
    "ErrorHandlerContext": "ErrorContext",
    "(FailOn|LogAndSkipOn|UsePartitionTimeOn)InvalidTimestamp|WallclockTimestampExtractor": f'"{{0}}" for {_EXTRACTOR}',
    "FailureReason": "except QueryError, or except InvalidStateStoreError, around the read",
    "FixedKeyProcessor|ValueTransformer|ContextualFixedKeyProcessor": f"{_PROCESSOR}, for process_values",
    "FixedKeyProcessorContext|ProcessingContext": "ProcessorContext",
    "FixedKeyProcessorSupplier|TransformerSupplier|WrappedFixedKeyProcessorSupplier": _SUPPLIER,
    "FixedKeyRecord|InternalFixedKeyRecordFactory": "Record, and its with_value, with_timestamp and with_headers",
    "ForeachProcessor": "foreach of the stream",
    "Grouped": "the arguments key=, value= and name= of group_by and group_by_key",
    "GroupProtocol": "nothing, since members use the classic protocol",
    "(Record)?Headers?": "a tuple of pairs (name, bytes)",
    "Instant": "milliseconds since the epoch",
    "KafkaClientSupplier": "settings that begin with kafka. for the clients, which are librdkafka's",
    "AssignedTask": "a TaskId in active or standby of ClientAssignment",
    "KafkaStreamsAssignment": "ClientAssignment",
    "KafkaStreamsState": "ClientState",
    "KeyQuery": "store(name).get(key) of KafkaStreams",
    "KeyValue": "a tuple (key, value)",
    "LogAndContinue(Processing)?ExceptionHandler": f'"continue" for {_HANDLERS}',
    "LogAndFail(Processing)?ExceptionHandler": f'"fail" for {_HANDLERS}',
    "MockProcessorContext": "TopologyTestDriver of tidemill.testing, which runs the processor in its topology",
    "MultiVersionedKeyQuery": "versioned_store(name).history(key) of KafkaStreams",
    "Named": "the argument name= of the operator",
    "PositionBound": f"position= of {_STORES_OF}",
    "Printed": "print(label) of the stream",
    "Processor|ContextualProcessor|Transformer": f"{_PROCESSOR}, for process",
    "Produced": "the arguments key=, value=, partitioner= and name= of to",
    "(Producer|Consumer|AdminClient)Config": 'the setting by its text, such as "kafka.linger.ms"',
    "Properties": "a dict",
    "Punctuator": "a function of the time in ms, given to schedule",
    "RangeQuery": "store(name).range(low, high) of KafkaStreams",
    "ReadOnlyKeyValueStore": "ReadOnlyStore",
    "RecordContext": "SourceRecord",
    "Repartitioned": "the arguments key=, value=, partitions=, partitioner= and name= of repartition",
    "ResultOrder": "reverse=True of range, or of fetch_range",
    "RocksDBConfigSetter": "nothing, since stores are LMDB",
    "StateSerdes": "the arguments key= and value= of the functions of Stores",
    "StateStore": "context.store(name), for a store that one of the functions of Stores describes",
    "StateStoreContext|CommitCallback|(Batching)?StateRestoreCallback|(Timestamped|Versioned)BytesStore": (
        "one of Stores, since there are no stores of a program's own classes"
    ),
    "StickyTaskAssignor": '"org.apache.kafka.streams.processor.assignment.assignors.{0}" for the setting task.assignor.class',
    "StrategyType": "EmitStrategy",
    "StoreBuilder|StoreSupplier": "what the functions of Stores return",
    "StoreQueryParameters": f"the arguments of {_STORES_OF}",
    "StreamsMetrics": "metrics() of KafkaStreams",
    "StreamsUncaughtExceptionHandler": "UncaughtExceptionHandler",
    "TaskAssignmentUtils|RackAwareOptimizationParams|MoveStandbyTaskPredicate": (
        "a TaskAssignor that gives the whole Assignment, or one of Kafka's by its name, for the setting task.assignor.class"
    ),
    "TaskAssignment": "Assignment",
    "TaskTopicPartition": "TopicPartition",
    "(Task|Thread)Metadata": "threads of KafkaStreams",
    "TimestampedKeyQuery": "store(name).timestamped.get(key) of KafkaStreams",
    "TimestampedRangeQuery": "store(name).timestamped.range(low, high) of KafkaStreams",
    "To": "forward(record, child_name)",
    "TopologyConfig": "the config of KafkaStreams",
    "TopologyDescription|Subtopology|Node|Source|Sink|GlobalStore": "topology.describe(), which is a text",
    "ValueTransformerWithKeySupplier": "ValueTransformerSupplier",
    "VersionedKeyQuery": "versioned_store(name).get(key) or .get_as_of(key, time) of KafkaStreams",
    "VersionedRecord": "ValueAndTimestamp",
    "Window": "start and end of Windowed",
    "WindowKeyQuery": "window_store(name).fetch_range(key, first, last) of KafkaStreams",
    "WindowRangeQuery": "window_store(name).fetch_all(first, last) or session_store(name).fetch(key) of KafkaStreams",
    "WrappedProcessorSupplier": "ProcessorSupplier",
    # several of a kind
    "(Timestamped)?KeyValue(Bytes)?Store(Supplier|Type)?": "Stores.key_value_store or Stores.timestamped_key_value_store",
    "Versioned(KeyValue|Bytes)Store(Supplier)?": "Stores.versioned_key_value_store",
    "(Timestamped)?Window(Bytes)?Store(Supplier|Type)?": "Stores.window_store",
    "Session(Bytes)?Store(Supplier|Type)?": "Stores.session_store",
    "QueryableStoreTypes?|StateQuery(Request|Result)|InStore|Query(Config|Result)?": f"{_STORES_OF}, and their methods",
    "(Time|Session)WindowedCogroupedKStream": "WindowedCogroupedKStream",
    "(Time|Session)Windowed(Serializer|Deserializer|Serde)": (
        "WindowedSerdes.time_windowed_serde_from or WindowedSerdes.session_windowed_serde_from"
    ),
    "\\w+Serde|\\w*Serializer|\\w*Deserializer": (
        "one of Serdes, or an object of your own with name, sql_type, serialize and deserialize"
    ),
    "\\w*Iterator": "a for loop",
    "\\w*HandlerResponse|Response|Result": "ExceptionResponse",
    "\\w*ExceptionHandler": f"a function, or a text such as dead-letter, for {_HANDLERS}",
    "StreamsException": "TidemillError",
    "(BrokerNotFound|StreamsStopped|TaskMigrated|UnknownTopology|InternalTopicsAlreadySetup)Exception": (
        "TidemillError, of which every error is one"
    ),
    "(State)?(StoreMigrated|StoreNotAvailable)Exception|StreamsRebalancingException": "InvalidStateStoreError",
    "InvalidStateStorePartitionException": "QueryError",
    "LockException": "StateDirectoryInUseError",
    "ProcessorStateException": "StateError",
    "TaskCorruptedException": "CorruptStateError",
    "TaskIdFormatException": "ValueError",
    "UnknownStateStoreException": "UnknownStoreError",
    "(TaskAssignment|MissingSourceTopic|MissingInternalTopics|MisconfiguredInternalTopic)Exception": "AssignmentError",
    "SerializationException": "SerdeError",
}
"""By a pattern of the whole name, the first that fits; ``{0}`` is the name."""


def instead_of_class(name: str, exported: Collection[str]) -> str | None:
    """What is written instead of Java's class ``name``; None if there is no such class. ``exported``: what the package has."""
    python_name = re.sub(r"Exception$", "Error", name)
    if python_name in exported:
        return python_name
    return next((text.format(name) for pattern, text in _INSTEAD.items() if re.fullmatch(pattern, name)), None)

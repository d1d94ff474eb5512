"""Java's spellings and methods of other classes: the error says what to write."""

from __future__ import annotations

import builtins
import copy
import inspect
import pickle
import re
from collections.abc import Callable
from typing import get_type_hints

import pytest

import tidemill
import tidemill.testing
from tidemill import (
    AssignmentConfig,
    ClientAssignment,
    ClientState,
    EmitStrategy,
    HostInfo,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    ProcessId,
    PunctuationType,
    ReadOnlySessionStore,
    ReadOnlyStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    State,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TableJoined,
    TaskId,
    TimeWindows,
    TopicPartition,
    Topology,
    ValueAndTimestamp,
    Windowed,
    WindowedSerdes,
)
from tidemill.dsl.grouped import KGroupedStream
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable
from tidemill.operators.processors import ProcessorContext
from tidemill.testing.driver import TopologyTestDriver
from tidemill.testing.topics import TestOutputTopic

STREAM = StreamsBuilder().stream("in")
TABLE = StreamsBuilder().table("in")
GROUPED = STREAM.group_by_key()
SESSIONS = GROUPED.windowed_by(SessionWindows.of_inactivity_gap(1))
GROUPED_TABLE = TABLE.group_by(lambda key, value: (key, value))


@pytest.mark.parametrize(("asked", "name", "said"), [
    (STREAM, "mapValues", "KStream has no mapValues: write map_values$"),
    (Suppressed, "untilWindowCloses", ": write until_window_closes$"),
    (Serdes, "String", "Serdes has no String: write string$"),
    (ProcessorContext, "appConfigs", r": write process\(lambda: MyProcessor\(config\), ...\): the supplier gives"),
    (ProcessorContext, "applicationId", r": write process\(lambda: MyProcessor\(config\), ...\): the supplier gives"),
    (TaskId(1, 0), "topicGroupId", "TaskId has no topicGroupId: write subtopology$"),
    (TaskId(1, 0), "toString", "; it has parse, partition, subtopology$"),
    (HostInfo("h", 1), "getHost", "HostInfo has no getHost: write host$"),
    (ProcessId(0, 0), "randomProcessId", r": write ProcessId.of\(uuid.uuid4\(\)\)$"),
    (TopicPartition("t", 0), "getTopic", ": write topic$"),
    (AssignmentConfig(), "maxWarmupReplicas", ": write max_warmup_replicas$"),
    (ClientState(process_id=ProcessId(0, 0), capacity=1), "numProcessingThreads", ": write capacity$"),
    (ClientState(process_id=ProcessId(0, 0), capacity=1), "hostInfo", "; it has capacity, consumers, "),
    (ClientAssignment(), "assignTask", ": write active= and standby= where the ClientAssignment is made$"),
    (Stores, "inMemoryKeyValueStore", ": write key_value_store with persistent=False$"),
    (TimeWindows, "ofSizeWithNoGrace", ": write of_size$"),
    (Materialized, "as_", r"write Materialized\(name=...\)"),
    (TestOutputTopic, "readValuesToList", ": write read_values$"),
    (ProcessorContext, "getStateStore", ": write store$"),
    (STREAM, "through", r"KStream has no through: write repartition\(\), or to\(topic\) and builder"),
    (STREAM, "transformValues", r"KStream has no transformValues: write process_values\(supplier\)$"),
    (TABLE, "transformValues", "KTable has no transformValues: write transform_values$"),
    (STREAM, "where", r"KStream has no where: write filter\(lambda key, value: ...\)$"),
    (TABLE, "withColumn", r"write map_values\(lambda value: ...\), as with value.withField\(name, column\)$"),
    (STREAM, "unionByName", "KStream has no unionByName: write merge$"),
    (TABLE, "unionByName", "KTable has no unionByName; it has filter, "),
    (STREAM, "limit", r"KStream has no limit: write process\(supplier\), with a store that counts$"),
    (STREAM, "offset", r"KStream has no offset: write process\(supplier\)"),
    (STREAM, "orderBy", r"KStream has no orderBy: write foreach_batch\(function\), which gets DataFrames, one for each"),
    (STREAM, "na", r"KStream has no na: write filter\(lambda key, value: value.isNotNull\(\)\), or map_values\("),
    (STREAM, "sample", r"write filter\(lambda key, value: F.pmod\(F.xxhash64\(key\), F.lit\(100\)\) < 10\), the same if a batch"),
    (STREAM, "write", r"KStream has no write: write to\(topic\), or foreach_batch\(function\)$"),
    (STREAM, "withColumnRenamed", r'write map_values\(lambda value: ...\), as with F.struct\(value\["old"\].alias\("new"\)\)$'),
    (STREAM, "explain", "KStream has no explain: write tidemill explain-plan app.py, in a shell$"),
    (STREAM, "cache", r"KStream has no cache: write to_table\(store=...\)"),
    (TABLE, "cache", "KTable has no cache(: did you mean|; it has)"),
    (TABLE, "transform", r"KTable has no transform: write transform_values\(supplier\)$"),
    (TABLE, "show", r"KTable has no show: write to_stream\(\).print\(\)$"),
    (TABLE, "agg", "KTable has no agg[:;] (?!write to_stream)"),
    (GROUPED, "first", r"KGroupedStream has no first: write reduce\(lambda first, value: first\)$"),
    (GROUPED, "applyInPandas", r"or before the group map_values\(per_batch\(function\)\)$"),
    (STREAM, "window", r"KStream has no window: write group_by_key\(\).windowed_by\(windows\)$"),
    (STREAM, "printSchema", "KStream has no printSchema: write key_serde and value_serde$"),
    (STREAM, "avg", r"write group_by_key\(\) or group_by\(...\), and then aggregate\(\*Aggregators...\)$"),
    (GROUPED, "agg", r"write aggregate\(\*Aggregators.sum\(Serdes.double\(\), lambda value: ...\)\)$"),
    (GROUPED, "count_distinct", r"write aggregate\(\*Aggregators.approx_count_distinct\(lambda value: ...\)\)$"),
    (SESSIONS, "avg", r"write aggregate\(\*total, total.merger\), with total = Aggregators.mean\(lambda value: ...\)$"),
    (GROUPED_TABLE, "sum", r"write aggregate\(\*total, total.subtractor\), with total = Aggregators.sum\("),
    (GROUPED_TABLE, "max", "KGroupedTable has no max; it has aggregate, "),
    (Serdes, "serdeFrom", "Serdes has no serdeFrom: write an object of your own with name, sql_type, serialize and deserialize$"),
    (TABLE, "to", r"KTable has no to: to is a method of KStream, which .*table.to_stream\(\) give$"),
    (STREAM, "count", r": count is a method of KGroupedStream, which stream.group_by_key\(\) and"),
    (TABLE, "count", r": count is a method of KGroupedTable, which table.group_by\(...\) gives$"),
    (STREAM, "start", r": start is a method of KafkaStreams, which .*KafkaStreams\(builder, config\)$"),
    (Windowed("k", 1, 2), "window", "Windowed has no window: write start and end$"),
    (Record("k", 1, 2), "withValue", "Record has no withValue: write with_value$"),
    (KafkaStreams, "setGlobalStateRestoreListener", ": write set_state_restore_listener$"),
    (KafkaStreams, "allMetadata", r": write metadata_for_all_streams_clients\(\)$"),
    (KafkaStreams, "streamsMetadataForStore", r": write metadata_for_all_streams_clients\(\), of which .* in state_store_names$"),
    (Joined(), "withGracePeriod", "Joined has no withGracePeriod: write grace$"),
    (StreamJoined, "with_", r": write StreamJoined\(key=..., value=..., other_value=...\)$"),
    (Joined, "as_", r": write Joined\(name=...\)$"),
    (TableJoined, "with_", r": write TableJoined\(partitioner=..., other_partitioner=...\)$"),
    (TableJoined, "as_", r": write TableJoined\(name=...\)$"),
    (SessionWindows, "with_", ": write of_inactivity_gap$"),
    (TimeWindows.of_size(1), "until", r": write Materialized\(retention=...\)$"),
    (Suppressed, "BufferConfig", ": write max_records= and max_bytes= of until_window_closes"),
    (TableJoined, "withName", ": write name= where the TableJoined is made$"),
    (WindowedSerdes, "timeWindowedSerdeFrom", ": write time_windowed_serde_from$"),
    (Stores.key_value_store("s"), "withLoggingDisabled", "Store has no withLoggingDisabled: write logged=False$"),
    (Serdes, "ByteArray", ": write bytes$"),
    (Serdes, "ListSerde", r": write a field of a document, json\('items array<\.\.\.>'\), or an object of your own"),
    (ReadOnlyStore, "reverseAll", r": write all\(reverse=True\)$"),
    (ReadOnlyWindowStore, "backwardFetch", r": write fetch_range\(key, first, last, reverse=True\), or "),
    (ReadOnlySessionStore, "findSessions", ": write find_sessions$"),
    (ReadOnlyVersionedStore, "getAsOf", ": write get_as_of$"),
    (StreamsConfig, "EXACTLY_ONCE_V2", ': settings and their values are named by their text, such as "processing.guarantee" and'),
    (State.RUNNING, "isRunningOrRebalancing", r": write state in \(State.RUNNING, State.REBALANCING\)$"),
    (EmitStrategy, "onWindowClose", "EmitStrategy has no onWindowClose: write ON_WINDOW_CLOSE$"),
    (PunctuationType, "STREAM", "PunctuationType has no STREAM: write STREAM_TIME$"),
    (Record("k", 1, 2), "getValue", ": write value$"),
    (ValueAndTimestamp(1, 2), "timestamp", ": write timestamp_ms$"),
    (TimeWindows, "ofSizeAndGrace", ": write of_size with grace=$"),
    (Materialized, "withKeySerde", ": write key= where the Materialized is made$"),
    (Stores, "timestampedWindowStoreBuilder", ": write window_store with timestamped=True$"),
    (ReadOnlyWindowStore, "backwardFetchAll", ": write fetch_all with reverse=True$"),
    (ReadOnlyStore, "putIfAbsent", ": write a processor for that"),
    (Topology, "addSource", ": add_source is a method of TopologyBuilder"),
    (STREAM, "fliter", "KStream has no fliter: did you mean filter"),
    (TestOutputTopic, "readKeyValuesToMap", "TestOutputTopic has no readKeyValuesToMap: write read_key_values_to_dict$"),
    (TopologyTestDriver, "getTimestampedWindowStore", "TopologyTestDriver has no getTimestampedWindowStore: write store$"),
    (TopologyTestDriver, "getAllStateStores", r": write store\(name\) of each in store_kinds$"),
    (TopologyTestDriver, "metrics", ": write dropped or skipped$"),
    (StreamsBuilder, "describe", r"StreamsBuilder has no describe: write describe\(\) of the Topology that build\(\) gives$"),
    (SlidingWindows, "withTimeDifferenceAndGrace", ": write of_time_difference with grace=$"),
    (STREAM, "writeStream", r": write to\(topic\), or foreach_batch\(function\)$"),
    (StreamsBuilder, "xyzzy", "StreamsBuilder has no xyzzy; it has .*, stream, table$"),
])  # fmt: skip
def test_a_name_that_a_class_does_not_have_is_answered_with_what_to_write(asked: object, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(asked, name)


@pytest.mark.parametrize(("name", "said"), [
    ("Grouped", "tidemill has no Grouped: write the arguments key=, value= and name= of group_by and group_by_key$"),
    ("KeyValue", r"tidemill has no KeyValue: write a tuple \(key, value\)$"),
    ("FixedKeyProcessor", r": write a class of your own with process\(record\), .*, for process_values$"),
    ("TopologyTestDriver", ": write from tidemill.testing import TopologyTestDriver$"),
    ("LogAndContinueExceptionHandler", ': write "continue" for the setting processing.exception.handler, deserialization'),
])  # fmt: skip
def test_an_import_of_a_class_that_only_java_needs_is_answered_with_what_to_write(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        exec(f"from tidemill import {name}")
    with pytest.raises(ImportError, match="cannot import name 'Grooped'"):
        exec("from tidemill import Grooped")
    assert not hasattr(tidemill, "Grooped")


PUBLIC_IN_JAVA = """
    AggregationWithHeaders Aggregator ApplicationState AssignmentConfigs AutoOffsetReset BatchingStateRestoreCallback Branched
    BranchedKStream BrokerNotFoundException BuiltInDslStoreSuppliers Cancellable ClientInstanceIds CloseOptions
    CogroupedKStream CommitCallback ConnectedStoreProvider Consumed ContextualFixedKeyProcessor ContextualProcessor
    DefaultProductionExceptionHandler DeserializationExceptionHandler DslKeyValueParams DslSessionParams DslStoreFormat
    DslStoreSuppliers DslWindowParams EmitStrategy ErrorHandlerContext FailOnInvalidTimestamp FailureReason FixedKeyProcessor
    FixedKeyProcessorContext FixedKeyProcessorSupplier FixedKeyRecord ForeachAction ForeachProcessor GlobalKTable
    GroupProtocol Grouped HeadersBytesStore HeadersBytesStoreSupplier HostInfo Initializer InternalFixedKeyRecordFactory
    InternalTopicsAlreadySetupException InvalidStateStoreException InvalidStateStorePartitionException JoinWindows Joined
    KGroupedStream KGroupedTable KStream KTable KafkaClientSupplier KafkaStreams KafkaStreamsAssignment KafkaStreamsState
    KeyQuery KeyQueryMetadata KeyValue KeyValueBytesStoreSupplier KeyValueIterator KeyValueMapper KeyValueStore LagInfo
    LockException LogAndContinueExceptionHandler LogAndContinueProcessingExceptionHandler LogAndFailExceptionHandler
    LogAndFailProcessingExceptionHandler LogAndSkipOnInvalidTimestamp Materialized Merger MisconfiguredInternalTopicException
    MissingInternalTopicsException MissingSourceTopicException MockProcessorContext MultiVersionedKeyQuery Named Position
    PositionBound Predicate Printed ProcessId ProcessingContext ProcessingExceptionHandler Processor ProcessorContext
    ProcessorStateException ProcessorSupplier ProcessorWrapper Produced ProductionExceptionHandler PunctuationType Punctuator
    Query QueryConfig QueryResult QueryableStoreType QueryableStoreTypes RangeQuery ReadOnlyKeyValueStore ReadOnlySessionStore
    ReadOnlyWindowStore Record RecordContext RecordMetadata Reducer Repartitioned ResultOrder RocksDBConfigSetter
    SessionBytesStoreSupplier SessionStore SessionStoreWithHeaders SessionWindowedCogroupedKStream SessionWindowedDeserializer
    SessionWindowedKStream SessionWindowedSerializer SessionWindows SlidingWindows StandbyUpdateListener StateQueryRequest
    StateQueryResult StateRestoreCallback StateRestoreListener StateSerdes StateStore StateStoreContext
    StateStoreMigratedException StateStoreNotAvailableException StickyTaskAssignor StoreBuilder StoreQueryParameters
    StoreSupplier Stores StreamJoined StreamPartitioner StreamsBuilder StreamsConfig StreamsException StreamsMetadata
    StreamsMetrics StreamsNotStartedException StreamsRebalancingException StreamsStoppedException
    StreamsUncaughtExceptionHandler Suppressed TableJoined TaskAssignmentException TaskAssignmentUtils TaskAssignor
    TaskCorruptedException TaskId TaskIdFormatException TaskInfo TaskMetadata TaskMigratedException TaskTopicPartition
    ThreadMetadata TimeWindowedCogroupedKStream TimeWindowedDeserializer TimeWindowedKStream TimeWindowedSerializer
    TimeWindows TimestampExtractor TimestampedBytesStore TimestampedKeyQuery TimestampedKeyValueStore
    TimestampedKeyValueStoreWithHeaders TimestampedRangeQuery TimestampedWindowStore TimestampedWindowStoreWithHeaders To
    TopicNameExtractor Topology TopologyConfig TopologyDescription TopologyException Transformer TransformerSupplier
    UnknownStateStoreException UnknownTopologyException UnlimitedWindows UsePartitionTimeOnInvalidTimestamp ValueAndTimestamp
    ValueJoiner ValueJoinerWithKey ValueMapper ValueMapperWithKey ValueTimestampHeaders ValueTransformer
    ValueTransformerSupplier ValueTransformerWithKey ValueTransformerWithKeySupplier VersionedBytesStore
    VersionedBytesStoreSupplier VersionedKeyQuery VersionedKeyValueStore VersionedRecord VersionedRecordIterator
    WallclockTimestampExtractor Window WindowBytesStoreSupplier WindowKeyQuery WindowRangeQuery WindowStore
    WindowStoreIterator Windowed WindowedSerdes Windows WrappedFixedKeyProcessorSupplier WrappedProcessorSupplier
""".split()  # noqa: SIM905
"""The classes of Kafka Streams 4.3.1 that are public and in no package of internals."""


@pytest.mark.parametrize("name", PUBLIC_IN_JAVA)
def test_each_public_class_of_java_is_there_or_has_what_is_written_instead(name: str) -> None:
    if name in tidemill.__all__:
        return
    with pytest.raises(ImportError, match=f"^tidemill has no {name}: write ") as refused:
        exec(f"from tidemill import {name}")
    _, said = str(refused.value).split(": write ")
    if said.isidentifier():
        assert said in tidemill.__all__ or hasattr(builtins, said)
    for cls, method in re.findall(r"\b([A-Z]\w+)\.(\w+)", said):
        assert hasattr(getattr(tidemill, cls), method)
    for view, method in re.findall(r"\b(\w*store)\(name\)\.(\w+)", said):
        assert method == "timestamped" or hasattr(get_type_hints(getattr(KafkaStreams, view))["return"], method)


@pytest.mark.parametrize(("module", "name"), [("tidemill", "TestInputTopic"), ("tidemill.testing", "Serdes")])
def test_a_name_of_the_other_package_is_answered_with_its_import(module: str, name: str) -> None:
    other = {"tidemill": "tidemill.testing", "tidemill.testing": "tidemill"}[module]
    with pytest.raises(ImportError, match=rf"^{module} has no {name}: write from {other} import {name}$"):
        exec(f"from {module} import {name}")


@pytest.mark.parametrize(("call", "said"), [
    (lambda: Materialized("counts"), r"^Materialized: too many .*; expected Materialized\(\*, name=None, .*, what follows"),
    (lambda: STREAM.to("out", Serdes.string()), r"^KStream.to: too many .*\(topic, \*, key=None, value=None, .*by its name$"),
    (lambda: STREAM.map(name="x"), r"^KStream.map: missing a required argument: 'function'; expected KStream.map\(f"),
    (lambda: STREAM.filter(bool, named="x"), "^KStream.filter: got an unexpected keyword argument 'named'; expected KStream"),
    (lambda: Stores.key_value_store("s", Serdes.string()), r"expected Stores.key_value_store\(name, \*, key=None"),
    (lambda: TimeWindows(5), r"^TimeWindows: .*, or TimeWindows.of_size$"),
    (lambda: StreamsConfig({"application.id": "a"}), r" \.\.\., what follows \* by its name, or StreamsConfig.of$"),
    (lambda: STREAM.group_by_key().count(value=Serdes.long()), r"Grouped.*\.count\(.*; give serdes in store=Materialized\(key="),
    (lambda: STREAM.group_by_key().reduce(max, key=Serdes.long()), r"\.reduce\(.*; give serdes in store=Materialized\(key="),
    (lambda: STREAM.group_by_key().count(values=1), r"expected KGroupedStream\.count\(\*, store=None, name=None\)$"),
    (lambda: object.__new__(ReadOnlyWindowStore).fetch("k", 1, 2), r"fetch\(key, start\), or fetch_range$"),
])  # fmt: skip
def test_a_call_with_other_arguments_is_answered_with_those_that_are_taken(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize(("call", "said"), [
    (lambda: TimeWindows.of_size(10).grace(5), r"^TimeWindows.grace is a number, 0, .*: write grace= in TimeWindows.of_size\("),
    (lambda: JoinWindows.of_time_difference(9).before(3), r"before= in JoinWindows.of_time_difference\(difference, \*, bef"),
    (lambda: SlidingWindows.of_time_difference(9).grace(3), r"grace= in SlidingWindows.of_time_difference\(difference, \*, gr"),
    (lambda: SessionWindows.of_inactivity_gap(9).grace(3), r"grace= in SessionWindows.of_inactivity_gap\(gap, \*, grace=0\)$"),
    (lambda: TimeWindows.of_size(10).size(), r"^TimeWindows.size is a number, 10, and no method: write size, without \(\)$"),
])  # fmt: skip
def test_what_is_a_method_of_windows_in_java_is_answered_with_the_argument(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()
    windows = TimeWindows.of_size(10, grace=3)
    assert windows == pickle.loads(pickle.dumps(windows))
    assert type(pickle.loads(pickle.dumps(windows)).size) is int, "workers count with it"


def test_a_type_error_of_a_function_of_the_program_stays_as_it_is() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        STREAM.filter(Odd())  # type: ignore[arg-type]
    assert list(inspect.signature(KafkaStreams).parameters)[:2] == ["topology", "config"]
    assert list(inspect.signature(STREAM.filter).parameters) == ["predicate", "name"]


def test_whoever_asks_whether_a_name_is_there_is_answered_as_by_any_class() -> None:
    for cls in (KStream, KTable, KGroupedStream, KafkaStreams, StreamsBuilder, Serdes, TimeWindows):
        assert not hasattr(cls, "__wrapped__")
        assert getattr(cls, "nothing", 5) == 5
    for value in (TimeWindows.of_size(5), Windowed("k", 1, 2), Record("k", 1, 2)):
        assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value

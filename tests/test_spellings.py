"""Java's spellings and methods of other classes: the error says what to write."""

from __future__ import annotations

import copy
import pickle
import re
from typing import get_type_hints

import pytest

import tidemill
import tidemill.testing
from tidemill import (
    Joined,
    KafkaStreams,
    Materialized,
    ReadOnlySessionStore,
    ReadOnlyStore,
    ReadOnlyVersionedStore,
    ReadOnlyWindowStore,
    Record,
    Serdes,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TableJoined,
    TimeWindows,
    Windowed,
    WindowedSerdes,
)
from tidemill.dsl.grouped import KGroupedStream
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable
from tidemill.operators.processors import ProcessorContext
from tidemill.spellings import _CLASSES_OF_JAVA
from tidemill.testing.topics import TestOutputTopic

STREAM = StreamsBuilder().stream("in")
TABLE = StreamsBuilder().table("in")


@pytest.mark.parametrize(("asked", "name", "said"), [
    (STREAM, "mapValues", "KStream has no mapValues: write map_values$"),
    (Suppressed, "untilWindowCloses", ": write until_window_closes$"),
    (Serdes, "String", "Serdes has no String: write string$"),
    (Stores, "inMemoryKeyValueStore", ": write key_value_store$"),
    (TimeWindows, "ofSizeWithNoGrace", ": write of_size$"),
    (Materialized, "as_", r"write Materialized\(name=...\)"),
    (TestOutputTopic, "readValuesToList", ": write read_values$"),
    (ProcessorContext, "getStateStore", ": write store$"),
    (STREAM, "through", r"KStream has no through: write repartition\(\), or to\(topic\) and builder"),
    (STREAM, "transformValues", r"KStream has no transformValues: write process_values\(supplier\)$"),
    (TABLE, "transformValues", "KTable has no transformValues: write transform_values$"),
    (Serdes, "serdeFrom", "Serdes has no serdeFrom: write an object of your own with name, sql_type, serialize and deserialize$"),
    (TABLE, "to", r"KTable has no to: to is a method of KStream, which .*table.to_stream\(\) give$"),
    (STREAM, "count", r": count is a method of KGroupedStream, which stream.group_by_key\(\) and"),
    (TABLE, "count", r": count is a method of KGroupedTable, which table.group_by\(...\) gives$"),
    (STREAM, "start", r": start is a method of KafkaStreams, which .*KafkaStreams\(builder, config\)$"),
    (Windowed("k", 1, 2), "window", "Windowed has no window; it has end, key, start$"),
    (Record("k", 1, 2), "withValue", "Record has no withValue: write with_value$"),
    (KafkaStreams, "setGlobalStateRestoreListener", ": write set_state_restore_listener$"),
    (KafkaStreams, "allMetadata", r": write metadata_for_all_streams_clients\(\)$"),
    (KafkaStreams, "streamsMetadataForStore", r": write metadata_for_all_streams_clients\(\), of which .* in state_store_names$"),
    (Joined(), "withGracePeriod", "Joined has no withGracePeriod: write grace$"),
    (StreamJoined, "with_", ": write the arguments key= and value= "),
    (TableJoined, "withName", ": did you mean name"),
    (WindowedSerdes, "timeWindowedSerdeFrom", ": write time_windowed_serde_from$"),
    (Stores.key_value_store("s"), "withLoggingDisabled", "Store has no withLoggingDisabled: write logged=False$"),
    (Serdes, "ByteArray", ": write bytes$"),
    (ReadOnlyStore, "reverseAll", r": write all\(reverse=True\)$"),
    (ReadOnlyWindowStore, "backwardFetch", r": write fetch_range\(key, first, last, reverse=True\)$"),
    (ReadOnlySessionStore, "findSessions", ": write find_sessions$"),
    (ReadOnlyVersionedStore, "getAsOf", ": write get_as_of$"),
    (StreamsConfig, "APPLICATION_ID_CONFIG", ': settings are named by their text, such as "application.id"$'),
    (STREAM, "fliter", "KStream has no fliter: did you mean filter"),
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


@pytest.mark.parametrize(("name", "said"), _CLASSES_OF_JAVA.items())
def test_what_is_written_instead_of_a_class_of_java_is_there(name: str, said: str) -> None:
    assert name not in tidemill.__all__
    if said.startswith("from tidemill.testing import "):
        assert said.split()[-1] in tidemill.testing.__all__
    elif said.isidentifier():
        assert said in tidemill.__all__
    for cls, method in re.findall(r"\b([A-Z]\w+)\.(\w+)", said):
        assert hasattr(getattr(tidemill, cls), method)
    for view, method in re.findall(r"\b(\w*store)\(name\)\.(\w+)", said):
        assert hasattr(get_type_hints(getattr(KafkaStreams, view))["return"], method)


def test_whoever_asks_whether_a_name_is_there_is_answered_as_by_any_class() -> None:
    for cls in (KStream, KTable, KGroupedStream, KafkaStreams, StreamsBuilder, Serdes, TimeWindows):
        assert not hasattr(cls, "__wrapped__")
        assert getattr(cls, "nothing", 5) == 5
    for value in (TimeWindows.of_size(5), Windowed("k", 1, 2), Record("k", 1, 2)):
        assert copy.deepcopy(value) == pickle.loads(pickle.dumps(value)) == value

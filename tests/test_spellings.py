"""Java's spellings and methods of other classes: the error says what to write."""

from __future__ import annotations

import copy
import pickle

import pytest

import tidemill
from tidemill import KafkaStreams, Materialized, Serdes, Stores, StreamsBuilder, Suppressed, TimeWindows
from tidemill.dsl.grouped import KGroupedStream
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import KTable
from tidemill.operators.processors import ProcessorContext
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
    (STREAM, "fliter", "KStream has no fliter: did you mean filter"),
    (StreamsBuilder, "xyzzy", "StreamsBuilder has no xyzzy; it has .*, stream, table$"),
])  # fmt: skip
def test_a_name_that_a_class_does_not_have_is_answered_with_what_to_write(asked: object, name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=said):
        getattr(asked, name)


@pytest.mark.parametrize(("name", "said"), [
    ("Grouped", "tidemill has no Grouped: write the arguments key=, value= and name= of group_by and group_by_key$"),
    ("KeyValue", r"tidemill has no KeyValue: write a tuple \(key, value\)$"),
])  # fmt: skip
def test_an_import_of_a_class_that_only_java_needs_is_answered_with_what_to_write(name: str, said: str) -> None:
    with pytest.raises(ImportError, match=said):
        exec(f"from tidemill import {name}")
    with pytest.raises(ImportError, match="cannot import name 'Grooped'"):
        exec("from tidemill import Grooped")
    assert not hasattr(tidemill, "Grooped")


def test_whoever_asks_whether_a_name_is_there_is_answered_as_by_any_class() -> None:
    for cls in (KStream, KTable, KGroupedStream, KafkaStreams, StreamsBuilder, Serdes, TimeWindows):
        assert not hasattr(cls, "__wrapped__")
        assert getattr(cls, "nothing", 5) == 5
    windows = TimeWindows.of_size(5)
    assert copy.deepcopy(windows) == pickle.loads(pickle.dumps(windows)) == windows

"""What a class of the API says of a name that it does not have: Kafka Streams' Java spelling, or another class's method.

Decides the sentence only: whoever asks gets an AttributeError, as of any class. Classes take part by deriving from ``Spelled``,
named tuples by the decorator ``spelled``.
The package itself says it with an ImportError, since ``from ... import`` tells nothing of an AttributeError's.
"""

from __future__ import annotations

import difflib
import re
import sys
from typing import TYPE_CHECKING, TypeVar

Named = TypeVar("Named", bound=tuple[object, ...])

_GIVEN_BY = {
    "KStream": "builder.stream(...) and table.to_stream() give",
    "KTable": "builder.table(...), stream.to_table() and count, reduce or aggregate give",
    "KGroupedStream": "stream.group_by_key() and stream.group_by(...) give",
    "KGroupedTable": "table.group_by(...) gives",
    "TimeWindowedKStream": "grouped.windowed_by(TimeWindows...) gives",
    "SessionWindowedKStream": "grouped.windowed_by(SessionWindows...) gives",
    "CogroupedKStream": "grouped.cogroup(...) gives",
    "BranchedKStream": "stream.split() gives",
    "StreamsBuilder": "the program makes",
    "KafkaStreams": "the program makes: KafkaStreams(builder, config)",
    "TopologyBuilder": "the program makes, for processors without the DSL",
}
"""The classes whose methods are looked for, the likeliest first, and where their objects come from."""
_WITH_THE_STORE = "metadata_for_all_streams_clients(), of which those are meant that have it in state_store_names"
_RENAMED = {
    "through": "repartition(), or to(topic) and builder.stream(topic)",
    "transform": "process(supplier)",
    "flat_transform": "process(supplier)",
    "transform_values": "process_values(supplier)",
    "flat_transform_values": "process_values(supplier)",
    "serde_from": "an object of your own with name, sql_type, serialize and deserialize",
    "branch": "split().branch(predicate, ...)",
    "with_": "the arguments key= and value= of the method that takes them",
    "as_": "Materialized(name=...), or name= of the method",
    "all_metadata": "metadata_for_all_streams_clients()",
    "all_metadata_for_store": _WITH_THE_STORE,
    "streams_metadata_for_store": _WITH_THE_STORE,
    "byte_array": "bytes",
    "avro": "SchemaRegistry(url).avro(schema)",
    "protobuf": "SchemaRegistry(url).protobuf(Message)",
    "with_caching_disabled": "caching=False",
    "with_caching_enabled": "caching=True, the default",
    "with_logging_disabled": "logged=False",
    "with_logging_enabled": "changelog_config=",
    "with_key_serde": "key=",
    "with_value_serde": "value=",
    "with_retention": "retention=",
    "reverse_range": "range(low, high, reverse=True)",
    "reverse_all": "all(reverse=True)",
    "backward_fetch": "fetch_range(key, first, last, reverse=True)",
    "backward_all": "all(reverse=True)",
    "keySerde": "key= of the method",
    "valueSerde": "value= of the method",
}
"""Methods of Kafka Streams' that have no counterpart of their name."""
_PROCESSOR = "a class of your own with process(record), and init(context) and close() if it needs them"
_SUPPLIER = "a class or a function that makes one: process(Spikes)"
_A_SETTING = "the setting processing.exception.handler, deserialization.exception.handler or production.exception.handler"
_EXTRACTOR = "the setting default.timestamp.extractor"
_CLASSES_OF_JAVA = {
    "AutoOffsetReset": "offset_reset= of builder.stream and builder.table",
    "Branched": "the arguments name=, function= and consumer= of branch",
    "BufferConfig": "the arguments max_records= and max_bytes= of until_window_closes and until_time_limit of Suppressed",
    "Cancellable": "a call of what schedule returned",
    "CloseOptions": "the arguments timeout= and leave_group= of close",
    "Consumed": "the arguments key=, value=, timestamp_extractor=, offset_reset= and name= of builder.stream and builder.table",
    "ContextualFixedKeyProcessor": _PROCESSOR,
    "ContextualProcessor": _PROCESSOR,
    "DeserializationExceptionHandler": _A_SETTING,
    "Duration": "milliseconds or a timedelta",
    "ErrorHandlerContext": "ErrorContext",
    "FailOnInvalidTimestamp": f'"FailOnInvalidTimestamp" for {_EXTRACTOR}',
    "FixedKeyProcessor": f"{_PROCESSOR}, for process_values",
    "FixedKeyProcessorContext": "ProcessorContext",
    "FixedKeyProcessorSupplier": _SUPPLIER,
    "FixedKeyRecord": "Record",
    "Grouped": "the arguments key=, value= and name= of group_by and group_by_key",
    "KafkaStreamsAssignment": "Assignment",
    "KafkaStreamsState": "ApplicationState",
    "KeyQuery": "store(name).get(key) of KafkaStreams",
    "KeyValue": "a tuple (key, value)",
    "KeyValueBytesStoreSupplier": "Stores.key_value_store",
    "KeyValueIterator": "a for loop",
    "KeyValueStore": "Stores.key_value_store",
    "LogAndContinueExceptionHandler": f'"continue" for {_A_SETTING}',
    "LogAndContinueProcessingExceptionHandler": f'"continue" for {_A_SETTING}',
    "LogAndFailExceptionHandler": f'"fail" for {_A_SETTING}',
    "LogAndFailProcessingExceptionHandler": f'"fail" for {_A_SETTING}',
    "LogAndSkipOnInvalidTimestamp": f'"LogAndSkipOnInvalidTimestamp" for {_EXTRACTOR}',
    "MockProcessorContext": "TopologyTestDriver of tidemill.testing, which runs the processor in its topology",
    "MultiVersionedKeyQuery": "versioned_store(name).history(key) of KafkaStreams",
    "Named": "the argument name= of the operator",
    "Printed": "print(label) of the stream",
    "ProcessingContext": "ProcessorContext",
    "ProcessingExceptionHandler": _A_SETTING,
    "Produced": "the arguments key=, value=, partitioner= and name= of to",
    "ProductionExceptionHandler": _A_SETTING,
    "Punctuator": "a function of the time in ms, given to schedule",
    "QueryableStoreTypes": "store, window_store, session_store or versioned_store of KafkaStreams",
    "RangeQuery": "store(name).range(low, high) of KafkaStreams",
    "ReadOnlyKeyValueStore": "ReadOnlyStore",
    "Repartitioned": "the arguments key=, value=, partitions=, partitioner= and name= of repartition",
    "SessionStore": "Stores.session_store",
    "StoreBuilder": "what the functions of Stores return",
    "StoreQueryParameters": "the arguments of store, window_store, session_store and versioned_store of KafkaStreams",
    "StreamsException": "TidemillError",
    "StreamsUncaughtExceptionHandler": "UncaughtExceptionHandler",
    "TestInputTopic": "from tidemill.testing import TestInputTopic",
    "TestOutputTopic": "from tidemill.testing import TestOutputTopic",
    "TestRecord": "from tidemill.testing import TestRecord",
    "TimestampedKeyQuery": "store(name).timestamped.get(key) of KafkaStreams",
    "TimestampedKeyValueStore": "Stores.timestamped_key_value_store",
    "To": "forward(record, child_name)",
    "TopologyDescription": "topology.describe()",
    "TopologyException": "TopologyError",
    "TopologyTestDriver": "from tidemill.testing import TopologyTestDriver",
    "Transformer": f"{_PROCESSOR}, for process",
    "TransformerSupplier": _SUPPLIER,
    "UsePartitionTimeOnInvalidTimestamp": f'"UsePartitionTimeOnInvalidTimestamp" for {_EXTRACTOR}',
    "ValueTransformer": f"{_PROCESSOR}, for process_values",
    "ValueTransformerWithKeySupplier": "ValueTransformerSupplier",
    "VersionedKeyQuery": "versioned_store(name).get(key) or .get_as_of(key, time) of KafkaStreams",
    "VersionedKeyValueStore": "Stores.versioned_key_value_store",
    "WallclockTimestampExtractor": f'"WallclockTimestampExtractor" for {_EXTRACTOR}',
    "WindowKeyQuery": "window_store(name).fetch_range(key, first, last) of KafkaStreams",
    "WindowRangeQuery": "window_store(name).fetch_all(first, last) or session_store(name).fetch(key) of KafkaStreams",
    "WindowStore": "Stores.window_store",
    "WrappedProcessorSupplier": "ProcessorSupplier",
}
"""Classes that programs of Kafka Streams import and that have no counterpart of their name, and what is written instead."""
_SHORT = 4
"""A name of so few characters is in others by chance."""


def refuse_class_of_java(name: str) -> None:
    """Raises ImportError if the package has no ``name`` because Python needs none."""
    if name in _CLASSES_OF_JAVA:
        raise ImportError(f"{__package__} has no {name}: write {_CLASSES_OF_JAVA[name]}")


class UnknownNameError(AttributeError):
    """A class has no such name. The sentence is made when it is read: Python itself asks for names that may be missing."""

    def __init__(self, cls: type, name: str) -> None:
        super().__init__(cls, name)
        self._of = cls, name

    def __str__(self) -> str:
        cls, name = self._of
        return f"{cls.__name__} has no {name}{_instead(cls, name)}"


def _instead(cls: type, name: str) -> str:
    if name.isupper() and name.endswith("_CONFIG"):
        return ': settings are named by their text, such as "application.id"'
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().rstrip("_")
    of_tuples = dir(tuple) if issubclass(cls, tuple) else ()
    own = [each for each in dir(cls) if not each.startswith("_") and each not in of_tuples]
    if plain != name and plain in own:
        return f": write {plain}"
    if name in _RENAMED or plain in _RENAMED:
        return f": write {_RENAMED.get(name) or _RENAMED[plain]}"
    within = max((each for each in own if _is_within(each, plain) and len(each) > _SHORT), key=len, default=None)
    if within is not None:  # of_size of ofSizeWithNoGrace, set_state_restore_listener of setGlobalStateRestoreListener
        return f": write {within}"
    of_its_kind = sorted(_GIVEN_BY.items(), key=lambda given: ("Table" in given[0]) != ("Table" in cls.__name__))
    for other, origin in of_its_kind:
        if other != cls.__name__ and plain in dir(getattr(sys.modules[__package__], other)):  # it loads what it exports
            return f": {plain} is a method of {other}, which {origin}"
    near = difflib.get_close_matches(plain, own, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else f"; it has {', '.join(own)}"


def _is_within(short: str, name: str) -> bool:
    """True if all words of ``short`` are in ``name``, in their order."""
    words = iter(name.split("_"))
    return all(word in words for word in short.split("_"))


class _SpelledType(type):
    if not TYPE_CHECKING:  # a type checker would take any name for an attribute

        def __getattr__(cls, name: str) -> object:
            raise UnknownNameError(cls, name)


class Spelled(metaclass=_SpelledType):
    """Its AttributeErrors say what to write."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise UnknownNameError(type(self), name)


def spelled(cls: type[Named]) -> type[Named]:
    """For a named tuple, which can't derive from ``Spelled``."""

    def refuse(self: object, name: str) -> object:
        raise UnknownNameError(type(self), name)

    cls.__getattr__ = refuse  # type: ignore[attr-defined]  # in the class, a type checker would take any name for an attribute
    return cls

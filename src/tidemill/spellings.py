"""What a class of the API says of a name that it does not have: Kafka Streams' Java spelling, or another class's method.

Decides the sentence only: whoever asks gets an AttributeError, as of any class. Classes take part by deriving from ``Spelled``.
The package itself says it with an ImportError, since ``from ... import`` tells nothing of an AttributeError's.
"""

from __future__ import annotations

import difflib
import re
import sys
from typing import TYPE_CHECKING

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
    "keySerde": "key= of the method",
    "valueSerde": "value= of the method",
}
"""Methods of Kafka Streams' that have no counterpart of their name."""
_CLASSES_OF_JAVA = {
    "Consumed": "the arguments key=, value=, timestamp_extractor=, offset_reset= and name= of builder.stream and builder.table",
    "Produced": "the arguments key=, value=, partitioner= and name= of to",
    "Grouped": "the arguments key=, value= and name= of group_by and group_by_key",
    "Repartitioned": "the arguments key=, value=, partitions=, partitioner= and name= of repartition",
    "Branched": "the arguments name=, function= and consumer= of branch",
    "Named": "the argument name= of the operator",
    "Printed": "print(label) of the stream",
    "KeyValue": "a tuple (key, value)",
}
"""Classes of Kafka Streams' that have no counterpart of their name, and what is written instead."""
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
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().rstrip("_")
    own = [each for each in dir(cls) if not each.startswith("_")]
    if plain != name and plain in own:
        return f": write {plain}"
    if name in _RENAMED or plain in _RENAMED:
        return f": write {_RENAMED.get(name) or _RENAMED[plain]}"
    within = max((each for each in own if each in plain and len(each) > _SHORT), key=len, default=None)
    if within is not None:  # of_size of ofSizeWithNoGrace, key_value_store of inMemoryKeyValueStore
        return f": write {within}"
    of_its_kind = sorted(_GIVEN_BY.items(), key=lambda given: ("Table" in given[0]) != ("Table" in cls.__name__))
    for other, origin in of_its_kind:
        if other != cls.__name__ and plain in dir(getattr(sys.modules[__package__], other)):  # it loads what it exports
            return f": {plain} is a method of {other}, which {origin}"
    near = difflib.get_close_matches(plain, own, n=3, cutoff=0.6)
    return f": did you mean {' or '.join(near)}?" if near else f"; it has {', '.join(own)}"


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

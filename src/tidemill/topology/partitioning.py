"""The partition of a record: Kafka's default partitioner (murmur2 of the key's bytes), and its replacements in sinks.

The default holds for what Tidemill and Java clients write (repartition topics always). Records that another client has put
elsewhere, such as librdkafka with its own default partitioner, are not found by it: a read of those must name the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from tidemill.printable import repr_of
from tidemill.topology.values import Key, Value

_SEED = 0x9747B28C
_FACTOR = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """``org.apache.kafka.common.utils.Utils.murmur2``, as an unsigned number of 32 bits."""
    hashed = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        hashed = hashed * _FACTOR & _MASK ^ word
    if len(data) > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """The partition out of ``partitions`` that Kafka's default partitioner gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioning(Enum):
    """The partitioner of a sink without a function of the user's, the same as of Kafka Streams' sinks."""

    BY_KEY = "key"
    """The bytes of the whole key (repartition topics, and the sinks of ``TopologyBuilder``)."""
    BY_WINDOWED_KEY = "windowed key"
    """The key within where the key serde is windowed (WindowedStreamPartitioner), else the bytes of the key: the DSL's sinks."""
    BY_SUBSCRIPTION = "subscription"
    """The partition that the subscription of an answer came from (KAFKA-13261); the key where an old one does not say it."""


StreamPartitioner = Callable[[str, Key, Value, int], "int | Collection[int] | None"]
"""``partitioner(topic, key, value, partitions)``: the record's partition, below ``partitions``, or several of them.

An empty set drops the record; None leaves the choice to the sink (org.apache.kafka.streams.processor.StreamPartitioner, KIP-837).
"""


@dataclass(frozen=True, slots=True)
class WithoutValue:
    """A partitioner of ``TableJoined``: the values of internal records are none of the user's, so it gets None in their place.

    A subscription or an answer is for one task. Without it results would be missing, and a copy in another task is of no use.
    """

    function: StreamPartitioner

    def __call__(self, topic: str, key: Key, _value: Value, partitions: int) -> int | Collection[int] | None:
        found = self.function(topic, key, None, partitions)
        if isinstance(found, Collection) and len(found) != 1:
            what = f"it gave {repr_of(found)} for {topic}"
            raise ValueError(f"{what}; a join by foreign key needs one partition, or None for the key's")
        return found

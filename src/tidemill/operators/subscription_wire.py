"""What the two internal topics of a foreign-key join carry: subscriptions to a foreign key, and the answers to them.

    subscription  version 1 (| 80 without a hash) | instruction 1 | hash 16 | primary key | partition 4
    answer        version 0 (| 80 without a hash) | hash 16 | right value, nothing where it is null

Decides bytes, in which Kafka Streams' own members read and write them: subscriptions of version 0 (before 3.4, without the
partition) are read as well. The hash is Murmur3, 128 bits, of the left value's bytes: an answer counts only while the left row
is still the one that asked. What an instruction asks for is ``foreign_key``'s matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from struct import Struct
from typing import Any, ClassVar, NamedTuple

import mmh3

from tidemill.errors import SerdeError
from tidemill.topology.nodes import Serde

_SEED = 104729
_WITHOUT_HASH = 0x80
_HASH_SIZE = 16
_HASH = Struct(">QQ")
_INT = Struct(">i")
_SUBSCRIPTION_VERSION = 1
_ANSWER_VERSION = 0


class Instruction(IntEnum):
    """What a subscription asks for (SubscriptionWrapper.Instruction)."""

    DELETE_SILENTLY = 0
    """Forget the subscription; DELETE_KEY_NO_PROPAGATE."""
    DELETE_AND_ANSWER = 1
    """Forget the subscription and answer with null; DELETE_KEY_AND_PROPAGATE."""
    ANSWER_ALWAYS = 2
    """Subscribe; answer, with null if there is no right row; PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE."""
    ANSWER_IF_PRESENT = 3
    """Subscribe; answer if there is a right row; PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE."""


class Subscription(NamedTuple):
    """The left row ``primary_key`` wants the right row under whose key this is sent.

    ``partition``: that of the left row, where answers go; None if an old member has not said it.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None


class Answer(NamedTuple):
    """A right row (None: there is none) for the left row under whose key this is sent, if its hash is still ``hash``."""

    hash: bytes | None
    value: Any
    partition: int | None = None
    """Where to send it; not part of what is sent."""


def hash_of(value: bytes | None) -> bytes | None:
    """The hash of a left value's bytes (Murmur3.hash128, its two longs big-endian)."""
    return None if value is None else _HASH.pack(*mmh3.hash64(value, _SEED, True, signed=False))


def partition_of_answer(_topic: str, _key: Any, answer: Answer, _partitions: int) -> int | None:
    """The partitioner of answers: the partition that the subscription came from; None = by key."""
    return answer.partition


@dataclass(frozen=True, slots=True)
class SubscriptionSerde:
    """Subscriptions; ``primary_key`` writes the left table's keys, None = the default key serde."""

    primary_key: Serde | None = None
    name: ClassVar[str] = "foreign-key subscription"
    sql_type: ClassVar[str] = "binary"

    def with_defaults(self, key_serde: Serde, _value_serde: Serde) -> SubscriptionSerde:
        """The serde with the default put in."""
        return self if self.primary_key is not None else replace(self, primary_key=key_serde)

    def serialize(self, value: Subscription | None) -> bytes | None:
        if value is None:
            return None
        assert self.primary_key is not None
        asked, instruction, primary_key, partition = value
        head = bytes((_SUBSCRIPTION_VERSION | (_WITHOUT_HASH if asked is None else 0), instruction))
        key = self.primary_key.serialize(primary_key) or b""
        return head + (asked or b"") + key + _INT.pack(0 if partition is None else partition)

    def deserialize(self, data: bytes | None) -> Subscription | None:
        if data is None:
            return None
        assert self.primary_key is not None
        version, asked, at = _read_head(self.name, data, 2, _SUBSCRIPTION_VERSION)
        end = len(data) - (4 if version > 0 else 0)
        if end < at:
            raise SerdeError(f"{self.name}: {len(data)} bytes are too few; the topic holds other data than this join's")
        partition = None if version == 0 else _INT.unpack_from(data, end)[0]
        return Subscription(asked, data[1], self.primary_key.deserialize(data[at:end]), partition)


@dataclass(frozen=True, slots=True)
class AnswerSerde:
    """Answers; ``value`` writes the right table's values, None = the default value serde. An empty value is read as null."""

    value: Serde | None = None
    name: ClassVar[str] = "foreign-key answer"
    sql_type: ClassVar[str] = "binary"

    def with_defaults(self, _key_serde: Serde, value_serde: Serde) -> AnswerSerde:
        """The serde with the default put in."""
        return self if self.value is not None else replace(self, value=value_serde)

    def serialize(self, value: Answer | None) -> bytes | None:
        if value is None:
            return None
        assert self.value is not None
        asked, row, _partition = value
        head = _ANSWER_VERSION | (_WITHOUT_HASH if asked is None else 0)
        return bytes((head,)) + (asked or b"") + (self.value.serialize(row) or b"")

    def deserialize(self, data: bytes | None) -> Answer | None:
        if data is None:
            return None
        assert self.value is not None
        _version, asked, at = _read_head(self.name, data, 1, _ANSWER_VERSION)
        return Answer(asked, self.value.deserialize(data[at:]) if len(data) > at else None)


def _read_head(name: str, data: bytes, size: int, newest: int) -> tuple[int, bytes | None, int]:
    """(version, hash, where the rest begins) of data that has ``size`` bytes before the hash."""
    if len(data) < size:
        raise SerdeError(f"{name}: {len(data)} bytes are too few; the topic holds other data than this join's")
    version = data[0] & ~_WITHOUT_HASH
    if version > newest:
        raise SerdeError(f"{name}: version {version} was found, expected {newest} at most; a newer member has written it")
    if data[0] & _WITHOUT_HASH:
        return version, None, size
    if len(data) < size + _HASH_SIZE:
        raise SerdeError(f"{name}: {len(data)} bytes are too few; the topic holds other data than this join's")
    return version, data[size : size + _HASH_SIZE], size + _HASH_SIZE

"""Serdes of the internal topics of a foreign-key join, with Kafka Streams' bytes."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar

from tidemill.errors import SerdeError
from tidemill.topology.foreign_keys import Instruction, SubscriptionResponse, SubscriptionWrapper
from tidemill.topology.values import Serde

_VERSION, _NO_HASH, _HASH_SIZE = 1, 0x80, 16
_PARTITION = struct.Struct(">i")
_INSTRUCTIONS = frozenset(Instruction)


@dataclass(frozen=True, slots=True)
class SubscriptionSerde:
    """``Subscription``: version 1 (with bit 7: no hash) | instruction | hash 16 | primary key | partition 4.

    One that says no partition is of version 0, as members before Kafka 3.4 write them, and stays so in the store and in its
    changelog: any number in its place would send answers to that partition.
    ``inner`` is the primary keys' serde; None: the default one, to be filled in with ``with_inner``.
    """

    inner: Serde | None
    inner_is_key: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return "foreign-key subscription"

    @property
    def sql_type(self) -> str:
        return "binary"

    def with_inner(self, inner: Serde | None) -> SubscriptionSerde:
        """This serde with its own inner one, or else with ``inner``."""
        return self if self.inner is not None else SubscriptionSerde(inner)

    def serialize(self, value: SubscriptionWrapper | None) -> bytes | None:
        if value is None:
            return None
        key = _known(self.inner).serialize(value.primary_key) or b""
        version, partition = (0, b"") if value.partition is None else (_VERSION, _PARTITION.pack(value.partition))
        head = bytes((version | (_NO_HASH if value.hash is None else 0), value.instruction))
        return head + (value.hash or b"") + key + partition

    def deserialize(self, data: bytes | None) -> SubscriptionWrapper:
        if not data:
            raise SerdeError(f"{self.name}: found no value; the topic holds other data than this join's")
        data = bytes(data)
        version = data[0] & ~_NO_HASH
        if version > _VERSION:
            raise SerdeError(f"{self.name}: found version {version}, expected 1 at most; a newer member has written it")
        at = 2 if data[0] & _NO_HASH else 2 + _HASH_SIZE
        end = len(data) - (_PARTITION.size if version > 0 else 0)  # version 0, before Kafka 3.4, says no partition
        if end < at or data[1] not in _INSTRUCTIONS:
            raise _other_data(self.name, data)
        partition = None if version == 0 else _PARTITION.unpack_from(data, end)[0]
        if partition is not None and partition < 0:
            raise _other_data(self.name, data)
        return SubscriptionWrapper(
            None if at == 2 else data[2:at], Instruction(data[1]), _known(self.inner).deserialize(data[at:end]), partition
        )


@dataclass(frozen=True, slots=True)
class SubscriptionResponseSerde:
    """``SubscriptionResponse``: version 0 (with bit 7: no hash) | hash 16 | value. ``inner`` is the right values' serde."""

    inner: Serde | None

    @property
    def name(self) -> str:
        return "foreign-key response"

    @property
    def sql_type(self) -> str:
        return "binary"

    def with_inner(self, inner: Serde | None) -> SubscriptionResponseSerde:
        """This serde with its own inner one, or else with ``inner``."""
        return self if self.inner is not None else SubscriptionResponseSerde(inner)

    def serialize(self, value: SubscriptionResponse | None) -> bytes | None:
        if value is None:
            return None
        content = _known(self.inner).serialize(value.value) or b""
        return (bytes((_NO_HASH,)) if value.hash is None else b"\x00" + value.hash) + content

    def deserialize(self, data: bytes | None) -> SubscriptionResponse:
        if not data:
            raise SerdeError(f"{self.name}: found no value; the topic holds other data than this join's")
        data = bytes(data)
        if data[0] & ~_NO_HASH:
            raise SerdeError(f"{self.name}: found version {data[0] & ~_NO_HASH}, expected 0; a newer member has written it")
        at = 1 if data[0] & _NO_HASH else 1 + _HASH_SIZE
        if len(data) < at:
            raise _other_data(self.name, data)
        content = data[at:] or None
        return SubscriptionResponse(None if at == 1 else data[1:at], _known(self.inner).deserialize(content))


def _other_data(name: str, data: bytes) -> SerdeError:
    return SerdeError(f"{name}: {data[:24].hex()} can't be read; the topic holds other data than this join's")


def _known(inner: Serde | None) -> Serde:
    if inner is None:
        raise SerdeError("a serde of a foreign-key join is not known: give both tables key= and value=, or set the defaults")
    return inner

"""Metadata of a commit: the member that commits (Membership) and the positions (OffsetAndMetadata).

Decides the shapes, and the bytes in which librdkafka takes a member's identity. Imports no client library, so that a
Spark Python worker can commit for a member whose connection lives in the driver. Whether a commit may be made at all
is decided by its caller (compare incarnations first) and in the end by the broker (it refuses a stale generation).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

NO_GENERATION = -1
"""Generation of a member that has not joined, or was removed from its group."""
NO_MEMBER_ID = ""
"""Member id before the broker has given one, or after it has forgotten it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Identity of a member in its group at one moment.

    ``incarnation`` starts at 0 and is raised at every loss of membership: work that began under another incarnation
    must never be committed, even if the partitions came back. ``generation`` changes with every rebalance: the broker
    expects the new one in commits as soon as it has answered JoinGroup. ``is_stable``: the assignment of this generation
    has arrived too, and no rebalance is known to be under way.
    """

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    incarnation: int = 0
    is_stable: bool = False

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION and self.member_id != NO_MEMBER_ID


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The next offset to read, and the application's own text about it (Kafka Streams keeps the stream time there)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def group_metadata_bytes(group_id: str, generation: int, member_id: str, group_instance_id: str | None = None) -> bytes:
    """A member's identity as confluent-kafka's ``send_offsets_to_transaction`` takes it.

    The format is internal to librdkafka, so a test compares it with what a real consumer returns: ``CGMDv2:``, the
    generation as a native int32, then texts that end in a zero byte. A flag precedes the instance id, 1 if there is none.
    """
    for text in (group_id, member_id, group_instance_id or ""):
        if "\0" in text:
            raise ValueError(f"{text!r} can't be an id in a consumer group: it contains a zero character")
    names = group_id.encode() + b"\0" + member_id.encode() + b"\0"
    instance = b"\x01" if group_instance_id is None else b"\x00" + group_instance_id.encode() + b"\0"
    return b"CGMDv2:" + struct.pack("=i", generation) + names + instance


def group_of(metadata: bytes) -> str:
    """The group of what ``group_metadata_bytes`` made."""
    begin = len(b"CGMDv2:") + struct.calcsize("=i")
    return metadata[begin : metadata.index(b"\0", begin)].decode()

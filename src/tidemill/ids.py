"""Identities: tasks, topics, partitions, processes.

Decides how they are written and ordered (the order of Kafka's own classes), and which names a topic can have; what they are used
for is decided elsewhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from uuid import UUID

from tidemill.spellings import spelled

_TASK_ID = re.compile(r"(\d+)_(\d+)\Z", re.ASCII)
_MAX_TOPIC_LENGTH = 249
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")


def why_no_topic(name: object) -> str | None:
    """Why a topic can't have this name, by the rule of Kafka's ``Topic``; None if it can."""
    if not isinstance(name, str):
        return f"it is of type {type(name).__name__}, not text"
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "'.' and '..' are taken"
    if len(name) > _MAX_TOPIC_LENGTH:
        return f"it has {len(name)} characters, at most {_MAX_TOPIC_LENGTH} are allowed"
    return None if _TOPIC_NAME.match(name) else "only ASCII letters, digits, '.', '_' and '-' are allowed"


@spelled
class TaskId(NamedTuple):
    """A sub-topology and a partition, written ``1_0``; ordered by (sub-topology, partition) as numbers."""

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task of a text such as ``1_0``; ValueError for another form."""
        match = _TASK_ID.match(text)
        if match is None:
            raise ValueError(f"not a task id: {text!r} (expected <sub-topology>_<partition>, such as 1_0)")
        return cls(int(match[1]), int(match[2]))


@spelled
class TopicPartition(NamedTuple):
    """A partition of a topic, written ``topic-0`` as Kafka's logs do."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@spelled
class ProcessId(NamedTuple):
    """One client (= instance = process), ordered as ``java.util.UUID.compareTo``: by two *signed* 64-bit halves.

    So an id that begins with 8..f sorts before one that begins with 0..7.
    """

    most: int
    least: int

    @classmethod
    def parse(cls, text: str) -> ProcessId:
        """The id of a UUID's text; ValueError for another form."""
        return cls.of(UUID(text))

    @classmethod
    def of(cls, uuid: UUID) -> ProcessId:
        """The id of a UUID."""
        return cls(_signed(uuid.int >> 64), _signed(uuid.int & 0xFFFFFFFFFFFFFFFF))

    @property
    def uuid(self) -> UUID:
        """The id as a UUID."""
        return UUID(int=((self.most & 0xFFFFFFFFFFFFFFFF) << 64) | (self.least & 0xFFFFFFFFFFFFFFFF))

    def __str__(self) -> str:
        return str(self.uuid)


def _signed(half: int) -> int:
    return half - (1 << 64) if half >> 63 else half

"""Destinations of what the nodes of a Python step have made, and the records of a batch by destination.

Decides that sinks, topics and nodes are distinguished by type: a sink may have the name of another sink's topic, and the
dead-letter topic may be the topic of a sink. What is done with the records is the last step's and ``produce``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.steps.rows.records import Records


@dataclass(frozen=True, slots=True)
class ToSink:
    """A sink that has a choice left: its topic, partitions, sums, or a function in place of a topic (``foreach_batch``).

    ``topic``: set where the sink's topic extractor has named it already.
    """

    name: str
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class ToTopic:
    """A topic of sinks that leave the partition to the producer."""

    name: str


@dataclass(frozen=True, slots=True)
class ToDeadLetters:
    """The topic of dead letters."""

    topic: str


@dataclass(frozen=True, slots=True)
class ToNode:
    """The layer of columns behind the step: rows that have left this node."""

    name: str


Destination = ToSink | ToTopic | ToDeadLetters | ToNode


@dataclass(slots=True)
class Outputs:
    """Records by destination, in the order in which destinations were first met."""

    _held: dict[Destination, list[Records]] = field(default_factory=dict)

    def add(self, to: Destination, records: Records) -> None:
        if len(records):
            self._held.setdefault(to, []).append(records)

    def take(self, to: Destination) -> list[Records]:
        """The records for a destination, which has none after that."""
        return self._held.pop(to, [])

    def __iter__(self) -> Iterator[tuple[Destination, Records]]:
        return ((to, records) for to, several in self._held.items() for records in several)

    def __bool__(self) -> bool:
        return bool(self._held)

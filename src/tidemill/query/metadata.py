"""Metadata of instances: which host has which partitions, from the last assignment, by key and by store.

An instance is in these maps under its ``application.server``; one without it can't be found by others. The maps show
the assignment: during a rebalance a new owner may still wait for the old one. Source: KafkaStreams'
``queryMetadataForKey`` and ``metadataForAllStreamsClients``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemill.ids import TopicPartition
from tidemill.membership.wire import HostInfo, PartitionsByHost
from tidemill.query.store_info import StoreInfo
from tidemill.spellings import Spelled


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQueryMetadata(Spelled):
    """Hosts of a key. ``active_host`` None: it is assigned to no instance with an ``application.server``."""

    active_host: HostInfo | None
    standby_hosts: tuple[HostInfo, ...]
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMetadata(Spelled):
    """Stores and partitions of one instance."""

    host: HostInfo
    state_store_names: tuple[str, ...]
    topic_partitions: tuple[TopicPartition, ...]
    standby_state_store_names: tuple[str, ...]
    standby_topic_partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMap:
    """The input partitions of each host's active and standby tasks, as of one assignment."""

    active: PartitionsByHost = field(default_factory=dict)
    standby: PartitionsByHost = field(default_factory=dict)
    _active_of: Mapping[TopicPartition, tuple[HostInfo, ...]] = field(init=False, repr=False, compare=False)
    _standbys_of: Mapping[TopicPartition, tuple[HostInfo, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_active_of", _turned(self.active))
        object.__setattr__(self, "_standbys_of", _turned(self.standby))

    def owners(self, store: StoreInfo, partition: int) -> KeyQueryMetadata:
        """Hosts of this partition of the store."""
        inputs = [TopicPartition(topic, partition) for topic in store.source_topics]
        actives = sorted({host for tp in inputs for host in self._active_of.get(tp, ())})
        standbys = sorted({host for tp in inputs for host in self._standbys_of.get(tp, ())})
        return KeyQueryMetadata(
            active_host=actives[0] if actives else None, standby_hosts=tuple(standbys), partition=partition
        )

    def clients(self, stores: Iterable[StoreInfo]) -> tuple[StreamsMetadata, ...]:
        """Every host with its assignment, sorted."""
        known = list(stores)
        return tuple(
            StreamsMetadata(
                host=host,
                state_store_names=_stores_over(known, self.active.get(host, ())),
                topic_partitions=tuple(self.active.get(host, ())),
                standby_state_store_names=_stores_over(known, self.standby.get(host, ())),
                standby_topic_partitions=tuple(self.standby.get(host, ())),
            )
            for host in sorted({*self.active, *self.standby})
        )


def who_has_it(owners: KeyQueryMetadata, own_host: HostInfo | None) -> str:
    """The end of an error message: the hosts that can be asked instead."""
    if owners.active_host is None:
        return "it is assigned to no instance with an application.server now"
    active = "this instance" if owners.active_host == own_host else str(owners.active_host)
    standbys = f" (standbys: {', '.join(map(str, owners.standby_hosts))})" if owners.standby_hosts else ""
    return f"it is assigned to {active}{standbys}"


def _turned(by_host: PartitionsByHost) -> dict[TopicPartition, tuple[HostInfo, ...]]:
    turned: dict[TopicPartition, tuple[HostInfo, ...]] = {}
    for host, partitions in by_host.items():
        for tp in partitions:
            turned[tp] = (*turned.get(tp, ()), host)
    return turned


def _stores_over(stores: Iterable[StoreInfo], partitions: Iterable[TopicPartition]) -> tuple[str, ...]:
    topics = {tp.topic for tp in partitions}
    return tuple(sorted(store.name for store in stores if not topics.isdisjoint(store.source_topics)))

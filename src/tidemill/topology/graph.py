"""Sub-topologies: the independent parts of a topology, and the topics of each.

Decides the numbers of sub-topologies (by their first node in insertion order), the names that topics have on the broker
(internal ones begin with the application id), the settings of internal topics, and which topics need equally many
partitions. Leaves partition counts and the making of topics to the leader. Source: Kafka Streams 4.3
(``InternalTopologyBuilder``, ``RepartitionTopicConfig`` and the changelog configs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidemill.java_collections.hash_table import hash_order, string_hash
from tidemill.topology import naming
from tidemill.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, Store, StoreKind, Topology
from tidemill.topology.operations import ProcessRecords, TableTransformValues
from tidemill.topology.windows import MAX_TIME


class InternalTopicKind(Enum):
    """The purpose of an internal topic; the values are the names of Kafka Streams' classes."""

    REPARTITION = "RepartitionTopicConfig"
    CHANGELOG = "UnwindowedUnversionedChangelogTopicConfig"
    WINDOWED_CHANGELOG = "WindowedChangelogTopicConfig"
    VERSIONED_CHANGELOG = "VersionedChangelogTopicConfig"


_DEFAULTS: Mapping[InternalTopicKind, Mapping[str, str]] = {
    InternalTopicKind.REPARTITION: {
        "cleanup.policy": "delete",
        "message.timestamp.type": "CreateTime",
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    },
    InternalTopicKind.CHANGELOG: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
    InternalTopicKind.WINDOWED_CHANGELOG: {"cleanup.policy": "compact,delete", "message.timestamp.type": "CreateTime"},
    InternalTopicKind.VERSIONED_CHANGELOG: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"},
}
_CHANGELOG_OF: Mapping[StoreKind, InternalTopicKind] = {
    StoreKind.WINDOW: InternalTopicKind.WINDOWED_CHANGELOG,
    StoreKind.TIMESTAMPED_WINDOW: InternalTopicKind.WINDOWED_CHANGELOG,
    StoreKind.SESSION: InternalTopicKind.WINDOWED_CHANGELOG,
    StoreKind.VERSIONED: InternalTopicKind.VERSIONED_CHANGELOG,
}
_KEPT_LONGER: Mapping[InternalTopicKind, str] = {
    InternalTopicKind.WINDOWED_CHANGELOG: "retention.ms",
    InternalTopicKind.VERSIONED_CHANGELOG: "min.compaction.lag.ms",
}
ADDITIONAL_RETENTION_MS = 86_400_000
"""The default of ``windowstore.changelog.additional.retention.ms``, and what versioned changelogs always add: a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """An internal topic under its name on the broker. ``partitions`` None: the leader decides."""

    name: str
    kind: InternalTopicKind
    partitions: int | None = None
    """The number that the program sets, which is final."""
    configs: Mapping[str, str] = field(default_factory=dict)
    """The program's settings for this topic."""
    retention_ms: int | None = None
    """Retention of a windowed or versioned store, for its changelog."""

    def properties(
        self, defaults: Mapping[str, str] | None = None, *, additional_retention_ms: int = ADDITIONAL_RETENTION_MS
    ) -> dict[str, str]:
        """The topic's settings: the library's, over which stand ``defaults`` (``topic.*``), then the program's.

        Changelogs keep rows as long as the store and ``additional_retention_ms`` more (versioned ones: a day more), for clocks
        that differ; only the program's own setting for this topic replaces that.
        """
        found = {**_DEFAULTS[self.kind], **(defaults or {}), **self.configs}
        setting = _KEPT_LONGER.get(self.kind)
        if setting is not None and setting not in self.configs and self.retention_ms is not None:
            versioned = self.kind is InternalTopicKind.VERSIONED_CHANGELOG
            more = ADDITIONAL_RETENTION_MS if versioned else additional_retention_ms
            found[setting] = str(min(self.retention_ms + more, MAX_TIME))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of a topology that runs as tasks of its own. Topics stand under their names on the broker, sorted."""

    id: int
    nodes: tuple[str, ...]
    """The nodes in insertion order, in which parents come before children."""
    source_topics: tuple[str, ...]
    sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    state_stores: tuple[str, ...]
    changelog_topics: tuple[str, ...]
    """Changelogs of all stores, source topics that serve as changelogs included."""
    is_global: bool = False
    """True if it has a global store: no tasks, every instance reads all of the topic; the topic is not among
    ``source_topics``."""

    @property
    def source_topic_changelogs(self) -> tuple[str, ...]:
        """The source topics that serve as changelogs."""
        return tuple(topic for topic in self.changelog_topics if topic in self.source_topics)

    @property
    def is_stateful(self) -> bool:
        """Its tasks are placed by the lag of their state."""
        return bool(self.changelog_topics)


def broker_topic(topology: Topology, application_id: str, topic: str) -> str:
    """The name on the broker of a topic as a node names it."""
    return naming.internal_topic(application_id, topic) if topic in topology.repartition_topics else topic


def changelog_of(topology: Topology, application_id: str, store: str) -> str | None:
    """The topic from which a store is restored: its changelog, or the source topic that serves as it; None if none."""
    kept = topology.stores[store]
    if kept.source_topic is not None:
        return broker_topic(topology, application_id, kept.source_topic)
    return naming.changelog_topic(application_id, store) if kept.logged else None


def node_groups(topology: Topology) -> tuple[tuple[str, ...], ...]:
    """The nodes of each sub-topology, in the order of their numbers: nodes that feed each other or share a store."""
    user_of: dict[str, str] = {}
    linked = []
    for name, node in topology.nodes.items():
        stores = node.stores if isinstance(node, ProcessorNode) else ()
        linked.append((name, *topology.parents[name], *(user_of.setdefault(store, name) for store in stores)))
    order = {name: at for at, name in enumerate(topology.nodes)}
    return tuple(tuple(sorted(group, key=order.__getitem__)) for group in united(linked))


def subtopologies(topology: Topology, application_id: str) -> tuple[Subtopology, ...]:
    """The sub-topologies by number."""
    return tuple(
        _subtopology(topology, application_id, number, names) for number, names in enumerate(node_groups(topology))
    )


def _subtopology(topology: Topology, application_id: str, number: int, names: tuple[str, ...]) -> Subtopology:
    nodes = [topology.nodes[name] for name in names]
    is_global = any(isinstance(node, SourceNode) and node.is_global for node in nodes)
    sources = [node for node in nodes if isinstance(node, SourceNode) and not node.is_global]
    read = {topic for node in sources for topic in node.topics}
    stores = {store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores}
    changelogs = (changelog_of(topology, application_id, store) for store in stores)

    def on_broker(topics: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({broker_topic(topology, application_id, topic) for topic in topics}))

    return Subtopology(
        id=number,
        nodes=names,
        source_topics=on_broker(read),
        sink_topics=on_broker(node.topic for node in nodes if isinstance(node, SinkNode) and node.topic_extractor is None),
        repartition_source_topics=on_broker(read & topology.repartition_topics.keys()),
        state_stores=tuple(sorted(stores)),
        changelog_topics=() if is_global else tuple(sorted(topic for topic in changelogs if topic is not None)),
        is_global=is_global,
    )


def keys_are_placed(topology: Topology, store: str) -> bool:
    """True if each key of the store is in the partition that the default partitioner gives it.

    So it is if Tidemill itself has placed all records that the store is made from: in repartition topics without a partitioner of
    the program's, with equally many partitions. A processor may put any key into a store of its own.
    """
    names = next(group for group in node_groups(topology) if any(_uses(topology.nodes[name], store) for name in group))
    nodes = [topology.nodes[name] for name in names]
    if any(_is_of_the_program(node, store) for node in nodes):
        return False
    topics = frozenset(topic for node in nodes if isinstance(node, SourceNode) and not node.is_global for topic in node.topics)
    chosen = {node.topic for node in topology.nodes.values() if isinstance(node, SinkNode) and node.partitioner is not None}
    return topics <= topology.repartition_topics.keys() and topics.isdisjoint(chosen) and _have_equal_partitions(topology, topics)


def _have_equal_partitions(topology: Topology, topics: frozenset[str]) -> bool:
    """True if these repartition topics are known to have equally many partitions, or those do that they are written from."""
    if len(topics) == 1 or any(topics <= group for group in topology.copartition_groups):
        return True
    sinks = [name for name, node in topology.nodes.items() if isinstance(node, SinkNode) and node.topic in topics]
    sources = _topics_above(topology, sinks)
    are_alike = len({topology.repartition_topics[topic].partitions for topic in topics}) == 1
    return are_alike and (len(sources) == 1 or any(sources <= group for group in topology.copartition_groups))


def _topics_above(topology: Topology, names: Iterable[str]) -> frozenset[str]:
    """The source topics whose records come to these nodes."""
    found, left = set[str](), list(names)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += topology.parents[name]
    return frozenset(topic for node in map(topology.nodes.get, found) if isinstance(node, SourceNode) for topic in node.topics)


def _uses(node: Node, store: str) -> bool:
    return isinstance(node, ProcessorNode) and store in node.stores


def _is_of_the_program(node: Node, store: str) -> bool:
    """True if a processor or transformer of the program has the store."""
    operation = node.operation if isinstance(node, ProcessorNode) else None
    return isinstance(operation, (ProcessRecords, TableTransformValues)) and store in operation.stores


def internal_topics(topology: Topology, application_id: str) -> dict[str, InternalTopic]:
    """All topics that the leader makes, by name on the broker: repartition topics and changelogs."""
    made = [
        InternalTopic(
            name=naming.internal_topic(application_id, topic.name),
            kind=InternalTopicKind.REPARTITION,
            partitions=topic.partitions,
        )
        for topic in topology.repartition_topics.values()
    ]
    made += [
        InternalTopic(
            name=naming.changelog_topic(application_id, store.name),
            kind=_CHANGELOG_OF.get(store.kind, InternalTopicKind.CHANGELOG),
            configs=_changelog_config(store),
            retention_ms=store.retention_ms,
        )
        for store in topology.stores.values()
        if store.logged and store.source_topic is None
    ]
    return {topic.name: topic for topic in sorted(made, key=lambda topic: topic.name)}


def _changelog_config(store: Store) -> dict[str, str]:
    """The program's settings; but rows of a store with several of one key and time can't be compacted, they are only deleted."""
    last = {"cleanup.policy": "delete"} if store.retain_duplicates else {}
    return {**store.changelog_config, **last}


def copartition_groups(topology: Topology, application_id: str) -> tuple[tuple[str, ...], ...]:
    """Topics on the broker that need equally many partitions, sorted, as Kafka Streams lists them.

    A group joins the first of those before it that shares a topic with it, in the order of a hash set of its topics; so
    groups that are joined only by a third may stay apart and overlap. ``united`` makes them one.
    """
    group_of: dict[str, set[str]] = {}
    for asked in topology.copartition_groups:
        topics = hash_order(sorted(broker_topic(topology, application_id, topic) for topic in asked), string_hash)
        group = next((group_of[topic] for topic in topics if topic in group_of), set())
        group.update(topics)
        group_of.update(dict.fromkeys(topics, group))
    return tuple(sorted({tuple(sorted(group)) for group in group_of.values()}))


def united(groups: Iterable[Iterable[str]]) -> tuple[frozenset[str], ...]:
    """The groups, with those that have a member in common made one; in the order of their first members."""
    group_of: dict[str, set[str]] = {}
    for group in map(tuple, groups):
        whole = set(group)
        whole.update(*(group_of[member] for member in whole if member in group_of))
        group_of.update(dict.fromkeys((*group, *whole), whole))  # in the order of the group, which a set has not
    return tuple(frozenset(group) for group in {id(group): group for group in group_of.values()}.values())

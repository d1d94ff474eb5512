"""A topology while it is being written, node by node: by the lowering of a DSL program, or by hand with the Processor API.

Decides what can't stand together: a name, a store or a source topic used twice, a parent that is not there, a global store
that a processor connects to. Invariant: parents are written before their children. It never leaves its builder; what comes
out is a ``Topology``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidemill.errors import TopologyError
from tidemill.topology.methods import given_name, method_of
from tidemill.topology.nodes import Node, ProcessorNode, RepartitionTopic, SinkNode, SourceNode, Store, Topology


@dataclass(slots=True)
class Draft:
    """Nodes, stores and topics so far."""

    nodes: dict[str, Node] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    global_stores: set[str] = field(default_factory=set)
    repartition_topics: dict[str, RepartitionTopic] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    """Source topic -> the node that reads it."""
    copartitioned: tuple[frozenset[str], ...] = ()
    """Topics that need equally many partitions, where a finished topology said so."""
    groups_with_patterns: tuple[frozenset[str], ...] = ()
    generated_names: frozenset[str] = frozenset()

    @staticmethod
    def of(topology: Topology) -> Draft:
        """A draft with the nodes of a finished topology."""
        sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
        return Draft(
            nodes=dict(topology.nodes), parents=dict(topology.parents), stores=dict(topology.stores),
            global_stores={
                store for name, node in topology.nodes.items() if isinstance(node, ProcessorNode)
                for store in node.stores if any(source.is_global for source in sources if source.name in topology.parents[name])
            },
            repartition_topics=dict(topology.repartition_topics),
            readers={topic: source.name for source in sources for topic in source.topics},
            copartitioned=topology.copartition_groups, groups_with_patterns=topology.groups_with_patterns,
            generated_names=topology.generated_names,
        )

    def add(self, node: Node, parents: tuple[str, ...] = ()) -> None:
        """Adds a node below its parents."""
        if node.name in self.nodes:
            first, second, given = method_of(self.nodes[node.name]), method_of(node), given_name(node.name)
            of_given = "" if given == node.name else f", which is of name={given!r}"
            of_groups = "" if given == node.name else ", groups of one cogroup by group_by_key(name=...)"
            of_whom = f"both {first}" if first == second else f"{first}; {second}"
            raise TopologyError(
                f"two nodes have the name {node.name!r}{of_given} ({of_whom}):"
                f" names of operators, groups, repartitions and sinks must differ; give one of them another name{of_groups}"
            )
        for parent in parents:
            self._check_parent(node.name, parent)
        if not isinstance(node, SourceNode) and not parents:
            raise TopologyError(f"{node.name!r} has no parent: say which nodes it gets its records from")
        self.nodes[node.name] = node
        self.parents[node.name] = parents

    def add_source(self, node: SourceNode) -> None:
        """Adds a source; its topics must have no other reader."""
        for topic in node.topics:
            self._claim(topic, node)
        if node.topic_pattern is not None:
            self._claim_pattern(node.topic_pattern, node)
        self.add(node)

    def add_global(self, source: SourceNode, processor: ProcessorNode, store: Store) -> None:
        """Adds a global store with the two nodes that keep it."""
        self.add_source(source)
        self.add(processor, (source.name,))
        self._put_store(store, processor.name)
        self.global_stores.add(store.name)

    def add_store(self, store: Store, *users: str) -> None:
        """Adds a store, and connects it to the processors in ``users``; the very same store may come several times."""
        known = self.stores.get(store.name)
        if known is None:
            self._put_store(store, users[0] if users else None)
        elif known is not store:
            self._refuse_second(store.name, users[0] if users else None)
        for user in users:
            self.connect(user, (store.name,))

    def connect(self, user: str, stores: Iterable[str]) -> None:
        """Lets a processor use stores, which may still be to come."""
        node = self.nodes.get(user)
        if not isinstance(node, ProcessorNode):
            found = "is no node" if node is None else f"is {method_of(node)}"
            raise TopologyError(f"the stores {', '.join(stores)} can't be connected to {user!r}: it {found}, no processor")
        self.nodes[user] = replace(node, stores=tuple(dict.fromkeys((*node.stores, *stores))))

    def topology(self, copartitioned: Iterable[frozenset[str]] = ()) -> Topology:
        """The finished topology. ``copartitioned``: groups of source nodes; unused stores are left out."""
        users = {
            store: node.name for node in self.nodes.values() if isinstance(node, ProcessorNode) for store in node.stores
        }
        for store, user in users.items():
            if store not in self.stores:
                raise TopologyError(
                    f"{user!r} uses the store {store!r}, which is not added: add it with add_state_store (stores so far:"
                    f" {', '.join(self.stores) or 'none'})"
                )
            if store in self.global_stores and self.nodes[user] != self._keeper(store):
                raise TopologyError(
                    f"{user!r} names the global store {store!r}: every processor can use a global store, so leave it out"
                )
        self._check_below_global_sources()
        copartitioned = tuple(copartitioned)
        groups = [frozenset(topic for name in names for topic in self._topics(name)) for names in copartitioned]
        for group in groups:
            self._check_enforced(group)
        return Topology(
            nodes=dict(self.nodes), parents=dict(self.parents),
            stores={name: store for name, store in self.stores.items() if name in users},
            repartition_topics=dict(self.repartition_topics),
            copartition_groups=(*self.copartitioned, *(group for group in groups if group)),
            groups_with_patterns=(*self.groups_with_patterns, *filter(self._has_pattern, copartitioned)),
            generated_names=self.generated_names,
        )

    # --- what is refused ---

    def _check_parent(self, name: str, parent: str) -> None:
        above = self.nodes.get(parent)
        if above is None:
            raise TopologyError(
                f"the parent {parent!r} of {name!r} is no node (nodes so far: {', '.join(self.nodes) or 'none'}): add it first"
            )
        if isinstance(above, SinkNode):
            raise TopologyError(f"the parent {parent!r} of {name!r} is {method_of(above)}, which forwards nothing")

    def _check_below_global_sources(self) -> None:
        """Refuses stores, sinks and other parents below a global store's processor: it has no task that would commit."""
        reached = {name for name, node in self.nodes.items() if isinstance(node, SourceNode) and node.is_global}
        for name, node in self.nodes.items():
            above = [parent for parent in self.parents[name] if parent in reached]
            if not above:
                continue
            reached.add(name)
            others = [parent for parent in self.parents[name] if parent not in reached]
            kept = [store for store in node.stores if store not in self.global_stores] if isinstance(node, ProcessorNode) else []
            if others:
                problem = f"gets records of {others[0]!r}, too, which tasks run: add another one for these"
            elif kept:
                problem = f"uses the store {kept[0]!r}: only tasks have stores of their own"
            elif isinstance(node, SinkNode):
                problem = f"is {method_of(node)}: only tasks write to topics"
            else:
                continue
            raise TopologyError(
                f"{name!r} is below {above[0]!r} of a global store, which every instance runs without a task, and {problem}"
            )

    def _claim(self, topic: str, node: SourceNode) -> None:
        patterns = ((made.name, made.topic_pattern) for made in self.nodes.values() if isinstance(made, SourceNode))
        other = self.readers.get(topic) or next((n for n, p in patterns if p and re.fullmatch(p, topic)), None)
        if other is not None:
            raise TopologyError(
                f"the topic {topic!r} is read by two nodes, {other!r} and {node.name!r}: a topic can be read as a"
                " stream or as a table, and by one list of topics only; read it once and use what you get twice"
                " (table.to_stream(), stream.to_table())"
            )
        self.readers[topic] = node.name

    def _claim_pattern(self, pattern: str, node: SourceNode) -> None:
        for topic, other in self.readers.items():
            if re.fullmatch(pattern, topic):
                raise TopologyError(
                    f"the pattern {pattern!r} of node {node.name!r} matches the topic {topic!r}, which node"
                    f" {other!r} reads already: make the pattern narrower or drop the other source"
                )

    def _put_store(self, store: Store, user: str | None) -> None:
        if store.name in self.stores:
            self._refuse_second(store.name, user)
        self.stores[store.name] = store

    def _refuse_second(self, store: str, user: str | None) -> None:
        holders = [node.name for node in self.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
        first = next((name for name in holders if name != user), None)  # who brings the second one may name it already
        users = " and ".join(
            f"{method_of(self.nodes[name])} {name}" if name in self.nodes else "add_state_store" for name in (first, user)
        )
        raise TopologyError(f"two stores have the name {store!r} (of {users}): give one of them another name")

    def _keeper(self, store: str) -> Node:
        return next(
            node for node in self.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores
        )

    def _topics(self, source: str) -> tuple[str, ...]:
        """The topics of a source; none of what is no source (any more), as Kafka Streams."""
        node = self.nodes.get(source)
        return node.topics if isinstance(node, SourceNode) else ()

    def _has_pattern(self, sources: frozenset[str]) -> bool:
        found = map(self.nodes.get, sources)
        return any(isinstance(node, SourceNode) and node.topic_pattern is not None for node in found)

    def _check_enforced(self, group: frozenset[str]) -> None:
        asked = {
            topic: self.repartition_topics[topic].partitions for topic in sorted(group) if topic in self.repartition_topics
        }
        enforced = {topic: partitions for topic, partitions in asked.items() if partitions is not None}
        if len(set(enforced.values())) > 1:
            listed = ", ".join(f"{topic} ({partitions})" for topic, partitions in enforced.items())
            raise TopologyError(
                f"joined streams are repartitioned into different numbers of partitions: {listed}; give all of them the same"
            )

"""TopologyBuilder: topologies written node by node (the Processor API), alone or on top of a program of the DSL.

Decides nothing but what is refused (``tidemill.topology.draft``): names, parents and stores are as they are given. ``build``
gives a value; building has no side effect.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidemill.dsl.arguments import (
    names_of,
    offset_reset_or_none,
    pattern_text,
    place_of_call,
    python_function,
    serde_or_none,
    supplier_of,
    timestamp_extractor_or_none,
    topic_names,
)
from tidemill.dsl.function_types import TimestampExtractor, TopicNameExtractor
from tidemill.dsl.late_binding import GivenFunctions
from tidemill.dsl.stores import checked_store
from tidemill.errors import TopologyError
from tidemill.operators.processors import ProcessorSupplier
from tidemill.spellings import Spelled
from tidemill.topology.draft import Draft
from tidemill.topology.naming import legal_name, node_name
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, Topology
from tidemill.topology.operations import GlobalUpdate, ProcessRecords
from tidemill.topology.partitioning import StreamPartitioner
from tidemill.topology.values import Serde


class TopologyBuilder(Spelled):
    """Builds a topology of sources, processors and sinks (org.apache.kafka.streams.Topology), from nothing or onto ``topology``.

    Each method adds nodes and returns the builder; ``build`` gives the ``Topology``.

    Raises:
        TopologyError: from every method, for a name that is taken or illegal, a parent or a store that is not there, or a topic
            that is read already.
    """

    def __init__(self, topology: Topology | None = None) -> None:
        if topology is not None and not isinstance(topology, Topology):
            raise TopologyError(f"TopologyBuilder: expected a topology, got {topology!r}; give builder.build()")
        self._draft = Draft() if topology is None else Draft.of(topology)
        self._given = GivenFunctions()

    def add_source(
        self,
        name: str,
        topics: str | re.Pattern[str],
        *more_topics: str,
        key: Serde | None = None,
        value: Serde | None = None,
        offset_reset: str | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> TopologyBuilder:
        """Adds a source that reads topics, or all that match a pattern. The arguments are those of ``StreamsBuilder.stream``."""
        pattern = pattern_text(topics) if isinstance(topics, re.Pattern) else None
        if isinstance(topics, re.Pattern):
            if more_topics:
                raise TopologyError(f"add_source {name!r}: give a pattern or topics, not both")
            names: tuple[str, ...] = ()
        else:
            names = topic_names(names_of((topics, *more_topics), f"add_source {name!r}: topics"), "add_source")
            if len(names) != 1 + len(more_topics):
                raise TopologyError(f"add_source {name!r}: a topic is named twice: {', '.join((topics, *more_topics))}")
        self._given.take(name, timestamp_extractor)
        self._draft.add_source(SourceNode(
            name=node_name(name, "a source"), topics=names, topic_pattern=pattern,
            key_serde=serde_or_none(key, f"add_source {name!r}: key"),
            value_serde=serde_or_none(value, f"add_source {name!r}: value"),
            offset_reset=offset_reset_or_none(offset_reset),
            timestamp_extractor=timestamp_extractor_or_none(timestamp_extractor, f"add_source {name!r}"),
        ))
        return self

    def add_processor(self, name: str, supplier: ProcessorSupplier, *parents: str) -> TopologyBuilder:
        """Adds the processor that ``supplier()`` makes, below its parents, as ``KStream.process`` does."""
        supplier_of(supplier, f"add_processor {name!r}")
        operation, above = ProcessRecords(supplier), names_of(parents, f"add_processor {name!r}: parents")
        self._given.take(name, supplier)
        self._draft.add(ProcessorNode(name=node_name(name, "a processor"), operation=operation), above)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicNameExtractor,
        *parents: str,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
    ) -> TopologyBuilder:
        """Adds a sink below its parents: to a topic, or to what ``topic(key, value, record)`` says of each record."""
        target, extractor = "", None
        if callable(topic):
            extractor = python_function(topic, ("key", "value", "record"), f"add_sink {name!r}: topic")
        else:
            target = legal_name(topic, "a topic")
        if partitioner is not None:
            partitioner = python_function(
                partitioner, ("topic", "key", "value", "partitions"), f"add_sink {name!r}: partitioner"
            )
        self._given.take(name, (extractor, partitioner))
        self._draft.add(SinkNode(
            name=node_name(name, "a sink"), topic=target, topic_extractor=extractor, partitioner=partitioner,
            written_at=place_of_call(),
            key_serde=serde_or_none(key, f"add_sink {name!r}: key"),
            value_serde=serde_or_none(value, f"add_sink {name!r}: value"),
        ), names_of(parents, f"add_sink {name!r}: parents"))
        return self

    def add_state_store(self, store: Store, *processors: str) -> TopologyBuilder:
        """Adds a store of ``Stores``, and connects it to processors. Those that share a store run in one sub-topology."""
        self._draft.add_store(checked_store(store, "add_state_store"), *names_of(processors, "add_state_store: processors"))
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> TopologyBuilder:
        """Lets a processor use stores."""
        if not stores:
            raise TopologyError(f"connect_processor_and_state_stores {processor!r}: name at least one store")
        self._draft.connect(processor, names_of(stores, f"connect_processor_and_state_stores {processor!r}: stores"))
        return self

    def add_global_store(
        self,
        store: Store,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: ProcessorSupplier,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> TopologyBuilder:
        """Adds a store that every instance fills from all of a topic, with the processor that ``supplier()`` makes.

        ``timestamp_extractor`` is not called, as in Kafka Streams.
        """
        kept = checked_store(store, "add_global_store")
        self._given.take(processor_name, supplier_of(supplier, "add_global_store"))
        timestamp_extractor_or_none(timestamp_extractor, "add_global_store")
        key = serde_or_none(key, "add_global_store: key") or kept.key_serde
        value = serde_or_none(value, "add_global_store: value") or kept.value_serde
        source = SourceNode(
            name=node_name(source_name, "a source"), topics=(legal_name(topic, "a topic"),), key_serde=key,
            value_serde=value, is_global=True,
        )
        processor = ProcessorNode(
            name=node_name(processor_name, "a processor"), operation=GlobalUpdate(kept.name, supplier), stores=(kept.name,),
            key_serde=key, value_serde=value,
        )
        self._draft.add_global(source, processor, replace(kept, logged=False, source_topic=source.topics[0]))
        return self

    def add_read_only_state_store(
        self,
        store: Store,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: ProcessorSupplier,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> TopologyBuilder:
        """Adds a store that tasks fill from their partitions of a topic, which is its changelog; others only read it."""
        kept = checked_store(store, "add_read_only_state_store")
        self.add_source(
            source_name, topic, key=key or kept.key_serde, value=value or kept.value_serde, offset_reset="earliest",
            timestamp_extractor=timestamp_extractor,
        )
        self.add_processor(processor_name, supplier, source_name)
        return self.add_state_store(replace(kept, logged=False, source_topic=topic), processor_name)

    def build(self) -> Topology:
        """The topology so far.

        Raises:
            TopologyError: it can't run as written: a processor uses a store that is not added, a topic is read twice.
        """
        topology = self._draft.topology()
        nodes = {
            name: replace(node, operation=replace(node.operation, stores=node.stores))
            if isinstance(node, ProcessorNode) and isinstance(node.operation, ProcessRecords) else node
            for name, node in topology.nodes.items()
        }
        return replace(topology, nodes=nodes)

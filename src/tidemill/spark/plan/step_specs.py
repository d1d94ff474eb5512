"""The specs of a compiled topology's source step and Python steps: the parts of it that their workers need.

Decides which stores, sinks and nodes a step's worker gets, under the topics' real names. Needs the serdes of all edges, which
``Compiler.infer`` finds; a graph's part of a spec is ``graph_plan``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import entry_of, functions_of, global_stores, kept_store, stores_of, works_on_columns
from tidemill.operators.versioned_tables import drops_null_changes
from tidemill.spark.plan.compile import Compiler
from tidemill.spark.plan.graph_parts import GraphPart
from tidemill.spark.plan.graph_plan import graph_spec
from tidemill.spark.plan.planned_topology import is_batch_sink, only_forwards
from tidemill.spark.plan.serde_rules import other_serdes, require, writes_the_same
from tidemill.spark.plan.shortcuts import forwards_last_changes, lookup_store, tables_first
from tidemill.spark.plan.stages import inline_targets, outer_targets, runs_vectorised
from tidemill.steps.rows.intake import intake_of
from tidemill.steps.step_spec import (
    BatchSinkSpec,
    GraphSpec,
    NodeSpec,
    Origin,
    SinkSpec,
    SourceSpec,
    SourceTopic,
    StepSpec,
    StoreSpec,
)
from tidemill.steps.timestamp_extractors import extractor_function
from tidemill.topology.graph import Subtopology, broker_topic, changelog_of, subtopologies
from tidemill.topology.key_value_serdes import NO_SERDES
from tidemill.topology.methods import method_of
from tidemill.topology.nodes import (
    ProcessorNode,
    SinkNode,
    SourceNode,
    Store,
    StoreKind,
    Topology,
    parents_first,
    processor_node,
)
from tidemill.topology.operations import Operation, TableSource


class StepSpecs:
    """The specs of one topology: the compiler's, whose patterns may stand for more topics than when it was compiled."""

    def __init__(self, compiler: Compiler, topology: Topology, application_id: str) -> None:
        self._topology, self._stages = topology, compiler.stages
        self._compiler, self._serdes, self._tags = compiler, compiler.serdes, compiler.tags
        self._application_id = application_id
        self._subtopologies = subtopologies(self._topology, application_id)
        self._subtopology_of = {name: part for part in self._subtopologies for name in part.nodes}
        self._topics_of = {part.id: self._topics(part) for part in self._subtopologies}

    def source(self, *, by_time: bool, idle_ms: int) -> SourceSpec:
        """The source step's spec. ``by_time``: records of several input topics of a task are taken by timestamp; ``idle_ms``:
        wait for an empty one (``max.task.idle.ms``)."""
        topics: dict[str, SourceTopic] = {}
        counted = {self._sink_node(name).topic for name in self._stages.summed_sinks}
        for node in self._topology.nodes.values():
            if isinstance(node, SourceNode):
                indexes = {topic: index for index, topic in enumerate(self._topics_of[self._subtopology_of[node.name].id])}
                for topic in node.topics:
                    on_broker = self._broker_topic(topic)
                    topics[on_broker] = replace(
                        self._source_topic(node, indexes[on_broker]),
                        is_repartition=topic in self._topology.repartition_topics,
                        takes_sums=topic in counted,
                    )
        shared = global_stores(self._topology)
        changelogs = {
            changelog: self._tags.restoring(store)
            for store in self._topology.stores
            if store not in shared and (changelog := self._changelog(store)) is not None
        }
        together = self._topics_that_meet() if by_time else {}
        return SourceSpec(topics=topics, changelogs=changelogs, together=together, idle_ms=idle_ms)

    def _source_topic(self, node: SourceNode, index: int) -> SourceTopic:
        key_serde, value_serde = self._serdes.leaving[node.name].settled
        in_part = node.name in self._stages.part_of  # its bytes are read by the step that runs the part
        return SourceTopic(
            tag=self._tags.arrived(node.name) if in_part else self._tags.leaving(node.name),
            node=node.name,
            index=index,
            serdes=(key_serde, value_serde),
            key=None if in_part else intake_of(key_serde),
            value=None if in_part else intake_of(value_serde),
            extractor=extractor_function(node.timestamp_extractor),
        )

    def _topics(self, part: Subtopology) -> tuple[str, ...]:
        """The topics that the sub-topology's sources read; a row's ``seq`` has the place of its own (``rows.order``)."""
        sources = (node for name in part.nodes if isinstance(node := self._topology.nodes[name], SourceNode))
        return tuple(sorted({self._broker_topic(topic) for source in sources for topic in source.topics}))

    def _topics_that_meet(self) -> dict[str, int]:
        """Topics, with their sub-topology, of tasks whose stateful operators get records of several topics."""
        in_groups = [*(part.nodes for part in self._stages.parts), *self._stages.vectorised]
        meeting = {name for nodes in in_groups for name in nodes}
        parts = [part for part in self._subtopologies if not part.is_global]
        meets = [part for part in parts if len(part.source_topics) > 1 and meeting & set(part.nodes)]
        return {topic: part.id for part in meets for topic in part.source_topics}

    def step(self, number: int) -> StepSpec:
        last = number == self._stages.last
        nodes = self._topology.nodes
        return StepSpec(
            number=number,
            last=last,
            nodes={
                self._tags.arrived(name): self._node(name)
                for name in tables_first(self._topology, parents_first(self._topology))
                if runs_vectorised(self._topology, self._stages, name) and self._stages.step_of[name] == number
            },
            sinks={
                self._tags.arrived(name): self._sink(name)
                for name, node in nodes.items()
                if last and isinstance(node, SinkNode)
            },
            stores=self._stores(),
            ranks=number in self._compiler.multiplying_layers or number > 1,
            sources={
                self._tags.index(name): self._origin(node, with_serdes=last)
                for name, node in nodes.items()
                if isinstance(node, SourceNode)
            },
            graphs=tuple(self._graph(part) for part in self._stages.parts_in(number)),
            has_copies_above=last and any(part.is_global for above in range(1, number) for part in self._stages.parts_in(above)),
            batch_sinks=tuple(self._batch_sink(name) for name, node in nodes.items() if last and is_batch_sink(node)),
        )

    def _origin(self, node: SourceNode, *, with_serdes: bool) -> Origin:
        edge = self._serdes.leaving[node.name]
        return Origin(
            subtopology=self._subtopology_of[node.name].id,
            topics=self._topics_of[self._subtopology_of[node.name].id],
            node=node.name,
            columns=self._columns_below(node.name),
            key_serde=edge.key if with_serdes else None,
            value_serde=edge.value if with_serdes else None,
            is_global=node.is_global,
        )

    def _columns_below(self, source: str) -> tuple[str, ...]:
        """The nodes between a source and its sub-topology's ends of which functions of Columns run, in the topology's order."""
        below, ahead = set(), [source]
        while ahead:
            fresh = [child for child in self._topology.children(ahead.pop()) if child not in below]
            below.update(fresh)
            ahead += fresh
        found = [
            name.partition("|")[0]  # the program's name of it
            for name, node in self._topology.nodes.items()
            if name in below
            and isinstance(node, ProcessorNode)
            and (name not in self._stages.step_of or name in self._compiler.merges or _calls_columns(node.operation))
            and not only_forwards(self._topology, name)
            and not isinstance(node.operation, TableSource)  # without a store: it makes changes of records
        ]
        return tuple(dict.fromkeys(found))

    def _node(self, name: str) -> NodeSpec:
        topology, part = self._topology, self._subtopology_of[name]
        node = processor_node(topology, name)
        entering, leaving = self._serdes.entering[name], self._serdes.leaving[name]
        out_key_serde, out_value_serde = leaving.settled
        assert entering.key is not None
        looked_up = lookup_store(topology, node)
        stored = None if looked_up is None else self._stores()[looked_up].key_serde
        outer, inline = outer_targets(topology, self._stages, name), inline_targets(topology, self._stages, name)
        sinks = [to for to in inline if isinstance(topology.nodes[to], SinkNode) and not is_batch_sink(topology.nodes[to])]
        rewritten = {sink: self._serdes.rewritten(sink, leaving) for sink in sinks}
        for to in inline:
            if isinstance(topology.nodes[to], ProcessorNode):
                rewritten[to] = other_serdes(leaving, self._serdes.entering[to])
        letters = self._serdes.letters.get(name, NO_SERDES)
        return NodeSpec(
            name=name,
            subtopology=part.id,
            operation=_in_step(node.operation),
            key_serde=entering.key,
            value_serde=entering.value or Serdes.bytes(),  # of records that only count, no value is read
            out_key_serde=out_key_serde,
            out_value_serde=out_value_serde,
            inline=inline,
            rewritten={sink: sides for sink, sides in rewritten.items() if any(sides)},
            tag=self._tags.leaving(name) if outer else None,
            topics=self._topics_of[part.id],
            sends_old=node.sends_old,
            drops_null_changes=drops_null_changes(topology, node),
            forwards_last=forwards_last_changes(topology, node),
            lookup_store=looked_up,
            lookup_key_serde=None if writes_the_same(entering.key, stored) else stored,
            letter_serdes=(letters.key, letters.value),
        )

    def _sink(self, name: str) -> SinkSpec:
        node, part = self._sink_node(name), self._subtopology_of[name]
        edge = self._serdes.at_sink(name)
        require(edge, f"that {name} writes", f"of {method_of(node)}")
        key_serde, value_serde = edge.settled
        above = self._topology.parents.get(name, ())
        return SinkSpec(
            name=name,
            topic=self._broker_topic(node.topic),
            key_serde=key_serde,
            value_serde=value_serde,
            summed=name in self._compiler.summed_sinks,
            is_repartition=node.topic in self._topology.repartition_topics,
            topic_extractor=node.topic_extractor,
            partitioner=node.partitioner,
            partitioning=node.partitioning,
            subtopology=part.id,
            above=tuple(parent for parent in above if not isinstance(self._topology.nodes[parent], SourceNode)),
            inputs=self._topics_of[part.id],
            written_at=node.written_at,
        )

    def _batch_sink(self, name: str) -> BatchSinkSpec:
        key_serde, value_serde = self._serdes.at_batch_sink(name).settled
        topics = self._subtopology_of[name].source_topics
        return BatchSinkSpec(name=name, key_serde=key_serde, value_serde=value_serde, inputs=tuple(sorted(topics)))

    def _graph(self, part: GraphPart) -> GraphSpec:
        shared: dict[str, Store] = {}
        for each in self._stages.parts:
            if each.is_global:
                shared |= self._serdes.serdes_of(each).stores
        subtopology = self._subtopology_of[(*part.sources, *part.nodes)[0]].id
        return graph_spec(
            self._topology,
            self._application_id,
            part,
            subtopology=subtopology,
            topics=self._topics_of[subtopology],
            serdes=self._serdes.serdes_of(part),
            default=self._serdes.default,
            shared=shared,
        )

    def _stores(self) -> dict[str, StoreSpec]:
        """All but the global ones, which no task has."""
        kept_by_operators: dict[str, Store] = {}
        for part in self._stages.parts:
            kept_by_operators |= self._serdes.serdes_of(part).stores
        users, shared = self._users_of_stores(), global_stores(self._topology)
        specs = {}
        for name, store in self._topology.stores.items():
            if name in shared:
                continue
            user = users.get(name)
            if user is None:
                raise TopologyError(f"the store {name} is used by no node: remove it or connect it")
            written = kept_by_operators.get(name) or self._kept_by_step(store, user.name)
            has_operators_rows = name in kept_by_operators or entry_of(user.operation).shortcut is not None
            specs[name] = StoreSpec(
                name=name,
                tag=self._tags.restoring(name),
                subtopology=self._subtopology_of[user.name].id,
                changelog=None if store.source_topic or not store.logged else self._changelog(name),
                timestamped=store.kind is StoreKind.TIMESTAMPED_KEY_VALUE,
                persistent=store.persistent,
                logged=store.logged,
                caching=store.caching,
                logs_headers=store.logs_headers,
                key_serde=written.key_serde,
                value_serde=written.value_serde,
                source_topic=None if store.source_topic is None else self._broker_topic(store.source_topic),
                kept=written if has_operators_rows else None,
            )
        return specs

    def _users_of_stores(self) -> Mapping[str, ProcessorNode]:
        """A node for each store: the one that keeps it, if one does, and not one that looks it up."""
        nodes = [node for node in self._topology.nodes.values() if isinstance(node, ProcessorNode)]
        users = {store: node for node in nodes for store in stores_of(node)}
        return users | {store: node for node in nodes if (store := kept_store(node.operation)) is not None}

    def _kept_by_step(self, store: Store, user: str) -> Store:
        """A store of a vectorised node, with the serdes that it is written with."""
        return replace(
            store,
            key_serde=store.key_serde or self._serdes.entering[user].key,
            value_serde=store.value_serde or self._serdes.leaving[user].value,
        )

    def _sink_node(self, name: str) -> SinkNode:
        node = self._topology.nodes[name]
        assert isinstance(node, SinkNode)
        return node

    def _broker_topic(self, topic: str) -> str:
        return broker_topic(self._topology, self._application_id, topic)

    def _changelog(self, store: str) -> str | None:
        return changelog_of(self._topology, self._application_id, store)


def _in_step(operation: Operation) -> Operation:
    """The operation as its vectorised step gets it. A table's function of Columns has been called in the layer above, and its
    results are kept: the function stays in the driver, since what it calls, such as a UDF, may be nothing that can be sent."""
    store = kept_store(operation)
    return TableSource(store) if store is not None and _calls_columns(operation) else operation


def _calls_columns(operation: Operation) -> bool:
    return bool(functions_of(operation)) and works_on_columns(operation)

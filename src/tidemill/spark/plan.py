"""A topology compiled for a stream thread: the source's and the steps' specs, and the data frame they run in.

Decides how serdes that the program leaves open are found (by the types of the columns that arrive) and cuts the specs from
the compiled plan. Made once per application; each stream thread builds its own frame from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import TopologyError
from tidemill.spark.codecs_wire import transit_of
from tidemill.spark.compile import ArrowStep, Compiler, Edge
from tidemill.spark.plan_check import check_expressions, check_physical
from tidemill.spark.rows import Tags
from tidemill.spark.stages import Stages, inline_targets, outer_targets, parents_first, runs_in_python, stages
from tidemill.spark.step_spec import NodeSpec, Origin, SinkSpec, SourceSpec, SourceTopic, StepSpec, StoreSpec
from tidemill.topology.graph import Subtopology, broker_topic, changelog_of, subtopologies
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, StoreKind, Topology
from tidemill.topology.operations import Count


@dataclass(slots=True, kw_only=True)
class CompiledTopology:
    """Everything that does not depend on the thread."""

    topology: Topology
    stages: Stages
    source: SourceSpec
    steps: tuple[StepSpec, ...]
    compiler: Compiler
    _checked: bool = False

    def frame(
        self, session: SparkSession, source: ArrowStep, steps: Sequence[ArrowStep], pin: Callable[[str], None]
    ) -> DataFrame:
        """The thread's static plan, checked (correctness.md, rules 18 and 19)."""
        frame = self.compiler.build(session, source, list(steps), pin)
        if not self._checked:  # all threads' plans are alike
            check_expressions(frame)
            check_physical(frame)
            self._checked = True
        return frame


def compile_topology(
    session: SparkSession,
    topology: Topology,
    application_id: str,
    *,
    default_key: Any = None,
    default_value: Any = None,
    presum: bool = True,
) -> CompiledTopology:
    """Compiles ``topology``.

    Raises:
        TopologyError: a serde is missing or does not fit a column, or an expression can't be part of a static plan.
    """
    plan = stages(topology)
    compiler = Compiler(topology, plan, default_key=default_key, default_value=default_value, presum=presum)
    compiler.infer(session)
    return CompiledTopology(
        topology=topology,
        stages=plan,
        source=_source_spec(topology, application_id, compiler),
        steps=tuple(_step_spec(topology, application_id, plan, compiler, number) for number in range(1, plan.last + 1)),
        compiler=compiler,
    )


def _source_spec(topology: Topology, application_id: str, compiler: Compiler) -> SourceSpec:
    tags = compiler.tags
    topics: dict[str, SourceTopic] = {}
    summable = {topology.nodes[name].topic for name in compiler.stages.summed_sinks}  # type: ignore[union-attr]
    for name, node in topology.nodes.items():
        if not isinstance(node, SourceNode):
            continue
        for index, topic in enumerate(node.topics):
            edge = compiler.edges[name]
            topics[broker_topic(topology, application_id, topic)] = SourceTopic(
                tag=tags.leaving(name),
                node=name,
                index=index,
                key_type=edge.key.sql_type,
                value_type=edge.value.sql_type,
                key_foreign=edge.key if transit_of(edge.key) else None,
                value_foreign=edge.value if transit_of(edge.value) else None,
                summable=topic in summable,
            )
    changelogs = {
        changelog: tags.restoring(store)
        for store in topology.stores
        if (changelog := changelog_of(topology, application_id, store)) is not None
    }
    return SourceSpec(topics=topics, changelogs=changelogs)


def _step_spec(topology: Topology, application_id: str, plan: Stages, compiler: Compiler, number: int) -> StepSpec:
    tags = compiler.tags
    parts = {name: sub for sub in subtopologies(topology, application_id) for name in sub.nodes}
    number_of = {name: sub.id for name, sub in parts.items()}
    nodes = {
        tags.arrived(name): _node_spec(topology, plan, compiler, name, parts[name])
        for name in parents_first(topology)
        if runs_in_python(topology, name) and plan.step_of[name] == number
    }
    last = number == plan.last
    sinks = {
        tags.arrived(name): _sink_spec(topology, application_id, compiler, name)
        for name, node in topology.nodes.items()
        if last and isinstance(node, SinkNode)
    }
    return StepSpec(
        number=number,
        last=last,
        nodes=nodes,
        sinks=sinks,
        stores=_store_specs(topology, application_id, compiler, number_of),
        mixed=number in compiler.mixing_layers,
        sources={
            tags.index(name): Origin(
                subtopology=number_of[name], topics=tuple(broker_topic(topology, application_id, t) for t in node.topics)
            )
            for name, node in topology.nodes.items()
            if isinstance(node, SourceNode)
        },
    )


def _node_spec(topology: Topology, plan: Stages, compiler: Compiler, name: str, part: Subtopology) -> NodeSpec:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    entry, leaving = compiler.edges[name + "|in"], compiler.edges[name]
    outer = outer_targets(topology, plan, name)
    return NodeSpec(
        name=name,
        subtopology=part.id,
        operation=node.operation,
        key_serde=entry.key,
        value_serde=entry.value,
        out_key_serde=leaving.key,
        out_value_serde=leaving.value,
        inline=inline_targets(topology, plan, name),
        tag=compiler.tags.leaving(name) if outer else None,
        topics=tuple(sorted(part.source_topics)),
    )


def _sink_spec(topology: Topology, application_id: str, compiler: Compiler, name: str) -> SinkSpec:
    node = topology.nodes[name]
    assert isinstance(node, SinkNode)
    edge = compiler.edges.get(name + "|in", Edge(key=node.key_serde, value=node.value_serde))
    return SinkSpec(
        name=name,
        topic=broker_topic(topology, application_id, node.topic),
        key_serde=edge.key,
        value_serde=edge.value,
        summed=name in compiler.summed_sinks,
    )


def _store_specs(
    topology: Topology, application_id: str, compiler: Compiler, number_of: dict[str, int]
) -> dict[str, StoreSpec]:
    users = {
        store: name
        for name, node in topology.nodes.items()
        if isinstance(node, ProcessorNode)
        for store in node.stores
    }
    specs = {}
    for store, kept in topology.stores.items():
        user = users.get(store)
        if user is None:
            raise TopologyError(f"the store {store} is used by no node: remove it or connect it")
        node = topology.nodes[user]
        edge = compiler.edges[user + "|in"]
        out = compiler.edges[user]
        counted = isinstance(node, ProcessorNode) and isinstance(node.operation, Count)
        specs[store] = StoreSpec(
            name=store,
            tag=Tags(topology).restoring(store),
            subtopology=number_of[user],
            changelog=None if kept.source_topic or not kept.logged else changelog_of(topology, application_id, store),
            timestamped=kept.kind is StoreKind.TIMESTAMPED_KEY_VALUE,
            persistent=kept.persistent,
            logged=kept.logged,
            key_serde=kept.key_serde or edge.key,
            value_serde=kept.value_serde or (out.value if counted else edge.value),
            source_topic=None if kept.source_topic is None else broker_topic(topology, application_id, kept.source_topic),
        )
    return specs

"""A topology compiled for a stream thread: the source's and the steps' specs, and the data frame they run in.

Decides how serdes that the program leaves open are found (by the types of the columns that arrive) and cuts the specs from
the compiled plan. Made once per application; each stream thread builds its own frame from it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession

from tidemill.dsl.serdes import Serdes
from tidemill.errors import TopologyError
from tidemill.operators.operation_table import entry_of, global_stores, kept_store, operations_of, stores_of
from tidemill.spark.plan.batch_sinks import BatchFunction, batch_functions
from tidemill.spark.plan.compile import Compiler
from tidemill.spark.plan.graph_plan import graph_spec
from tidemill.spark.plan.lookups import Lookups
from tidemill.spark.plan.plan_check import check_expressions, check_physical
from tidemill.spark.plan.planned_topology import is_batch_sink, merge_functions, planned
from tidemill.spark.plan.python_steps import ArrowStep, SharedPlan
from tidemill.spark.plan.shortcuts import lookup_store, tables_first
from tidemill.spark.plan.stages import (
    Stages,
    inline_targets,
    only_forwards,
    outer_targets,
    parents_first,
    runs_as_columns,
    stages,
)
from tidemill.steps.rows.intake import intake_of
from tidemill.steps.rows.schema import Tags
from tidemill.steps.step_spec import (
    BatchSinkSpec,
    NodeSpec,
    Origin,
    SinkSpec,
    SourceSpec,
    SourceTopic,
    StepSpec,
    StoreSpec,
    TimestampExtraction,
)
from tidemill.topology.graph import Subtopology, broker_topic, changelog_of, subtopologies
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Store, StoreKind, Topology
from tidemill.topology.spark_operations import DataFrameJoin
from tidemill.topology.values import Serde

EMIT_INTERVAL_MS = 1000
"""Kafka Streams' ``emit.interval``."""


@dataclass(slots=True, kw_only=True)
class CompiledTopology:
    """Everything that does not depend on the thread."""

    application_id: str
    topology: Topology
    stages: Stages
    source: SourceSpec
    steps: tuple[StepSpec, ...]
    compiler: Compiler
    lookups: Lookups
    """The static sides of ``join_dataframe``."""
    batch_functions: Mapping[str, BatchFunction] = field(default_factory=dict)
    """Of ``foreach_batch``, by node."""
    shared: Mapping[bool, SharedPlan] = field(default_factory=lambda: {sums: SharedPlan() for sums in (False, True)})
    """By whether rows are summed in the JVM."""
    _checked: set[bool] = field(default_factory=set)
    _checking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def can_stand(self) -> bool:
        """True if its plan can serve many micro-batches in one run."""
        return self.compiler.can_stand

    @property
    def sums(self) -> bool:
        """True if its plan sums rows in the JVM where it may."""
        return self.compiler.has_sums

    def frame(
        self, root: DataFrame, source: ArrowStep, steps: Sequence[ArrowStep], pin: Callable[[str], None], *, sums: bool
    ) -> DataFrame:
        """A thread's static plan, from its one row on; to be checked. Not ``sums``: rows that may be summed pass one by one."""
        return self.compiler.build(root, source, list(steps), pin, sums=sums)

    def check(self, frame: DataFrame, *, sums: bool) -> None:
        """Refuses a plan that must not run (correctness.md, rules 18 and 19). Threads wait for the first one's check: their plans
        are all alike."""
        with self._checking:
            if sums not in self._checked:
                check_expressions(frame, len(self.compiler.multiplying_layers))
                check_physical(frame, lookups=len(self.lookups.joins), has_udfs=self.compiler.has_udfs)
                self._checked.add(sums)


def compile_topology(
    session: SparkSession | None,
    topology: Topology,
    application_id: str,
    *,
    default_key: Serde | None = None,
    default_value: Serde | None = None,
    presum: bool = True,
    emit_interval_ms: int = EMIT_INTERVAL_MS,
    by_time: bool = False,
    idle_ms: int = 0,
    one_by_one: bool = False,
) -> CompiledTopology:
    """Compiles ``topology``. ``session`` may be None where all functions are ``PerRecord``: nothing runs in the JVM then.
    ``emit_interval_ms``: how far the wall clock must move between two looks for closed windows and unmatched join records.
    ``by_time``: where operators meet records of several topics, these are taken by their timestamps, not as they come, and a
    topic that has nothing is waited for as ``idle_ms`` says.
    ``one_by_one``: single records may have to be left out (exception handlers), so Python functions get one at a time.

    Raises:
        TopologyError: a serde is missing or does not fit a column, or an expression can't be part of a static plan.
    """
    program, topology = topology, planned(topology)
    plan = stages(topology, without_jvm=session is None, one_by_one=one_by_one)
    lookups = Lookups(operations_of(topology, DataFrameJoin), session, application_id)
    lookups.read()
    compiler = Compiler(
        topology,
        plan,
        default_key=default_key,
        default_value=default_value,
        presum=presum,
        lookups=lookups,
        merges=merge_functions(program),
    )
    if session is None and compiler.has_columns:
        raise TopologyError("the topology has functions of columns, which need a Spark session")
    compiler.infer(session if compiler.has_columns else None)
    steps = tuple(
        _step_spec(topology, application_id, plan, compiler, number, emit_interval_ms) for number in range(1, plan.last + 1)
    )
    return CompiledTopology(
        application_id=application_id,
        topology=program,
        stages=plan,
        source=_source_spec(topology, application_id, compiler, by_time, idle_ms),
        steps=steps,
        compiler=compiler,
        lookups=lookups,
        batch_functions=batch_functions(program, {sink.name: sink for sink in steps[-1].batch_sinks}),
    )


def _source_spec(
    topology: Topology, application_id: str, compiler: Compiler, by_time: bool, idle_ms: int
) -> SourceSpec:
    tags = compiler.tags
    topics: dict[str, SourceTopic] = {}
    summable = {topology.nodes[name].topic for name in compiler.stages.summed_sinks}  # type: ignore[union-attr]
    for name, node in topology.nodes.items():
        if not isinstance(node, SourceNode):
            continue
        for index, topic in enumerate(node.topics):
            key_serde, value_serde = compiler.serdes.leaving[name].settled
            in_part = name in compiler.stages.part_of  # its bytes are read by the step that runs the part
            topics[broker_topic(topology, application_id, topic)] = SourceTopic(
                tag=tags.arrived(name) if in_part else tags.leaving(name),
                node=name,
                index=index,
                key=None if in_part else intake_of(key_serde),
                value=None if in_part else intake_of(value_serde),
                summable=topic in summable,
                extraction=None
                if node.timestamp_extractor is None
                else TimestampExtraction(extractor=node.timestamp_extractor, key_serde=key_serde, value_serde=value_serde),
            )
    shared = global_stores(topology)
    changelogs = {
        changelog: tags.restoring(store)
        for store in topology.stores
        if store not in shared and (changelog := changelog_of(topology, application_id, store)) is not None
    }
    in_groups = [*(part.nodes for part in compiler.stages.parts), *compiler.stages.vectorised]
    meeting = {name for nodes in in_groups for name in nodes}
    parts = [part for part in subtopologies(topology, application_id) if by_time and not part.is_global]
    meets = [part for part in parts if len(part.source_topics) > 1 and meeting & set(part.nodes)]
    together = {topic: part.id for part in meets for topic in part.source_topics}
    return SourceSpec(topics=topics, changelogs=changelogs, together=together, idle_ms=idle_ms)


def _step_spec(
    topology: Topology, application_id: str, plan: Stages, compiler: Compiler, number: int, emit_interval_ms: int
) -> StepSpec:
    tags = compiler.tags
    parts = {name: sub for sub in subtopologies(topology, application_id) for name in sub.nodes}
    number_of = {name: sub.id for name, sub in parts.items()}
    nodes = {
        tags.arrived(name): _node_spec(topology, plan, compiler, name, parts[name])
        for name in tables_first(topology, parents_first(topology))
        if runs_as_columns(topology, plan, name) and plan.step_of[name] == number
    }
    last = number == plan.last
    shared = _global_stores(compiler)
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
        ranks=number in compiler.multiplying_layers or number > 1,
        sources={
            tags.index(name): Origin(
                subtopology=number_of[name],
                topics=tuple(broker_topic(topology, application_id, t) for t in node.topics),
                columns=_columns_below(topology, plan, name),
                key_serde=compiler.serdes.leaving[name].key if last else None,
                value_serde=compiler.serdes.leaving[name].value if last else None,
            )
            for name, node in topology.nodes.items()
            if isinstance(node, SourceNode)
        },
        graphs=tuple(
            graph_spec(
                topology,
                application_id,
                part,
                number_of[(*part.sources, *part.nodes)[0]],
                compiler.serdes.serdes_of(part),
                compiler.serdes.default,
                emit_interval_ms,
                shared,
            )
            for part in plan.parts_in(number)
        ),
        has_copies_above=last and any(part.is_global for above in range(1, number) for part in plan.parts_in(above)),
        batch_sinks=tuple(
            _batch_sink_spec(compiler, name, parts[name])
            for name, node in topology.nodes.items()
            if last and is_batch_sink(node)
        ),
    )


def _columns_below(topology: Topology, plan: Stages, source: str) -> tuple[str, ...]:
    """The nodes between a source and its sub-topology's ends that run in the JVM, in the topology's order."""
    below, ahead = set(), [source]
    while ahead:
        fresh = [child for child in topology.children(ahead.pop()) if child not in below]
        below.update(fresh)
        ahead += fresh
    return tuple(
        name
        for name, node in topology.nodes.items()
        if name in below and isinstance(node, ProcessorNode) and name not in plan.step_of and not only_forwards(topology, name)
    )


def _node_spec(topology: Topology, plan: Stages, compiler: Compiler, name: str, part: Subtopology) -> NodeSpec:
    node = topology.nodes[name]
    assert isinstance(node, ProcessorNode)
    entry, (out_key_serde, out_value_serde) = compiler.serdes.entering[name], compiler.serdes.leaving[name].settled
    assert entry.key is not None
    outer, inline = outer_targets(topology, plan, name), inline_targets(topology, plan, name)
    sinks = [sink for sink in inline if isinstance(topology.nodes[sink], SinkNode) and not is_batch_sink(topology.nodes[sink])]
    rewritten = {sink: compiler.serdes.rewritten(sink, compiler.serdes.leaving[name]) for sink in sinks}
    return NodeSpec(
        name=name,
        subtopology=part.id,
        operation=node.operation,
        key_serde=entry.key,
        value_serde=entry.value or Serdes.bytes(),  # of records that only count, no value is read
        out_key_serde=out_key_serde,
        out_value_serde=out_value_serde,
        inline=inline,
        rewritten={sink: sides for sink, sides in rewritten.items() if any(sides)},
        tag=compiler.tags.leaving(name) if outer else None,
        topics=tuple(sorted(part.source_topics)),
        lookup_store=lookup_store(topology, node),
    )


def _sink_spec(topology: Topology, application_id: str, compiler: Compiler, name: str) -> SinkSpec:
    node = topology.nodes[name]
    assert isinstance(node, SinkNode)
    key_serde, value_serde = compiler.serdes.at_sink(name).settled
    return SinkSpec(
        name=name,
        topic=broker_topic(topology, application_id, node.topic),
        key_serde=key_serde,
        value_serde=value_serde,
        summed=name in compiler.summed_sinks,
        may_hold_sums=name in compiler.stages.summed_sinks,
        topic_extractor=node.topic_extractor,
        partitioner=node.partitioner,
        partitioning=node.partitioning,
    )


def _batch_sink_spec(compiler: Compiler, name: str, part: Subtopology) -> BatchSinkSpec:
    key_serde, value_serde = compiler.serdes.at_batch_sink(name).settled
    return BatchSinkSpec(
        name=name,
        key_serde=key_serde,
        value_serde=value_serde,
        inputs=tuple(sorted(part.source_topics)),
    )


def _global_stores(compiler: Compiler) -> dict[str, Store]:
    """The stores that all tasks share, with the serdes of what keeps them."""
    found: dict[str, Store] = {}
    for part in compiler.stages.parts:
        if part.is_global:
            found |= compiler.serdes.serdes_of(part).stores
    return found


def _store_specs(
    topology: Topology, application_id: str, compiler: Compiler, number_of: dict[str, int]
) -> dict[str, StoreSpec]:
    processors = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    users = {store: node.name for node in processors for store in stores_of(node)}
    users |= {store: node.name for node in processors if (store := kept_store(node.operation)) is not None}  # not who looks it up
    kept_by_operators = {
        name: store for part in compiler.stages.parts for name, store in compiler.serdes.serdes_of(part).stores.items()
    }
    specs = {}
    shared = global_stores(topology)
    for store, kept in topology.stores.items():
        if store in shared:
            continue
        user = users.get(store)
        if user is None:
            raise TopologyError(f"the store {store} is used by no node: remove it or connect it")
        written = kept_by_operators.get(store) or _kept_by_step(compiler, kept, user)
        specs[store] = StoreSpec(
            name=store,
            tag=Tags(topology).restoring(store),
            subtopology=number_of[user],
            changelog=None if kept.source_topic or not kept.logged else changelog_of(topology, application_id, store),
            timestamped=kept.kind is StoreKind.TIMESTAMPED_KEY_VALUE,
            persistent=kept.persistent,
            logged=kept.logged,
            key_serde=written.key_serde,
            value_serde=written.value_serde,
            source_topic=None if kept.source_topic is None else broker_topic(topology, application_id, kept.source_topic),
            kept=written if store in kept_by_operators or _has_operators_rows(topology, user) else None,
        )
    return specs


def _kept_by_step(compiler: Compiler, store: Store, user: str) -> Store:
    """A store of a vectorised node, with the serdes that it is written with."""
    serdes = compiler.serdes
    return replace(
        store,
        key_serde=store.key_serde or serdes.entering[user].key,
        value_serde=store.value_serde or serdes.leaving[user].value,
    )


def _has_operators_rows(topology: Topology, user: str) -> bool:
    """True if a step keeps the rows in the form of the operator that it replaces."""
    node = topology.nodes[user]
    return isinstance(node, ProcessorNode) and entry_of(node.operation).shortcut is not None

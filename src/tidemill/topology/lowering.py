"""Conversion of the logical graph to the topology: operators become nodes, stores and repartition topics.

Decides the insertion order of the nodes, on which the numbers of sub-topologies rest: of all operators whose parents
are written, the one of the least priority is written next; and which nodes a composite operator becomes. ``draft`` refuses
what can't stand together, ``optimization`` optimises.
"""

from __future__ import annotations

import heapq
from dataclasses import replace

from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology.draft import Draft
from tidemill.topology.logical import (
    Effect,
    GlobalSource,
    KTableJoin,
    KTableSource,
    LogicalGraph,
    LogicalNode,
    Process,
    Repartition,
    Sink,
    StateStore,
    StreamSource,
    StreamStreamJoinNode,
)
from tidemill.topology.nodes import ProcessorNode, RepartitionTopic, SinkNode, SourceNode, Topology


def lower(graph: LogicalGraph) -> Topology:
    """The topology of a graph; TopologyError if it can't be."""
    children: dict[int, list[int]] = {node: [] for node in graph.nodes}
    waits_for = {node: len(above) for node, above in graph.parents.items()}
    for node, above in graph.parents.items():
        for parent in above:
            children[parent].append(node)
    ready = [(graph.priorities[node], node) for node, count in waits_for.items() if count == 0]
    heapq.heapify(ready)
    draft = Draft()
    keep_null_keys = _above_relaxed_joins(graph)
    while ready:
        _, node = heapq.heappop(ready)
        parents = tuple(graph.nodes[parent].name for parent in graph.parents[node])
        _write(draft, graph.nodes[node], parents, keeps_null_keys=node in keep_null_keys)
        for child in children[node]:
            waits_for[child] -= 1
            if waits_for[child] == 0:
                heapq.heappush(ready, (graph.priorities[child], child))
    return draft.topology(graph.copartitioned)


def _above_relaxed_joins(graph: LogicalGraph) -> set[int]:
    """The nodes above a left or outer join of a stream, where records without a key are forwarded (KIP-962)."""
    found: set[int] = set()
    todo = [node for node, made in graph.nodes.items() if _lets_null_keys_through(made.effect)]
    while todo:
        for above in graph.parents[todo.pop()]:
            if above not in found:
                found.add(above)
                todo.append(above)
    return found


def _lets_null_keys_through(effect: Effect) -> bool:
    match effect:
        case StreamStreamJoinNode():
            return effect.this_operation.outer or effect.other_operation.outer
        case Process(operation=join_op.StreamTableJoin() | join_op.GlobalTableJoin() as join):
            return join.left
        case _:
            return False


def _write(draft: Draft, node: LogicalNode, parents: tuple[str, ...], *, keeps_null_keys: bool) -> None:
    match node.effect:
        case StreamSource() as source:
            draft.add_source(SourceNode(
                name=node.name, topics=source.topics, topic_pattern=source.pattern, key_serde=source.key_serde,
                value_serde=source.value_serde, offset_reset=source.offset_reset,
                timestamp_extractor=source.timestamp_extractor,
            ))
        case KTableSource() as table:
            _write_table(draft, node.name, table)
        case GlobalSource() as table:
            _write_global(draft, node.name, table)
        case StateStore(store=store):
            draft.add_store(store)
        case Process() as process:
            _write_process(draft, node.name, process, parents)
        case StreamStreamJoinNode() as join:
            _write_stream_join(draft, node.name, join)
        case KTableJoin() as join:
            _write_table_join(draft, node.name, join)
        case Repartition() as through:
            _write_repartition(draft, node.name, through, parents, keeps_null_keys=keeps_null_keys)
        case Sink() as sink:
            if sink.is_internal:
                draft.repartition_topics[sink.topic] = RepartitionTopic(name=sink.topic)
            draft.add(SinkNode(
                name=node.name, topic=sink.topic, key_serde=sink.key_serde, value_serde=sink.value_serde,
                topic_extractor=sink.topic_extractor, partitioner=sink.partitioner, partitioning=sink.partitioning,
                written_at=sink.written_at,
            ), parents)


def _write_process(draft: Draft, name: str, process: Process, parents: tuple[str, ...]) -> None:
    draft.add(ProcessorNode(
        name=name, operation=process.operation, key_serde=process.key_serde, value_serde=process.value_serde,
        sends_old=process.sends_old,
    ), parents)
    for store in (process.store, *process.more_stores):
        if store is not None:
            draft.add_store(store, name)
    draft.connect(name, process.uses)


def _write_table(draft: Draft, name: str, table: KTableSource) -> None:
    store, key, value = table.store, table.store.key_serde, table.store.value_serde
    draft.add_source(SourceNode(
        name=table.source_name, topics=(table.topic,), key_serde=key, value_serde=value,
        offset_reset=table.offset_reset, timestamp_extractor=table.timestamp_extractor,
    ))
    draft.add(ProcessorNode(
        name=name, operation=op.TableSource(store.name if table.materialized else None), key_serde=key, value_serde=value,
        sends_old=table.sends_old,
    ), (table.source_name,))
    if table.materialized:
        reusing = replace(store, logged=False, source_topic=table.topic)
        draft.add_store(reusing if table.reuses_topic else store, name)


def _write_global(draft: Draft, name: str, table: GlobalSource) -> None:
    store = replace(table.store, logged=False, source_topic=table.topic)
    draft.add_global(
        SourceNode(
            name=table.source_name, topics=(table.topic,), key_serde=table.key_serde, value_serde=table.value_serde,
            is_global=True,
        ),
        ProcessorNode(
            name=name, operation=op.GlobalUpdate(store.name, table.supplier), stores=(store.name,),
            key_serde=table.key_serde, value_serde=table.value_serde,
        ),
        store,
    )


def _write_stream_join(draft: Draft, name: str, join: StreamStreamJoinNode) -> None:
    def node(name: str, operation: op.Operation) -> ProcessorNode:
        return ProcessorNode(name=name, operation=operation, key_serde=join.key_serde, value_serde=join.value_serde)

    if join.is_self_join:
        draft.add(node(name, join.self_join), (join.this_windowed,))
        draft.connect(name, (join.self_join.store,))
        return
    draft.add(node(join.this_name, join.this_operation), (join.this_windowed,))
    draft.connect(join.this_name, (join.this_operation.other_store,))
    if join.outer_store is not None:
        draft.add_store(join.outer_store, join.this_name)
    draft.add(node(join.other_name, join.other_operation), (join.other_windowed,))
    draft.connect(join.other_name, (join.other_operation.other_store,))
    if join.outer_store is not None:
        draft.add_store(join.outer_store, join.other_name)
    draft.add(node(name, op.PassThrough()), (join.this_name, join.other_name))


def _write_table_join(draft: Draft, name: str, join: KTableJoin) -> None:
    def node(name: str, operation: op.Operation) -> ProcessorNode:
        return ProcessorNode(
            name=name, operation=operation, key_serde=join.key_serde, value_serde=join.value_serde, sends_old=join.sends_old
        )

    draft.add(node(join.this_name, join.this_operation), (join.this_table,))
    draft.connect(join.this_name, join.this_uses)
    draft.add(node(join.other_name, join.other_operation), (join.other_table,))
    draft.connect(join.other_name, join.other_uses)
    merge = join_op.TableJoinMerge(None if join.store is None else join.store.name)
    draft.add(node(name, merge), (join.this_name, join.other_name))
    if join.store is not None:
        draft.add_store(join.store, name)


def _write_repartition(
    draft: Draft, name: str, through: Repartition, parents: tuple[str, ...], *, keeps_null_keys: bool
) -> None:
    topic, key, value = through.topic, through.key_serde, through.value_serde
    draft.repartition_topics[topic] = RepartitionTopic(name=topic, partitions=through.partitions)
    above = parents
    if through.filter_name is not None:
        draft.add(ProcessorNode(
            name=through.filter_name, operation=op.PassThrough() if keeps_null_keys else op.NullKeyFilter(), key_serde=key,
            value_serde=value,
        ), parents)
        above = (through.filter_name,)
    draft.add(SinkNode(
        name=through.sink_name, topic=topic, key_serde=key, value_serde=value, partitioner=through.partitioner
    ), above)
    draft.add_source(SourceNode(name=name, topics=(topic,), key_serde=key, value_serde=value))

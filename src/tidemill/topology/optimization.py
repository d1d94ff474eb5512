"""Optimisations of the logical graph, as ``topology.optimization`` names them, and the merging of equal sources.

Each is a function from graph to graph that keeps what the program means. ``optimized`` is what building a topology
applies: equal sources always, the others on request. Source: Kafka Streams' results for the same programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tidemill.errors import ConfigError, TopologyError
from tidemill.topology.join_operations import GlobalTableJoin
from tidemill.topology.logical import (
    KTableSource,
    LogicalGraph,
    LogicalNode,
    Process,
    Repartition,
    StreamSource,
    StreamStreamJoinNode,
    added,
    changed,
    linked,
    removed,
    unlinked,
)
from tidemill.topology.naming import repartition_nodes
from tidemill.topology.operations import ProcessRecords

REUSE_KTABLE_SOURCE_TOPICS = "reuse.ktable.source.topics"
MERGE_REPARTITION_TOPICS = "merge.repartition.topics"
SINGLE_STORE_SELF_JOIN = "single.store.self.join"
OPTIMIZATIONS = frozenset({REUSE_KTABLE_SOURCE_TOPICS, MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN})


def optimizations(setting: str | Iterable[str]) -> frozenset[str]:
    """The optimisations that a value of ``topology.optimization`` asks for: none, all, or a list of names."""
    given = [name.strip() for name in setting.split(",")] if isinstance(setting, str) else list(setting)
    if given == ["all"]:
        return OPTIMIZATIONS
    if given in (["none"], []):
        return frozenset()
    for name in given:
        if name not in OPTIMIZATIONS:
            reason = "can't be combined with others" if name in ("all", "none") else "is unknown"
            raise ConfigError(
                f"topology.optimization: {name!r} {reason}; expected none, all, or some of"
                f" {', '.join(sorted(OPTIMIZATIONS))}"
            )
    return frozenset(given)


def optimized(graph: LogicalGraph, wanted: frozenset[str]) -> LogicalGraph:
    """The graph with equal sources merged and the wanted optimisations applied."""
    graph = merge_equal_sources(graph)
    if REUSE_KTABLE_SOURCE_TOPICS in wanted:
        graph = reuse_table_source_topics(graph)
    if MERGE_REPARTITION_TOPICS in wanted:
        graph = merge_repartition_topics(graph)
    if SINGLE_STORE_SELF_JOIN in wanted:
        graph = join_same_streams_with_one_store(graph)
    return graph


def merge_equal_sources(graph: LogicalGraph) -> LogicalGraph:
    """Streams of the same topics (or pattern) become one source, under the name of the first."""
    first_of: dict[str, int] = {}
    for node in sorted(graph.nodes):
        source = graph.nodes[node].effect
        if not isinstance(source, StreamSource):
            continue
        keys = list(source.topics) if source.pattern is None else [f"/{source.pattern}/"]
        known = {first_of[key] for key in keys if key in first_of}
        for key in keys:
            first_of.setdefault(key, node)
        if known:
            graph = _merged_into(graph, min(known), node)
    return graph


def _merged_into(graph: LogicalGraph, first: int, node: int) -> LogicalGraph:
    kept, gone = graph.nodes[first], graph.nodes[node]
    assert isinstance(kept.effect, StreamSource)
    assert isinstance(gone.effect, StreamSource)
    if set(kept.effect.topics) != set(gone.effect.topics):
        raise TopologyError(
            f"the sources {kept.name!r} ({', '.join(kept.effect.topics)}) and {gone.name!r}"
            f" ({', '.join(gone.effect.topics)}) share some topics but not all: read the same topics in both, or merge"
            " streams that have no topic in common"
        )
    if kept.effect.offset_reset != gone.effect.offset_reset:
        raise TopologyError(
            f"the sources {kept.name!r} and {gone.name!r} read the same topics with different offset resets"
            f" ({kept.effect.offset_reset} and {gone.effect.offset_reset}): give both the same"
        )
    for child in graph.children(node):
        graph = linked(unlinked(graph, node, child), first, child)
    return removed(graph, node)


def reuse_table_source_topics(graph: LogicalGraph) -> LogicalGraph:
    """Tables that are kept in a store use their source topic as its changelog."""
    for node, made in graph.nodes.items():
        if isinstance(made.effect, KTableSource):
            graph = changed(graph, node, _reusing)
    return graph


def _reusing(node: LogicalNode) -> LogicalNode:
    assert isinstance(node.effect, KTableSource)
    return replace(node, effect=replace(node.effect, reuses_topic=True))


def merge_repartition_topics(graph: LogicalGraph) -> LogicalGraph:
    """Repartitions below one change of keys become one, right below it; the first one's topic is kept.

    Operators between the change and a repartition move below the new one. Repartitions that a program asks for
    (``repartition``) stay as they are.
    """
    for changer, repartitions in _repartitions_by_changer(graph).items():
        tops = {node: _only_ways_from(graph, changer, node) for node in repartitions}
        movable = {node: found for node, found in tops.items() if found}
        if movable:
            graph = _with_one_repartition(graph, changer, movable)
    return graph


def _only_ways_from(graph: LogicalGraph, changer: int, repartition: int) -> tuple[int, ...]:
    """The children of ``changer`` that all records of ``repartition`` come through.

    None at all if there is another way: moved up, the repartition would miss the records that take it, and they would be
    aggregated in the wrong task. Kafka Streams does move it, for instance where a stream with changed keys is both
    grouped and merged with another stream that is grouped.
    """
    tops: list[int] = []
    seen: set[int] = set()
    above = [repartition]
    while above:
        at = above.pop()
        if at in seen:
            continue
        seen.add(at)
        parents = graph.parents[at]
        if not parents:
            return ()
        if changer in parents:
            tops.append(at)
        above.extend(parent for parent in parents if parent != changer)
    return tuple(sorted(tops))


def _with_one_repartition(
    graph: LogicalGraph, changer: int, tops_of: Mapping[int, tuple[int, ...]]
) -> LogicalGraph:
    """The graph with one repartition below ``changer``, instead of those in ``tops_of``, above their top operators."""
    graph, shared = added(graph, _one_of(graph, tops_of), ())
    # it takes the place of its parent in the build order, so as to come before everything below
    graph = replace(graph, priorities={**graph.priorities, shared: graph.priorities[changer]})
    for repartition, tops in tops_of.items():
        for top in tops:
            # one of the replaced repartitions may be on another's way (its table's changes, merged with the stream): once
            # it is gone, what was below it hangs on the shared one
            if changer in graph.parents.get(top, ()):
                graph = linked(unlinked(graph, changer, top), shared, top)
        for child in graph.children(repartition):
            for parent in graph.parents[repartition]:
                graph = linked(graph, parent, child)
        graph = _copartitioned_as(graph, graph.nodes[repartition].name, graph.nodes[shared].name)
        graph = removed(graph, repartition)
    return linked(graph, changer, shared)


def processors_below_merged_repartition(graph: LogicalGraph, optimized_graph: LogicalGraph) -> tuple[str, ...]:
    """Processors above which ``merge.repartition.topics`` has moved a repartition.

    As in Kafka Streams a processor counts as one that keeps keys and values (KAFKA-19668: topic names would change otherwise),
    and a join with a global table as one that keeps values.
    Records with keys that it changes are then in the partitions of the old keys, with values that it has not yet converted.
    """
    found: dict[str, None] = {}
    for node, made in graph.nodes.items():
        if not isinstance(made.effect, Repartition) or node in optimized_graph.nodes:
            continue
        seen, above = {node}, list(graph.parents[node])
        while above:
            at = above.pop()
            effect = graph.nodes[at].effect
            if at in seen or graph.nodes[at].changes_key or isinstance(effect, Repartition):
                continue
            seen.add(at)
            above.extend(graph.parents[at])
            if isinstance(effect, Process) and isinstance(effect.operation, ProcessRecords | GlobalTableJoin):
                found[graph.nodes[at].name] = None
    return tuple(found)


def _copartitioned_as(graph: LogicalGraph, gone: str, instead: str) -> LogicalGraph:
    """The graph with a source node in the place of one that is gone."""
    return replace(graph, copartitioned=tuple(
        group - {gone} | {instead} if gone in group else group for group in graph.copartitioned
    ))


def _one_of(graph: LogicalGraph, repartitions: Iterable[int]) -> LogicalNode:
    """The repartition that replaces several: the topic of the first, the first known serdes, names from the topic."""
    effects = [graph.nodes[node].effect for node in repartitions]
    merged = [effect for effect in effects if isinstance(effect, Repartition)]
    sink, null_filter, source = repartition_nodes(merged[0].topic, 0)
    return LogicalNode(name=source, effect=Repartition(
        topic=merged[0].topic, filter_name=null_filter, sink_name=sink,
        key_serde=next((effect.key_serde for effect in merged if effect.key_serde is not None), None),
        value_serde=next((effect.value_serde for effect in merged if effect.value_serde is not None), None),
        mergeable=True,
    ))


def join_same_streams_with_one_store(graph: LogicalGraph) -> LogicalGraph:
    """Joins whose both sides are the same stream keep its records once: the right side's store and node go."""
    for node in sorted(graph.nodes):
        effect = graph.nodes[node].effect
        if not isinstance(effect, StreamStreamJoinNode) or len(graph.parents[node]) != 1:
            continue
        siblings = graph.children(graph.parents[node][0])
        right = next(each for each in siblings if graph.nodes[each].name == effect.other_windowed)
        graph = changed(removed(graph, right), node, _self_joining)
    return graph


def _self_joining(node: LogicalNode) -> LogicalNode:
    assert isinstance(node.effect, StreamStreamJoinNode)
    return replace(node, effect=replace(node.effect, is_self_join=True))


def _repartitions_by_changer(graph: LogicalGraph) -> dict[int, list[int]]:
    """For each operator that changes keys the repartitions that can be merged below it.

    One counts only if no operator between them changes values: the merged topic would hold other values. Where
    streams with changed keys are merged first, the merge takes their place.
    """
    found: dict[int, list[int]] = {}
    for node in sorted(graph.nodes):
        made = graph.nodes[node]
        if made.changes_key:
            found[node] = []
        elif isinstance(made.effect, Repartition) and made.effect.mergeable:
            changer = _nearest(graph, node, lambda g, n: g.nodes[n].changes_key)
            if changer is not None and changer == _nearest(graph, node, _changes_records):
                found[changer].append(node)
    merges = [node for node in sorted(graph.nodes) if graph.nodes[node].merges]
    taken = {merge: _changers_above(graph, merge, found) for merge in merges}
    below = {
        merge: list(dict.fromkeys(node for changer in changers for node in found[changer]))
        for merge, changers in taken.items()
    }
    for merge in merges:  # of merges above each other the last has all that passes the repartition
        later = {node for other in merges if other > merge for node in below[other]}
        found[merge] = [node for node in below[merge] if node not in later]
    replaced = {changer for changers in taken.values() for changer in changers}
    return {changer: repartitions for changer, repartitions in found.items() if changer not in replaced}


def _changers_above(graph: LogicalGraph, merge: int, found: dict[int, list[int]]) -> list[int]:
    """The operators that change keys above a merge and have all their repartitions, if any, below it."""

    return [
        changer
        for changer, repartitions in found.items()
        if all(_child_towards(graph, merge, node) is not None for node in repartitions)
        and _child_towards(graph, changer, merge) is not None
    ]


def _child_towards(graph: LogicalGraph, above: int, node: int) -> int | None:
    """``node`` or the operator over it that hangs on ``above``; None if ``above`` does not feed it."""
    return _nearest(graph, node, lambda g, n: above in g.parents[n])


def _changes_records(graph: LogicalGraph, node: int) -> bool:
    return graph.nodes[node].changes_key or graph.nodes[node].changes_value


def _nearest(graph: LogicalGraph, node: int, wanted: Callable[[LogicalGraph, int], bool]) -> int | None:
    """``node`` or the first operator above it that is wanted: parents in their order, each with all above it."""
    seen: set[int] = set()
    stack = [node]
    while stack:
        at = stack.pop()
        if wanted(graph, at):
            return at
        if at not in seen:
            seen.add(at)
            stack.extend(reversed(graph.parents[at]))
    return None

"""Optimisations of the logical graph, as ``topology.optimization`` names them, and the merging of equal sources.

Each is a function from graph to graph that keeps what the program means. ``optimized`` is what building a topology
applies: equal sources always, the others on request. Source: Kafka Streams' results for the same programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidemill.errors import ConfigError, TopologyError
from tidemill.topology.logical import (
    KTableSource,
    LogicalGraph,
    LogicalNode,
    StreamSource,
    changed,
    linked,
    removed,
    unlinked,
)

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
            reason = "stands alone or not at all" if name in ("all", "none") else "is unknown"
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

"""CogroupedKStream: several grouped streams aggregated into one table, each with an aggregator of its own.

Decides names and the order in which they are taken: the store, the repartitions of all streams, then the aggregations and
their merge. All aggregations share the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tidemill.dsl.arguments import python_function
from tidemill.dsl.function_types import AggregatorFunction, Initializer, Merger
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of, window_store_of
from tidemill.dsl.recorder import Recorder, repartition_node
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology import operations as op
from tidemill.topology.logical import LogicalNode, Process
from tidemill.topology.naming import legal_name, numbered
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde
from tidemill.topology.windows import AnyWindows, SessionWindows, checked_windows

if TYPE_CHECKING:
    from tidemill.dsl.grouped import KGroupedStream

_AGGREGATE, _MERGE = "COGROUPKSTREAM-AGGREGATE-", "COGROUPKSTREAM-MERGE-"


@dataclass(frozen=True, slots=True, kw_only=True)
class CogroupedKStream(Spelled):
    """Grouped streams that go into one aggregate, each with ``aggregator(key, value, aggregate)``, in the order in which they
    were added (org.apache.kafka.streams.kstream.CogroupedKStream, KIP-150). Functions get Python values.
    """

    recorder: Recorder = field(repr=False)
    groups: tuple[tuple[KGroupedStream, AggregatorFunction], ...] = ()
    repartitioned: dict[int, tuple[KGroupedStream, int]] = field(default_factory=dict)
    """The repartition of each stream, once it is made: all aggregations share it. By ``id`` of the stream, which is kept here
    too: Python would give the number to another stream once this one is gone."""

    def cogroup(self, grouped: KGroupedStream, aggregator: AggregatorFunction) -> CogroupedKStream:
        """With one more grouped stream; one that is in already gets the new aggregator.

        Raises:
            TopologyError: for what is no grouped stream of the same builder, or an aggregator with other arguments.
        """
        aggregator = python_function(aggregator, ("key", "value", "aggregate"), "cogroup: aggregator")
        if getattr(grouped, "recorder", None) is not self.recorder:
            raise TopologyError(
                f"cogroup: expected a grouped stream of the same StreamsBuilder, got {grouped!r}; group a stream with"
                " group_by or group_by_key"
            )
        if any(known is grouped for known, _ in self.groups):
            replaced = tuple((known, aggregator if known is grouped else old) for known, old in self.groups)
            return replace(self, groups=replaced)
        return replace(self, groups=(*self.groups, (grouped, aggregator)))

    def windowed_by(self, windows: AnyWindows) -> WindowedCogroupedKStream:
        """The streams cut into windows, or into sessions, to be aggregated in each.

        Raises:
            TopologyError: for what are no windows.
        """
        return WindowedCogroupedKStream(cogrouped=self, windows=checked_windows(windows))

    def aggregate(
        self,
        initializer: Initializer,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of the aggregates, from ``initializer()``; null keys and null values are dropped.

        ``key`` and ``value`` are the serdes of the table: nothing is taken from the streams, which may differ.
        """
        initializer = python_function(initializer, (), "aggregate: initializer")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = store_of(self.recorder, asked, _AGGREGATE)

        def effect(aggregator: AggregatorFunction) -> Process:
            operation = op.Aggregate(kept.name, initializer, aggregator)
            return Process(operation=operation, store=kept, key_serde=kept.key_serde, value_serde=kept.value_serde)

        return self.into_table(effect, kept, name, queryable=queryable_name(asked))

    def into_table(
        self, effect_of: Callable[[AggregatorFunction], Process], kept: Store, name: str | None, *, queryable: str | None
    ) -> KTable:
        """The table of one aggregation for each stream, as ``effect_of`` its aggregator says, and their merge."""
        given = None if name is None else legal_name(name, "an operator")
        parents = [self._parent(grouped, kept) for grouped, _ in self.groups]
        self.recorder.copartition(frozenset().union(*(grouped.sources for grouped, _ in self.groups)))
        made: list[int] = []
        for at, ((_, aggregator), parent) in enumerate(zip(self.groups, parents, strict=True)):
            index = self.recorder.take_index()
            node_name = numbered(_AGGREGATE, index) if given is None else f"{given}-cogroup-agg-{at}"
            effect = effect_of(aggregator)
            made.append(self.recorder.add(LogicalNode(name=node_name, effect=effect), parent))
        index = self.recorder.take_index()
        merge_name = numbered(_MERGE, index) if given is None else f"{given}-cogroup-merge"
        merge = Process(
            operation=op.CogroupMerge(kept.name), key_serde=effect.key_serde, value_serde=effect.value_serde
        )
        node = self.recorder.add(LogicalNode(name=merge_name, effect=merge), *made)
        return KTable(
            recorder=self.recorder, node=node, name=merge_name, sources=frozenset({merge_name}),
            key_serde=effect.key_serde, value_serde=effect.value_serde, store_name=queryable,
        )

    def _parent(self, grouped: KGroupedStream, kept: Store) -> int:
        """The parent of a stream's aggregation: a repartition of its own, or the stream."""
        if not grouped.repartition_required:
            return grouped.node
        prefix = kept.name if grouped.group_name is None else grouped.group_name
        through = repartition_node(
            self.recorder, prefix, key=grouped.key_serde, value=grouped.value_serde, mergeable=True
        )
        if id(grouped) not in self.repartitioned:
            self.repartitioned[id(grouped)] = grouped, self.recorder.add(through, grouped.node)
        return self.repartitioned[id(grouped)][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedCogroupedKStream(Spelled):
    """Cogrouped streams in windows. Keys of the table are ``Windowed`` (key, start and end in ms)."""

    cogrouped: CogroupedKStream
    windows: AnyWindows

    def aggregate(
        self,
        initializer: Initializer,
        merger: Merger | None = None,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of the aggregates of each window, from ``initializer()``; ``key`` and ``value`` are its serdes.

        Raises:
            TopologyError: sessions without ``merger(key, first, second)``, or a merger for other windows.
        """
        from tidemill.dsl.windowed import windowed_process  # windows of one stream and of several make the same processors

        initializer = python_function(initializer, (), "aggregate: initializer")
        sessions = self.windows if isinstance(self.windows, SessionWindows) else None
        if (merger is None) == (sessions is not None):
            what = "sessions need a merger(key, first, second)" if sessions else "a merger is for sessions only"
            raise TopologyError(f"aggregate: {what}; {'give one' if sessions else 'leave it out'}")
        if merger is not None:
            merger = python_function(merger, ("key", "first", "second"), "aggregate: merger")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = window_store_of(self.cogrouped.recorder, asked, _AGGREGATE, self.windows)

        def effect(aggregator: AggregatorFunction) -> Process:
            return windowed_process(kept, self.windows, op.Aggregating(initializer, aggregator, merger))

        return self.cogrouped.into_table(effect, kept, name, queryable=queryable_name(asked))

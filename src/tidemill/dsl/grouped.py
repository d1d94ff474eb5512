"""KGroupedStream: a stream whose records are grouped by key, to be counted, reduced or aggregated into a table.

Decides the order in which names are taken (store, then operator, then repartition) and when a repartition is shared. Windows
are in ``windowed``, several streams into one table in ``cogroup``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import overload

from tidemill.dsl.arguments import function_of, python_function
from tidemill.dsl.cogroup import CogroupedKStream
from tidemill.dsl.function_types import AggregatorFunction, Initializer, Reducer
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of
from tidemill.dsl.recorder import Recorder, repartition_node
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.table import KTable
from tidemill.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.functions import OfColumns
from tidemill.topology.logical import LogicalNode, Process
from tidemill.topology.nodes import Store
from tidemill.topology.operations import Aggregate, Count, Operation, Reduce
from tidemill.topology.values import Serde
from tidemill.topology.windows import AnyWindows, SessionWindows, SlidingWindows, Windows, checked_windows


@dataclass(frozen=True, slots=True, kw_only=True)
class KGroupedStream(Spelled):
    """A stream grouped by key, to be aggregated (org.apache.kafka.streams.kstream.KGroupedStream).

    ``group_name`` names the repartition topic, which there is only if keys were changed since the source. Each method gives a
    ``KTable`` of the group's keys. Records with a null key or a null value are dropped and counted as dropped.

    Raises:
        TopologyError: from every method, for a function with other arguments than it is called with, or a store or name that a
            topic can't have.
    """

    recorder: Recorder = field(repr=False)
    node: int
    group_name: str | None
    sources: frozenset[str]
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    repartition_required: bool = False
    shared_repartition: list[int] = field(default_factory=list)
    """The repartition of a named group, once it is made: all aggregations of the group share it."""

    def count(self, *, store: str | Materialized | None = None, name: str | None = None) -> KTable:
        """The number of records of each key (``count()``). Values are longs (bigint); the timestamp is the latest of the records
        counted.

        ``store`` names the store, under which it can be read; without it the counts are kept under a generated name.
        """
        asked = materialized(store, "count")
        if asked is not None and asked.name is None:
            self.recorder.take_index()  # Kafka Streams takes two indexes for a store that is described but not named
        kept = store_of(self.recorder, asked, "KSTREAM-AGGREGATE-", key=self.key_serde, value=Serdes.long())
        return self._aggregated("KSTREAM-AGGREGATE-", Count(kept.name), kept, asked, name)

    def reduce(
        self, reducer: Reducer | OfColumns, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """``reducer(aggregate, value)`` over the values of each key; the first value is the first aggregate
        (``reduce(Reducer)``).

        Called with Python values, gives one of the same type and serde as the stream's; of a PySpark UDF the function inside is
        taken. Null keys and values are dropped; a null result deletes the key. An exception stops the stream thread, with topic
        and offset.
        """
        if isinstance(reducer, OfColumns):
            function_of(reducer.function, ("aggregate", "value"), "reduce")
        else:
            reducer = python_function(reducer, ("aggregate", "value"), "reduce")
        asked = materialized(store, "reduce")
        if isinstance(reducer, OfColumns) and asked is not None and asked.history_retention is not None:
            raise TopologyError("reduce: a versioned store needs each value, not their merge: give a plain Python function")
        kept = store_of(self.recorder, asked, "KSTREAM-REDUCE-", key=self.key_serde, value=self.value_serde)
        return self._aggregated("KSTREAM-REDUCE-", Reduce(kept.name, reducer), kept, asked, name)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: AggregatorFunction,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """``aggregator(key, value, aggregate)`` over the values of each key, from ``initializer()`` (``aggregate(...)``).

        ``value`` is the serde of the aggregate, which may be of another type than the values; without it the default serde holds,
        or that of ``per_record`` or ``Aggregators``. ``key`` is that of the keys, where it is not the group's. Called with Python
        values; UDFs, nulls and exceptions as in ``reduce``.
        It may change the aggregate in place and return it.
        """
        given = value_serde_of(aggregator)
        initializer = python_function(initializer, (), "aggregate: initializer")
        aggregator = python_function(aggregator, ("key", "value", "aggregate"), "aggregate: aggregator")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = store_of(self.recorder, asked, "KSTREAM-AGGREGATE-", key=self.key_serde, value=given)
        operation = Aggregate(kept.name, initializer, aggregator)
        return self._aggregated("KSTREAM-AGGREGATE-", operation, kept, asked, name)

    @overload
    def windowed_by(self, windows: Windows | SlidingWindows) -> TimeWindowedKStream: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...

    def windowed_by(self, windows: AnyWindows) -> TimeWindowedKStream | SessionWindowedKStream:
        """The group cut into windows of time, to be aggregated in each (``windowedBy``).

        ``TimeWindows`` (tumbling, hopping), ``UnlimitedWindows``, ``SlidingWindows`` and windows of your own, which derive from
        ``Windows``, give a ``TimeWindowedKStream``, ``SessionWindows`` a ``SessionWindowedKStream``. Keys of the results are
        ``Windowed``: key, start and end in ms.

        Raises:
            TopologyError: for what are no windows.
        """
        windows = checked_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(grouped=self, windows=windows)
        return TimeWindowedKStream(grouped=self, windows=windows)

    def cogroup(self, aggregator: AggregatorFunction) -> CogroupedKStream:
        """Begins an aggregate of several grouped streams, of which this one goes in with ``aggregator(key, value, aggregate)``
        (KIP-150).
        """
        return CogroupedKStream(recorder=self.recorder).cogroup(self, aggregator)

    def _aggregated(
        self, prefix: str, operation: Operation, kept: Store, asked: Materialized | None, name: str | None
    ) -> KTable:
        effect = Process(operation=operation, store=kept, key_serde=kept.key_serde, value_serde=kept.value_serde)
        return self.into_table(
            self.recorder.node_name(prefix, name), effect, kept, queryable=queryable_name(asked),
        )

    def into_table(self, made: str, effect: Process, kept: Store, *, queryable: str | None) -> KTable:
        """The table that an aggregation of this group makes, below its repartition if one is needed."""
        parent, sources = self.node, self.sources
        if self.repartition_required:
            parent = self._repartitioned(kept.name)
            sources = frozenset({self.recorder.graph.nodes[parent].name})
        node = self.recorder.add(LogicalNode(name=made, effect=effect), parent)
        return KTable(
            recorder=self.recorder, node=node, name=made, sources=sources, key_serde=effect.key_serde,
            value_serde=effect.value_serde, store_name=queryable,
        )

    def _repartitioned(self, store: str) -> int:
        prefix = store if self.group_name is None else self.group_name
        through = repartition_node(
            self.recorder, prefix, key=self.key_serde, value=self.value_serde, mergeable=True
        )
        if self.group_name is not None and self.shared_repartition:
            self.recorder.add_again(self.shared_repartition[0])
            return self.shared_repartition[0]
        made = self.recorder.add(through, self.node)
        if self.group_name is not None:
            self.shared_repartition.append(made)
        return made

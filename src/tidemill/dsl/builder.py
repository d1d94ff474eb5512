"""StreamsBuilder: the entry point of a program. Building has no side effect; functions of Columns are looked at (``columns``).

Decides how topics become streams and tables. Leaves merging of sources and every other rewrite to
``tidemill.topology``: ``build`` gives a value and can be called again with other optimisations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from tidemill.columns.functions import column_functions
from tidemill.dsl.arguments import (
    offset_reset_or_none,
    pattern_text,
    serde_or_none,
    supplier_of,
    timestamp_extractor_or_none,
    topic_names,
)
from tidemill.dsl.function_types import TimestampExtractor
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of
from tidemill.dsl.recorder import Recorder
from tidemill.dsl.stores import checked_store
from tidemill.dsl.stream import KStream
from tidemill.dsl.table import GlobalKTable, KTable
from tidemill.errors import TopologyError
from tidemill.operators.processors import ProcessorSupplier
from tidemill.spellings import Spelled
from tidemill.topology.logical import GlobalSource, KTableSource, LogicalNode, StateStore, StreamSource
from tidemill.topology.lowering import lower
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store, StoreKind, Topology
from tidemill.topology.optimization import optimizations, optimized, processors_below_merged_repartition
from tidemill.topology.values import Serde


class StreamsBuilder(Spelled):
    """Builds a topology from streams and tables (org.apache.kafka.streams.StreamsBuilder). Nothing is read meanwhile.

    Names that are not given are numbered as in Kafka Streams, so that topics and stores have the same names. ``key`` and
    ``value`` are serdes; without them ``default.key.serde`` and ``default.value.serde`` hold.

    Raises:
        TopologyError: from every method, for an illegal name or topic, what is no serde, or a function with other arguments than
            it is called with.
    """

    def __init__(self) -> None:
        self._recorder = Recorder()

    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
        offset_reset: str | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> KStream:
        """A stream of one topic, of several, or of all that match a pattern (a compiled one, without flags).

        ``offset_reset`` (earliest, latest, none, by_duration:PT1H): where to begin without a committed offset, if not as
        configured.
        ``timestamp_extractor(record, partition_time)`` gives the time of each record in ms, with Python values; below 0 the
        record is dropped. It may be the name of one of Kafka Streams' classes, ``"WallclockTimestampExtractor"``.
        """
        key, value = serde_or_none(key, "stream: key"), serde_or_none(value, "stream: value")
        pattern = pattern_text(topics) if isinstance(topics, re.Pattern) else None
        source = StreamSource(
            topics=() if isinstance(topics, re.Pattern) else topic_names(topics, "stream"), pattern=pattern,
            key_serde=key, value_serde=value, offset_reset=offset_reset_or_none(offset_reset),
            timestamp_extractor=timestamp_extractor_or_none(timestamp_extractor, "stream"),
        )
        made = self._recorder.node_name("KSTREAM-SOURCE-", name)
        node = self._recorder.add(LogicalNode(name=made, effect=source))
        return KStream(
            recorder=self._recorder, node=node, name=made, key_serde=key, value_serde=value, sources=frozenset({made})
        )

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        offset_reset: str | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> KTable:
        """A table of the latest value of each key of a topic; a null value deletes, null keys are dropped and counted.

        It is kept in a store only if ``store`` names one, or if a later operator needs it. Other arguments as of ``stream``.
        """
        source_topic = legal_name(topic, "a topic")
        asked = materialized(store, "table", key=key, value=value)
        kept = store_of(self._recorder, asked, f"{source_topic}-")
        queryable = queryable_name(asked)
        source_name = self._recorder.node_name("KSTREAM-SOURCE-", name, suffix="-source")
        made = self._recorder.node_name("KTABLE-SOURCE-", name)
        node = self._recorder.add(LogicalNode(name=made, effect=KTableSource(
            topic=source_topic, source_name=source_name, store=kept, materialized=queryable is not None,
            offset_reset=offset_reset_or_none(offset_reset),
            timestamp_extractor=timestamp_extractor_or_none(timestamp_extractor, "table"),
        )))
        return KTable(
            recorder=self._recorder, node=node, name=made, key_serde=kept.key_serde, value_serde=kept.value_serde,
            sources=frozenset({source_name}), store_name=queryable,
        )

    def global_table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> GlobalKTable:
        """A table that every instance has all of: streams are joined with it by any key, with no repartition.

        Every stream thread reads the whole topic at its start and keeps it in memory. As in Kafka Streams ``timestamp_extractor``
        is not called: rows have the times of their records.

        Raises:
            TopologyError: ``store`` has a history (a versioned store), which a global table can't have.
        """
        source_topic = legal_name(topic, "a topic")
        asked = materialized(store, "global_table", key=key, value=value)
        kept = store_of(self._recorder, asked, f"{source_topic}-")
        if kept.kind is StoreKind.VERSIONED:
            raise TopologyError("global_table: a global table has no history; leave history_retention out")
        timestamp_extractor_or_none(timestamp_extractor, "global_table")
        self._add_global(kept, source_topic, None, name)
        return GlobalKTable(
            recorder=self._recorder, store=kept.name, key_serde=kept.key_serde, value_serde=kept.value_serde,
            store_name=queryable_name(asked),
        )

    def add_state_store(self, store: Store) -> StreamsBuilder:
        """Adds a store for processors, which name it: ``Stores.key_value_store(name, key=..., value=...)`` and others. Gives the
        builder.
        """
        kept = checked_store(store, "add_state_store")
        self._recorder.add(LogicalNode(name=kept.name, effect=StateStore(store=kept)))
        return self

    def add_global_store(
        self,
        store: Store,
        topic: str,
        supplier: ProcessorSupplier,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
        timestamp_extractor: TimestampExtractor | str | None = None,
    ) -> StreamsBuilder:
        """Adds a store that every instance fills from all of ``topic``, with the processor that ``supplier()`` makes. Gives the
        builder.

        All processors can read it without naming it. ``key`` and ``value``: serdes of the topic, if not the store's.
        ``timestamp_extractor`` is not called, as in Kafka Streams.
        """
        kept = checked_store(store, "add_global_store")
        source_topic = legal_name(topic, "a topic")
        supplier_of(supplier, "add_global_store")
        timestamp_extractor_or_none(timestamp_extractor, "add_global_store")
        self._add_global(
            kept, source_topic, supplier, name,
            key=serde_or_none(key, "add_global_store: key"), value=serde_or_none(value, "add_global_store: value"),
        )
        return self

    def _add_global(
        self,
        store: Store,
        topic: str,
        supplier: ProcessorSupplier | None,
        name: str | None,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
    ) -> None:
        source_name = self._recorder.node_name("KSTREAM-SOURCE-", name, suffix="-source")
        made = self._recorder.node_name("KTABLE-SOURCE-", name)
        self._recorder.add(LogicalNode(name=made, effect=GlobalSource(
            topic=topic, source_name=source_name, store=store, supplier=supplier, key_serde=key or store.key_serde,
            value_serde=value or store.value_serde,
        )))

    def build(self, *, optimization: str | Iterable[str] = "none") -> Topology:
        """The topology, optimised as ``topology.optimization`` says: none, all, or the names of optimisations. May be called
        again.

        Functions of Columns are called once, with Columns that need no Spark: one that takes them for values is refused here.

        Raises:
            TopologyError: the program can't run as written; the message names the nodes and what to change.
            ColumnMistakeError: a function of Columns takes one for a record's value; with file and line.
        """
        graph = optimized(self._recorder.graph, optimizations(optimization))
        topology = replace(
            lower(graph), generated_names=self._recorder.generated_names,
            processors_below_merged_repartition=processors_below_merged_repartition(self._recorder.graph, graph),
        )
        if any(column_functions(topology)):
            from tidemill.columns.check import check_column_functions  # loads PySpark, which other programs need not

            check_column_functions(topology)
        return topology

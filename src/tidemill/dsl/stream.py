"""KStream: a stream of records, each an event of its own.

Decides the name, the serdes and the need to repartition of each operator's result, as Kafka Streams does. Functions
get and return PySpark Columns unless they are wrapped in ``per_record`` or an operator says otherwise; nothing here calls
them. Joins are made in ``stream_joins``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from tidemill.dsl.arguments import function_of, place_of_call, python_function, serde_or_none, supplier_of
from tidemill.dsl.batch_functions import filter_by, flat_map_by, flat_map_values_by, look_by, map_by, map_values_by, select_key_by
from tidemill.dsl.branches import BranchedKStream
from tidemill.dsl.dataframe_join import dataframe_join
from tidemill.dsl.function_types import (
    ColumnJoiner,
    ColumnJoinerWithKey,
    ForeachAction,
    ForeachBatchFunction,
    FrameSource,
    KeySelector,
    KeyValueMapper,
    Predicate,
    StreamJoiner,
    TopicNameExtractor,
    ValueMapper,
    ValueMapperWithKey,
)
from tidemill.dsl.functions import key_serde_of, pair_serdes_of, value_serde_of
from tidemill.dsl.grouped import KGroupedStream
from tidemill.dsl.joined import Joined, StreamJoined
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of
from tidemill.dsl.recorder import Recorder, repartition_node
from tidemill.dsl.stores import checked_store
from tidemill.dsl.stream_joins import INNER, LEFT, OUTER, join_with
from tidemill.dsl.table import GlobalKTable, KTable
from tidemill.errors import TopologyError
from tidemill.operators.processors import ProcessorSupplier
from tidemill.printable import repr_of
from tidemill.spellings import Spelled
from tidemill.topology import operations as op
from tidemill.topology.batch_operations import BatchFunction
from tidemill.topology.durations import Duration
from tidemill.topology.logical import LogicalNode, Process, Sink
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store
from tidemill.topology.partitioning import StreamPartitioner
from tidemill.topology.spark_operations import ForeachBatch
from tidemill.topology.values import Serde
from tidemill.topology.windows import JoinWindows


@dataclass(frozen=True, slots=True, kw_only=True)
class KStream(Spelled):
    """A stream of records, each an event of its own (org.apache.kafka.streams.kstream.KStream).

    Each method adds an operator and returns what comes out of it; nothing is read or called while a program is written. Functions
    get PySpark Columns of the serdes' Spark types and give Columns, or Python values where they are wrapped in ``per_record`` or
    the method says so; one of a value gets the key too if it takes two arguments. What an operator changes has no serde until one
    is given, else serdes stay. ``name`` names the operator, as ``Named`` does. ``repartition_required``: the key was changed and
    records are not yet where their new keys belong. ``sources``: the source nodes whose topics must be copartitioned with what
    the stream is joined with.

    Raises:
        TopologyError: from every method, for a function with other arguments than it is called with, a name or topic that Kafka
            would refuse, what is no serde, or a stream of another builder.
    """

    recorder: Recorder = field(repr=False)
    node: int
    name: str
    sources: frozenset[str]
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    repartition_required: bool = False
    join_repartition: list[int] = field(default_factory=list)
    """The repartition of a join that gave it no name, once it is made: later ones of this very stream share it."""

    # --- one record in, any number out ---

    def map(self, function: KeyValueMapper[tuple[object, object]] | BatchFunction, *, name: str | None = None) -> KStream:
        """Each record becomes ``function(key, value) -> (key, value)``, a pair. An aggregate or join below goes through a
        repartition topic.
        """
        operation, (key, value) = map_by(function), pair_serdes_of(function)
        return self._rekeyed("KSTREAM-MAP-", operation, name, key=key, value=value)

    @overload
    def map_values(self, function: ValueMapper, *, name: str | None = None) -> KStream: ...
    @overload
    def map_values(self, function: ValueMapperWithKey, *, name: str | None = None) -> KStream: ...
    @overload
    def map_values(self, function: BatchFunction, *, name: str | None = None) -> KStream: ...

    def map_values(self, function: ValueMapper | ValueMapperWithKey | BatchFunction, *, name: str | None = None) -> KStream:
        """Each value becomes ``function(value)`` or ``function(key, value)``; keys stay, so no repartition follows. Null values
        too.
        """
        operation = map_values_by(function)
        return self._revalued("KSTREAM-MAPVALUES-", operation, name, value_serde_of(function))

    def flat_map(self, function: KeyValueMapper[object] | BatchFunction, *, name: str | None = None) -> KStream:
        """Each record becomes the records of ``function(key, value) -> array of struct(key, value)``; of Python values pairs.

        A null or empty array gives none. An aggregate or join below goes through a repartition topic.
        """
        operation, (key, value) = flat_map_by(function), pair_serdes_of(function)
        return self._rekeyed("KSTREAM-FLATMAP-", operation, name, key=key, value=value)

    @overload
    def flat_map_values(self, function: ValueMapper, *, name: str | None = None) -> KStream: ...
    @overload
    def flat_map_values(self, function: ValueMapperWithKey, *, name: str | None = None) -> KStream: ...
    @overload
    def flat_map_values(self, function: BatchFunction, *, name: str | None = None) -> KStream: ...

    def flat_map_values(
        self, function: ValueMapper | ValueMapperWithKey | BatchFunction, *, name: str | None = None
    ) -> KStream:
        """Each value becomes the values of ``function(value)`` or ``function(key, value) -> array``; keys stay. A null or empty
        array gives none.
        """
        operation = flat_map_values_by(function)
        return self._revalued("KSTREAM-FLATMAPVALUES-", operation, name, value_serde_of(function))

    def filter(self, predicate: Predicate | BatchFunction, *, name: str | None = None) -> KStream:
        """Keeps the records for which ``predicate(key, value)``, a boolean, is true; null counts as false."""
        return self._same("KSTREAM-FILTER-", filter_by(predicate, "filter", negate=False), name)

    def filter_not(self, predicate: Predicate | BatchFunction, *, name: str | None = None) -> KStream:
        """Drops the records for which ``predicate(key, value)``, a boolean, is true; null counts as false."""
        return self._same("KSTREAM-FILTER-", filter_by(predicate, "filter_not", negate=True), name)

    def select_key(self, function: KeyValueMapper[object] | BatchFunction, *, name: str | None = None) -> KStream:
        """Each key becomes ``function(key, value)``; values stay. An aggregate or join below goes through a repartition topic."""
        operation, key = select_key_by(function), key_serde_of(function)
        return self._rekeyed("KSTREAM-KEY-SELECT-", operation, name, key=key, value=self.value_serde)

    def peek(self, function: ForeachAction | BatchFunction, *, name: str | None = None) -> KStream:
        """Calls ``function(key, value)`` with each record's Python values and passes the record on.

        It is called before the batch is committed, so again for a batch that is lost. An exception stops the stream thread.
        """
        return self._same("KSTREAM-PEEK-", look_by(function, "peek", op.Peek), name)

    # --- ends ---

    def foreach(self, function: ForeachAction | BatchFunction, *, name: str | None = None) -> None:
        """Calls ``function(key, value)`` with each record's Python values; the stream ends here, nothing is given back. Called
        again and failing as in ``peek``.
        """
        self._same("KSTREAM-FOREACH-", look_by(function, "foreach", op.Foreach), name)

    def foreach_batch(self, function: ForeachBatchFunction, *, name: str | None = None) -> None:
        """Calls ``function(dataframe, batch_id)`` in the driver with what each micro-batch brings; the stream ends here.

        The Spark DataFrame (key, value, timestamp, headers, topic, partition, offset) is good until the function returns. It
        is called before the batch is committed: at least once, and ``BatchId`` identifies records that are passed again
        (docs/dataframes.md). Not called for a batch that brings nothing; an exception ends the stream thread.
        """
        function_of(function, ("dataframe", "batch_id"), "foreach_batch")
        self._same("KSTREAM-FOREACH-", ForeachBatch(function), name)

    def print(self, label: str | None = None, *, name: str | None = None) -> None:
        """Prints ``[label]: key, value`` for each record (label: the name of the node above); the stream ends here."""
        if label is not None and not isinstance(label, str):
            raise TopologyError(f"print: label: expected text, got {repr_of(label)}; foreach with a function prints as you like")
        self._same("KSTREAM-PRINTER-", op.Print(self.name if label is None else label), name)

    def to(
        self,
        topic: str | TopicNameExtractor,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Writes a topic, with these serdes or else with what is known of the stream's. Timestamps and headers are the records'.
        Gives nothing, as in Kafka Streams: for two topics call it twice on the stream.

        The topic must exist. Instead of a topic a function ``(key, value, record)`` may name that of each record.
        ``partitioner(topic, key, value, partitions)`` gives the record's partition, or a set of them; an empty set drops the
        record. Where it gives None, as without one, it is murmur2 of the key's bytes, of a windowed key those of the key within.
        Both functions get Python values.
        """
        target, extractor = "", None
        if callable(topic):
            extractor = python_function(topic, ("key", "value", "record"), "to: topic")
        else:
            target = legal_name(topic, "a topic")
        if partitioner is not None:
            partitioner = python_function(partitioner, ("topic", "key", "value", "partitions"), "to: partitioner")
        key, value = serde_or_none(key, "to: key"), serde_or_none(value, "to: value")
        made = self.recorder.node_name("KSTREAM-SINK-", name)
        self.recorder.add(LogicalNode(name=made, effect=Sink(
            topic=target, key_serde=key or self.key_serde, value_serde=value or self.value_serde,
            topic_extractor=extractor, partitioner=partitioner, written_at=place_of_call(),
        )), self.node)

    # --- processors ---

    def process(
        self,
        supplier: ProcessorSupplier,
        *stores: str | Store,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KStream:
        """Each record goes to ``process(record)`` of the object that ``supplier()`` makes, which forwards what it likes (KIP-478,
        KIP-820).

        It may have ``init(context)`` and ``close()``, and use ``stores``: names of stores that were added, or new ones of
        ``Stores``. ``key`` and ``value`` are the serdes of what it forwards; keys may have changed. An exception stops the stream
        thread, with the node, the topic and the offset.
        """
        key, value = serde_or_none(key, "process: key"), serde_or_none(value, "process: value")
        operation = op.ProcessRecords(supplier)
        processed = self._processed("KSTREAM-PROCESSOR-", operation, stores, name, key=key, value=value)
        return replace(self._at(*processed, key=key, value=value), repartition_required=True)

    def process_values(
        self, supplier: ProcessorSupplier, *stores: str | Store, value: Serde | None = None, name: str | None = None
    ) -> KStream:
        """Like ``process``, for processors that keep the key of the record: no repartition follows. Forwarding another key is
        an error.
        """
        value = serde_or_none(value, "process_values: value")
        operation = op.ProcessRecords(supplier, fixed_key=True)
        processed = self._processed("KSTREAM-PROCESSVALUES-", operation, stores, name, key=self.key_serde, value=value)
        return self._at(*processed, key=self.key_serde, value=value)

    def _processed(
        self, prefix: str, operation: op.ProcessRecords, stores: tuple[str | Store, ...], name: str | None, *,
        key: Serde | None, value: Serde | None,
    ) -> tuple[int, str]:  # fmt: skip
        operator = "process_values" if operation.fixed_key else "process"
        supplier_of(operation.supplier, operator)
        made = self.recorder.node_name(prefix, None) if name is None else legal_name(name, "an operator")
        brought = tuple(checked_store(store, operator) for store in stores if not isinstance(store, str))
        names = tuple(store if isinstance(store, str) else store.name for store in stores)
        effect = Process(
            operation=replace(operation, stores=names), more_stores=brought, uses=names, key_serde=key, value_serde=value,
        )
        # Kafka Streams moves a repartition above any processor (KAFKA-19668), and would write there what is of another type.
        is_converted = value is not None and self.value_serde is not None and value != self.value_serde
        return self.recorder.add(LogicalNode(name=made, effect=effect, changes_value=is_converted), self.node), made

    # --- joins: joiners get Python values, or Columns ---

    @overload
    def join(
        self, other: KStream, joiner: StreamJoiner, windows: JoinWindows, *, joined: StreamJoined | None = None,
        name: str | None = None,
    ) -> KStream: ...
    @overload
    def join(self, other: KTable, joiner: StreamJoiner, *, joined: Joined | None = None, name: str | None = None) -> KStream: ...
    @overload
    def join(self, other: GlobalKTable, joiner: StreamJoiner, *, selector: KeySelector, name: str | None = None) -> KStream: ...

    def join(
        self, other: KStream | KTable | GlobalKTable, joiner: StreamJoiner, windows: JoinWindows | None = None, *,
        selector: KeySelector | None = None, joined: StreamJoined | Joined | None = None, name: str | None = None,
    ) -> KStream:
        """``joiner(left, right)`` or ``joiner(key, left, right)`` of each record and what it finds on the other side; with Python
        values, or with Columns where it is ``of_columns(joiner)``.

        Of a stream: the records of the same key in ``windows``; the result has the later timestamp. Of a table: the row of the
        record's key. Of a global table: the row of the key ``selector(key, value)``, which a joiner ``(key, selected, left,
        right)`` gets as well (KIP-1340). ``joined``: serdes and more, ``StreamJoined`` for streams, ``Joined`` for tables.
        Streams and tables are joined by key, so their topics must have equally many partitions; the group's leader refuses
        others. Null values, and null keys, are dropped and counted.
        """
        return join_with(self, INNER, other, joiner, windows, selector, joined, name)

    @overload
    def left_join(
        self, other: KStream, joiner: StreamJoiner, windows: JoinWindows, *, joined: StreamJoined | None = None,
        name: str | None = None,
    ) -> KStream: ...
    @overload
    def left_join(
        self, other: KTable, joiner: StreamJoiner, *, joined: Joined | None = None, name: str | None = None
    ) -> KStream: ...
    @overload
    def left_join(
        self, other: GlobalKTable, joiner: StreamJoiner, *, selector: KeySelector, name: str | None = None
    ) -> KStream: ...

    def left_join(
        self, other: KStream | KTable | GlobalKTable, joiner: StreamJoiner, windows: JoinWindows | None = None, *,
        selector: KeySelector | None = None, joined: StreamJoined | Joined | None = None, name: str | None = None,
    ) -> KStream:
        """Like ``join``, also for records without a match: ``joiner(left, None)``, with a null Column. Stream-stream joins emit
        them when the window and its grace are over (KIP-633), those with a null key at once (KIP-962).
        """
        return join_with(self, LEFT, other, joiner, windows, selector, joined, name)

    def outer_join(
        self, other: KStream, joiner: StreamJoiner, windows: JoinWindows | None = None, *,
        joined: StreamJoined | None = None, name: str | None = None,
    ) -> KStream:
        """Like ``left_join``, also for records of the other stream without a match: ``joiner(None, right)``. Only for streams."""
        return join_with(self, OUTER, other, joiner, windows, None, joined, name)

    def join_dataframe(
        self,
        frame: FrameSource,
        joiner: ColumnJoiner | ColumnJoinerWithKey | None = None,
        *,
        on: str | Sequence[str],
        selector: KeyValueMapper[object] | None = None,
        how: str = "inner",
        refresh_interval: Duration | None = None,
        name: str | None = None,
    ) -> KStream:
        """Each record with the rows of a static Spark DataFrame whose columns ``on`` equal ``selector(key, value)`` (without
        one: the key); several rows make several records, in no order. ``how``: inner, or left, where ``row`` is null if there
        is none.

        ``frame`` is a DataFrame, or a function that makes one of the application's session at each refresh. ``joiner(value,
        row)`` or ``joiner(key, value, row)`` gives the new value; without one a struct of ``value`` and ``row``. All functions
        get Columns. The frame is read again each ``refresh_interval`` (ms or timedelta, 1 s or more; None: only at the start); a
        record that is processed again may see other rows (docs/dataframes.md).
        """
        operation = dataframe_join(frame, joiner, on, selector, how, refresh_interval)
        return self._revalued("KSTREAM-LEFTJOIN-" if operation.left else "KSTREAM-JOIN-", operation, name, None)

    # --- several streams ---

    def merge(self, other: KStream, *, name: str | None = None) -> KStream:
        """The records of both streams; between them there is no order. Serdes stay known where both have the same."""
        if not isinstance(other, KStream):
            raise TopologyError(f"merge: expected a stream, got {other!r}")
        if other.recorder is not self.recorder:
            raise TopologyError("merge: the other stream belongs to another StreamsBuilder; build both with one")
        made = self.recorder.node_name("KSTREAM-MERGE-", name)
        key = self.key_serde if self.key_serde == other.key_serde else None
        value = self.value_serde if self.value_serde == other.value_serde else None
        effect = Process(operation=op.PassThrough(), key_serde=key, value_serde=value)
        node = self.recorder.add(LogicalNode(name=made, effect=effect, merges=True), self.node, other.node)
        return KStream(
            recorder=self.recorder, node=node, name=made, key_serde=key, value_serde=value,
            sources=self.sources | other.sources,
            repartition_required=self.repartition_required or other.repartition_required,
        )

    def split(self, *, name: str | None = None) -> BranchedKStream[KStream]:
        """Sends each record to the first branch whose predicate it satisfies; go on with ``.branch(...)`` (KIP-418)."""
        made = self.recorder.node_name("KSTREAM-BRANCH-", name)
        effect = Process(operation=op.Branch((), ()), key_serde=self.key_serde, value_serde=self.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return BranchedKStream(recorder=self.recorder, node=node, name=made, stream_at=self._at)

    # --- through topics, into tables ---

    def repartition(
        self,
        *,
        name: str | None = None,
        partitions: int | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        partitioner: StreamPartitioner | None = None,
    ) -> KStream:
        """Sends the stream through an internal topic, of ``partitions`` partitions or as many as its sources have (KIP-221).

        Records with a null key are dropped, unless a left or outer join follows. ``partitioner`` as in ``to``. With a
        ``name`` the topic is ``<application.id>-<name>-repartition``.

        Raises:
            TopologyError: ``partitions`` is no whole number from 1 on.
        """
        if partitions is not None and (not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1):
            raise TopologyError(f"repartition: partitions must be a whole number from 1 on, got {partitions!r}")
        key = serde_or_none(key, "repartition: key") or self.key_serde
        value = serde_or_none(value, "repartition: value") or self.value_serde
        if partitioner is not None:
            partitioner = python_function(partitioner, ("topic", "key", "value", "partitions"), "repartition: partitioner")
        given = None if name is None else legal_name(name, "a repartition")
        prefix = given or self.recorder.node_name("KSTREAM-REPARTITION-", None)
        made = repartition_node(
            self.recorder, prefix, key=key, value=value, partitions=partitions, partitioner=partitioner, mergeable=False
        )
        node = self.recorder.add(made, self.node)
        return KStream(
            recorder=self.recorder, node=node, name=made.name, key_serde=key, value_serde=value,
            sources=frozenset({made.name}),
        )

    def group_by(
        self, function: KeyValueMapper[object], *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Groups by ``function(key, value)``, as new keys, through a repartition topic; records with a null key are dropped on
        the way.

        ``key`` and ``value`` are the serdes of the group; without ``value`` the stream's. A ``name`` names the topic.
        """
        function_of(function, ("key", "value"), "group_by")
        rekeyed = self._rekeyed(
            "KSTREAM-KEY-SELECT-", op.SelectKey(function), name,
            key=serde_or_none(key, "group_by: key") or key_serde_of(function),
            value=serde_or_none(value, "group_by: value") or self.value_serde,
        )
        return rekeyed._grouped(name)

    def group_by_key(
        self, *, key: Serde | None = None, value: Serde | None = None, name: str | None = None
    ) -> KGroupedStream:
        """Groups by the keys as they are; goes through a repartition topic only if keys were changed before."""
        known = self._at(
            self.node, self.name,
            key=serde_or_none(key, "group_by_key: key") or self.key_serde,
            value=serde_or_none(value, "group_by_key: value") or self.value_serde,
        )
        return known._grouped(None if name is None else legal_name(name, "a group"))

    def to_table(
        self,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Reads the stream as the changes of a table; a null value deletes. Null keys are dropped and counted (KIP-523).

        ``key`` and ``value`` are the serdes of the table's store, if not the stream's.
        """
        asked = materialized(store, "to_table", key=key, value=value)
        made = self.recorder.node_name("KSTREAM-TOTABLE-", name)
        kept = store_of(self.recorder, asked, "KSTREAM-TOTABLE-", key=self.key_serde, value=self.value_serde)
        parent, sources = self.node, self.sources
        if self.repartition_required:
            through = repartition_node(
                self.recorder, made, key=kept.key_serde, value=kept.value_serde, mergeable=True
            )
            parent, sources = self.recorder.add(through, self.node), frozenset({through.name})
        queryable = queryable_name(asked)
        effect = Process(
            operation=op.TableSource(queryable), store=None if queryable is None else kept, spare_store=kept,
            key_serde=kept.key_serde, value_serde=kept.value_serde,
        )
        node = self.recorder.add(LogicalNode(name=made, effect=effect), parent)
        return KTable(
            recorder=self.recorder, node=node, name=made, sources=sources, key_serde=kept.key_serde,
            value_serde=kept.value_serde, store_name=queryable,
        )

    # --- how results are made ---

    def _at(self, node: int, name: str, *, key: Serde | None = None, value: Serde | None = None) -> KStream:
        """A stream at another place, that has to be repartitioned if this one has."""
        return KStream(
            recorder=self.recorder, node=node, name=name, key_serde=key, value_serde=value, sources=self.sources,
            repartition_required=self.repartition_required,
        )

    def _same(self, prefix: str, operation: op.Operation, name: str | None) -> KStream:
        made = self.recorder.node_name(prefix, name)
        effect = Process(operation=operation, key_serde=self.key_serde, value_serde=self.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return self._at(node, made, key=self.key_serde, value=self.value_serde)

    def _revalued(self, prefix: str, operation: op.Operation, name: str | None, value: Serde | None) -> KStream:
        made = self.recorder.node_name(prefix, name)
        effect = Process(operation=operation, key_serde=self.key_serde, value_serde=value)
        node = self.recorder.add(LogicalNode(name=made, effect=effect, changes_value=True), self.node)
        return self._at(node, made, key=self.key_serde, value=value)

    def _rekeyed(
        self, prefix: str, operation: op.Operation, name: str | None, *, key: Serde | None, value: Serde | None
    ) -> KStream:
        made = self.recorder.node_name(prefix, name)
        effect = Process(operation=operation, key_serde=key, value_serde=value)
        node = self.recorder.add(LogicalNode(name=made, effect=effect, changes_key=True), self.node)
        return replace(self._at(node, made, key=key, value=value), repartition_required=True)

    def _grouped(self, name: str | None) -> KGroupedStream:
        return KGroupedStream(
            recorder=self.recorder, node=self.node, group_name=name, key_serde=self.key_serde,
            value_serde=self.value_serde, sources=self.sources, repartition_required=self.repartition_required,
        )



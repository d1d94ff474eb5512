"""KTable: a table of the latest value of each key, as a stream of its changes; GlobalKTable: one that every instance has all
of.

Decides names, serdes and stores of its operators, as Kafka Streams does. Null values are tombstones: functions do not see
them. Joins are made in ``table_joins`` and ``foreign_key``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from tidemill.dsl.arguments import function_of, python_function, serde_or_none, supplier_of, takes_key
from tidemill.dsl.function_types import (
    ForeignKeyExtractor,
    GroupSelector,
    KeyValueMapper,
    Predicate,
    ValueJoiner,
    ValueJoinerWithKey,
    ValueMapper,
    ValueMapperWithKey,
    ValueTransformerSupplier,
)
from tidemill.dsl.functions import pair_serdes_of, value_serde_of
from tidemill.dsl.joined import TableJoined
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of
from tidemill.dsl.old_values import send_old_values, send_old_values_if_kept
from tidemill.dsl.recorder import Recorder
from tidemill.dsl.suppressed import Suppressed
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology import operations as op
from tidemill.topology.logical import LogicalNode, Process, is_versioned, window_close_of
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store, StoreKind
from tidemill.topology.values import Serde

if TYPE_CHECKING:
    from tidemill.dsl.grouped_table import KGroupedTable
    from tidemill.dsl.stream import KStream

@dataclass(frozen=True, slots=True, kw_only=True)
class KTable(Spelled):
    """A table of the latest value of each key (org.apache.kafka.streams.kstream.KTable), as a stream of its changes.

    Each method adds an operator and returns what comes out of it. A null value is a tombstone: the key is deleted; functions do
    not see it. ``filter`` and ``map_values`` get Columns (or Python values, with ``per_record``), all others Python values.
    ``store_name`` is the store that can be queried (``queryableStoreName``), None if there is none. ``sources``: the source nodes
    whose topics must be copartitioned with what the table is joined with.

    Raises:
        TopologyError: from every method, for a function with other arguments than it is called with, an illegal name, or a table
            of another builder.
    """

    recorder: Recorder = field(repr=False)
    node: int
    name: str
    sources: frozenset[str]
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    store_name: str | None = None

    # --- streams ---

    def to_stream(self, function: KeyValueMapper[object] | None = None, *, name: str | None = None) -> KStream:
        """The changes of the table, as a stream; a null value says that the key was deleted.

        With ``function(key, value)`` its results become the keys.
        """
        from tidemill.dsl.stream import KStream  # streams and tables make each other

        made = self.recorder.node_name("KTABLE-TOSTREAM-", name)
        effect = Process(operation=op.TableToStream(), key_serde=self.key_serde, value_serde=self.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        stream = KStream(
            recorder=self.recorder, node=node, name=made, key_serde=self.key_serde, value_serde=self.value_serde,
            sources=self.sources,
        )
        return stream if function is None else stream.select_key(function)

    # --- tables of the same keys ---

    def filter(
        self, predicate: Predicate, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """The rows for which ``predicate(key, value)`` is true (a boolean); what does not pass becomes a tombstone. Serdes
        stay.
        """
        function_of(predicate, ("key", "value"), "filter")
        return self._filtered(predicate, False, materialized(store, "filter"), name)

    def filter_not(
        self, predicate: Predicate, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """The rows for which ``predicate(key, value)`` is not true; what does not pass becomes a tombstone. Serdes stay."""
        function_of(predicate, ("key", "value"), "filter_not")
        return self._filtered(predicate, True, materialized(store, "filter_not"), name)

    @overload
    def map_values(
        self, function: ValueMapper, *, store: str | Materialized | None = None, value: Serde | None = None,
        name: str | None = None,
    ) -> KTable: ...
    @overload
    def map_values(
        self, function: ValueMapperWithKey, *, store: str | Materialized | None = None, value: Serde | None = None,
        name: str | None = None,
    ) -> KTable: ...

    def map_values(
        self,
        function: ValueMapper | ValueMapperWithKey,
        *,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of ``function(value)`` or ``function(key, value)``; keys stay, ``value`` is the serde of the results."""
        with_key = takes_key(function, "map_values")
        asked = materialized(store, "map_values", value=value)
        serde = value_serde_of(function)
        made, kept = self._named("KTABLE-MAPVALUES-", asked, name, value=serde)
        operation = op.TableMapValues(function, with_key, _name_of(kept), _keeps_nothing(asked, kept))
        return self._derived(made, operation, kept, asked, value=serde)

    def transform_values(
        self,
        supplier: ValueTransformerSupplier,
        *stores: str,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of ``transform(key, value)`` of the object that ``supplier()`` makes, which may use ``stores``
        (ValueTransformerWithKey).

        It gets Python values, null ones too, and may have ``init(context)`` and ``close()``. ``store`` keeps the results,
        ``value`` is their serde.
        """
        supplier_of(supplier, "transform_values")
        asked = materialized(store, "transform_values", value=value)
        kept = None
        if asked is not None and asked.name is not None:
            kept = store_of(self.recorder, asked, "KTABLE-TRANSFORMVALUES-", key=self.key_serde)
        made = self.recorder.node_name("KTABLE-TRANSFORMVALUES-", name)
        operation = op.TableTransformValues(supplier, _name_of(kept), stores, _keeps_nothing(asked, kept))
        return self._derived(made, operation, kept, asked, value=None, uses=stores)

    def suppress(self, suppressed: Suppressed) -> KTable:
        """Holds results back: ``Suppressed.until_window_closes()``, ``Suppressed.until_time_limit(wait)`` (KIP-328), or
        ``Suppressed.until_wall_clock_limit(wait)``.

        Keys, values and serdes stay; fewer changes are forwarded.

        Raises:
            TopologyError: until windows close, of a table that is not windowed; a versioned table.
        """
        if not isinstance(suppressed, Suppressed):
            raise TopologyError(
                f"suppress: expected Suppressed.until_window_closes() or .until_time_limit(wait), got {suppressed!r}"
            )
        if is_versioned(self.recorder.graph, self.node):
            raise TopologyError(
                f"suppress: the table {self.name!r} is versioned, or comes from one that is; only tables without history can"
                " be held back: keep it in a store without history_retention first"
            )
        grace = window_close_of(self.recorder.graph, self.node) if suppressed.wait_ms is None else None
        if suppressed.name is None:
            made = self.recorder.node_name("KTABLE-SUPPRESS-", None)
            buffer_name = self.recorder.store_name("KTABLE-SUPPRESS-")
        else:
            made, buffer_name = suppressed.name, f"{suppressed.name}-store"
        send_old_values(self.recorder, self.node)
        buffer = Store(
            name=buffer_name, kind=StoreKind.SUPPRESS_BUFFER, key_serde=self.key_serde, value_serde=self.value_serde,
            logged=suppressed.logged, persistent=False, caching=False, changelog_config=dict(suppressed.changelog_config),
        )
        operation = op.Suppress(
            buffer.name, grace_ms=grace, wait_ms=suppressed.wait_ms, max_records=suppressed.max_records,
            max_bytes=suppressed.max_bytes, shut_down_when_full=suppressed.shut_down_when_full,
            on_wall_clock=suppressed.on_wall_clock,
        )
        effect = Process(operation=operation, store=buffer, key_serde=self.key_serde, value_serde=self.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return self._at(node, made, self.key_serde, self.value_serde, None, sources=frozenset({self.name}))

    # --- joins ---

    def join(
        self,
        other: KTable,
        joiner: ValueJoiner | ValueJoinerWithKey,
        *,
        foreign_key: ForeignKeyExtractor | None = None,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of ``joiner(left, right)`` or ``joiner(key, left, right)`` of the rows that both tables have; with Python
        values.

        Rows of one key are joined, so both topics must be partitioned alike; with ``foreign_key(value)`` or ``foreign_key(key,
        value)`` a row is joined with the other table's row of that key (KIP-213), however they are partitioned. ``value`` is the
        serde of the results; keys are the left table's.
        """
        return self._joined("join", other, joiner, foreign_key, store, value, joined, name)

    def left_join(
        self,
        other: KTable,
        joiner: ValueJoiner | ValueJoinerWithKey,
        *,
        foreign_key: ForeignKeyExtractor | None = None,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        joined: TableJoined | None = None,
        name: str | None = None,
    ) -> KTable:
        """Like ``join``, also for rows that the other table lacks: ``joiner(left, None)``."""
        return self._joined("left_join", other, joiner, foreign_key, store, value, joined, name)

    def outer_join(
        self,
        other: KTable,
        joiner: ValueJoiner | ValueJoinerWithKey,
        *,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """Like ``left_join``, also for rows that only the other table has: ``joiner(None, right)``."""
        return self._joined("outer_join", other, joiner, None, store, value, None, name)

    def _joined(
        self, operator: str, other: KTable, joiner: ValueJoiner | ValueJoinerWithKey, foreign_key: ForeignKeyExtractor | None,
        store: str | Materialized | None, value: Serde | None, joined: TableJoined | None, name: str | None,
    ) -> KTable:
        from tidemill.dsl.table_joins import join_tables_by  # it makes tables

        asked = materialized(store, operator, value=value)
        return join_tables_by(operator, self, other, joiner, foreign_key, asked, joined, name)

    # --- groups ---

    def group_by(
        self,
        function: GroupSelector,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KGroupedTable:
        """Groups the rows by ``function(key, value) -> (key, value)``, called with Python values.

        ``key`` and ``value`` are the serdes of the pair. None, a null key or a null value leaves the row out. The rows go
        through a repartition topic, of old and new values.
        """
        from tidemill.dsl.grouped_table import KGroupedTable  # its aggregations make tables

        given_key, given_value = pair_serdes_of(function)
        function = python_function(function, ("key", "value"), "group_by")
        key = serde_or_none(key, "group_by: key") or given_key
        value = serde_or_none(value, "group_by: value") or given_value
        made = self.recorder.node_name("KTABLE-SELECT-", name)
        effect = Process(operation=op.TableSelect(function), key_serde=key, value_serde=value)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        send_old_values(self.recorder, self.node)
        group = None if name is None else legal_name(name, "a group")
        return KGroupedTable(recorder=self.recorder, node=node, group_name=group, key_serde=key, value_serde=value)

    # --- how results are made ---

    def _at(
        self, node: int, name: str, key: Serde | None, value: Serde | None, store_name: str | None,
        *, sources: frozenset[str] | None = None,
    ) -> KTable:
        return KTable(
            recorder=self.recorder, node=node, name=name, key_serde=key, value_serde=value, store_name=store_name,
            sources=self.sources if sources is None else sources,
        )

    def _filtered(
        self, predicate: Predicate, negate: bool, asked: Materialized | None, name: str | None
    ) -> KTable:
        made, kept = self._named("KTABLE-FILTER-", asked, name, value=self.value_serde)
        operation = op.TableFilter(predicate, negate, _name_of(kept), _keeps_nothing(asked, kept))
        sends_old = send_old_values_if_kept(self.recorder, self.node)  # so that needless tombstones are not sent
        return self._derived(made, operation, kept, asked, value=self.value_serde, sends_old=sends_old)

    def _named(
        self, prefix: str, asked: Materialized | None, name: str | None, *, value: Serde | None
    ) -> tuple[str, Store | None]:
        """The operator's name and its store: only a named store is kept, but an unnamed one uses up an index."""
        kept = None if asked is None else store_of(self.recorder, asked, prefix, key=self.key_serde, value=value)
        return self.recorder.node_name(prefix, name), None if queryable_name(asked) is None else kept

    def _derived(
        self, made: str, operation: op.Operation, kept: Store | None, asked: Materialized | None, *, value: Serde | None,
        sends_old: bool = False, uses: tuple[str, ...] = (),
    ) -> KTable:
        key = (asked.key if asked is not None else None) or self.key_serde
        value = (asked.value if asked is not None else None) or value
        effect = Process(
            operation=operation, store=kept, uses=uses, key_serde=key, value_serde=value, sends_old=sends_old
        )
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return self._at(node, made, key, value, None if kept is None else kept.name)


def _name_of(kept: Store | None) -> str | None:
    return None if kept is None else kept.name


def _keeps_nothing(asked: Materialized | None, kept: Store | None) -> bool:
    """True if the program has given a ``Materialized``, but no name for a store."""
    return asked is not None and kept is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalKTable(Spelled):
    """A table that every instance has all of, to join streams with by any key (org.apache.kafka.streams.kstream.GlobalKTable).

    ``store_name`` is None where the store can't be queried. It is read from its beginning at every start, before any task runs.
    """

    recorder: Recorder = field(repr=False)
    store: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    store_name: str | None = None

"""KTable: a table of the latest value of each key, as a stream of its changes.

Decides names, serdes and stores of its operators, as Kafka Streams does. Null values are tombstones: functions do not
see them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.dsl.arguments import function_of, serde_or_none, takes_key
from tidemill.dsl.materialized import Materialized, materialized, store_of
from tidemill.dsl.recorder import Recorder
from tidemill.topology import operations as op
from tidemill.topology.logical import LogicalNode, Process
from tidemill.topology.nodes import Serde, Store
from tidemill.topology.operations import UserFunction

if TYPE_CHECKING:
    from tidemill.dsl.stream import KStream


@dataclass(frozen=True, slots=True, kw_only=True)
class KTable:
    """A table: a place in the graph. ``store_name`` is the store that can be queried, None if there is none."""

    recorder: Recorder
    node: int
    name: str
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    store_name: str | None = None

    def to_stream(self, *, name: str | None = None) -> KStream:
        """The changes of the table, as a stream; a null value says that the key was deleted."""
        from tidemill.dsl.stream import KStream  # streams and tables make each other

        made = self.recorder.node_name("KTABLE-TOSTREAM-", name)
        effect = Process(operation=op.TableToStream(), key_serde=self.key_serde, value_serde=self.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return KStream(
            recorder=self.recorder, node=node, name=made, key_serde=self.key_serde, value_serde=self.value_serde
        )

    def filter(
        self, predicate: UserFunction, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """The rows for which ``predicate(key, value)`` is true; what does not pass becomes a tombstone."""
        function_of(predicate, ("key", "value"), "filter")
        return self._filtered(predicate, False, materialized(store, "filter"), name)

    def filter_not(
        self, predicate: UserFunction, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """The rows for which ``predicate(key, value)`` is not true; what does not pass becomes a tombstone."""
        function_of(predicate, ("key", "value"), "filter_not")
        return self._filtered(predicate, True, materialized(store, "filter_not"), name)

    def map_values(
        self,
        function: UserFunction,
        *,
        store: str | Materialized | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """The table of ``function(value)`` or ``function(key, value)``; ``value`` is the serde of the results."""
        with_key = takes_key(function, "map_values")
        asked = materialized(store, "map_values", value=serde_or_none(value, "map_values: value"))
        made, kept = self._named("KTABLE-MAPVALUES-", asked, name, value=None)
        operation = op.TableMapValues(function, with_key, None if kept is None else kept.name)
        return self._derived(made, operation, kept, asked, value=None)

    def _filtered(
        self, predicate: UserFunction, negate: bool, asked: Materialized | None, name: str | None
    ) -> KTable:
        made, kept = self._named("KTABLE-FILTER-", asked, name, value=self.value_serde)
        operation = op.TableFilter(predicate, negate, None if kept is None else kept.name)
        return self._derived(made, operation, kept, asked, value=self.value_serde)

    def _named(
        self, prefix: str, asked: Materialized | None, name: str | None, *, value: Serde | None
    ) -> tuple[str, Store | None]:
        """The operator's name and its store: only a named store is kept, but an unnamed one uses up an index."""
        kept = None if asked is None else store_of(self.recorder, asked, prefix, key=self.key_serde, value=value)
        queryable = asked is not None and asked.name is not None
        return self.recorder.node_name(prefix, name), kept if queryable else None

    def _derived(
        self, made: str, operation: op.Operation, kept: Store | None, asked: Materialized | None, *, value: Serde | None
    ) -> KTable:
        key = (asked.key if asked is not None else None) or self.key_serde
        value = (asked.value if asked is not None else None) or value
        effect = Process(operation=operation, store=kept, key_serde=key, value_serde=value)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), self.node)
        return KTable(
            recorder=self.recorder, node=node, name=made, key_serde=key, value_serde=value,
            store_name=None if kept is None else kept.name,
        )

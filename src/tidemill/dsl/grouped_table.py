"""KGroupedTable: a table whose rows are grouped by other keys, to be counted, reduced or aggregated into another table.

Decides the order in which names are taken (store, sink, source, operator). Each change takes the old row out of its group and
puts the new one into its own, through a repartition topic of changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.dsl.arguments import python_function
from tidemill.dsl.function_types import AggregatorFunction, Initializer, Reducer
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, store_of
from tidemill.dsl.recorder import Recorder
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_change import ChangeSerde
from tidemill.dsl.table import KTable
from tidemill.spellings import Spelled
from tidemill.topology import operations as op
from tidemill.topology.logical import LogicalNode, Process, Repartition
from tidemill.topology.naming import legal_name
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde

_STORE = "KTABLE-AGGREGATE-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KGroupedTable(Spelled):
    """A table grouped by other keys (org.apache.kafka.streams.kstream.KGroupedTable). Its aggregations get Python values.

    Rows always go through a repartition topic, which ``group_name`` names. A row that changes leaves its old group and comes into
    its new one. A group that has become empty stays, at what the subtractor made of it.

    Raises:
        TopologyError: from every method, for a function with other arguments than it is called with, or an illegal name.
    """

    recorder: Recorder = field(repr=False)
    node: int
    group_name: str | None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    shared_repartition: list[int] = field(default_factory=list)
    """The repartition of a named group, once it is made: all aggregations of the group share it."""

    def count(self, *, store: str | Materialized | None = None, name: str | None = None) -> KTable:
        """The number of rows in each group; values are longs (bigint). A group that was once there stays at 0."""
        asked = materialized(store, "count")
        kept = store_of(self.recorder, asked, _STORE, key=self.key_serde, value=Serdes.long())
        operation = op.TableAggregate(kept.name, _zero, _one_more, _one_less)
        return self._aggregated("KTABLE-AGGREGATE-", operation, kept, asked, name)

    def reduce(
        self,
        adder: Reducer,
        subtractor: Reducer,
        *,
        store: str | Materialized | None = None,
        name: str | None = None,
    ) -> KTable:
        """``adder(aggregate, value)`` of a row that comes in, ``subtractor(aggregate, value)`` of one that leaves; the serde
        stays.
        """
        adder = python_function(adder, ("aggregate", "value"), "reduce: adder")
        subtractor = python_function(subtractor, ("aggregate", "value"), "reduce: subtractor")
        asked = materialized(store, "reduce")
        kept = store_of(self.recorder, asked, _STORE, key=self.key_serde, value=self.value_serde)
        return self._aggregated("KTABLE-REDUCE-", op.TableReduce(kept.name, adder, subtractor), kept, asked, name)

    def aggregate(
        self,
        initializer: Initializer,
        adder: AggregatorFunction,
        subtractor: AggregatorFunction,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """``adder(key, value, aggregate)`` of a row that comes in, ``subtractor(key, value, aggregate)`` of one that leaves.

        They begin with ``initializer()``. ``value`` is the serde of the aggregate, ``key`` that of the keys where it is not the
        group's.
        """
        given = value_serde_of(adder)
        initializer = python_function(initializer, (), "aggregate: initializer")
        adder = python_function(adder, ("key", "value", "aggregate"), "aggregate: adder")
        subtractor = python_function(subtractor, ("key", "value", "aggregate"), "aggregate: subtractor")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = store_of(self.recorder, asked, _STORE, key=self.key_serde, value=given)
        operation = op.TableAggregate(kept.name, initializer, adder, subtractor)
        return self._aggregated("KTABLE-AGGREGATE-", operation, kept, asked, name)

    def _aggregated(
        self, prefix: str, operation: op.Operation, kept: Store, asked: Materialized | None, name: str | None
    ) -> KTable:
        sink = self.recorder.node_name("KSTREAM-SINK-", name, suffix="-sink")
        source = self.recorder.node_name("KSTREAM-SOURCE-", name, suffix="-source")
        made = self.recorder.node_name(prefix, name)
        parent = self._repartitioned(sink, source, kept)
        effect = Process(operation=operation, store=kept, key_serde=kept.key_serde, value_serde=kept.value_serde)
        node = self.recorder.add(LogicalNode(name=made, effect=effect), parent)
        return KTable(
            recorder=self.recorder, node=node, name=made, sources=frozenset({source}), key_serde=kept.key_serde,
            value_serde=kept.value_serde, store_name=queryable_name(asked),
        )

    def _repartitioned(self, sink: str, source: str, kept: Store) -> int:
        if self.group_name is not None and self.shared_repartition:
            self.recorder.add_again(self.shared_repartition[0])
            return self.shared_repartition[0]
        prefix = kept.name if self.group_name is None else self.group_name
        made = self.recorder.add(LogicalNode(name=source, effect=Repartition(
            topic=legal_name(f"{prefix}-repartition", "a repartition topic"), filter_name=None, sink_name=sink,
            key_serde=self.key_serde, value_serde=ChangeSerde(self.value_serde),
        )), self.node)
        if self.group_name is not None:
            self.shared_repartition.append(made)
        return made


def _zero() -> int:
    return 0


def _one_more(_key: object, _value: object, aggregate: int) -> int:
    return aggregate + 1


def _one_less(_key: object, _value: object, aggregate: int) -> int:
    return aggregate - 1

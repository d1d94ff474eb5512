"""Versioned tables: those with a versioned store, and those derived from them by filters and mappings without a store.

A filter or mapping with a ``Materialized`` that keeps nothing gives a table without versions. Kafka Streams decides this while a
topology is built (``enableVersionedSemantics``); here it is derived from the finished topology.
"""

from __future__ import annotations

from tidemill.operators.operation_table import TableRows, entry_of, kept_store
from tidemill.topology.nodes import ProcessorNode, StoreKind, Topology
from tidemill.topology.operations import TableFilter, TableMapValues, TableTransformValues


def drops_null_changes(topology: Topology, node: ProcessorNode) -> bool:
    """True for a table's filter that forwards no tombstone for a key that did not pass before either: it has old values and is
    not versioned (KTableFilter)."""
    is_filter = isinstance(node.operation, TableFilter) and node.sends_old
    return is_filter and not is_versioned_table(topology, topology.parents[node.name][0])


def is_versioned_table(topology: Topology, name: str) -> bool:
    """True if ``name`` forwards the changes of a versioned store."""
    node = topology.nodes[name]
    rows = entry_of(node.operation).table if isinstance(node, ProcessorNode) else None
    if not isinstance(node, ProcessorNode) or rows is None:
        return False
    store = kept_store(node.operation)
    if store is not None:
        return topology.stores[store].kind is StoreKind.VERSIONED
    derived = TableFilter | TableMapValues | TableTransformValues
    forgets = isinstance(node.operation, derived) and node.operation.forgets_versions
    return rows is TableRows.DERIVED and not forgets and is_versioned_table(topology, topology.parents[name][0])

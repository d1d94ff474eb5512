"""Which tables are versioned: those of a versioned store, and what filters and mappings without a store make of them.

A filter or mapping with a ``Materialized`` that keeps nothing ends it: what goes on is taken for a table without versions.

Kafka Streams decides it while a topology is built (``enableVersionedSemantics``); here it is read off the finished topology.
"""

from __future__ import annotations

from tidemill.operators.operation_table import TableRows, entry_of, kept_store
from tidemill.topology.nodes import ProcessorNode, StoreKind, Topology


def is_versioned_table(topology: Topology, name: str) -> bool:
    """True if the changes that ``name`` forwards are those of a versioned store."""
    node = topology.nodes[name]
    rows = entry_of(node.operation).table if isinstance(node, ProcessorNode) else None
    if not isinstance(node, ProcessorNode) or rows is None:
        return False
    store = kept_store(node.operation)
    if store is not None:
        return topology.stores[store].kind is StoreKind.VERSIONED
    forgets = getattr(node.operation, "forgets_versions", False)
    return rows is TableRows.DERIVED and not forgets and is_versioned_table(topology, topology.parents[name][0])

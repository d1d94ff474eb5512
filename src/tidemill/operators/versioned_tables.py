"""Which tables are versioned: those of a versioned store, and what filters and mappings without a store make of them.

A filter or mapping with a ``Materialized`` that keeps nothing ends it: what goes on is taken for a table without versions.

Kafka Streams decides it while a topology is built (``enableVersionedSemantics``); here it is read off the finished topology.
"""

from __future__ import annotations

from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, StoreKind, Topology

_DERIVED = (op.TableFilter, op.TableMapValues, op.TableTransformValues)
_KEPT = (
    op.TableSource, op.Count, op.Reduce, op.Aggregate, op.CogroupMerge, op.TableAggregate, op.TableReduce, op.TableJoinMerge,
)


def is_versioned_table(topology: Topology, name: str) -> bool:
    """Whether the changes that ``name`` forwards are those of a versioned store."""
    node = topology.nodes[name]
    operation = node.operation if isinstance(node, ProcessorNode) else None
    if isinstance(operation, (*_DERIVED, *_KEPT)) and operation.store is not None:
        return topology.stores[operation.store].kind is StoreKind.VERSIONED
    if not isinstance(operation, _DERIVED) or operation.forgets_versions:
        return False
    return is_versioned_table(topology, topology.parents[name][0])

"""Which nodes of the newer kinds run vectorised after all, and which of them in one step.

Decides *groups*: neighbours that could be a part (``graph_parts``), but of which every node that needs Python values has a
shortcut for whole batches (``window_count``, ``session_fold``, ``table_lookup``). A shortcut passes on the last result of a key
and a batch, as Kafka Streams' record cache does, so it is taken only where nothing below counts or keeps the updates.
"""

from __future__ import annotations

from tidemill.steps.vector.session_fold import folds_sessions
from tidemill.steps.vector.table_lookup import looks_up
from tidemill.steps.vector.window_count import counts_windows
from tidemill.topology import operations as op
from tidemill.topology.nodes import ProcessorNode, SinkNode, Topology
from tidemill.topology.spark_operations import DataFrameJoin

_PASSES_ON = (
    op.TableToStream, op.PassThrough, op.NullKeyFilter, op.Map, op.MapValues, op.FlatMap, op.FlatMapValues, op.Filter,
    op.SelectKey, op.Branch, DataFrameJoin, op.Peek, op.Foreach, op.Print,
)  # fmt: skip


def has_shortcut(topology: Topology, name: str) -> bool:
    """Whether a batch of the node's records can be handled at once."""
    node = topology.nodes[name]
    if not isinstance(node, ProcessorNode):
        return False
    operation = node.operation
    if looks_up(topology, operation) is not None:
        return True
    if not (counts_windows(operation) or folds_sessions(operation)) or node.key_serde is None:
        return False
    children = [topology.nodes[child] for child in topology.children(name)]
    is_stream_below = all(isinstance(c, ProcessorNode) and isinstance(c.operation, op.TableToStream) for c in children)
    return is_stream_below and _only_passed_on(topology, name)


def _only_passed_on(topology: Topology, name: str) -> bool:
    for child in topology.children(name):
        node = topology.nodes[child]
        if isinstance(node, SinkNode):
            if node.topic in topology.repartition_topics:
                return False
            continue
        passes = isinstance(node, ProcessorNode) and isinstance(node.operation, _PASSES_ON)
        if not passes or not _only_passed_on(topology, child):
            return False
    return True

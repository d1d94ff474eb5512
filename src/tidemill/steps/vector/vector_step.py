"""One vectorised node of a Python step on a batch: which function handles it, and in which form it gets its records.

Decides nothing about results: counts and folds are ``state_step``'s, windows and sessions ``window_count``'s and
``session_fold``'s, lookups ``table_lookup``'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tidemill.steps.rows.records import Records, in_order, to_rows
from tidemill.steps.rows.schema import in_sequence
from tidemill.steps.state_step import StepState, run_node
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.vector.session_fold import fold_sessions
from tidemill.steps.vector.table_lookup import join_with_table
from tidemill.steps.vector.window_count import count_windows
from tidemill.topology.operations import SessionAggregate, StreamTableJoin, WindowAggregate


def has_table_step(node: NodeSpec) -> bool:
    """Whether the node takes its batch as rows, not as records."""
    return isinstance(node.operation, (WindowAggregate, SessionAggregate))


def run_on_table(
    node: NodeSpec, tag: int, table: pa.Table | None, inline: Sequence[Records], state: StepState
) -> Records:
    """What the node forwards for rows that have arrived and records of nodes of the same step."""
    found = [] if table is None else [table]
    if inline:
        found.append(pa.Table.from_batches([to_rows(in_order(inline), tag, node.key_serde, node.value_serde)]))
    rows = in_sequence(pa.concat_tables(found))
    operation = node.operation
    if isinstance(operation, WindowAggregate):
        return count_windows(node, operation, rows, state)
    assert isinstance(operation, SessionAggregate)
    return fold_sessions(node, operation, rows, state)


def run_on_records(node: NodeSpec, records: Records, changes: Mapping[str, Records], state: StepState) -> Records:
    """What the node forwards for ``records``; ``changes``: what tables of this step have forwarded in this batch."""
    operation = node.operation
    if isinstance(operation, StreamTableJoin):
        assert node.lookup_store is not None
        return join_with_table(node, operation, records, changes.get(operation.table), state, node.lookup_store)
    return run_node(node, records, state)

"""Vectorised nodes of a Python step: the function for each operation, and the form of its records.

Covers every operation that the table of operations (``operators.operation_table``) runs in a step. The results are decided by
the functions: counts, folds and tables are ``key_value_nodes``', windows and sessions ``window_count``'s and ``session_fold``'s,
lookups ``table_lookup``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemill.steps.rows.order import in_sequence
from tidemill.steps.rows.records import Records, in_order, to_rows
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector import in_batches
from tidemill.steps.vector.key_value_nodes import aggregate, changed_values, count, keep_latest, reduce, with_held
from tidemill.steps.vector.record_calls import peek, print_all
from tidemill.steps.vector.session_fold import fold_sessions
from tidemill.steps.vector.table_lookup import join_with_table
from tidemill.steps.vector.window_count import count_windows
from tidemill.topology import batch_operations as batch_op
from tidemill.topology import join_operations as join_op
from tidemill.topology import operations as op
from tidemill.topology.spark_operations import ChangedValues, HeldAggregates, MergedAggregates

ON_RECORDS: Mapping[type, Callable[[NodeSpec, Any, Records, StepState], Records]] = {
    op.Count: count,
    op.Reduce: reduce,
    op.Aggregate: aggregate,
    op.TableSource: keep_latest,
    op.TableFilter: keep_latest,
    op.TableMapValues: keep_latest,
    op.Peek: peek,
    op.Foreach: peek,
    op.Print: print_all,
    join_op.StreamTableJoin: join_with_table,
    HeldAggregates: with_held,
    MergedAggregates: keep_latest,
    ChangedValues: changed_values,
}
"""Functions for operations that get their batch as records."""
ON_ROWS: Mapping[type, Callable[[NodeSpec, Any, pa.Table, StepState], Records]] = {
    op.WindowAggregate: count_windows,
    op.SessionAggregate: fold_sessions,
    batch_op.MapInBatches: in_batches.map_in_batches,
    batch_op.MapValuesInBatches: in_batches.map_values_in_batches,
    batch_op.FlatMapInBatches: in_batches.flat_map_in_batches,
    batch_op.FlatMapValuesInBatches: in_batches.flat_map_values_in_batches,
    batch_op.SelectKeyInBatches: in_batches.select_key_in_batches,
    batch_op.FilterInBatches: in_batches.filter_in_batches,
    batch_op.PeekInBatches: in_batches.peek_in_batches,
}
"""Functions for operations that get it as rows in the order of their ``seq``."""


def takes_rows(node: NodeSpec) -> bool:
    """True if the node takes its batch as rows, not as records."""
    return type(node.operation) in ON_ROWS


def run_on_rows(
    node: NodeSpec, tag: int, table: pa.Table | None, inline: Sequence[Records], state: StepState
) -> Records:
    """The records that the node forwards for rows that have arrived and records of nodes of the same step."""
    found = [] if table is None else [table]
    if inline:
        found.append(pa.Table.from_batches([to_rows(in_order(inline), tag, node.key_serde, node.value_serde)]))
    return ON_ROWS[type(node.operation)](node, node.operation, in_sequence(pa.concat_tables(found)), state)


def run_on_records(node: NodeSpec, records: Records, state: StepState) -> Records:
    """The records that the node forwards for ``records``."""
    return ON_RECORDS[type(node.operation)](node, node.operation, records, state)

"""A Python step before the last one: runs its nodes on what the stores hold, and passes everything else on.

Decides which rows wait for the end of their batch and which pass at once. Its writes to stores, and what it sends, travel to the
last step as rows, and that one applies and sends them. Invariant: the marker is the last row, so that a worker that dies
on the way leaves a batch that is seen to be cut short (rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.steps.commit.unreadable import as_unreadable
from tidemill.steps.gather import gather
from tidemill.steps.outputs import ToNode
from tidemill.steps.rows.order import first_child
from tidemill.steps.rows.records import naming, to_rows
from tidemill.steps.rows.schema import MARKER, OUTPUT, SCHEMA, with_clock
from tidemill.steps.rows.writes import outputs_as_rows, writes_as_rows
from tidemill.steps.source_step import marker_rows
from tidemill.steps.step_batch import StepBatch, run_nodes
from tidemill.steps.step_context import StepContext
from tidemill.steps.step_spec import StepSpec
from tidemill.task.batch import BatchRequest


def run_middle_step(
    request: BatchRequest, batches: Iterable[pa.RecordBatch], spec: StepSpec, context: StepContext
) -> Iterator[pa.RecordBatch]:
    """The rows for the next layer: those that have arrived for later steps, and the results of this step's nodes."""
    stores = context.open_stores(request.tasks)
    own, shared = list(spec.tags), list(spec.global_tags)
    problem = context.graphs.shared.begin(request) if shared else None
    waiting: list[pa.RecordBatch] = []
    marker: list[pa.RecordBatch] = []
    for arrived in batches:
        # Catalyst knows of some columns that they are never null; the rows that the step makes are of its own schema.
        rows = pa.RecordBatch.from_arrays(arrived.columns, schema=SCHEMA)
        nodes = rows.column("node").to_numpy()
        ends = nodes == MARKER
        # Where rows are ranked in this step (``StepSpec.ranks``), all that have an order wait, not its own alone.
        waits = (nodes >= 0) | (nodes == OUTPUT) if spec.ranks else np.isin(nodes, own)
        passes = ~(waits | ends)
        if not spec.ranks:
            passes |= np.isin(nodes, shared)  # the last step keeps global stores, too
        yield from _where(rows, passes)
        waiting += _where(rows, waits)
        marker += _where(rows, ends)
    if problem is not None or not marker:
        return  # cut short: nothing here must run, and the last step will see it
    batch = StepBatch.begin(spec, context, request, gather([*waiting, *marker]), stores)
    if spec.ranks:
        for tag in batch.tables.keys() - (spec.tags - spec.global_tags):
            yield from batch.tables[tag].to_batches()
    run_nodes(batch)
    batch.state.passed_over.letters.hand_over(batch.outputs)
    yield from _onward(batch)
    # Only now: a worker that dies on the way must leave a batch that is seen to be cut short.
    yield from marker if not batch.unreadable else [marker_rows(replace(batch.marker, partition_stats=batch.partition_stats))]


def _where(rows: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> list[pa.RecordBatch]:
    """The rows where ``mask`` is true, as one batch; none if there are none."""
    if not mask.any():
        return []
    return [rows if mask.all() else rows.take(pa.array(np.flatnonzero(mask)))]


def _onward(batch: StepBatch) -> Iterator[pa.RecordBatch]:
    """The step's results, as rows."""
    number = first_child(batch.spec.number)
    for node in batch.spec.nodes.values():
        for records in batch.outputs.take(ToNode(node.name)):
            assert node.tag is not None
            with naming(node.name):
                rows = to_rows(records, node.tag, node.out_key_serde, node.out_value_serde, number)
            yield with_clock(rows, batch.request.now_ms)
            number += len(records)
    for of_part in batch.onward:
        begin = number
        for to, records in of_part:
            first = number if records.places is None else begin
            with naming(to.node):
                rows = to_rows(records, to.tag, to.key_serde, to.value_serde, first)
            yield with_clock(rows, batch.request.now_ms)
            number += len(records)
    for unreadable in batch.unreadable:
        yield from as_unreadable(unreadable).to_batches()
    yield from outputs_as_rows(batch.outputs, batch.spec.number)
    yield from writes_as_rows(batch.state, batch.spec.stores, batch.spec.number)

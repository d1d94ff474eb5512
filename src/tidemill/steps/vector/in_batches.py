"""map_values, filter, peek and foreach by functions that get a whole batch: ``per_batch`` and ``per_record_async``.

Decides which records a function gets, that each has its result whatever the batches are, and what becomes of those that it fails
on: a function of batches is called again with halves of its batch until the record is found, which then goes to the processing
exception handler, as any other. Keys, timestamps, headers and order stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.steps.rows.records import Records, from_rows
from tidemill.steps.state_step import StepState, refuse
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.vector.async_calls import call_all
from tidemill.steps.vector.batch_columns import ResultShapeError, given, result_values, side_array, truths
from tidemill.topology.batch_operations import (
    BatchFunction,
    FilterInBatches,
    MapValuesInBatches,
    PeekInBatches,
    PerBatch,
)


@dataclass(frozen=True, slots=True)
class _Failed:
    """In place of a result."""

    problem: Exception


def map_in_batches(node: NodeSpec, operation: MapValuesInBatches, table: pa.Table, state: StepState) -> Records:
    """Each record with what the function gives for it as its value."""
    records = from_rows(table, node.key_serde, node.value_serde, mixed=False)
    places, results = _results(node, operation.function, table, records, result_values, takes_key=operation.takes_key)
    values: list[bytes | None] = [None] * len(records)
    refused: list[int] = []
    write = node.out_value_serde.serialize
    for at, result in zip(places, results, strict=True):
        try:
            if isinstance(result, _Failed):
                raise result.problem
            values[at] = write(result)
        except Exception as problem:
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, problem, state)
            refused.append(at)
    records.values = values
    return records.without(refused) if refused else records


def filter_in_batches(node: NodeSpec, operation: FilterInBatches, table: pa.Table, state: StepState) -> Records:
    """The records for which the function gives true."""
    records = from_rows(table, node.key_serde, node.value_serde, mixed=False)
    places, results = _results(node, operation.predicate, table, records, truths, takes_key=True)
    passing: list[int] = []
    for at, result in zip(places, results, strict=True):
        if isinstance(result, _Failed):
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, result.problem, state)
        elif bool(result) is not operation.negate:
            passing.append(at)
    return records.only(passing)


def peek_in_batches(node: NodeSpec, operation: PeekInBatches, table: pa.Table, state: StepState) -> Records:
    """The records, after the function has seen them; without those that it fails on."""
    records = from_rows(table, node.key_serde, node.value_serde, mixed=False)
    places, results = _results(node, operation.function, table, records, _ignored, takes_key=True)
    refused: list[int] = []
    for at, result in zip(places, results, strict=True):
        if isinstance(result, _Failed):
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, result.problem, state)
            refused.append(at)
    return records.without(refused) if refused else records


def _ignored(_result: Any, count: int) -> list[Any]:
    return [None] * count


def _results(
    node: NodeSpec,
    function: BatchFunction,
    table: pa.Table,
    records: Records,
    read: Callable[[Any, int], list[Any]],
    *,
    takes_key: bool,
) -> tuple[Sequence[int], list[Any]]:
    """The places of the records that the function got, and what it gave for each; ``read``: of a vectorised one."""
    if not isinstance(function, PerBatch):
        read_key, read_value = node.key_serde.deserialize, node.value_serde.deserialize
        sides = [[read_value(data) for data in records.values]]
        if takes_key:
            sides.insert(0, [read_key(data) for data in records.keys])
        calls = list(zip(*sides, strict=True))
        found = call_all(
            function.function, calls, max_in_flight=function.max_in_flight, timeout_s=function.timeout_ms / 1000
        )
        return range(len(records)), [_Failed(one) if isinstance(one, Exception) else one for one in found]
    places = [at for at, value in enumerate(records.values) if value is not None]
    if len(places) < len(records):
        table = table.take(pa.array(places, pa.int64()))
    serdes = {"key": node.key_serde, "value": node.value_serde} if takes_key else {"value": node.value_serde}
    columns = [side_array(table, side, serde) for side, serde in serdes.items()]

    def call(begin: int, end: int) -> list[Any]:
        arguments = [given(column.slice(begin, end - begin), function.form) for column in columns]
        return read(function.function(*arguments), end - begin)

    try:
        return places, _halved(call, 0, len(places))
    except ResultShapeError as problem:
        raise StopError(f"the function of {node.name}: {problem}") from problem


def _halved(call: Callable[[int, int], list[Any]], begin: int, end: int) -> list[Any]:
    """The results from ``begin`` to ``end``; of a batch that the function fails on, those of its halves."""
    if begin == end:
        return []
    try:
        return call(begin, end)
    except ResultShapeError:
        raise
    except Exception as problem:
        if end - begin == 1:
            return [_Failed(problem)]
        middle = (begin + end) // 2
        return _halved(call, begin, middle) + _halved(call, middle, end)

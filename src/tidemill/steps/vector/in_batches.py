"""Stateless operators by functions that get a whole batch: ``per_batch`` and ``per_record_async``.

Decides what becomes of the results of a function: those of a record keep its timestamp, its headers and its place in the order,
and what a record becomes is all there, or nothing of it. A record that the function fails on, or whose result can't be written,
goes to the processing exception handler, as any other. How functions are called is ``batch_calls``'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from tidemill.operators.returned import pair_of, several_of
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.steps.vector.batch_calls import Call, FailedCall, NodeBatch
from tidemill.steps.vector.batch_columns import (
    GivenRecords,
    NanType,
    nan_type,
    result_list_pairs,
    result_lists,
    result_pairs,
    result_values,
    truths,
)
from tidemill.topology.batch_operations import (
    BatchFunction,
    FilterInBatches,
    FlatMapInBatches,
    FlatMapValuesInBatches,
    MapInBatches,
    MapValuesInBatches,
    PeekInBatches,
    PerBatch,
    SelectKeyInBatches,
)

_Sides = tuple[bytes | None, bytes | None]
"""A key and a value, written."""


def map_values_in_batches(node: NodeSpec, operation: MapValuesInBatches, table: pa.Table, state: StepState) -> Records:
    """Each record with what the function gives for it as its value; null stays null where the function does not get it."""
    batch = NodeBatch(node, table, state)
    records, write = batch.records, node.out_value_serde.serialize
    values: list[bytes | None] = [None] * len(records)
    refused: list[int] = []
    read = partial(result_values, kind=nan_type(node.out_value_serde))
    for at, result in batch.results(operation.function, Call(read, takes_key=operation.takes_key)):
        try:
            if isinstance(result, FailedCall):
                raise result.problem
            values[at] = write(result)
        except BaseException as problem:
            batch.refuse(at, problem)
            refused.append(at)
    records.values = values
    return records.without(refused) if refused else records


def map_in_batches(node: NodeSpec, operation: MapInBatches, table: pa.Table, state: StepState) -> Records:
    """Each record with the key and the value that the function gives for it."""
    batch, write_key, write_value = _sides(node, table, state, operation.function)

    def made(at: int, result: Any) -> Iterable[_Sides]:
        key, value = pair_of(result)
        return [(write_key(at, key), write_value(at, value))]

    return _made(batch, operation.function, Call(partial(result_pairs, kinds=_types(node)), takes_nulls=True), made)


def select_key_in_batches(node: NodeSpec, operation: SelectKeyInBatches, table: pa.Table, state: StepState) -> Records:
    """Each record with what the function gives for it as its key; values are as they came."""
    batch, write_key, _ = _sides(node, table, state, operation.function)
    values = batch.records.values

    def made(at: int, key: Any) -> Iterable[_Sides]:
        return [(write_key(at, key), values[at])]

    read = partial(result_values, kind=nan_type(node.out_key_serde))
    return _made(batch, operation.function, Call(read, takes_nulls=True), made)


def flat_map_in_batches(node: NodeSpec, operation: FlatMapInBatches, table: pa.Table, state: StepState) -> Records:
    """The keys and values that the function gives for each record, one after the other."""
    write_key, write_value = node.out_key_serde.serialize, node.out_value_serde.serialize

    def made(_at: int, pairs: Any) -> Iterable[_Sides]:
        return [(write_key(key), write_value(value)) for key, value in map(pair_of, several_of(pairs))]

    read = partial(result_list_pairs, kinds=_types(node))
    return _made(NodeBatch(node, table, state), operation.function, Call(read, takes_nulls=True), made)


def flat_map_values_in_batches(node: NodeSpec, operation: FlatMapValuesInBatches, table: pa.Table, state: StepState) -> Records:
    """The values that the function gives for each record, one after the other, with its key."""
    batch, write = NodeBatch(node, table, state), node.out_value_serde.serialize
    keys = batch.records.keys

    def made(at: int, values: Any) -> Iterable[_Sides]:
        return [(keys[at], write(value)) for value in several_of(values)]

    read = partial(result_lists, kind=nan_type(node.out_value_serde))
    return _made(batch, operation.function, Call(read, takes_key=operation.takes_key), made)


def filter_in_batches(node: NodeSpec, operation: FilterInBatches, table: pa.Table, state: StepState) -> Records:
    """The records for which the function gives true."""
    batch = NodeBatch(node, table, state)
    passing: list[int] = []
    for at, result in batch.results(operation.predicate, Call(truths)):
        if isinstance(result, FailedCall):
            batch.refuse(at, result.problem)
        elif bool(result) is not operation.negate:
            passing.append(at)
    return batch.records.only(passing)


def peek_in_batches(node: NodeSpec, operation: PeekInBatches, table: pa.Table, state: StepState) -> Records:
    """The records, after the function has seen them; without those that it fails on."""
    batch = NodeBatch(node, table, state)
    refused: list[int] = []
    for at, result in batch.results(operation.function, Call(_ignored)):
        if isinstance(result, FailedCall):
            batch.refuse(at, result.problem)
            refused.append(at)
    return batch.records.without(refused) if refused else batch.records


def _ignored(_result: Any, records: GivenRecords) -> list[Any]:
    return [None] * records.count


def _types(node: NodeSpec) -> tuple[NanType, NanType]:
    return nan_type(node.out_key_serde), nan_type(node.out_value_serde)


def _made(batch: NodeBatch, function: BatchFunction, call: Call, made: Callable[[int, Any], Iterable[_Sides]]) -> Records:
    """The records that ``made`` says, of the place of each and its result."""
    origins: list[int] = []
    sides: list[_Sides] = []
    for at, result in batch.results(function, call):
        try:
            if isinstance(result, FailedCall):
                raise result.problem
            own = list(made(at, result))
        except BaseException as problem:
            batch.refuse(at, problem)
            continue
        origins += [at] * len(own)
        sides += own
    records = batch.records.only(origins)
    records.keys, records.values = [key for key, _ in sides], [value for _, value in sides]
    return records


_Write = Callable[[int, Any], "bytes | None"]


def _sides(node: NodeSpec, table: pa.Table, state: StepState, function: BatchFunction) -> tuple[NodeBatch, _Write, _Write]:
    """The batch, and how the key and the value that the function gives for the record at a place are written: columns can't say
    that a row is null, so a row of nulls is null where a null came."""
    batch = NodeBatch(node, table, state)

    def writing(write: Callable[[Any], bytes | None], came: list[bytes | None]) -> _Write:
        def written(at: int, result: Any) -> bytes | None:
            is_null = came[at] is None and isinstance(result, dict) and all(field is None for field in result.values())
            return write(None if is_null else result)

        return written if isinstance(function, PerBatch) else lambda _at, result: write(result)

    return (
        batch,
        writing(node.out_key_serde.serialize, batch.records.keys),
        writing(node.out_value_serde.serialize, batch.records.values),
    )

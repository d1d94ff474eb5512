"""Operators that look at one record of a stream and keep nothing (KStreamMap, KStreamFilter, KStreamBranch ...).

Each is a closure over its function and its forwarding: the fewest Python calls for each record. Null keys and null values reach
the functions; a record that matches no branch is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemill.operators.context import Context
from tidemill.operators.record import Record, record_of
from tidemill.operators.returned import pair_of, several_of
from tidemill.topology import operations as op
from tidemill.topology.functions import PerRecord, UserFunction


@dataclass(frozen=True, slots=True)
class Step:
    """An operator that is nothing but its function of a record."""

    process: Callable[[Record], None]


def plain(function: UserFunction) -> UserFunction:
    """The function itself, out of its wrapper."""
    return function.function if isinstance(function, PerRecord) else function


def map_records(operation: op.Map, context: Context) -> Step:
    forward, function = context.forward, plain(operation.function)

    def process(record: Record) -> None:
        key, value, timestamp, headers = record
        key, value = pair_of(function(key, value))
        forward(record_of((key, value, timestamp, headers)))

    return Step(process)


def map_values(operation: op.MapValues, context: Context) -> Step:
    forward, function = context.forward, plain(operation.function)

    def process(record: Record) -> None:
        key, value, timestamp, headers = record
        forward(record_of((key, function(value), timestamp, headers)))

    def process_with_key(record: Record) -> None:
        key, value, timestamp, headers = record
        forward(record_of((key, function(key, value), timestamp, headers)))

    return Step(process_with_key if operation.takes_key else process)


def flat_map(operation: op.FlatMap, context: Context) -> Step:
    forward, function = context.forward, plain(operation.function)

    def process(record: Record) -> None:
        key, value, timestamp, headers = record
        for pair in several_of(function(key, value)):
            new_key, new_value = pair_of(pair)
            forward(record_of((new_key, new_value, timestamp, headers)))

    return Step(process)


def flat_map_values(operation: op.FlatMapValues, context: Context) -> Step:
    forward, function, takes_key = context.forward, plain(operation.function), operation.takes_key

    def process(record: Record) -> None:
        key, value, timestamp, headers = record
        for new_value in several_of(function(key, value) if takes_key else function(value)):
            forward(record_of((key, new_value, timestamp, headers)))

    return Step(process)


def filter_records(operation: op.Filter, context: Context) -> Step:
    forward, predicate, negate = context.forward, plain(operation.predicate), operation.negate

    def process(record: Record) -> None:
        if bool(predicate(record[0], record[1])) is not negate:
            forward(record)

    return Step(process)


def select_key(operation: op.SelectKey, context: Context) -> Step:
    forward, function = context.forward, plain(operation.function)

    def process(record: Record) -> None:
        key, value, timestamp, headers = record
        forward(record_of((function(key, value), value, timestamp, headers)))

    return Step(process)


def peek(operation: op.Peek, context: Context) -> Step:
    forward, function = context.forward, plain(operation.function)

    def process(record: Record) -> None:
        function(record[0], record[1])
        forward(record)

    return Step(process)


def foreach(operation: op.Foreach, _context: Context) -> Step:
    function = plain(operation.function)

    def process(record: Record) -> None:
        function(record[0], record[1])

    return Step(process)


def print_records(operation: op.Print, _context: Context) -> Step:
    label = operation.label

    def process(record: Record) -> None:
        print(f"[{label}]: {record[0]}, {record[1]}", flush=True)

    return Step(process)


def pass_through(_operation: op.PassThrough, context: Context) -> Step:
    return Step(context.forward)


def null_key_filter(_operation: op.NullKeyFilter, context: Context) -> Step:
    forward = context.forward

    def process(record: Record) -> None:
        if record[0] is not None:
            forward(record)

    return Step(process)


def branch(operation: op.Branch, context: Context) -> Step:
    forward, default = context.forward, operation.default
    branches = tuple(zip((plain(predicate) for predicate in operation.predicates), operation.children, strict=True))

    def process(record: Record) -> None:
        key, value = record[0], record[1]
        for predicate, child in branches:
            if predicate(key, value):
                forward(record, child)
                return
        if default is not None:
            forward(record, default)

    return Step(process)

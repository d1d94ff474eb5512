"""Processors that ``processor.wrapper.class`` has wrapped (KIP-1112): those of the program, and the operators of the DSL.

Decides which nodes have a processor that can be wrapped, and how an operator of the DSL appears to the wrapper. A processor that
the wrapper returns unchanged stays where it is in the plan; a wrapped one runs record by record. Nodes whose function works on
Columns run in the JVM, and nodes that only pass records on run nowhere: neither has a processor.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Protocol

from tidemill.errors import TopologyError
from tidemill.operators.context import Context, Operator
from tidemill.operators.operation_table import Runs, entry_of, kept_store, operator_of, runs, works_on_columns
from tidemill.operators.processors import (
    ProcessorContext,
    ProcessorSupplier,
    close_processors,
    made_processor,
    refuse_what_would_be_lost,
)
from tidemill.operators.record import Record
from tidemill.printable import repr_of, said_by
from tidemill.topology import operations as op
from tidemill.topology.functions import OfColumns, UserFunction
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology


class ProcessorWrapper(Protocol):
    """Wraps or replaces the processors of a topology (org.apache.kafka.streams.processor.api.ProcessorWrapper, KIP-1112).

    Given as ``processor.wrapper.class``: a class, or ``module:Class``, made without arguments, or an object. With a method
    ``configure(config)`` it gets the settings of the topology first (``config.application_id`` and the like).
    """

    def wrap_processor_supplier(self, name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        """The supplier to use for the node ``name`` instead of ``supplier``, or that itself to leave the node as it is.

        Called once for each node while the topology is made. What the given supplier makes has ``process(record)`` and may have
        ``init(context)`` and ``close()``; the wrapper's processor gets these calls, and forwards them to the inner one.
        Records of a table have a ``Change`` (``old``, ``new``) as value.
        """


class DslProcessor:
    """An operator of the DSL as a Processor: what wrappers get to wrap."""

    def init(self, context: ProcessorContext) -> None:
        assert context.operator is not None
        self._operator = context.operator

    def process(self, record: Record) -> None:
        self._operator.process(record)


class WrappedOperator:
    """Runs what a wrapper has made of an operator of the DSL; others still look its rows up in the operator itself."""

    def __init__(self, node: ProcessorNode, context: Context) -> None:
        assert node.wrapped is not None
        self._operator: Operator = operator_of(node.operation, context)
        self._seen = ProcessorContext(context, node.stores)
        self._seen.operator = self._operator
        self._made = made_processor(context, node.wrapped, self._seen)

    def process(self, record: Record) -> None:
        self._seen.timestamp, self._seen.headers = record[2], record[3]
        refuse_what_would_be_lost(self._made.process(record), "process")

    def close(self) -> None:
        close_processors(self._seen, self._made, self._operator)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def wrapped_topology(topology: Topology, wrapper: ProcessorWrapper) -> Topology:
    """The topology with the processors that ``wrapper`` gives. As in Kafka Streams, those that fill global and read-only stores
    from their topics stay as they are.

    Raises:
        TopologyError: it gives what is no supplier, or raises.
    """
    return replace(topology, nodes={
        name: _wrapped(node, wrapper) if isinstance(node, ProcessorNode) and not _only_fills(topology, node) else node
        for name, node in topology.nodes.items()
    })


def _only_fills(topology: Topology, node: ProcessorNode) -> bool:
    """True if the node keeps a global store, or a read-only one, of which the topic that it reads is the changelog."""
    if isinstance(node.operation, op.GlobalUpdate):
        return True
    if not isinstance(node.operation, op.ProcessRecords):
        return False
    above = (topology.nodes[parent] for parent in topology.parents[node.name])
    read = {topic for source in above if isinstance(source, SourceNode) for topic in source.topics}
    tables = {kept_store(other.operation) for other in topology.nodes.values() if isinstance(other, ProcessorNode)}
    return any(topology.stores[name].source_topic in read for name in node.stores if name not in tables)


def _wrapped(node: ProcessorNode, wrapper: ProcessorWrapper) -> ProcessorNode:
    match node.operation:
        case op.ProcessRecords(supplier=supplier) if supplier is not None:
            made = _supplier(node.name, supplier, wrapper)
            return node if made is supplier else replace(node, operation=replace(node.operation, supplier=made))
        case operation if _has_processor(operation):
            made = _supplier(node.name, DslProcessor, wrapper)
            return node if made is DslProcessor else replace(node, wrapped=made)
        case _:
            return node


def _has_processor(operation: op.Operation) -> bool:
    of_columns = any(isinstance(getattr(operation, field.name), OfColumns) for field in fields(operation))
    return not (
        of_columns or entry_of(operation).operator is None or works_on_columns(operation) or runs(operation) is Runs.FORWARDS
    )


def _supplier(name: str, supplier: UserFunction, wrapper: ProcessorWrapper) -> UserFunction:
    try:
        made = wrapper.wrap_processor_supplier(name, supplier)
    except Exception as problem:
        raise TopologyError(
            f"processor.wrapper.class: wrap_processor_supplier failed on {name}: {type(problem).__name__}: {said_by(problem)}"
        ) from problem
    if not callable(made):
        found = f"wrap_processor_supplier gave {repr_of(made)} for {name}"
        raise TopologyError(f"processor.wrapper.class: {found}, expected a supplier")
    return made

"""Operators of tables that are not grouped anew: sources, filters, mappings, and the way back to a stream."""

from __future__ import annotations

from tidemill.operators.context import Context
from tidemill.operators.record import Record
from tidemill.topology import operations as op


class TableToStream:
    """KTABLE-TOSTREAM: the new value of each change."""

    def __init__(self, _operation: op.TableToStream, context: Context) -> None:
        self._forward = context.forward

    def process(self, record: Record) -> None:
        self._forward(Record(record[0], record[1][0], record[2], record[3]))

"""The table that several aggregations make together (COGROUPKSTREAM-MERGE)."""

from __future__ import annotations

from tidemill.operators.context import AsOfGetter, Context, Getter
from tidemill.topology import operations as op


class CogroupMerge:
    """Forwards every change; its rows are those of the store that the aggregations share."""

    def __init__(self, _operation: op.CogroupMerge, context: Context) -> None:
        self.process = context.forward
        self.get: Getter = context.table(context.parents[0])
        self.get_as_of: AsOfGetter | None = context.table_as_of(context.parents[0])

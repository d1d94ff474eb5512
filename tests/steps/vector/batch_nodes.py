"""Nodes that run in batches, and rows for them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill import Serdes
from tidemill.operators.exception_handlers import ExceptionHandlers
from tidemill.steps.rows.records import Records, to_rows
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState

TEXT, LONG = Serdes.string(), Serdes.long()


def node(operation: Any, value: Any, out: Any, *, key: Any = TEXT, out_key: Any = TEXT) -> NodeSpec:
    return NodeSpec(
        name="score", subtopology=0, operation=operation, key_serde=key, value_serde=value, out_key_serde=out_key,
        out_value_serde=out, inline=(), tag=None, topics=("in",),
    )  # fmt: skip


def rows(serde: Any, values: list[Any], keys: list[Any] | None = None, key: Any = TEXT) -> pa.Table:
    """Of two partitions; each with a timestamp, an offset and a header of its own."""
    count = len(values)
    written = [serde.serialize(value) for value in values]
    written_keys = [key.serialize(one) for one in ([f"k{at}" for at in range(count)] if keys is None else keys)]
    parts, offsets = [at % 2 for at in range(count)], [*range(100, 100 + count)]
    headers: list[Any] = [[("at", str(at).encode())] for at in range(count)]
    records = Records(parts, written_keys, written, [*range(count)], offsets, [*range(count)], headers)
    return pa.Table.from_batches([to_rows(records, 1, key, serde)])


def state_of(handlers: ExceptionHandlers | None = None) -> StepState:
    return StepState({}, {}) if handlers is None else StepState({}, {}, handlers=handlers)

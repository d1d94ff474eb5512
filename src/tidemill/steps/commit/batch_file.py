"""The records of a micro-batch for a function of ``foreach_batch``, as the Parquet file that the driver reads.

Decides what the file holds; what the function gets of it is `spark.plan.batch_sinks`'s.
"""

from __future__ import annotations

import pyarrow as pa

from tidemill.steps.outputs import Outputs, ToSink
from tidemill.steps.rows.records import in_order, naming, to_rows
from tidemill.steps.rows.schema import DDL, SCHEMA, SIDES
from tidemill.steps.step_spec import BatchSinkSpec

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
FILE_DDL = ", ".join(
    [f"{name} {DDL[name]}" for name in ("part", "off", "ts", *SIDES)] + ["headers array<struct<key: string, value: binary>>"]
)


def taken_batch(sink: BatchSinkSpec, outputs: Outputs) -> pa.Table | None:
    """The batch's records for the sink, taken out of ``outputs``; None if there are none."""
    held = outputs.take(ToSink(sink.name))
    if not held:
        return None
    records = in_order(held)
    with naming(sink.name):
        rows = to_rows(records, 0, sink.key_serde, sink.value_serde)
    columns = {name: rows.column(name) for name in ("part", "off", "ts", *SIDES)}
    # What a punctuator has made comes from no record.
    columns["off"] = pa.array([None if at is None or at < 0 else at for at in records.offsets], SCHEMA.field("off").type)
    headers = [[{"key": name, "value": value} for name, value in records.header(at) or ()] for at in range(len(records))]
    return pa.table({**columns, "headers": pa.array(headers, _HEADERS)})


def write_batch(rows: pa.Table, path: str) -> None:
    import pyarrow.parquet as pq  # every worker has this module, few write

    pq.write_table(rows, path, compression="none", use_dictionary=False, write_statistics=False)

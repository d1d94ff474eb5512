"""Rows that enter a graph of operators, decoded: columns of Python values, a whole column at a time where that is possible.

Decides which rows a serde can't read; what is done with these is the step's (``unreadable``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.dsl.serdes import StringSerde, java_text
from tidemill.errors import ColumnsResultError
from tidemill.operators.context import RecordMetadata
from tidemill.operators.record import Headers
from tidemill.printable import said_by
from tidemill.steps.rows.codecs_wire import as_it_came
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import read_each
from tidemill.steps.rows.order import topic_index
from tidemill.steps.rows.records import side_bytes
from tidemill.steps.step_spec import GraphEntry
from tidemill.topology.values import Serde


@dataclass(slots=True)
class DecodedRows:
    """Rows of one entry as columns; keys and values decoded."""

    entry: GraphEntry
    table: pa.Table
    """The rows as they came."""
    parts: npt.NDArray[np.int32]
    sequences: npt.NDArray[np.int64]
    keys: list[object]
    values: list[object]
    timestamps: list[int]
    headers: list[Headers]
    offsets: list[int | None]

    def topics(self) -> list[str]:
        """The topic of each row."""
        topics = self.entry.topics
        if len(topics) == 1:
            return [topics[0]] * len(self.keys)
        return [topics[topic_index(int(seq))] for seq in self.sequences]


def decoded_rows(table: pa.Table, entry: GraphEntry) -> tuple[DecodedRows, pa.Table | None]:
    """A tag's rows decoded, and those of them that a serde can't read.

    Raises:
        DeserializerEndedError: of a row, by its place in ``table``.
        ColumnsResultError: functions of Columns have made what a serde can't read, so no record of a topic is unreadable.
    """
    keys, bad_keys = _decoded_side(table, "key", entry, entry.key_serde)
    values, bad_values = _decoded_side(table, "value", entry, entry.value_serde)
    unreadable = {*bad_keys, *bad_values}
    if not unreadable:
        return _as_columns(table, entry, keys, values), None
    good = [at for at in range(table.num_rows) if at not in unreadable]
    bad = table.take(pa.array(sorted(unreadable), pa.int64()))
    place = bad.schema.get_field_index("n")
    bad = bad.set_column(place, "n", pa.array([entry.source] * bad.num_rows, pa.int64()))
    table = table.take(pa.array(good, pa.int64()))
    return _as_columns(table, entry, [keys[at] for at in good], [values[at] for at in good]), bad


def _decoded_side(table: pa.Table, side: str, entry: GraphEntry, serde: Serde) -> tuple[list[object], Sequence[int]]:
    """The keys or the values of a table, and the rows whose own can't be read."""
    column = table.column(side) if entry.source is not None else None
    if column is not None and type(serde) is StringSerde:
        return _texts(column), ()
    data = side_bytes(table, side, serde) if column is None else column.to_pylist()
    values, misread = read_each(serde.deserialize, data)
    if misread and column is None:
        raise ColumnsResultError(entry.node.partition("|")[0], f"the {side} can't be read: {_why(serde, data[misread[0]])}")
    return values, misread


def _as_columns(table: pa.Table, entry: GraphEntry, keys: list[object], values: list[object]) -> DecodedRows:
    packed = table.column("headers")
    none = packed.null_count == table.num_rows
    headers: list[Headers] = [()] * table.num_rows if none else [tuple(unpacked(row) or ()) for row in packed.to_pylist()]
    return DecodedRows(
        entry=entry,
        table=table,
        parts=table.column("part").to_numpy(),
        sequences=table.column("seq").to_numpy(),
        keys=keys,
        values=values,
        timestamps=table.column("ts").to_pylist(),
        headers=headers,
        offsets=table.column("off").to_pylist(),
    )


def _why(serde: Serde, data: bytes | None) -> str:
    try:
        serde.deserialize(data)
    except Exception as problem:
        return said_by(problem)
    return ""


class SourceBytes:
    """Key and value of the records that have arrived: as in the topic, or, behind functions of columns, as these made them."""

    def __init__(self, arrived: Sequence[DecodedRows]) -> None:
        self._arrived = arrived
        self._places: dict[tuple[str, int, int | None], tuple[DecodedRows, int]] = {}

    def of(self, origin: RecordMetadata) -> tuple[bytes | None, bytes | None]:
        """Nothing for a record that is not among those that have arrived."""
        if origin.offset is None:
            return None, None
        if not self._places:  # only now: most batches have no record that fails
            for rows in self._arrived:
                for at, place in enumerate(zip(rows.topics(), rows.parts.tolist(), rows.offsets, strict=True)):
                    self._places.setdefault(place, (rows, at))
        found, at = self._places.get((origin.topic, origin.partition, origin.offset), (None, 0))
        if found is None:
            return None, None
        row, entry = found.table.slice(at, 1), found.entry
        if entry.source is not None:
            return row.column("key")[0].as_py(), row.column("value")[0].as_py()
        key, value = side_bytes(row, "key", entry.key_serde)[0], side_bytes(row, "value", entry.value_serde)[0]
        by_key, by_value = entry.letter_serdes
        return as_it_came(by_key, entry.key_serde, key), as_it_came(by_value, entry.value_serde, value)


def _texts(column: pa.ChunkedArray) -> list[object]:
    try:
        texts: list[object] = column.cast(pa.string()).to_pylist()
        return texts
    except pa.ArrowInvalid:  # bytes that are no UTF-8
        return [None if data is None else java_text(data) for data in column.to_pylist()]

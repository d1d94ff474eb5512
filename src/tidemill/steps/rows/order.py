"""The order in which the rows of a batch cause each other: depth first, as Kafka Streams forwards records (rule 25).

    seq     which row: as the source, or the last Python step that ranked rows, has numbered it; low bits: its topic's index
    child   which of the rows that a Python step has made of it
    place   which of the rows that a layer of columns has made of that: where it comes in the stream that leaves the layer

No number of bits holds all this through several steps and layers: one record may become any number of rows in each. So a
Python step ranks the rows that arrive: from then on ``seq`` alone says their order, and the rows that pass the step and those
that it makes are numbered alike.

Decides order only; which step ranks what passes it, ``StepSpec.ranks`` says.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.steps.rows.schema import OUTPUT, SCHEMA

_TOPIC_BITS = 16
_LAST_NUMBER = (1 << 47) - 1


def sequence(number: int, topic_index: int) -> int:
    """``seq`` of a source record: its number in the batch, and which of its sub-topology's topics it is from."""
    return (number << _TOPIC_BITS) | topic_index


def sequences(first: int, topic_indexes: Sequence[int]) -> npt.NDArray[np.int64]:
    """``seq`` of source records that follow each other, the first of this number."""
    numbers = np.arange(first, first + len(topic_indexes), dtype=np.int64)
    return (numbers << _TOPIC_BITS) | np.asarray(topic_indexes, np.int64)


_AFTER_RECORDS = _LAST_NUMBER - (1 << 32)
LAST_SEQUENCE = sequence(_AFTER_RECORDS, 0)
"""``seq`` of what no record has caused, such as what punctuators make: behind all that records have."""


def flushed_sequence(at: int, topic_index: int) -> int:
    """``seq`` of the change that caches forward in this place when a batch ends: behind LAST_SEQUENCE."""
    return sequence(_AFTER_RECORDS + 1 + at, topic_index)


def topic_index(sequence: int) -> int:
    return sequence & ((1 << _TOPIC_BITS) - 1)


def topic_of(topics: Sequence[str], sequence: int | None, offset: int | None) -> str:
    """The topic, of those of its sub-topology, whose record a row comes from; all of them where no record has caused it."""
    if sequence is None or offset is None or len(topics) < 2:
        return "|".join(topics)
    return topics[topic_index(sequence)]


def first_child(step: int) -> int:
    """``child`` of the first row that a Python step makes in a batch; the next ones follow. No two rows of a batch have the same:
    a layer that sums rows keeps all others apart by it."""
    return step << 40


def ranked(table: pa.Table) -> pa.Table:
    """A batch's rows, with ``seq`` saying their order by itself; ``child`` and ``place`` are null then. Control rows stay as they
    are, and so do store writes and changelog records, which only the last step takes, and rows without ``seq``."""
    columns = [table.column(name) for name in ("seq", "child", "place")]
    if columns[1].null_count == columns[2].null_count == table.num_rows:
        return table  # as the source has numbered them
    nodes = table.column("node").to_numpy()
    moves = ((nodes >= 0) | (nodes == OUTPUT)) & ~columns[0].is_null().to_numpy()
    seq, child, place = (column.fill_null(0).to_numpy() for column in columns)
    at = np.flatnonzero(moves)
    # Records that a step sends itself come before results of the rows that it passes to later layers.
    order = at[np.lexsort((place[at], child[at], nodes[at] >= 0, seq[at]))]
    new = seq.copy()
    new[order] = (np.arange(len(order)) << _TOPIC_BITS) | topic_index(seq[order])
    for name, values, column in zip(("child", "place"), (child, place), columns[1:], strict=True):
        table = _with(table, name, values, moves | column.is_null().to_numpy())
    return _with(table, "seq", new, columns[0].is_null().to_numpy())


def _with(table: pa.Table, name: str, values: npt.NDArray[np.int64], nulls: npt.NDArray[np.bool_]) -> pa.Table:
    at = SCHEMA.get_field_index(name)
    return table.set_column(at, SCHEMA.field(at), pa.array(values, pa.int64(), mask=nulls))


def in_sequence(table: pa.Table) -> pa.Table:
    """Rows in the order of ``seq``; those without one last."""
    sequences = table.column("seq").fill_null(np.iinfo(np.int64).max).to_numpy()
    if (np.diff(sequences) >= 0).all():
        return table
    return table.take(np.argsort(sequences, kind="stable"))

"""The rows that flow between a plan's steps: one fixed set of columns, each row tagged with the node it has reached.

| column | type | what |
|---|---|---|
| node | int | tag: ``2 i`` = has left node i, ``2 i + 1`` = waits for a Python step to run node i (i counts nodes in
  insertion order), ``FRESH`` and above: on the way within a layer; below 0: control |
| part | int | partition, hence the task; -1 where rows of several tasks were summed |
| off | bigint | offset of the source record |
| seq | bigint | order within the batch (``order``): which row, as the source or a Python step has numbered them, and of which of
  its sub-topology's topics |
| child | bigint | of a row that a Python step has made: which of those with the same ``seq``; null = none has |
| place | bigint | of a row that has come through a layer that makes several of one: which of those with the same ``seq`` and
  ``child``; else null |
| n | bigint | how many records the row counts for; null = one |
| ts | bigint | timestamp, ms |
| headers | binary | as ``headers`` packs them; null = none |
| key, value | binary | bytes as on the wire |
| key_num, value_num | bigint | keys and values of integral serdes |
| key_dbl, value_dbl | double | keys and values of floating serdes |
| wall | bigint | wall clock of the batch, ms |

Rows that were summed in the JVM have no offset (``off`` is null).

Decides names, types and tags; what a step does with a row is the step's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypedDict

import pyarrow as pa

from tidemill.topology.nodes import Topology

FRESH = 1_000_000
MARKER = -1
"""The source's last row of a batch: ``value`` holds the marker, packed."""
CHUNK = -2
"""The last row of each Arrow batch of the source: ``off`` = index of the chunk, ``ts`` = rows in it."""
DROPPED = -3
"""Filtered out; never reaches a Python step."""
UNREADABLE = -4
"""A record that a serde can't read: key and value as they came, ``n`` = index of the source node, ``seq`` says
which of its topics."""
DROPPED_COUNT = -5
"""``n`` records (null = one) were dropped on the way and count as dropped records."""
REFUSED = -6
"""A record on which a function of Columns raises, so that none gets it: as UNREADABLE. The request says what was raised."""
HEAD = -7
"""The source's first row of a batch: ``value`` holds the request, packed, so that no step has to ask for it."""
FILLER = -8
"""A filler row, which makes Spark pass the rows before it on (``standing``). No step sees it."""
FUNCTION_CALLS = -9
"""Calls of functions in an earlier Python step: ``value`` holds them by node, packed."""
SKIPPED_COUNT = -10
"""Exception handlers have skipped ``n`` records in an earlier Python step; ``value``: the first of them, in words."""
CHANGELOG = -100
"""Changelog records to restore, packed (``packed_rows``): ``CHANGELOG - i`` for the i-th store."""
WRITE = -10_000
"""Writes of an earlier Python step to the i-th store, ``WRITE - i``, packed by task: a value is a row as stored, null deletes."""
LOG = -20_000
"""Changelog records of an earlier Python step for the i-th store, ``LOG - i``, packed by task: key and value as they are sent, in
the order of ``child``."""
OUTPUT = -30_000
"""A record that an earlier Python step sends: bytes as they are sent; the first headers say where it goes (``writes``)."""

UNREADABLE_HEADERS = "tidemill.unreadable-headers"
"""The only header of an UNREADABLE row whose own headers can't be read."""
SUMMED_HEADER = "tidemill.summed"
"""Header of a pre-summed repartition record: its value is a long, how many records it counts for."""

SCHEMA = pa.schema(
    [
        ("node", pa.int32()),
        ("part", pa.int32()),
        ("off", pa.int64()),
        ("seq", pa.int64()),
        ("child", pa.int64()),
        ("place", pa.int64()),
        ("n", pa.int64()),
        ("ts", pa.int64()),
        ("headers", pa.binary()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("key_num", pa.int64()),
        ("value_num", pa.int64()),
        ("key_dbl", pa.float64()),
        ("value_dbl", pa.float64()),
        ("wall", pa.int64()),
    ]
)
_SQL_TYPES = {pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.binary(): "binary"}
DDL: Mapping[str, str] = {field.name: _SQL_TYPES[field.type] for field in SCHEMA}
"""The columns' types in Spark SQL."""
SIDES = ("key", "value", "key_num", "value_num", "key_dbl", "value_dbl")
"""The columns that hold a key and a value, as bytes or as a number."""


class SourceRow(TypedDict):
    """A row of a source's record that no node has got: one that is unreadable, or refused."""

    part: int
    off: int
    seq: int
    ts: int
    headers: bytes | None
    key: bytes | None
    value: bytes | None
    n: int


def write_tag(changelog_tag: int) -> int:
    """Tag of the writes to the store whose changelog records have this one."""
    return WRITE - (CHANGELOG - changelog_tag)


def log_tag(changelog_tag: int) -> int:
    """Tag of the changelog records that an earlier Python step has made for that store."""
    return LOG - (CHANGELOG - changelog_tag)


def control_row(node: int, off: int, value: bytes) -> pa.RecordBatch:
    """A row that is no record: the tag, its number and what it says."""
    return control_rows(node=[node], off=[off], value=[value])


def control_rows(
    *, node: Sequence[int], value: Sequence[bytes | None], **more: Sequence[int | None]
) -> pa.RecordBatch:
    """Rows that are no records, or hold some. ``more``: other columns."""
    own = {"node": node, "value": value, **more}
    arrays = {name: pa.array(column, SCHEMA.field(name).type) for name, column in own.items()}
    columns = {**_control_columns(len(node)), **arrays}
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


@lru_cache(maxsize=8)
def _control_columns(count: int) -> dict[str, pa.Array]:
    """Those that all such rows have. Made when they are needed: pyarrow imports pandas to make them, and a driver needs none."""
    columns = {field.name: pa.nulls(count, field.type) for field in SCHEMA}
    return columns | {
        name: pa.array([at] * count, SCHEMA.field(name).type) for name, at in {"part": -1, "seq": 0, "ts": 0}.items()
    }


def with_clock(rows: pa.RecordBatch, now_ms: int) -> pa.RecordBatch:
    """Rows for functions of Columns, in which ``current_timestamp()`` is the batch's wall clock (``clock``)."""
    at = SCHEMA.get_field_index("wall")
    return rows.set_column(at, SCHEMA.field(at), pa.repeat(pa.scalar(now_ms, SCHEMA.field(at).type), rows.num_rows))


class Tags:
    """Node names to tags and back; the order is the topology's insertion order, the same in every process."""

    def __init__(self, topology: Topology) -> None:
        self.names = tuple(topology.nodes)
        self._index = {name: i for i, name in enumerate(self.names)}
        self.stores = tuple(topology.stores)
        self._store_index = {name: i for i, name in enumerate(self.stores)}

    def leaving(self, name: str) -> int:
        """Tag of the rows that have left this node."""
        return 2 * self._index[name]

    def arrived(self, name: str) -> int:
        """Tag of the rows that wait for a Python step to run this node."""
        return 2 * self._index[name] + 1

    def restoring(self, store: str) -> int:
        """Tag of the changelog records that restore this store."""
        return CHANGELOG - self._store_index[store]

    def index(self, name: str) -> int:
        """The node's place in the topology."""
        return self._index[name]

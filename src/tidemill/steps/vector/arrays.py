"""A batch's columns as NumPy arrays, for the vectorised shortcuts: keys as numbers, times that can't overflow.

Decides how keys are numbered: in the order of their bytes, in which the stores have them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.operators.segments import LONG_MAX
from tidemill.steps.rows.codecs_wire import fixed_width
from tidemill.steps.rows.records import side_bytes
from tidemill.topology.values import Serde

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def longs(table: pa.Table, name: str) -> Longs:
    """The column ``name`` of whole numbers, without nulls."""
    return table.column(name).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def big_endian(numbers: Longs) -> pa.Array:
    """Each number in eight bytes, as stores have times."""
    packed = pa.py_buffer(numbers.astype(">i8").tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(numbers), [None, packed]).cast(pa.binary())


def coded_keys(table: pa.Table, serde: Serde) -> tuple[Longs, list[bytes]]:
    """The key of each row as a number, -1 for null, and the bytes of each; numbered in the order of their bytes."""
    fixed = fixed_width(serde.sql_type)
    name = "key" if fixed is None else "key" + fixed.kind.value
    encoded = table.column(name).combine_chunks().dictionary_encode()
    codes: Longs = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    found = side_bytes(pa.table({name: encoded.dictionary}), "key", serde)
    keys = [b"" if key is None else key for key in found]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    rank = np.empty(len(keys) + 1, np.int64)
    rank[order] = np.arange(len(keys))
    rank[-1] = -1
    return rank[codes], [keys[at] for at in order]


def plus(times: Longs, amount: Longs | int) -> Longs:
    """The sums, at most the latest time that there is."""
    return np.where(times > LONG_MAX - np.maximum(amount, 0), LONG_MAX, times + amount)

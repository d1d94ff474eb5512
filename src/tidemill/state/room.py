"""How many bytes of an LMDB map a batch's writes can need, at most.

Asked before the batch's Kafka transaction ends, so that what has no room is refused in time. Decides the estimate only, and errs
upwards: a map's size is address space, the file grows with what is used.
"""

from __future__ import annotations

from collections.abc import Collection

import lmdb

_NODE_OVERHEAD = 16  # At most: LMDB's header of an entry, its slot and padding.
_BIG_VALUE = 1900  # From about here on a value has pages of its own (LMDB: half a page of 4096 bytes).


def payload_of(puts: Collection[tuple[bytes, bytes]]) -> int:
    """What the entries take by themselves."""
    return sum(len(key) + len(value) + _NODE_OVERHEAD for key, value in puts)


def room_for(shape: lmdb._StatDict, *, payload: int, changed: int) -> int:
    """Of a database of this shape (LMDB's ``stat``), for so many changed entries with this payload."""
    copied = min(changed, shape["leaf_pages"]) + min(changed, shape["branch_pages"]) + shape["depth"]
    # Copied pages, new leaves at half their fill, the ends of big values, the list of freed pages, meta.
    pages = copied + 2 * payload // shape["psize"] + payload // _BIG_VALUE + copied // 128 + 64
    return pages * shape["psize"]

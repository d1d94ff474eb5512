"""Changelog records, packed and unpacked: nothing is lost, and no row is larger than the JVM should copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tidemill.steps.rows.packed_changelogs import _PACKED_BYTES, CHANGELOG_SCHEMA, packed_rows, unpacked_records
from tidemill.steps.rows.schema import CHANGELOG, CHUNK, SCHEMA

Record = dict[str, Any]


def record(offset: int, value: bytes | None, part: int = 0, headers: bytes | None = None) -> Record:
    return {"part": part, "off": offset, "ts": 1000 + offset, "headers": headers, "key": b"k%d" % offset, "value": value}


def packed(records: Sequence[Record], tags: Sequence[int]) -> pa.RecordBatch:
    return packed_rows(pa.RecordBatch.from_pylist(list(records), CHANGELOG_SCHEMA), tags, index=4)


def unpacked(rows: pa.RecordBatch) -> dict[int, list[Record]]:
    by_tag = defaultdict(list)
    for row in rows.to_pylist():
        if row["node"] != CHUNK:
            by_tag[row["node"]].append(row["value"])
    return {tag: unpacked_records(values).to_pylist() for tag, values in by_tag.items()}


def test_records_of_several_stores_come_back_by_store_in_their_order() -> None:
    records = [record(at, None if at % 3 == 0 else b"v%d" % at, at % 2, b"h" if at == 5 else None) for at in range(20)]
    tags = [CHANGELOG - (at // 3) % 3 for at in range(20)]
    rows = packed(records, tags)
    assert rows.schema == SCHEMA
    assert unpacked(rows) == {
        tag: [each for each, own in zip(records, tags, strict=True) if own == tag] for tag in sorted(set(tags))
    }


def test_the_control_row_has_the_chunks_number_and_how_many_records_it_has() -> None:
    rows = packed([record(at, b"v") for at in range(7)], [CHANGELOG] * 7).to_pylist()
    assert [(row["node"], row["part"], row["off"], row["ts"]) for row in rows] == [(CHANGELOG, -1, 0, 0), (CHUNK, -1, 4, 7)]


@pytest.mark.parametrize("size", [1, 1000, 300_000, 3 * _PACKED_BYTES])
def test_no_row_is_much_larger_than_it_may_be_unless_one_record_is(size: int) -> None:
    records = [record(at, bytes([at % 256]) * size) for at in range(max(3, 4 * _PACKED_BYTES // size if size > 500 else 3))]
    rows = packed(records, [CHANGELOG] * len(records))
    assert unpacked(rows) == {CHANGELOG: records}
    largest = max(len(row["value"]) for row in rows.to_pylist() if row["node"] != CHUNK)
    assert largest < max(_PACKED_BYTES, size) + 10_000 + 100 * len(records)

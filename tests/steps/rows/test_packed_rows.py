"""Records, packed and unpacked: nothing is lost, and no row is larger than the JVM should copy."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from tidemill.steps.rows.headers import packed as packed_headers
from tidemill.steps.rows.packed_rows import _PACKED_BYTES, PACKED_SCHEMA, packed, unpacked
from tidemill.steps.rows.schema import CHANGELOG, CHUNK, SCHEMA
from tidemill.steps.source_chunk import restored_rows
from tidemill.steps.step_spec import SourceSpec

TAGS = {"first-changelog": CHANGELOG, "second-changelog": CHANGELOG - 1, "third-changelog": CHANGELOG - 2}


@dataclass(frozen=True)
class Fetched:
    """A record as confluent-kafka gives it."""

    of: tuple[str, int, int]
    value_bytes: bytes | None
    own_headers: list[tuple[str, bytes | None]] | None = None

    def topic(self) -> str:
        return self.of[0]

    def partition(self) -> int:
        return self.of[1]

    def offset(self) -> int:
        return self.of[2]

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self.of[2]

    def key(self) -> bytes:
        return b"k%d" % self.of[2]

    def value(self) -> bytes | None:
        return self.value_bytes

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.own_headers

    def row(self) -> dict[str, Any]:
        return {
            "part": self.of[1], "off": self.of[2], "ts": 1000 + self.of[2], "headers": packed_headers(self.own_headers),
            "key": self.key(), "value": self.value_bytes,
        }  # fmt: skip


def test_changelog_records_of_several_stores_come_by_store_in_their_order() -> None:
    topics = list(TAGS)
    fetched = [
        Fetched((topics[at // 3 % 3], at % 2, at), None if at % 4 == 0 else b"v%d" % at, [("h", None)] if at == 5 else None)
        for at in range(20)
    ]
    rows = restored_rows(fetched, SourceSpec(topics={}, changelogs=TAGS), index=4)
    assert rows.schema == SCHEMA
    *held, control = rows.to_pylist()
    values = defaultdict(list)
    for row in held:
        values[row["node"]].append(row["value"])
    assert {tag: unpacked(found).to_pylist() for tag, found in values.items()} == {
        tag: [each.row() for each in fetched if each.topic() == topic] for topic, tag in TAGS.items()
    }
    assert (control["node"], control["off"], control["ts"]) == (CHUNK, 4, 20), "the chunk's number, and how many records it has"


@pytest.mark.parametrize("size", [1, 1000, 300_000, 3 * _PACKED_BYTES])
def test_no_row_is_much_larger_than_it_may_be_unless_one_record_is(size: int) -> None:
    count = max(3, 4 * _PACKED_BYTES // size) if size > 1 else 3
    records = [Fetched(("first-changelog", 0, at), bytes([at % 256]) * size).row() for at in range(count)]
    values = list(packed(pa.RecordBatch.from_pylist(records, PACKED_SCHEMA)))
    assert unpacked(values).to_pylist() == records
    assert max(map(len, values)) < max(_PACKED_BYTES, size) + 10_000 + 100 * count
    assert len(values) > 1 or size == 1

"""Headers of changelog records that a batch as a whole has made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.steps.step_fixtures import Context, MemoryOutput, count_spec, word
from tidemill.dsl.serdes import Serdes
from tidemill.steps.rows.headers import packed
from tidemill.task.batch import Outcome
from tidemill.task.raw_records import RecordColumns
from tidemill.topology.operations import Aggregate, Operation, Reduce, TableSource


@dataclass
class OutputWithHeaders(MemoryOutput):
    """Remembers keys, values and headers of the changelog."""

    changelog: list[tuple[bytes | None, bytes | None, Any]] = field(default_factory=list)

    def produce(self, topic: str, records: RecordColumns) -> None:
        super().produce(topic, records)
        if topic.endswith("-changelog"):
            self.changelog += zip(records.keys, records.values, records.headers or [None] * len(records), strict=True)


@pytest.mark.parametrize("logs_headers", [True, False])
@pytest.mark.parametrize(("operation", "end"), [
    (Reduce("counts", lambda so_far, value: None if value == "end" else so_far + value), b"end"),
    (Aggregate("counts", str, lambda _key, value, so_far: None if value == "end" else so_far + value), b"end"),
    (TableSource("counts"), None),
])  # fmt: skip
def test_deletions_have_the_headers_of_their_records_where_the_store_logs_them(
    operation: Operation, end: bytes | None, *, logs_headers: bool
) -> None:
    """As in Kafka Streams 4.3 with dsl.store.format=HEADERS: deletions alone."""
    spec = count_spec(operation, Serdes.string())
    spec = replace(spec, stores={"counts": replace(spec.stores["counts"], logs_headers=logs_headers)})
    output, own = OutputWithHeaders(), [("h", b"x"), ("i", None)]
    given = [("gone", b"a"), ("kept", b"a"), ("back", b"a"), ("gone", end), ("back", end), ("back", b"b")]
    rows = [word(key, at, value=value, headers=packed(own)) for at, (key, value) in enumerate(given)]
    assert Context(output=output).run(rows, spec=spec).outcome is Outcome.COMMITTED
    gone = own if logs_headers else None
    assert sorted(output.changelog) == [(b"back", b"b", None), (b"gone", None, gone), (b"kept", b"a", None)]

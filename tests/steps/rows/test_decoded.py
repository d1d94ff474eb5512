"""Rows that enter a graph of operators: which of them are unreadable records."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill import Serdes
from tidemill.errors import ColumnsResultError
from tidemill.steps.rows.decoded import decoded_rows
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.step_spec import GraphEntry

STRING, JSON = Serdes.string(), Serdes.json("a bigint NOT NULL")


def rows(*values: bytes) -> pa.Table:
    given = [{"part": 0, "off": at, "seq": at, "ts": 5, "key": b"k", "value": value} for at, value in enumerate(values)]
    return pa.Table.from_pylist(given, SCHEMA)


def entry(source: int | None) -> GraphEntry:
    return GraphEntry(node="COUNTS|in", key_serde=STRING, value_serde=JSON, source=source, topics=("in",))


def test_records_of_a_topic_that_a_serde_refuses_are_unreadable_and_say_of_which_source() -> None:
    found, unreadable = decoded_rows(rows(b'{"a":1}', b"{}", b'{"a":2}'), entry(3))
    assert (found.keys, found.values, found.offsets) == (["k", "k"], [{"a": 1}, {"a": 2}], [0, 2])
    assert unreadable is not None
    assert unreadable.select(["off", "n", "value"]).to_pylist() == [{"off": 1, "n": 3, "value": b"{}"}]


def test_what_functions_of_columns_have_made_is_no_unreadable_record_but_an_error_of_theirs() -> None:
    with pytest.raises(ColumnsResultError, match=r"COUNTS: the value can't be read: json: .*a"):
        decoded_rows(rows(b'{"a":1}', b"{}"), entry(None))

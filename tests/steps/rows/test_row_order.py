"""The order of rows: by the row that they come from, then as a Python step has made them, then as a layer of columns has."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from tidemill.steps.rows.order import LAST_SEQUENCE, first_child, in_sequence, ranked, sequence, topic_index
from tidemill.steps.rows.schema import LOG, MARKER, OUTPUT, SCHEMA, UNREADABLE

DATA = 3
Row = tuple[int, int | None, int | None, int | None]
"""node, seq, child, place"""


def table(rows: Sequence[Row]) -> pa.Table:
    columns = {name: pa.nulls(len(rows), SCHEMA.field(name).type) for name in SCHEMA.names}
    for name, of_all in zip(("node", "seq", "child", "place"), zip(*rows, strict=True), strict=True):
        columns[name] = pa.array(of_all, SCHEMA.field(name).type)
    columns["off"] = pa.array(range(len(rows)), pa.int64())
    return pa.table(columns, schema=SCHEMA)


def order_of(rows: Sequence[Row]) -> list[Row]:
    found = in_sequence(ranked(table(rows)))
    return [rows[at] for at in found.column("off").to_pylist()]


def test_rows_as_the_source_has_numbered_them_are_left_as_they_are() -> None:
    rows = table([(DATA, sequence(number, number % 2), None, None) for number in range(5)])
    assert ranked(rows) is rows
    assert in_sequence(rows) is rows


def test_the_order_is_by_record_then_by_child_then_by_place() -> None:
    made: list[Row] = [
        (DATA, sequence(record, 1), first_child(1) + 7 * record + child, 100 * (2 - child) + place)
        for record in range(3)
        for child in range(3)
        for place in range(4)
    ]
    assert order_of(random.Random(1).sample(made, len(made))) == made


def test_a_row_that_passed_a_step_comes_before_those_that_the_step_made_of_it() -> None:
    first, second = sequence(0, 0), sequence(1, 0)
    rows: list[Row] = [(DATA, second, first_child(1), None), (DATA, second, None, None), (DATA, first, first_child(1) + 1, None)]
    assert order_of(rows) == [rows[2], rows[1], rows[0]]


def test_what_a_step_sent_itself_comes_before_what_becomes_of_the_rows_it_handed_on() -> None:
    rows: list[Row] = [(DATA, 5, first_child(1), None), (OUTPUT, 5, first_child(1) + 8, None), (DATA, 4, first_child(1), None)]
    assert order_of(rows) == [rows[2], rows[1], rows[0]]


@pytest.mark.parametrize("layers", range(1, 8))
def test_any_number_of_layers_may_make_any_number_of_rows(layers: int) -> None:
    """More than any shift of bits has room for: 100,000 rows of each record, through each layer and step."""
    rows: list[Row] = [(DATA, sequence(record, record % 3), None, None) for record in range(4)]
    place = 0
    for layer in range(layers):
        rows = [(node, seq, child, (place := place + 100_000)) for node, seq, child, _ in rows for _ in range(2)]
        arrived = ranked(table(random.Random(layer).sample(rows, len(rows))))
        seqs = sorted(arrived.column("seq").to_pylist())
        assert len(set(seqs)) == len(rows)
        assert max(seqs) < LAST_SEQUENCE
        assert [topic_index(seq) for seq in seqs] == [record % 3 for record in range(4) for _ in range(2 ** (layer + 1))]
        rows = [(DATA, seq, first_child(layer + 1) + at, None) for at, seq in enumerate(seqs)]


def test_rows_that_have_no_part_in_the_order_stay_as_they_are() -> None:
    aside: list[Row] = [(MARKER, 0, None, 3), (LOG, None, 77, 4), (UNREADABLE, sequence(9, 5), None, 6)]
    found = ranked(table([*aside, (DATA, sequence(3, 2), 8, 5)]))
    kept = list(zip(*(found.column(name).to_pylist() for name in ("node", "seq", "child", "place")), strict=True))
    assert kept == [*aside, (DATA, sequence(0, 2), None, None)]


def test_rows_that_were_summed_come_last() -> None:
    rows: list[Row] = [(DATA, None, None, None), (DATA, 9, None, 1), (DATA, 4, None, 2)]
    assert order_of(rows) == [rows[2], rows[1], rows[0]]

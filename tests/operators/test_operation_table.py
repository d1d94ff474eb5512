"""The table of operations is complete, and the three places that run operations have what it says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from tidemill.operators.operation_table import (
    OPERATIONS,
    Enters,
    Leaves,
    OperationEntry,
    Runs,
    Shortcut,
    TableRows,
    operator_of,
)
from tidemill.spark.plan.column_nodes import MANY_OF_ONE, ONE_OF_ONE
from tidemill.spark.plan.shortcuts import FITS
from tidemill.steps.vector.vector_step import ON_RECORDS, ON_ROWS
from tidemill.topology import batch_operations, join_operations, operations, spark_operations
from tidemill.topology.operations import Operation

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "add-an-operator.md"
NO_OPERATIONS = {"Counting", "Reducing", "Aggregating", "BatchForm", "PerBatch", "PerRecordAsync"}
"""Parts of operations."""
ENTRIES = sorted(OPERATIONS.items(), key=lambda item: item[0].__name__)
each_entry = pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=[kind.__name__ for kind, _ in ENTRIES])


def test_every_operation_has_one_entry() -> None:
    declared = {
        kind
        for module in (operations, join_operations, batch_operations, spark_operations)
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__ and name not in NO_OPERATIONS
    }
    assert declared == OPERATIONS.keys() == set(get_args(Operation))


def _runs_in(entry: OperationEntry) -> set[Runs | None]:
    return {entry.runs, entry.with_store}


@each_entry
def test_an_operation_runs_where_its_entry_says_and_nowhere_else(kind: type, entry: OperationEntry) -> None:
    in_layers = bool({Runs.COLUMNS, Runs.FORWARDS} & _runs_in(entry))
    leaves_its_part = entry.shortcut in FITS
    assert (kind in ONE_OF_ONE or kind in MANY_OF_ONE) is in_layers
    assert (kind in ON_RECORDS or kind in ON_ROWS) is (Runs.STEP in _runs_in(entry) or leaves_its_part)
    assert (entry.operator is not None) or entry.runs is not Runs.GRAPH
    assert not (kind in ONE_OF_ONE and kind in MANY_OF_ONE)
    assert not (kind in ON_RECORDS and kind in ON_ROWS)


@each_entry
def test_an_entry_names_all_stores_tables_and_functions_of_columns(kind: type, entry: OperationEntry) -> None:
    names = [field.name for field in fields(kind)]
    stores = {name for name in names if re.fullmatch(r"(\w+_)?store|buffer", name)}
    assert set(entry.stores) == stores
    assert set(entry.tables) == {name for name in names if name in ("table", "other")}
    assert set(entry.functions) <= set(names)
    if entry.runs is Runs.COLUMNS and entry.operator is not None:
        assert set(entry.functions) == {name for name in names if name in ("function", "predicate", "predicates")}


@each_entry
def test_what_is_written_as_a_store_keeps_it_has_a_store(kind: type, entry: OperationEntry) -> None:
    assert "store" in entry.stores or (entry.enters is Enters.BY_TYPE and entry.with_store is None)
    assert "store" in entry.stores or entry.value not in (Leaves.STORED, Leaves.AGGREGATE)
    own = {field.name for field in fields(kind)}
    assert ("aggregation" in own) is (entry.value is Leaves.AGGREGATE)
    assert ({"aggregation", "windows"} <= own) is (entry.key is Leaves.WINDOWED)
    assert entry.key in (Leaves.ARRIVING, Leaves.OWN, Leaves.WINDOWED)


@each_entry
def test_a_table_has_a_store_for_its_rows_and_a_derived_one_may_do_without(kind: type, entry: OperationEntry) -> None:
    assert entry.table is None or "store" in entry.stores
    assert (entry.table is TableRows.DERIVED) is ("forgets_versions" in [field.name for field in fields(kind)])


def test_each_shortcut_is_somebodys() -> None:
    assert {entry.shortcut for _, entry in ENTRIES} - {None} == set(Shortcut)


def test_what_has_no_operator_is_refused_by_name() -> None:
    context: Any = None
    with pytest.raises(TypeError, match="HeldAggregates does not run record by record"):
        operator_of(spark_operations.HeldAggregates("s"), context)


def row_of(kind: type, entry: OperationEntry) -> str:
    """Its row in the page."""
    place = entry.runs.value if entry.with_store is None else f"{entry.runs.value}; {entry.with_store.value} with a store"
    graph = "yes" if entry.operator is not None else "no"
    shortcut = "" if entry.shortcut is None else entry.shortcut.value.replace("_", " ")
    kafka = f"`{entry.kafka}`" if entry.kafka else ""
    return f"| `{kind.__name__}` | {kafka} | {place} | {graph} | {shortcut} |"


def test_the_page_shows_the_table() -> None:
    _, table = PAGE.read_text(encoding="utf-8").split("## All operations")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    expected = [row_of(kind, entry) for kind, entry in OPERATIONS.items()]
    assert rows == expected, "the rows of the page are to be:\n" + "\n".join(expected)

"""Programs of chance give the same through the steps that run in a worker as record by record in one graph."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.operators import step_harness
from tests.operators.harness import ROW_FORMS, Run, start
from tests.operators.random_programs import ANYTHING, built, cases, is_of_another_type, records_for
from tests.operators.step_harness import StepRun
from tidemill.errors import RecordError
from tidemill.topology.nodes import SourceNode

CASES = cases(every=10)
Written = dict[str, list[tuple[Any, ...]]]


def written(entries: list[Any]) -> Written:
    """(key, value, timestamp) by topic; names without the application id."""
    found: Written = {}
    for topic, key, value, timestamp, *_rest in entries:
        found.setdefault(topic.removeprefix("app-"), []).append((key, value, timestamp))
    return found


def last_of(found: Written) -> dict[str, dict[Any, Any]]:
    return {topic: {key: rest for key, *rest in records} for topic, records in found.items()}


def rows_of(run: Any, names: list[str]) -> dict[str, list[Any]]:
    stores = run.topology.stores
    return {name: list(ROW_FORMS[stores[name].kind](run.graph.store(name))) for name in names if stores[name].kind in ROW_FORMS}


def beside_each_other(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Run, StepRun] | None:
    """The program in a graph and in steps; None where it reads topics by pattern, which no harness finds."""
    monkeypatch.setattr(step_harness, "Serdes", SimpleNamespace(string=lambda: ANYTHING))
    topology = built(case, monkeypatch)
    sources = (node for node in topology.nodes.values() if isinstance(node, SourceNode))
    return None if any(node.topic_pattern for node in sources) else (start(topology), StepRun(topology))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_steps_of_single_records_write_what_one_graph_writes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if (both := beside_each_other(CASES[number], monkeypatch)) is None:
        return
    graph, steps = both
    for at, record in enumerate(records_for(graph.topology, number, 25)):
        try:
            graph.pipe(at, *record)
        except RecordError as error:
            if is_of_another_type(error):
                return
            raise
        steps.pipe([(*record, ())], one_by_one=True)
    assert written(steps.written) == written(graph.written)
    assert rows_of(steps, list(graph.rows)) == rows_of(graph, list(graph.rows))
    assert steps.dropped == graph.graph.dropped


@pytest.mark.parametrize("number", range(len(CASES)))
def test_batches_of_any_size_end_where_one_graph_ends(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    both = beside_each_other(CASES[number], monkeypatch)
    if both is None or both[0].topology.repartition_topics:  # through a topic, batches decide what meets what
        return
    graph, steps = both
    records, chance = records_for(graph.topology, number, 60), random.Random(number)
    for at, record in enumerate(records):
        graph.pipe(at, *record)
    while records:
        size = chance.choice((1, 2, 3, 7, 30))
        steps.pipe([(*record, ()) for record in records[:size]])
        records = records[size:]
    assert last_of(written(steps.written)) == last_of(written(graph.written))
    assert rows_of(steps, list(graph.rows)) == rows_of(graph, list(graph.rows))
    assert steps.dropped == graph.graph.dropped

"""`tidemill explain-plan`: what runs where, and Spark's own plan of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.cli_process import cli
from tidemill import Serdes, StreamsBuilder
from tidemill.cli.application_file import load_application
from tidemill.cli.explain_plan import explained, where_nodes_run
from tidemill.spark.plan.stages import stages
from tidemill.topology.nodes import Topology

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def topology() -> Callable[[str], Topology]:
    return lambda name: load_application(EXAMPLES / f"{name}.py", {})[0]


def test_where_the_nodes_of_wordcount_run(topology: Callable[[str], Topology]) -> None:
    wordcount = topology("wordcount")
    assert where_nodes_run(wordcount, stages(wordcount)) == [
        "Python, source step: KSTREAM-SOURCE-0000000000 <- streams-plaintext-input, "
        "counts-store-repartition-source <- counts-store-repartition",
        "JVM, Catalyst: KSTREAM-FLATMAPVALUES-0000000001, KSTREAM-KEY-SELECT-0000000002, counts-store-repartition-filter",
        "Python, step 1 and commit: counts-store-repartition-sink -> counts-store-repartition, "
        "KSTREAM-AGGREGATE-0000000003 [counts-store], KTABLE-TOSTREAM-0000000007, "
        "KSTREAM-SINK-0000000008 -> streams-wordcount-output",
    ]


def test_a_source_by_a_pattern_and_a_sink_to_chosen_topics_are_shown_as_such() -> None:
    builder = StreamsBuilder()
    stream = builder.stream(re.compile("in-.*"), key=Serdes.string(), value=Serdes.string(), name="source")
    stream.to(lambda key, value, record: value, name="sink")
    found = builder.build()
    told = " ".join(where_nodes_run(found, stages(found)))
    assert "source <- in-.*" in told
    assert "sink -> topics named by a function" in told


@pytest.mark.parametrize("name", ["wordcount", "aggregates", "branches", "table"])
def test_every_node_runs_somewhere_once(topology: Callable[[str], Topology], name: str) -> None:
    found = topology(name)
    lines = where_nodes_run(found, stages(found))
    told = [re.split(r" [<\[-]", part)[0] for line in lines for part in line.partition(": ")[2].split(", ")]
    assert sorted(set(told) & set(found.nodes)) == sorted(told) == sorted(found.nodes)


def test_threads_with_the_same_plan_are_told_so(topology: Callable[[str], Topology]) -> None:
    wordcount = topology("wordcount")
    text = explained(wordcount, stages(wordcount), ["Project [a#1, 1000003, x_2]", "Project [a#7, 1000009, x_5]", "Filter a#9"])
    first, second, third = re.split(r"^StreamThread-\d\n", text, flags=re.MULTILINE)[1:]
    assert "    Project [a#1, 1000003, x_2]" in first
    assert second == "  a plan of its own, built as StreamThread-1's\n\n"
    assert "    Filter a#9" in third


@pytest.mark.spark
def test_expressions_of_the_dsl_are_catalyst_nodes_and_not_python(tmp_path: Path) -> None:
    with cli("explain-plan", EXAMPLES / "wordcount.py", "--set", "num.stream.threads=2") as explain:
        assert explain.end() == 0, explain.text
        explain.leaves_nothing()
    first, second = explain.text.split("StreamThread-2")
    plan, _, summing = first.partition("physical plan")[2].partition("While a backlog lasts")
    assert re.search(r"Generate explode\(.*array_remove\(split\(lower\(cast\(:value#\d+ as string\)\), \\W\+, -1\)", plan)
    assert re.search(r"\*\(\d+\) Project \[", plan)  # the star: code generation
    assert "HashAggregate" not in plan, "it waits for the end of the input"
    assert re.search(r"\*\(\d+\) HashAggregate\(.*sum\(", summing)
    assert re.findall(r"MapInArrow (\w+)", summing) == ["step_1", "source_step"]
    assert re.findall(r"MapInArrow (\w+)", plan) == ["step_1", "source_step"]
    assert not re.search(r"EvalPython|PythonUDF|Exchange", plan)
    assert second.strip() == "a plan of its own, built as StreamThread-1's"

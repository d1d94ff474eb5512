"""``tidemill explain-plan APP.py``: what each stream thread runs where, and Spark's physical plan of it.

Decides how the plan is shown. The plan is the one that the thread would run, compiled and checked by the same code, with
Python steps that do nothing in place of those that read Kafka and write it: no broker is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.application_file import load_application
from tidemill.cli.progress import status_line
from tidemill.cli.settings import ConfigFile, Settings, outside_settings
from tidemill.config.slices import ExceptionConfig, SparkConfig, TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.topology.nodes import ProcessorNode, SinkNode, SourceNode, Topology, parents_first

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemill.spark.plan.python_steps import ArrowStep
    from tidemill.spark.plan.stages import Stages

_SPARK = {"spark.sql.debug.maxToStringFields": "1000"}


def explain_plan(
    app: Annotated[Path, typer.Argument(help="The application file, or its module: Python that defines builder or topology.")],
    settings: Settings = None,
    config: ConfigFile = None,
) -> None:
    """Print the Spark plan of each stream thread; no broker is needed."""
    topology, merged = load_application(app, outside_settings(settings, config))
    named = {"application.id": "explain-plan", **merged}
    spark = StreamsConfig.read_slice(SparkConfig, named)
    program = StreamsConfig.read_slice(TopologyConfig, named)
    exceptions = StreamsConfig.read_slice(ExceptionConfig, named)
    with status_line() as say:
        say("starting Spark")
        stages, plans = _plans(topology, spark, program, exceptions)
    typer.echo(explained(topology, stages, plans))


def explained(topology: Topology, stages: Stages, plans: list[str]) -> str:
    """The text for people, from what each thread's plan looks like to Spark."""
    parts = []
    for number, plan in enumerate(plans, start=1):
        parts.append(f"StreamThread-{number}")
        if number > 1 and _without_ids(plan) == _without_ids(plans[0]):
            parts.append("  a plan of its own, built as StreamThread-1's\n")
            continue
        parts += [f"  {line}" for line in where_nodes_run(topology, stages)]
        parts.append("  Spark's physical plan, last step first:")
        parts += [f"    {line}" for line in plan.rstrip().splitlines()]
        parts.append("")
    return "\n".join(parts).rstrip()


def where_nodes_run(topology: Topology, stages: Stages) -> list[str]:
    """One line for each step and layer in the order of the data, with its nodes."""
    from tidemill.spark.plan.planned_topology import only_forwards

    in_python: dict[int, list[str]] = {}
    in_jvm: dict[int, list[str]] = {}
    place: dict[str, tuple[int, bool]] = {}  # the step that it runs in or behind, and whether in Python
    for name in parents_first(topology):
        node = topology.nodes[name]
        if name in stages.step_of:
            place[name] = stages.step_of[name], True
        else:
            number, above_in_python = max((place[parent] for parent in topology.parents.get(name, ())), default=(0, False))
            place[name] = number, number > 0 and above_in_python and only_forwards(topology, name)
        number, runs_in_python = place[name]
        (in_python if runs_in_python else in_jvm).setdefault(number, []).append(_named(name, node))
    lines = []
    for number in range(stages.last + 1):
        what = "source step" if number == 0 else f"step {number}" + (" and commit" if number == stages.last else "")
        lines.append(f"Python, {what}: {', '.join(in_python.get(number, ['-']))}")
        if number in in_jvm:
            lines.append(f"JVM, Catalyst: {', '.join(in_jvm[number])}")
    return lines


def _named(name: str, node: object) -> str:
    if isinstance(node, SourceNode):
        return f"{name} <- {node.topic_pattern or ', '.join(node.topics)}"
    if isinstance(node, SinkNode):
        return f"{name} -> {node.topic or 'topics named by a function'}"
    if isinstance(node, ProcessorNode) and node.stores:
        return f"{name} [{', '.join(node.stores)}]"
    return name


def _without_ids(plan: str) -> str:
    """The plan with what is new for each (column ids, tags, lambdas' variables) numbered in the order of appearance."""
    seen: dict[str, str] = {}
    return re.sub(r"#\d+|\b1\d{6}\b|\b[xyz]_\d+\b", lambda found: seen.setdefault(found[0], f"#{len(seen)}"), plan)


def _plans(
    topology: Topology, config: SparkConfig, program: TopologyConfig, exceptions: ExceptionConfig
) -> tuple[Stages, list[str]]:
    """The stages, and each thread's physical plan as Spark writes it."""
    from tidemill.kafka.security.config_providers import references, resolved_spark
    from tidemill.runtime.instance.exception_policies import require_handlers
    from tidemill.runtime.instance.machine_jvm import JVM_HEAP, machine_jvm
    from tidemill.runtime.instance.starting import compiled_for
    from tidemill.spark.plan.plan_size import planning

    settings = resolved_spark(config.spark)
    require_handlers(exceptions)
    spark = machine_jvm(
        os.environ,
        application_id=config.application_id,
        threads=config.num_stream_threads,
        settings={**_SPARK, **settings},
        heap=settings.get("spark.driver.memory", JVM_HEAP),
        written=references("spark.", config.spark),
    ).session()
    try:
        compiled = compiled_for(program, exceptions, topology, spark.session)
        plans = []
        for _ in range(config.num_stream_threads):
            steps = [_step(f"step_{step.number}") for step in compiled.steps]
            shown = []
            for sums in (False, True) if compiled.sums and compiled.can_stand else (compiled.sums,):
                root = spark.session.range(0, 1, 1, 1)
                frame = compiled.frame(root, _step("source_step"), steps, lambda _name: None, sums=sums)
                with planning(topology):
                    compiled.check(frame, sums=sums)
                    shown.append(str(frame._jdf.queryExecution().executedPlan().toString()).rstrip())
            plans.append("\n\nWhile a backlog lasts rows are summed:\n".join(shown))
        return compiled.stages, plans
    finally:
        spark.close()


def _step(name: str) -> ArrowStep:
    """Placeholder of a Python step; the plan shows its name."""

    def step(_rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from ()

    step.__name__ = name
    return step

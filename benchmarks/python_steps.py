"""How fast the Python steps of windows, sessions and joins are by themselves: no broker, no JVM, one core.

    python benchmarks/python_steps.py [--records 200000] [--batch 20000] [--programs stream_stream_join,...] [--profile]

What is timed is all that the last step of a plan does but talk to Kafka: the rows that reach it, the node or graph, the state
in LMDB (read, checked and written), the records for the producer. CPU time, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import runpy
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from operator_inputs import OF_ONE_TASK, Input, inputs

from tidemill.ids import TaskId, TopicPartition
from tidemill.operators.exception_handlers import ExceptionResponse
from tidemill.runtime.worker.task_store import OpenTasks
from tidemill.spark.plan import compiled_topology as plan
from tidemill.spark.plan.compile import Compiler
from tidemill.spark.plan.serde_rules import leaving_in_step
from tidemill.spark.plan.stages import stages
from tidemill.steps.commit.unreadable import Unreadable
from tidemill.steps.graph.kept_graphs import KeptGraphs
from tidemill.steps.last_step import run_last_step
from tidemill.steps.rows.order import sequence
from tidemill.steps.rows.schema import CHUNK, SCHEMA
from tidemill.steps.source_step import marker_rows
from tidemill.steps.step_spec import SourceSpec, StepSpec
from tidemill.task.batch import BatchRequest, CommittingMember, Marker, Outcome, Positions, TaskRun
from tidemill.task.batch_id import BatchId
from tidemill.task.commit import CommitStep
from tidemill.task.partition_time import Times
from tidemill.task.raw_records import RecordColumns
from tidemill.topology.key_value_serdes import NO_SERDES, KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SourceNode

HERE = Path(__file__).parent
PARTITIONS, APPLICATION = 4, "steps"
PlacedInput = tuple[str, int, bytes, bytes, int]
"""(topic, partition, key, value, timestamp)"""


class NullOutput:
    """Takes records as a producer does and counts them."""

    is_transactional = True

    def __init__(self) -> None:
        self.count = 0

    def prepare(self) -> None: ...

    def begin(self) -> None: ...

    def produce(self, topic: str, records: RecordColumns) -> None:
        self.count += len(records.keys)

    def flush(self) -> None: ...

    def commit(self, offsets: Positions, times: Times, membership: CommittingMember) -> Mapping[TopicPartition, int]:
        return {}

    def continues(self, changelog: TopicPartition, position: int) -> bool:
        return True

    def partitions_of(self, topic: str) -> int:
        return PARTITIONS

    def abort(self) -> None: ...


class Worker:
    """The steps' context."""

    def __init__(self, spec: StepSpec) -> None:
        self.output, self.graphs = NullOutput(), KeptGraphs()
        self.continuity: dict[TopicPartition, int] = {}
        self.unreadable = Unreadable(handler=ExceptionResponse.FAIL, topic=None, expected={})
        self.tasks = OpenTasks(spec.stores)

    def open_stores(self, runs: Sequence[TaskRun]) -> Any:
        return self.tasks.open(runs)

    def membership(self) -> CommittingMember:
        return CommittingMember(generation=1, member_id="m", instance_id=None, incarnation=0, may_commit=True)

    def committed(self, partitions: Sequence[TopicPartition]) -> Positions:
        return {}

    def call_foreach_batch(self, batch_id: int, node: str, rows: pa.Table, offsets: BatchId) -> None:
        raise NotImplementedError("no program here has a foreach_batch")

    def reached(self, step: CommitStep, batch_id: int) -> None: ...


def placed(given: Iterator[Input]) -> Iterator[PlacedInput]:
    """With their partitions, spread evenly."""
    for topic, key, value, timestamp in given:
        yield topic, int(key) % PARTITIONS, key.encode(), value.encode(), timestamp


def batches(
    given: Iterator[PlacedInput], source: SourceSpec, size: int
) -> Iterator[tuple[dict[TopicPartition, int], pa.RecordBatch]]:
    """Rows of ``size`` records as the source step makes them, and where they end."""
    ends: dict[TopicPartition, int] = {}
    while chunk := [record for record, _ in zip(given, range(size), strict=False)]:
        offsets = []
        for topic, partition, *_ in chunk:
            at = TopicPartition(topic, partition)
            offsets.append(ends.get(at, 0))
            ends[at] = offsets[-1] + 1
        count = len(chunk)
        columns: dict[str, pa.Array] = {name: pa.nulls(count + 1, SCHEMA.field(name).type) for name in SCHEMA.names}
        columns |= {
            "node": pa.array([*(source.topics[record[0]].tag for record in chunk), CHUNK], pa.int32()),
            "part": pa.array([*(record[1] for record in chunk), -1], pa.int32()),
            "off": pa.array([*offsets, 0], pa.int64()),
            "seq": pa.array([*(sequence(number, 0) for number in range(count)), 0], pa.int64()),
            "ts": pa.array([*(record[4] for record in chunk), count], pa.int64()),
            "key": pa.array([*(record[2] for record in chunk), None], pa.binary()),
            "value": pa.array([*(record[3] for record in chunk), None], pa.binary()),
        }
        yield dict(ends), pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _settled(compiler: Any, _session: None) -> None:
    """The serdes of all edges, where every node keeps what arrives or says what leaves it."""
    topology, serdes = compiler.topology, compiler.serdes
    for name, node in topology.nodes.items():
        if isinstance(node, SourceNode):
            serdes.leaving[name] = KeyValueSerdes(key=node.key_serde, value=node.value_serde)
            continue
        serdes.entering[name] = entry = serdes.leaving[topology.parents[name][0]]
        if isinstance(node, ProcessorNode):
            serdes.leaving[name] = leaving_in_step(topology, name, entry, NO_SERDES)


def measure(program: str, records: int, size: int, folder: Path, profile: cProfile.Profile | None) -> tuple[float, int]:
    """(CPU seconds, records sent), changelogs' included."""
    topology = runpy.run_path(str(HERE / "operator_programs" / f"{program}.py"))["builder"].build()
    # The plan that an application would have; Catalyst only passes these programs' rows on, so no session is needed.
    as_planned = mock.patch.object(plan, "stages", lambda topology, **_options: stages(topology))
    with as_planned, mock.patch.multiple(Compiler, has_columns=False, infer=_settled):
        compiled = plan.compile_topology(None, topology, APPLICATION)
    [spec] = compiled.steps
    # in the order of a plan: what leaves a source arrives at the only node below it
    arriving = {name: tag for tag, node in spec.nodes.items() for name in topology.parents[node.name]}
    for topic, source in compiled.source.topics.items():
        if source.node in arriving:
            compiled.source.topics[topic] = replace(source, tag=arriving[source.node])  # type: ignore[index]
    worker = Worker(spec)
    tasks = [TaskId(0, number) for number in range(PARTITIONS)]
    runs = tuple(TaskRun(task=task, directory=str(folder / str(task)), epoch="e") for task in tasks)
    topics = compiled.source.topics
    starts = {TopicPartition(topic, number): 0 for topic in topics for number in range(PARTITIONS)}
    spent, number = 0.0, 0
    given = [(ends, rows) for ends, rows in batches(placed(inputs(program, records)), compiled.source, size)]
    gc.collect()
    gc.freeze()
    gc.disable()
    for number, (found, rows) in enumerate(given, 1):
        ends = {**starts, **found}
        marker = Marker(
            batch_id=number, starts=starts, ends=ends, changelog_ends={}, chunks=1, rows=rows.num_rows - 1, out_of_range=(),
            high_watermarks={}, global_ends={},
        )
        request = BatchRequest(batch_id=number, inputs=starts, tasks=runs, now_ms=1000 * number, last_committed_batch=number - 1)
        began = time.process_time()
        if profile is not None:
            profile.enable()
        report = run_last_step(request, [rows, marker_rows(marker)], spec, worker)
        gc.collect(0)
        if profile is not None:
            profile.disable()
        spent += time.process_time() - began
        assert report.outcome is Outcome.COMMITTED, report.message
        starts = ends
    gc.enable()
    return spent, worker.output.count


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--programs", default=",".join(OF_ONE_TASK))
    parser.add_argument("--profile", action="store_true")
    chosen = parser.parse_args(arguments)
    print("| program | records/s of CPU | CPU us/record | records sent |\n|---|---|---|---|")
    for program in chosen.programs.split(","):
        profile = cProfile.Profile() if chosen.profile else None
        with tempfile.TemporaryDirectory(prefix="steps-") as folder:
            spent, sent = measure(program, chosen.records, chosen.batch, Path(folder), profile)
        print(f"| {program} | {chosen.records / spent:.0f} | {spent / chosen.records * 1e6:.2f} | {sent} |", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The training run from which a JVM's cache is written: a session, and batches of programs as people write them.

Decides the programs and their records. Nothing but the JVM and its Python workers takes part: the source hands out records of its
own, and the last step counts for one that commits.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.serdes import Serdes
from tidemill.embedded.jvm_cache import JvmCache
from tidemill.errors import BatchLostError, EnvironmentProblem
from tidemill.spark.engine import BatchEngine, start_workers
from tidemill.spark.launch.session import start_jvm
from tidemill.spark.plan.compiled_topology import compile_topology
from tidemill.spark.plan.python_steps import ArrowStep
from tidemill.steps.rows.schema import SCHEMA
from tidemill.steps.source_step import marker_rows
from tidemill.task.batch import BatchRequest, Marker
from tidemill.topology.nodes import Topology
from tidemill.topology.windows import JoinWindows, TimeWindows

_HEAP = "512m"
_START_LIMIT_S = 240.0
_WRITE_LIMIT_S = 600.0
_BATCHES = 5
_RECORDS = 500
_LINE = b"the quick brown fox jumps over the lazy dog, and a dog it was"
_ORDER = b'{"customer": "ada", "amount": 12.5, "items": [1, 2], "note": null}'


def make_cache(cache: JvmCache, java: Path) -> None:
    """Makes ``cache``, about a minute of one core; those of other files that lay in the same place are removed.

    Raises:
        EnvironmentProblem: the JVM wrote none.
    """
    cache.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".training-", dir=cache.path.parent) as folder:
        draft = Path(folder, cache.path.name)
        spark = start_jvm(
            java=java,
            application_id="tidemill-prepare",
            threads=1,
            settings={},
            heap=_HEAP,
            jvm_options=cache.training_options(draft),
        ).session(_START_LIMIT_S)
        try:
            for number, (topology, value) in enumerate(_programs()):
                _run(spark.session, topology, value, f"prepare-{number}")
        finally:
            spark.close(_WRITE_LIMIT_S)
        try:
            cache.keep(draft)
        except OSError as problem:
            raise EnvironmentProblem(f"{java} wrote no {cache.kind} to {cache.path.parent}: {problem.strerror}") from problem


def _programs() -> Iterator[tuple[Topology, bytes]]:
    """Topologies, each with the value of its topics' records."""
    for program, value in ((_word_count, _LINE), (_orders, _ORDER), (_windows_and_join, _LINE)):
        builder = StreamsBuilder()
        program(builder)
        yield builder.build(), value


def _word_count(builder: StreamsBuilder) -> None:
    lines = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
    words = lines.flat_map_values(lambda line: F.array_remove(F.split(F.lower(line), r"\W+"), ""))
    words.filter(lambda _, word: word != "a").group_by(lambda _, word: word).count().to_stream().to("counts", value=Serdes.long())


def _orders(builder: StreamsBuilder) -> None:
    """JSON in and out, with another key, and a layer behind a step."""
    order = Serdes.json("customer string, amount double, items array<bigint>, note string")
    orders = builder.stream("orders", key=Serdes.string(), value=order).filter(lambda _, order: order["amount"] > 0)
    counts = orders.group_by(lambda _, order: order["customer"], key=Serdes.string(), value=order).count()
    counts.to_stream().map_values(lambda count: count * 2).to("counts", key=Serdes.string(), value=Serdes.long())


def _windows_and_join(builder: StreamsBuilder) -> None:
    text = Serdes.string()
    left, right = builder.stream("left", key=text, value=text), builder.stream("right", key=text, value=text)
    left.group_by_key().windowed_by(TimeWindows.of_size(1000)).count().to_stream().to("windows", value=Serdes.long())
    left.join(right, lambda one, other: f"{one}{other}", JoinWindows.of_time_difference(10)).to("pairs", key=text, value=text)


def _run(session: SparkSession, topology: Topology, value: bytes, name: str) -> None:
    compiled = compile_topology(session, topology, name)
    tags = tuple(topic.tag for topic in compiled.source.topics.values())
    workers = ["source", *(f"step-{step.number}" for step in compiled.steps)]
    start_workers(session, name, name, workers, _ready).join(_START_LIMIT_S)
    steps: list[ArrowStep] = [_passing] * (len(compiled.steps) - 1)
    engine = BatchEngine(session, compiled, name, _source(tags, value), [*steps, _last], limit_s=_START_LIMIT_S)
    for has_backlog in (False, True):
        for number in range(_BATCHES):
            with contextlib.suppress(BatchLostError):  # nothing reports of it
                engine.run(BatchRequest(batch_id=number, inputs={}), has_backlog=has_backlog)
    engine.close()


def _ready(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (rows for rows in batches if rows.schema.names == ["worker"])
    yield pa.RecordBatch.from_arrays([pa.array(["ready"])], ["worker"])


def _source(tags: Sequence[int], value: bytes) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    rows = [
        dict.fromkeys(SCHEMA.names) | {"node": tag, "part": 0, "off": at, "seq": at, "ts": at, "value": value, "wall": at}
        for tag in tags
        for at in range(_RECORDS)
    ]
    marker = Marker(batch_id=1, starts={}, ends={}, changelog_ends={}, chunks=0, rows=0)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
        yield marker_rows(marker)

    return read


def _passing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _last(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()

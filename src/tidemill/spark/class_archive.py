"""Spark's classes, loaded and verified once and kept in a file that later JVMs map: a start takes a third less.

Decides where the archive of a Java and a PySpark lies, how a JVM uses it and what is run to make it. An archive's name says
which very files it was made of: a JVM passes over one of other files, and says nothing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import functions as F

from tidemill.dsl.builder import StreamsBuilder
from tidemill.dsl.serdes import Serdes
from tidemill.errors import EnvironmentProblem
from tidemill.spark.engine import pinning
from tidemill.spark.plan import compile_topology
from tidemill.spark.session import start_jvm
from tidemill.spark.source_step import marker_rows
from tidemill.task.batch import Marker
from tidemill.topology.nodes import Topology

_HEAP = "512m"
_WRITE_LIMIT_S = 120.0
_SPARK = Path(pyspark.__file__).parent


def archive_path(java: Path, cache: Path, spark: Path = _SPARK) -> Path:
    """Where the archive for this Java and this PySpark is, or would be, in the user's cache folder."""
    release = java.resolve().parent.parent / "release"
    where = (str(java.resolve()), str(spark))
    what = (release.read_text() if release.is_file() else "", pyspark.__version__, *_as_the_jvm_sees(spark / "jars"))
    return cache / "classes" / f"spark-{_short(where)}-{_short(what)}.jsa"


def _as_the_jvm_sees(jars: Path) -> Iterator[str]:
    """By which a JVM tells whether a file is the one that an archive was made of; PySpark installed anew has new times."""
    for entry in sorted(os.scandir(jars), key=lambda entry: entry.name):
        found = entry.stat()
        yield f"{entry.name} {found.st_size} {found.st_mtime_ns}"


def _short(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def jvm_options(java: Path, cache: Path) -> list[str]:
    """With which a JVM uses the archive; none if it has not been made."""
    archive = archive_path(java, cache)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.is_file() else []


def make_archive(java: Path, cache: Path) -> Path:
    """Makes the archive, about half a minute of one core: runs a plan with what most plans use, and has the JVM keep what it
    loaded. Archives of other files that lay in the same place are removed.

    Raises:
        EnvironmentProblem: the JVM wrote none.
    """
    archive = archive_path(java, cache)
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    spark = start_jvm(
        java=java,
        application_id="tidemill-prepare",
        threads=1,
        settings={},
        heap=_HEAP,
        jvm_options=[f"-XX:ArchiveClassesAtExit={draft}", "-Xlog:cds=off"],
    ).session()
    try:
        compiled = compile_topology(spark.session, _sample(), "tidemill-prepare")
        for sums in (False, True):
            with pinning(spark.session, "prepare") as pin:
                frame = compiled.frame(spark.session.range(0, 1, 1, 1), _no_records, [_no_work], pin, sums=sums)
            frame._jdf.queryExecution().executedPlan().execute().collect()
    finally:
        spark.close(_WRITE_LIMIT_S)
    try:
        draft.replace(archive)
    except OSError as problem:
        raise EnvironmentProblem(f"{java} wrote no class archive to {archive.parent}: {problem.strerror}") from problem
    forget_others(archive)
    return archive


def forget_others(archive: Path) -> None:
    """Removes archives of files that ``archive``'s have taken the place of."""
    for other in archive.parent.glob(f"{archive.stem.rpartition('-')[0]}-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)


def _sample() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key=Serdes.string(), value=Serdes.string())
    words = lines.flat_map_values(lambda line: F.array_remove(F.split(F.lower(line), r"\W+"), ""))
    words.filter(lambda _, word: word != "a").group_by(lambda _, word: word).count().to_stream().to("counts", value=Serdes.long())
    return builder.build()


def _no_records(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield marker_rows(Marker(batch_id=1, starts={}, ends={}, changelog_ends={}, chunks=0, rows=0))


def _no_work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield from ()

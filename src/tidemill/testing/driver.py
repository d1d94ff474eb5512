"""TopologyTestDriver: a topology on its real Spark plan, without a broker, a record or a batch at a time.

Decides what replaces the rest of an instance. Every topic has one partition, and each sub-topology is one task. Records that the
topology writes to topics that it reads (repartition topics, also sources) are read in a batch of their own before the next
input. The wall clock moves only when a test moves it.
State is kept in a folder that goes with the driver. Plans, steps, stores and operators are those of an instance.

The drivers of a process share one Spark session (``shared_session``).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from tidemill.config.slices import ExceptionConfig, SparkConfig, TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.errors import FunctionFailedError, StopError, TidemillError, TopologyError, WorkerDiedError
from tidemill.forked import leaves_to_parent
from tidemill.ids import TaskId, TopicPartition
from tidemill.kafka.security.config_providers import resolved_spark
from tidemill.log_format import LogEvent
from tidemill.operators.stores import store_of
from tidemill.runtime.instance.configured_topology import Program, configured_topology, default_serdes
from tidemill.runtime.instance.exception_policies import require_handlers, takes_one_by_one, unreadable_of
from tidemill.runtime.thread.foreach_batch import ForeachBatchCalls
from tidemill.runtime.worker.read_stores import ReadStores
from tidemill.spark.engine import BatchEngine
from tidemill.spark.plan.compiled_topology import Alignment, CompiledTopology, compile_topology
from tidemill.spark.plan_session import plan_session
from tidemill.spellings import Spelled
from tidemill.steps.rows.task_rows import NO_STATE, TaskRows
from tidemill.steps.step_state import Written
from tidemill.task.batch import BatchReport, BatchRequest, Outcome, RefusedRecord, TaskRun, times_after
from tidemill.task.batch_id import BatchId
from tidemill.task.batch_size import of_no_record
from tidemill.task.partition_time import Times
from tidemill.testing.driver_service import THREAD, shared_driver_service
from tidemill.testing.driver_stores import reads_of
from tidemill.testing.shared_session import STARTED, shared_session
from tidemill.testing.topics import Duration, RawRecord, TestInputTopic, TestOutputTopic, data, to_json
from tidemill.testing.worker import Place, on_disk, read_sent, source_of, step_of
from tidemill.topology.durations import Instant, epoch_milliseconds, milliseconds
from tidemill.topology.graph import Subtopology, subtopologies
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import ProcessorNode, SourceNode, Topology
from tidemill.topology.operations import ProcessRecords, TableTransformValues
from tidemill.topology.patterns import with_topics_of_patterns
from tidemill.topology.values import Serde

log = logging.getLogger("tidemill.testing")

_BATCH_LIMIT_S = 240.0
_APPLICATION = "topology-test-driver"
"""In the names of internal topics, where the settings name no application."""


def source_topics_of(topology: Program, config: Mapping[str, object]) -> dict[str, tuple[Serde, Serde]] | None:
    """``TopologyTestDriver.source_topics`` before there is a driver; None if some serdes are known only once there is one."""
    program = StreamsConfig.read_slice(TopologyConfig, {"application.id": _APPLICATION, **config})
    topology = with_topics_of_patterns(configured_topology(topology, program), program.application_id, ())
    defaults = default_serdes(program)
    found: dict[str, tuple[Serde, Serde]] = {}
    for node in topology.nodes.values():
        if isinstance(node, SourceNode):
            serdes = KeyValueSerdes(key=node.key_serde, value=node.value_serde).otherwise(defaults)
            own = [topic for topic in node.topics if topic not in topology.repartition_topics]
            if own and serdes.missing:
                return None
            found |= {topic: serdes.settled for topic in own}  # noqa: C420  # there may be none, and serdes that are not known
    return found


class TopologyTestDriver(Spelled):
    """Runs ``topology`` (or the builder that makes it) with ``config``; close it, or use it as a context manager.

    ``start_ms``: what the wall clock shows at first, or a ``datetime``. ``session``: a Spark session; else the shared one.
    ``topics``: those there are, for sources that read by a pattern. Records that can't be read or processed raise StopError, as
    an instance would stop.
    """

    __test__ = False

    def __init__(
        self,
        topology: Program,
        config: Mapping[str, object] | None = None,
        *,
        start_ms: Instant = 0,
        session: SparkSession | None = None,
        topics: Iterable[str] = (),
    ) -> None:
        settings = {"application.id": _APPLICATION, **(config or {})}
        settings.pop("bootstrap.servers", None)  # nothing is connected to, and tests of Kafka Streams give any text
        program = StreamsConfig.read_slice(TopologyConfig, settings)
        self._exceptions = StreamsConfig.read_slice(ExceptionConfig, settings)
        require_handlers(self._exceptions)
        spark = resolved_spark(StreamsConfig.read_slice(SparkConfig, settings).spark)
        topology = with_topics_of_patterns(configured_topology(topology, program), program.application_id, topics)
        self._service, self._server = shared_driver_service()
        self._is_interrupted = False
        self._folder = tempfile.mkdtemp(prefix="tidemill-driver-")
        self._remove_folder = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        leaves_to_parent(self)
        self._application = program.application_id
        self._default_serdes = default_serdes(program)
        self._parts = subtopologies(topology, self._application)
        self._internal = {topic for part in self._parts for topic in part.repartition_source_topics}
        self._positions = {TopicPartition(topic, 0): 0 for part in self._parts for topic in part.source_topics}
        self._times: Times = {}
        self._globals = {TopicPartition(topic, 0): 0 for topic in _global_topics(topology)}
        self._global_records: list[RawRecord] = []
        self._has_new_workers = True
        """They have nothing in the global stores yet: they get all of it with the next batch."""
        self._written: dict[str, list[RawRecord]] = {}
        self._read: dict[int, ReadStores] = {}
        """Open stores by sub-topology, for reads of tests."""
        self._batch = self._committed = 0
        """The ids of the last batch, and of the last one that counts."""
        self._is_parents = False
        self._has_processors = any(
            isinstance(node, ProcessorNode) and isinstance(node.operation, (ProcessRecords, TableTransformValues))
            for node in topology.nodes.values()
        )
        self.wall_clock_ms = epoch_milliseconds(start_ms, "TopologyTestDriver: start_ms")
        self.dropped = 0
        """Number of dropped records (dropped-records-total)."""
        self.skipped = 0
        """Number of records that could not be read and were skipped."""
        STARTED.require_own_process()
        session = session or shared_session()
        plans = plan_session(session, spark)
        self._compiled = compile_topology(
            plans, topology, self._application, default_serdes=self._default_serdes, presum=False,
            alignment=Alignment(by_time=True), one_by_one=takes_one_by_one(self._exceptions), owner=session,
        )  # fmt: skip
        self._engine = self._make_engine(plans, self._compiled)
        self._foreach_batch = ForeachBatchCalls(session, plans, self._application, self._compiled.batch_functions)
        _close_at_exit().add(self)

    # --- topics and time ---

    def create_input_topic(
        self, topic: str, key: Serde, value: Serde, *, start: Instant | None = None, advance: Duration = 0
    ) -> TestInputTopic:
        """A source topic to write; records without a timestamp get ``start`` (ms, or a datetime), and ``advance`` more each.

        Without ``start``, the time of the driver's wall clock now, as in Kafka Streams.
        """
        read = self._topics_read
        if topic not in read:
            known = ", ".join(sorted(read)) or "none"
            raise TopologyError(f"the topology reads no topic {topic!r}; it reads {known} (topics of a pattern: topics=[...])")
        return TestInputTopic(self._pipe, topic, key, value, self.wall_clock_ms if start is None else start, advance)

    def create_output_topic(self, topic: str, key: Serde, value: Serde) -> TestOutputTopic:
        """A topic to read what was written to it: a sink's, a repartition topic or a changelog."""
        return TestOutputTopic(self._written.setdefault(topic, []), topic, key, value)

    def advance_wall_clock_time(self, by: Duration) -> None:
        """Moves the wall clock on by so many ms (or a ``timedelta``) and runs the punctuators that are due."""
        by_ms = milliseconds(by, "advance_wall_clock_time")
        self._begin()
        self.wall_clock_ms += by_ms
        self._pipe([])

    def refresh_dataframes(self) -> None:
        """Reads the DataFrames of ``join_dataframe`` again, as an instance does every ``refresh_interval``."""
        self._compiled.lookups.refresh()

    @property
    def produced_topics(self) -> tuple[str, ...]:
        """All topics that something was written to."""
        return tuple(sorted(topic for topic, records in self._written.items() if records))

    @property
    def source_topics(self) -> dict[str, tuple[Serde, Serde]]:
        """The topics that the program reads, with the serdes of their keys and values; repartition topics are not among them."""
        edges = self._compiled.compiler.serdes.leaving
        found: dict[str, tuple[Serde, Serde]] = {}
        for name, node in self._compiled.topology.nodes.items():
            for topic in node.topics if isinstance(node, SourceNode) else ():
                if topic not in self._compiled.topology.repartition_topics:
                    edge = edges.get(name)
                    found[topic] = self._serdes(edge.key if edge else node.key_serde, edge.value if edge else node.value_serde)
        return found

    @property
    def sink_topics(self) -> dict[str, tuple[Serde, Serde]]:
        """The topics that the program writes, with their serdes; of those that a function names, what was written so far."""
        own = [sink for sink in self._compiled.steps[-1].sinks.values() if sink.topic not in self._internal]
        found = {sink.topic: self._serdes(sink.key_serde, sink.value_serde) for sink in own if sink.topic_extractor is None}
        for sink in own:
            if sink.topic_extractor is not None:
                others = [topic for topic in self.produced_topics if not topic.startswith(f"{self._application}-")]
                found.update({topic: self._serdes(sink.key_serde, sink.value_serde) for topic in others if topic not in found})
        return found

    def _serdes(self, key: Serde | None, value: Serde | None) -> tuple[Serde, Serde]:
        return KeyValueSerdes(key=key, value=value).otherwise(self._default_serdes).settled

    # --- stores ---

    @property
    def store_kinds(self) -> dict[str, str]:
        """The kind of each of the program's stores, as ``describe`` names it."""
        return {name: store.kind.value for name, store in self._compiled.topology.stores.items()}

    def store(self, name: str) -> Any:
        """A store, with the reads of its kind: ``get``, ``all``, ``range``, ``fetch`` ... Each read is of the store as it is
        then. It can't be written.

        Raises:
            TopologyError: the topology has no such store.
        """
        stores = self._compiled.topology.stores
        if name not in stores:
            raise TopologyError(f"the topology has no store {name!r}; its stores are {', '.join(stores) or 'none'}")
        return reads_of(name, lambda: self._store_now(name))

    def _store_now(self, name: str) -> object:
        """The store as the next read of it is to see it: windows and sessions expire by the time that it has seen so far."""
        topology = self._compiled.topology
        self._begin()
        self._require_open()
        spec = self._compiled.steps[-1].stores.get(name)
        if spec is None:  # a global store: the worker holds it in memory
            rows = TaskRows(name, logged=False)
            rows.begin(NO_STATE, Written(rows=dict(self._run([], show=name)[1])))
            return store_of(topology.stores[name], rows, self._default_serdes)
        if spec.subtopology not in self._read:
            part = next(part for part in self._parts if part.id == spec.subtopology)
            self._read[spec.subtopology] = ReadStores(self._task_run(part), on_disk(self._compiled.steps[-1].stores))
        rows = TaskRows(name, logged=False)
        rows.begin(_Now(self._read[spec.subtopology]), Written())
        serdes = KeyValueSerdes(key=spec.key_serde, value=spec.value_serde).otherwise(self._default_serdes)
        return store_of(spec.kept or topology.stores[name], rows, serdes)

    # --- running ---

    def close(self) -> None:
        """Closes the processors and removes the driver's state; the session and its workers are for the next driver."""
        if self._has_processors and self._committed and not (self._is_parents or self._is_interrupted):
            self._close_processors()
        self._end()

    def _close_processors(self) -> None:
        """By a batch without tasks, in which a worker closes those that it had."""
        if not self._remove_folder.alive:
            return
        try:
            self._run_batch([], BatchRequest(batch_id=self._batch + 1, inputs={}, last_committed_batch=self._committed))
        except TidemillError as problem:  # its session was stopped before
            log.warning(LogEvent("close-failed", what="processors", problem=problem))

    def _end(self) -> None:
        if not self._is_parents:
            self._service.close(self._engine)
            for held in self._read.values():
                held.close()
            self._remove_folder()
            _close_at_exit().discard(self)

    def leave_to_parent(self) -> None:
        """Called in a process that was forked from this one: the driver is the parent's, and its folder too."""
        self._is_parents = True
        self._remove_folder.detach()

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _make_engine(self, session: SparkSession, compiled: CompiledTopology) -> BatchEngine:
        unreadable = unreadable_of(self._exceptions, compiled)
        place = Place(records=self._address, server=self._server.address, key=self._server.key)
        return BatchEngine(
            session,
            compiled,
            THREAD,  # all drivers share the workers; each has a place of its own in them
            source_of(place, compiled.source, unreadable, len(compiled.steps)),
            [step_of(place, spec, unreadable, len(compiled.steps)) for spec in compiled.steps],
            limit_s=_BATCH_LIMIT_S,
        )

    @property
    def _topics_read(self) -> set[str]:
        return {partition.topic for partition in (*self._positions, *self._globals)}

    @property
    def _address(self) -> str:
        return str(Path(self._folder) / "batch.json")

    def _task_run(self, part: Subtopology) -> TaskRun:
        return TaskRun(task=TaskId(part.id, 0), directory=str(Path(self._folder) / f"{part.id}_0"), epoch="driver")

    def _require_open(self) -> None:
        if not self._is_parents and not self._remove_folder.alive:
            raise StopError("this driver is closed, and its stores are gone: make another driver")

    def _begin(self) -> None:
        """The first batch makes the stores and the processors; their punctuators are due from what the clock shows then."""
        if not self._committed:
            self._pipe([])

    def _pipe(self, records: Sequence[RawRecord]) -> None:
        """One batch, then what it sent to topics that the topology reads, until nothing is left. A batch in which a function of
        Columns raises is run again in halves, until it is one record's: that the handler decides about."""
        read = self._topics_read
        while True:
            try:
                sent, _ = self._run(records)
            except FunctionFailedError as failed:
                if len(records) > 1:
                    half = len(records) // 2
                    self._pipe(records[:half])
                    self._pipe(records[half:])
                    return
                sent = self._run_without(records, failed)
            except WorkerDiedError as died:
                raise StopError(self._died_of(records, died)) from died
            for record in sent:
                self._written.setdefault(record.topic, []).append(record)
            records = [record for record in sent if record.topic in read]
            if not records:
                return

    def _died_of(self, records: Sequence[RawRecord], died: WorkerDiedError) -> str:
        if not records:
            return str(died)
        first = TopicPartition(records[0].topic, 0)
        more = f", or one of the {len(records) - 1} behind it in its batch," if len(records) > 1 else ""
        return (
            f"{first} at offset {self._offset(first)}{more} has ended the worker ({died}): mend the function that it goes to. It "
            "has ended its process (os._exit, a fault in native code), or needs more memory than there is"
        )

    def _offset(self, partition: TopicPartition) -> int:
        return {**self._globals, **self._positions}[partition]

    def _run_without(self, records: Sequence[RawRecord], failed: FunctionFailedError) -> list[RawRecord]:
        """What a batch sends from which its one record is left out; StopError if that record is not to blame."""
        if records:
            with contextlib.suppress(FunctionFailedError):
                self._run(records, defers=True)
                raise StopError(of_no_record(failed.error, failed.message)) from failed
            with contextlib.suppress(FunctionFailedError):
                return self._run(records, refused=(self._refused(records[0], failed),))[0]
        raise StopError(of_no_record(failed.error, failed.message)) from failed

    def _refused(self, record: RawRecord, failed: FunctionFailedError) -> RefusedRecord:
        offset = self._offset(TopicPartition(record.topic, 0))
        return RefusedRecord(
            topic=record.topic, partition=0, offset=offset, error=failed.error, message=failed.message, node=failed.node
        )  # fmt: skip

    def _run(
        self,
        records: Sequence[RawRecord],
        show: str | None = None,
        refused: tuple[RefusedRecord, ...] = (),
        *,
        defers: bool = False,
    ) -> tuple[list[RawRecord], list[tuple[bytes, bytes]]]:
        """Records that one batch sent, and the rows of the global store to show. New workers read the records of global stores
        again first, in a batch of its own: what is dropped of them was counted before."""
        if self._is_parents:
            raise StopError("this driver runs in the process from which this one was forked: use it there")
        self._require_open()
        if self._is_interrupted:
            raise StopError("a call of this driver was interrupted, so what it had processed is not known: make another driver")
        again: list[RawRecord] = []
        if self._has_new_workers and self._global_records:
            counted, known, self._global_records = (self.dropped, self.skipped), self._global_records, []
            try:
                again = self._run(known, defers=True)[0]
            finally:
                self._global_records = known
            self.dropped, self.skipped = counted
        is_new, self._has_new_workers = self._has_new_workers, True  # unless the batch counts
        request = BatchRequest(
            batch_id=self._batch + 1,
            inputs=dict(self._positions),
            globals=dict.fromkeys(self._globals, 0) if is_new else dict(self._globals),
            reset_globals=is_new,
            tasks=tuple(self._task_run(part) for part in self._parts if part.state_stores and not part.is_global),
            now_ms=self.wall_clock_ms,
            last_committed_batch=self._committed,
            times=self._times,
            refused=refused,
            defers=defers,
        )
        report = self._run_batch(records, request, show)
        self._batch = report.batch_id
        if report.outcome is Outcome.TRIED:
            return again, []
        carried = json.loads(report.message)
        if report.outcome is not Outcome.COMMITTED:
            raise StopError(carried["said"])
        self._take(report)
        self._global_records += [record for record in records if TopicPartition(record.topic, 0) in self._globals]
        self._has_new_workers = False
        for node, path, batch_id in carried["handed_over"]:
            if failed := self._foreach_batch.call(node, path, BatchId.from_rows(batch_id)):
                raise StopError(failed)
        return [*again, *read_sent(self._address)], [(data(k) or b"", data(v) or b"") for k, v in carried["rows"]]

    def _run_batch(self, records: Sequence[RawRecord], request: BatchRequest, show: str | None = None) -> BatchReport:
        with open(self._address, "w", encoding="utf-8") as file:
            json.dump({"records": [to_json(record) for record in records], "show": show}, file)
        try:
            return self._service.run(self._engine, request)
        except BaseException as cause:
            self._is_interrupted = not isinstance(cause, Exception)
            raise
        finally:
            STARTED.show_output()

    def _take(self, report: BatchReport) -> None:
        self._committed = report.batch_id
        self._positions.update(report.ends)
        stats = {tp: found for tp, found in report.partition_stats.items() if tp in self._positions}
        self._times = times_after(self._times, stats)
        self._globals.update(report.globals)
        self.dropped += report.dropped
        self.skipped += report.skipped


class _Now:
    """A task's stores as they are at each read."""

    def __init__(self, held: ReadStores) -> None:
        self._held = held

    def get(self, store: str, key: bytes) -> bytes | None:
        return self._held.get_many(store, [key])[0]

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        return self._held.scan(store, low, high, reverse=reverse)

    def entries(self, store: str) -> int:
        return self._held.entries(store)


def _global_topics(topology: Topology) -> list[str]:
    sources = (node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.is_global)
    return [topic for source in sources for topic in source.topics]


@cache
def _close_at_exit() -> weakref.WeakSet[TopologyTestDriver]:
    """Drivers that are to be closed when the process ends, before their session ends: Spark would take their workers' end, in
    the middle of a job, for a crash."""
    drivers: weakref.WeakSet[TopologyTestDriver] = weakref.WeakSet()
    atexit.register(_close_all, drivers)
    return drivers


def _close_all(drivers: weakref.WeakSet[TopologyTestDriver]) -> None:
    for driver in list(drivers):
        driver._end()

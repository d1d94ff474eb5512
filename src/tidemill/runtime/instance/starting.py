"""Starting an instance: its parts are made, each handed to those that use it, and closed in the opposite order.

Decides that order. What takes long is begun first and waited for last (the JVM, the workers' processes); what can refuse the
start comes as early as it can: settings that name something, the state directory, the topics, addresses, the session, the
plan. Nothing is left open by a start that fails. The states of an instance, and what becomes of it when a thread ends, are
``application``'s.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from tidemill.application_module import refuse_start_while_read
from tidemill.assignment.choice import choose_assignor
from tidemill.config.slices import (
    ClientsConfig,
    ExceptionConfig,
    HttpConfig,
    ReadsConfig,
    SparkConfig,
    StateConfig,
    StatusConfig,
    TopologyConfig,
)
from tidemill.config.streams_config import StreamsConfig
from tidemill.control.channel import ControlServer
from tidemill.errors import StopError, TidemillError
from tidemill.held_interrupts import interrupts_held
from tidemill.ids import ProcessId
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.security.clients import ClientRole, data_client_settings, require_client_settings
from tidemill.kafka.security.config_providers import resolved_spark
from tidemill.log_format import LogEvent
from tidemill.operators.operation_table import global_stores
from tidemill.query.http_tls import http_access
from tidemill.runtime.group.history_file import HistoryKeeper
from tidemill.runtime.instance.configured_topology import default_serdes
from tidemill.runtime.instance.draining import Draining
from tidemill.runtime.instance.exception_policies import require_handlers, takes_one_by_one
from tidemill.runtime.instance.executors import control_listener, executor_disk, master_of, require_one_machine
from tidemill.runtime.instance.instance_state import InstanceState
from tidemill.runtime.instance.instance_status import InstanceStatus
from tidemill.runtime.instance.launching import Launched, launch
from tidemill.runtime.instance.lookup_refresher import LookupRefresher
from tidemill.runtime.instance.pattern_topics import CHECK_INTERVAL_MS, PatternWatch, topology_on
from tidemill.runtime.instance.periodic_thread import PeriodicThread
from tidemill.runtime.instance.repartition_purge import RepartitionPurge
from tidemill.runtime.instance.start_checks import CheckedTopics, checked_topics, require_fitting_state
from tidemill.runtime.instance.thread_maker import EngineParts, ThreadMaker, WorkerStarters, thread_name
from tidemill.runtime.instance.thread_set import ThreadSet
from tidemill.runtime.observe.start_phases import StartPhase, StartPhases
from tidemill.runtime.reads.queries import InstanceReads, store_info
from tidemill.runtime.thread.foreach_batch import new_batch_folder
from tidemill.runtime.thread.local_state import LocalState, remove_outdated
from tidemill.runtime.thread.stream_thread import InstanceCallbacks
from tidemill.runtime.thread.task_topology import TaskTopology
from tidemill.runtime.worker.worker import Fault
from tidemill.spark.batch_failures import needing_the_jvm
from tidemill.spark.launch.session import adopt_session
from tidemill.spark.launch.session_checks import require_classic
from tidemill.spark.placement import SlotShare, placement_of
from tidemill.spark.plan.compiled_topology import Alignment, CompiledTopology, compile_topology
from tidemill.spark.plan.pinned_workers import require_own_version
from tidemill.spark.plan_session import plan_session
from tidemill.start_trace import span
from tidemill.state.directory import StateDirectory
from tidemill.state.lock import StateDirectoryLock
from tidemill.topology.nodes import Topology
from tidemill.topology.patterns import patterns_of

log = logging.getLogger("tidemill.application")

LOCK_WAIT_S = 15.0
"""Longest wait, in s, for workers of the previous process, which hold the state directory's lock until they have ended."""


class OpenParts:
    """Parts that are open, in the order in which they were opened."""

    def __init__(self) -> None:
        self._closers: list[tuple[str, Callable[[], object]]] = []
        self._leavers: list[Callable[[], object]] = []
        self._closing = threading.RLock()
        self._at_exit: Callable[[], object] = lambda: None

    def close_at_exit(self, close: Callable[[], object]) -> None:
        """Has ``close`` called if the program ends before ``close`` of this was: what has them open closes them in its order."""

        def close_now() -> None:
            log.info(LogEvent("closed-at-exit"))
            close()

        self._at_exit = atexit.register(close_now)

    def opened(self, what: str, close: Callable[[], object], leave: Callable[[], object] = lambda: None) -> None:
        """``leave``: what a process forked from this one does in place of closing it (``forked``)."""
        self._closers.append((what, close))
        self._leavers.append(leave)

    def leave_to_parent(self) -> None:
        """In a forked process: closes copies of open files; the parts themselves are the parent's."""
        atexit.unregister(self._at_exit)
        self._closing = threading.RLock()  # another thread of the parent may have held it
        for leave in self._leavers:
            with contextlib.suppress(OSError, ValueError):  # closed already
                leave()

    def close(self) -> None:
        """The last one first, each once; one that fails keeps none of the others open. When it returns all of them are closed,
        also those that another thread was closing. What is left when it is interrupted is closed by the next call."""
        with self._closing:
            while self._closers:
                what, close = self._closers.pop()
                try:
                    close()
                except Exception:
                    log.exception(LogEvent("close-failed", what=what))
            atexit.unregister(self._at_exit)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """The inputs of a start: settings, topology, session, callbacks."""

    config: StreamsConfig
    topology: Topology
    session: SparkSession | None
    launched: Launched | None
    environ: Mapping[str, str]
    fault: Fault | None
    state: InstanceState
    threads: ThreadSet
    callbacks: InstanceCallbacks
    require_started: Callable[[], object]
    error: Callable[[], TidemillError | None]
    draining: Draining
    phases: StartPhases


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Parts of a running instance that are asked from outside."""

    process_id: ProcessId
    reads: InstanceReads
    status: InstanceStatus
    engine_lives: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedState:
    """The local state of an instance, locked by it."""

    directory: StateDirectory
    lock: StateDirectoryLock
    process_id: ProcessId


def started(instance: StartContext, parts: OpenParts) -> Started:
    """Everything but the stream threads' own start; ``parts`` is to be closed by the caller, also after an error.

    Raises:
        TidemillError: what kept it from starting.
    """
    refuse_start_while_read()
    _refuse_start_in_worker()
    config, clients = instance.config, instance.config.slice(ClientsConfig)
    _require_usable(config, instance.session)
    instance.phases.begin(StartPhase.STATE_DIRECTORY)
    with span("state directory claimed"):
        state = claimed_state(config.slice(StateConfig), parts)
    disk = executor_disk(config.slice(StateConfig), master_of(config.slice(SparkConfig), instance.session), state.process_id)
    launched = _launched(instance, parts)
    admin = Admin(data_client_settings(clients, ClientRole.ADMIN))
    parts.opened("admin client", admin.close)
    topics = _checked_topics(instance, admin)
    program, instance = instance.topology, replace(instance, topology=topics.topology)
    server = ControlServer(state.lock.fileno(), control_listener(config.slice(SparkConfig), instance.session))
    parts.opened("control channel", server.close, server.leave_to_parent)
    reads = _reads(instance, state.directory, parts, on_executors=disk is not None)
    with needing_the_jvm():
        engine = _engine_parts(instance, launched, state.process_id, parts)
    require_fitting_state(config.application_id, state.directory, engine.compiled.steps[-1].stores.values())
    status = _start_reads(instance, state.process_id, reads, engine, admin)
    logged = [subtopology for subtopology, changelogs in topics.task_topology.changelogs.items() if changelogs]
    local = LocalState(state.directory, state.lock, logged=logged, reporter=thread_name(config, state.process_id, 1))
    maker = ThreadMaker(
        config=config,
        process_id=state.process_id,
        topics=topics,
        admin=admin,
        local=local,
        server=server,
        engine=engine,
        disk=disk,
        reads=reads,
        instance=instance.callbacks,
        batch_folder=new_batch_folder(state.directory.path),
        fault=instance.fault,
    )
    with span("stream threads made"):
        instance.threads.begin(maker, config.num_stream_threads)

    def read(added: CheckedTopics) -> None:
        source = maker.reading(added)
        reads.reads(store_info(source.engine.compiled, config.application_id))
        status.reads(added.topology)
        instance.threads.read(source)

    background: list[HistoryKeeper | LookupRefresher | PeriodicThread] = [
        HistoryKeeper(reads.history, state.directory.path),
        LookupRefresher(engine.compiled.lookups),
        *_periodic(instance, topics.task_topology, local, admin),
        *_pattern_watch(config, program, topics, admin, read),
    ]
    for each in background:
        each.start()
        parts.opened(type(each).__name__, each.close)
    return Started(process_id=state.process_id, reads=reads, status=status, engine_lives=engine.spark.is_alive)


def _refuse_start_in_worker() -> None:
    """StopError in a Python worker: one that imports a module which starts an instance would start one more."""
    if TaskContext.get() is not None:
        raise StopError(
            "an instance can't be started in a Python worker of Spark, where functions of a topology run. A module that workers"
            ' import must not start one when it is imported: put the start into a function, or under `if __name__ == "__main__":`'
        )


def _require_usable(config: StreamsConfig, session: SparkSession | None) -> None:
    """ConfigError for settings and a session that can't be used, as far as that can be seen without brokers and a JVM."""
    require_client_settings(config.slice(ClientsConfig))
    choose_assignor(config.task_assignor_class)  # each stream thread makes its own
    require_handlers(config.slice(ExceptionConfig))
    if session is not None:
        require_classic(session)
        require_own_version(session.sparkContext)


def _launched(instance: StartContext, parts: OpenParts) -> Launched | None:
    """The JVM, on its way; None where the application has brought a session."""
    launched = instance.launched
    with interrupts_held():  # what was started is known when a handler of the program's ends the start
        if instance.session is None and launched is None:
            launched = launch(instance.config.slice(SparkConfig), instance.environ)
        if launched is not None:
            parts.opened("the JVM", launched.end, launched.leave_to_parent)
    return launched


def _reads(instance: StartContext, directory: StateDirectory, parts: OpenParts, *, on_executors: bool) -> InstanceReads:
    """Interactive queries, whose address is bound already."""
    config = instance.config
    reads = InstanceReads(
        config.slice(ReadsConfig), http_access(config.slice(HttpConfig)), directory, instance.require_started,
        on_executors=on_executors,
    )  # fmt: skip
    parts.opened("reads", reads.close, reads.leave_to_parent)
    return reads


def _start_reads(
    instance: StartContext, process_id: ProcessId, reads: InstanceReads, engine: EngineParts, admin: Admin
) -> InstanceStatus:
    """From here on queries and status pages are answered."""
    config, threads = instance.config, instance.threads.threads
    status = InstanceStatus(
        config.slice(StatusConfig), instance.topology, process_id, instance.state, threads, reads.history,
        host=reads.application_server, error=instance.error, draining=instance.draining, spark_ui=engine.spark.ui,
    )  # fmt: skip
    with span("reads of state, HTTP"):
        reads.start(
            store_info(engine.compiled, config.application_id), admin, threads, engine.spark.session, status,
            shared=global_stores(engine.compiled.topology),
        )  # fmt: skip
    return status


def _periodic(
    instance: StartContext, known: TaskTopology, local: LocalState, admin: Admin
) -> Iterator[PeriodicThread]:
    config = instance.config
    delay_ms = config.state_cleanup_delay_ms
    every_s = max(delay_ms / 1e3, 0.1)
    yield PeriodicThread("tidemill-cleaner", every_s, lambda: local.clean(delay_ms), failed="state-not-cleaned")
    if known.internal_topics:
        purge = RepartitionPurge(admin, instance.threads.threads, known.internal_topics).purge
        yield PeriodicThread("tidemill-purge", config.repartition_purge_interval_ms / 1e3, purge, failed="purge-failed")


def _pattern_watch(
    config: StreamsConfig, program: Topology, topics: CheckedTopics, admin: Admin, read: Callable[[CheckedTopics], None]
) -> Iterator[PeriodicThread]:
    """``program``: the topology with its patterns; ``topics``: those of the start."""
    if not patterns_of(program):
        return
    settings = data_client_settings(config.slice(ClientsConfig), ClientRole.ADMIN)
    every_s = max(int(settings.get("metadata.max.age.ms", CHECK_INTERVAL_MS)) / 1e3, 0.1)
    watch = PatternWatch(
        program, topics.metadata.pattern_topics, config.application_id,
        topics=admin.topics, check=lambda topology: checked_topics(config, program, topology, admin), read=read,
    )  # fmt: skip
    yield PeriodicThread("tidemill-patterns", every_s, watch.look, failed="patterns-not-checked")


def claimed_state(config: StateConfig, parts: OpenParts) -> ClaimedState:
    """The state directory, for this instance alone. State that is too old is removed before anything else looks at it."""
    directory = StateDirectory(Path(config.state_dir), config.application_id)
    directory.create()
    lock = StateDirectoryLock.acquire(directory.path, timeout_s=LOCK_WAIT_S)
    parts.opened("state directory", lock.release, lock.leave_to_parent)
    if config.state_cleanup_dir_max_age_ms >= 0:
        remove_outdated(directory, lock, config.state_cleanup_dir_max_age_ms)
    process_id = directory.process_id().process_id
    log.info(LogEvent("starting", application=config.application_id, process=process_id, state=directory.path))
    return ClaimedState(directory=directory, lock=lock, process_id=process_id)


def remove_local_state(config: StateConfig) -> None:
    """Removes the state of all tasks. StateDirectoryInUseError: an instance has the directory."""
    directory = StateDirectory(Path(config.state_dir), config.application_id)
    directory.create()
    with StateDirectoryLock.acquire(directory.path, timeout_s=LOCK_WAIT_S) as lock:
        for task in directory.clean(lock):
            log.info(LogEvent("state-removed", task=task, cause="clean_up() was called"))


def _checked_topics(instance: StartContext, admin: Admin) -> CheckedTopics:
    """The topology's topics, once it is known that they are there or can be created."""
    instance.phases.begin(StartPhase.TOPICS)
    config = instance.config
    with span("topics checked"):
        topology = topology_on(admin, instance.topology, config.application_id)
        return checked_topics(config, instance.topology, topology, admin)


def _engine_parts(
    instance: StartContext, launched: Launched | None, process_id: ProcessId, parts: OpenParts
) -> EngineParts:
    """The session, the topology compiled for it, and the workers' processes on their way."""
    config = instance.config
    instance.phases.begin(StartPhase.SPARK)
    wanted, threads = config.num_stream_threads, instance.threads.threads

    def shared(session: SparkSession) -> SlotShare:
        share = SlotShare(session, lambda: len(threads) or wanted)
        parts.opened("task slots", share.give_back)
        return share

    if launched is not None:
        spark = launched.jvm.session()
        parts.opened("Spark", spark.close, spark.leave_to_parent)
        share = shared(spark.session)
    else:
        assert instance.session is not None, "without one a JVM was launched"
        share = shared(instance.session)
        spark = adopt_session(instance.session, wanted, share.taken_before)
        parts.opened("Spark", spark.close, spark.leave_to_parent)
    instance.phases.begin(StartPhase.PLAN)
    plans = plan_session(spark.session, resolved_spark(config.spark))
    placement = placement_of(plans, config.num_stream_threads)
    starters = WorkerStarters(
        plans, config.application_id, instance.topology, placement, one_by_one=takes_one_by_one(config.slice(ExceptionConfig))
    )
    for number in range(1, config.num_stream_threads + 1):
        starters.start(thread_name(config, process_id, number))
    with span("topology compiled, types inferred"):
        compiled = compiled_for(
            config.slice(TopologyConfig), config.slice(ExceptionConfig), instance.topology, plans, owner=spark.session
        )
    require_one_machine(config.slice(SparkConfig), instance.session, compiled.batch_functions)
    return EngineParts(spark=spark, plans=plans, share=share, placement=placement, starters=starters, compiled=compiled)


def compiled_for(
    config: TopologyConfig,
    exceptions: ExceptionConfig,
    topology: Topology,
    session: SparkSession,
    *,
    owner: SparkSession | None = None,
) -> CompiledTopology:
    """The topology as the instance's stream threads run it. ``owner``: as ``compile_topology`` has it."""
    return compile_topology(
        session,
        topology,
        config.application_id,
        default_serdes=default_serdes(config),
        presum=config.presum,
        alignment=Alignment(by_time=True, idle_ms=config.max_task_idle_ms),
        one_by_one=takes_one_by_one(exceptions),
        owner=owner,
    )

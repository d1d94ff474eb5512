"""An instance of an application: the composition root, and the class that users start.

Decides the state of the instance (Kafka Streams' states), which changes with the states and failures of its stream threads. Its
parts are made by ``starting``; reads of its stores are answered by ``query``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

from pyspark.sql import SparkSession

from tidemill.config.slices import ClientsConfig, StateConfig, TopologyConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.deadline import seconds
from tidemill.dsl.arguments import function_of
from tidemill.errors import StopError, StreamsNotStartedError, TidemillError
from tidemill.forked import leaves_to_parent
from tidemill.ids import ProcessId
from tidemill.log_format import LogEvent
from tidemill.metrics.names import Metric, MetricName
from tidemill.query.metadata import KeyQueryMetadata, StreamsMetadata
from tidemill.query.position import Position
from tidemill.query.store_frame import StoreDataFrame
from tidemill.query.store_queries import LagInfo, Partitioner, StoreQueries
from tidemill.query.versioned_view import ReadOnlyVersionedStore, versioned_view
from tidemill.query.view import ReadOnlyStore
from tidemill.query.windowed_view import (
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    require_no_windows,
    session_view,
    view_of_its_kind,
    window_view,
)
from tidemill.runtime.instance.configured_topology import Program, configured_topology, require_sources
from tidemill.runtime.instance.draining import DRAIN_LIMIT_S, Draining
from tidemill.runtime.instance.ending import CLOSE_LIMIT_S, Ending
from tidemill.runtime.instance.instance_state import InstanceState, State, StateListener
from tidemill.runtime.instance.launching import Launched
from tidemill.runtime.instance.starting import OpenParts, StartContext, Started, remove_local_state, started
from tidemill.runtime.instance.thread_set import ThreadSet
from tidemill.runtime.observe.instance_html import instance_html, not_started
from tidemill.runtime.observe.live_view import LiveView
from tidemill.runtime.observe.restore_listeners import RestoreListeners, StandbyUpdateListener, StateRestoreListener
from tidemill.runtime.observe.start_phases import StartPhases, earliest
from tidemill.runtime.thread.global_topics import global_topics
from tidemill.runtime.thread.stream_thread import InstanceCallbacks, StreamThread
from tidemill.runtime.thread.uncaught_exception import StreamThreadExceptionResponse, UncaughtExceptionHandler, response_to
from tidemill.runtime.worker.worker import Fault
from tidemill.spellings import Spelled

__all__ = ["KafkaStreams", "State", "StateListener", "StreamThreadExceptionResponse", "UncaughtExceptionHandler"]

log = logging.getLogger("tidemill.application")


class KafkaStreams(Spelled):
    """One instance. Use it as a context manager, or call ``start()`` and ``close()``. Timeouts are seconds or a ``timedelta``.

    Args:
        topology: what ``build()`` of a StreamsBuilder or TopologyBuilder gives, or the builder itself.
        config: settings under Kafka Streams' names, over which keywords (``num_stream_threads=2``) win; or a StreamsConfig.
        session: a SparkSession to use; otherwise one is started and stopped with the instance.
        environ: where Java is looked for (JAVA_HOME, PATH).
        fault: for Tidemill's own tests.
        launched: for Tidemill's own command line.
        phases: likewise.

    Raises:
        ConfigError, TopologyError: before anything is started.
    """

    def __init__(
        self,
        topology: Program,
        config: Mapping[str, object] | StreamsConfig | None = None,
        *,
        session: SparkSession | None = None,
        environ: Mapping[str, str] | None = None,
        fault: Fault | None = None,
        launched: Launched | None = None,
        phases: StartPhases | None = None,
        **settings: object,
    ) -> None:
        self.config = StreamsConfig.of(config, **settings)
        for name in self.config.ignored:
            log.warning(LogEvent("setting-ignored", setting=name, reason="its new name is given as well, without 'default.'"))
        self.topology = configured_topology(topology, self.config.slice(TopologyConfig))
        require_sources(self.topology)
        self._given_session, self._environ, self._fault = session, dict(environ or os.environ), fault
        self._launched, self._phases = launched, phases or StartPhases()
        self._state, self._listeners = InstanceState(self.config.application_id), RestoreListeners()
        self._set = ThreadSet(self._is_open, self._thread_changed)
        self._draining = Draining(
            self.config.application_id, self.config.slice(ClientsConfig), self._set.threads,
            process_id=lambda: self.process_id, is_open=self._is_open,
            close=lambda: self.close(leave_group=True),
        )  # fmt: skip
        self._handler: UncaughtExceptionHandler | None = None
        self._paused = threading.Event()
        self._error: TidemillError | None = None
        self._parts = OpenParts()
        self._ending = Ending(self._state, self._set, self._parts)
        self._started: Started | None = None
        self._process = os.getpid()
        self._parents: Started | None = None  # in a forked process: what its parent has started
        leaves_to_parent(self)

    # --- what users see --------------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """State of the instance: CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR or ERROR."""
        return self._state.now

    @property
    def error(self) -> TidemillError | None:
        """Why the instance is in ERROR."""
        return self._error

    @property
    def threads(self) -> tuple[StreamThread, ...]:
        """The stream threads of this instance, with their ``metrics`` and ``copies``."""
        return tuple(self._set.threads)

    @property
    def process_id(self) -> ProcessId:
        """The id under which the group knows this instance; it is kept in ``state.dir``.

        Raises:
            StreamsNotStartedError: before ``start()``, which reads it.
        """
        return self._require_started().process_id

    @property
    def application_server(self) -> str:
        """Address at which others ask this instance: the setting, else the address that it listens on; empty if they can't."""
        return self.config.application_server if self._started is None else self._started.reads.application_server

    def store(
        self, name: str, *, allow_stale: bool = False, partition: int | None = None, position: Position | None = None
    ) -> ReadOnlyStore:
        """A read-only view of a store, over the active tasks of this instance.

        ``allow_stale``: also over standbys and copies that are being restored. ``partition``: of this partition only.
        ``position``: only copies that have reached the ``Position`` that an earlier read returned. Raises UnknownStoreError,
        StreamsNotStartedError, QueryError for a store of windows or sessions; reading may raise InvalidStateStoreError (being
        restored, or elsewhere).
        """
        view = self._queries().view(name, stale=allow_stale, partition=partition, position=position)
        require_no_windows(view.store)
        return view

    def window_store(
        self, name: str, *, allow_stale: bool = False, partition: int | None = None, position: Position | None = None
    ) -> ReadOnlyWindowStore:
        """``store`` for a window store: ``fetch``, ``fetch_range``, ``fetch_all`` ... QueryError for another kind."""
        return window_view(self._queries().view(name, stale=allow_stale, partition=partition, position=position))

    def session_store(
        self, name: str, *, allow_stale: bool = False, partition: int | None = None, position: Position | None = None
    ) -> ReadOnlySessionStore:
        """``store`` for a session store: ``fetch``, ``fetch_session``, ``find_sessions`` ... QueryError if it is none."""
        return session_view(self._queries().view(name, stale=allow_stale, partition=partition, position=position))

    def versioned_store(
        self, name: str, *, allow_stale: bool = False, partition: int | None = None, position: Position | None = None
    ) -> ReadOnlyVersionedStore:
        """``store`` for a versioned store: ``get``, ``get_as_of``, ``history``, ``all``. QueryError for another kind."""
        return versioned_view(self._queries().view(name, stale=allow_stale, partition=partition, position=position))

    def store_dataframe(self, name: str, *, allow_stale: bool = False, partition: int | None = None) -> StoreDataFrame:
        """The rows of ``store`` as a Spark DataFrame, with the changelog offsets of each partition: a snapshot, which later
        changes of the store don't change. Raises the same errors as reading a whole range."""
        return self._queries().dataframe(name, stale=allow_stale, partition=partition)

    def query_metadata_for_key(self, store: str, key: object, partitioner: Partitioner | None = None) -> KeyQueryMetadata:
        """Hosts of ``key``: active host, standby hosts, partition (by murmur2, or ``partitioner(key's bytes, partitions)``)."""
        return self._queries().metadata_for_key(store, key, partitioner)

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        """Stores and partitions of each instance with an ``application.server``, as of the last assignment."""
        return self._queries().clients()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Lag of each copy of a logged store here behind its changelog: by store, then by partition."""
        return self._queries().lags()

    def metrics(self) -> Mapping[MetricName, Metric]:
        """Every metric up to ``metrics.recording.level`` under Kafka Streams' names, at this time; none before ``start()``."""
        return {} if self._started is None else self._started.status.metrics()

    def _queries(self) -> StoreQueries:
        if self._parents is None and self.state in (State.NOT_RUNNING, State.ERROR):
            raise StopError(
                f"this instance is {self.state.value}: its state can't be read through it any more; start a new KafkaStreams, "
                "or ask another instance"
            )
        queries = self._require_started().reads.queries
        assert queries is not None, "a start that has ended has them"
        return queries

    def _repr_html_(self) -> str:
        """Notebook view: the state, and each thread with its tasks."""
        if self._started is None:
            return not_started(self.config.application_id, self.state.value)
        scheme = ("https" if self.config.http_keystore else "http") if self.config.http_listen else ""
        return instance_html(self._started.status.status(), scheme)

    def live(self, *stores: str, every: float = 1.0) -> LiveView:
        """For the end of a notebook's cell: shows the instance and the first rows of these stores, again every ``every`` s until
        the instance has ended or ``stop()`` of the result is called. Stores on other instances are not shown."""

        def html() -> str:
            views = (self._queries().view(name, stale=True, partition=None) for name in stores if self._is_open())
            return self._repr_html_() + "".join(view_of_its_kind(view)._repr_html_() for view in views)

        return LiveView(html, lambda: self.state in (State.NOT_RUNNING, State.ERROR), every)

    def _require_started(self) -> Started:
        if self._parents is not None:
            raise StopError(f"this instance runs in process {self._process}, from which this one was forked: use it there")
        if self._started is None:
            what = "start it first" if self.state is State.CREATED else "it has never run; make a new KafkaStreams and start it"
            raise StreamsNotStartedError(f"this instance is {self.state.value}: {what}")
        return self._started

    def set_state_listener(self, listener: StateListener) -> None:
        """``listener(new, old)`` is called at each transition, on the thread that causes it; it must not block. An exception
        that it raises is logged and changes nothing. It takes the place of one that was set before. StopError once it was
        started."""
        self._require_created("the state listener is set")
        self._state.listeners = [function_of(listener, ("new", "old"), "set_state_listener")]

    def set_state_restore_listener(self, listener: StateRestoreListener) -> None:
        """Kafka Streams' setGlobalStateRestoreListener: called for the restoring of every active task's stores here. StopError
        once it was started, as below."""
        self._require_created("listeners of restoring are set")
        self._listeners.set_restore(listener)

    def set_standby_update_listener(self, listener: StandbyUpdateListener) -> None:
        """Listener to the updates of this instance's standby and warm-up tasks (KIP-988)."""
        self._require_created("listeners of standbys are set")
        self._listeners.set_standby(listener)

    def set_uncaught_exception_handler(self, handler: UncaughtExceptionHandler) -> None:
        """``handler(error)`` decides, on the thread that has failed, how the instance goes on (KIP-671). Without a handler the
        instance ends in ERROR. StopError once it was started."""
        self._require_created("the handler of uncaught exceptions is set")
        self._handler = function_of(handler, ("error",), "set_uncaught_exception_handler")

    def _require_created(self, what: str) -> None:
        if self.state is not State.CREATED:
            raise StopError(f"this instance is {self.state.value}: {what} before start()")

    def start(self) -> KafkaStreams:
        """Starts everything and returns when the stream threads have been started; they join the group by themselves.

        Raises:
            TidemillError: it can't start; nothing is left running then.
        """
        with self._state.changed:
            if self._ending.changing is not None:
                raise StopError("this instance is being started already")
            if self.state is not State.CREATED:
                raise StopError(f"this instance is {self.state.value}: make a new KafkaStreams to start again")
            self._ending.changing = threading.current_thread()
        self._parts.close_at_exit(self._ending.with_program)
        try:
            self._started = started(self._start_context(), self._parts)
            with self._state.changed:  # a close() comes before or after, never between the state and the threads
                self._state.move(State.REBALANCING, "it was started")
                if runs := self._state.now is State.REBALANCING:
                    self._ending.changing = None
                    self._set.start()
        except BaseException:
            self._ending.start_has_failed()
            raise
        if not runs:
            self._ending.start_has_failed()
            raise StopError("this instance was closed while it was being started")
        says = f"stream-client [{self.config.application_id}] Started {len(self.threads)} stream threads"
        log.info(LogEvent("started", says=says, application=self.config.application_id, threads=len(self.threads)))
        return self

    def leave_to_parent(self) -> None:
        """Called in a process that was forked from this one: an instance that runs is the parent's, and NOT_RUNNING here."""
        if self._ending.changing is None and self.state in (State.CREATED, State.NOT_RUNNING, State.ERROR):
            return
        for part in (self._parts, self._set, self._state, self._ending):
            part.leave_to_parent()
        self._parents, self._started = self._started, None

    def pause(self) -> None:
        """Processes no record and calls no punctuator until ``resume()``; the current batch may still end. Nothing is restored
        and no standby follows its changelog either. The instance stays in the group with all its tasks, whose stores can be
        read. May be called before ``start()``."""
        self._paused.set()
        self._set.hurry()

    def resume(self) -> None:
        """Resumes processing after ``pause()``."""
        self._paused.clear()
        self._set.hurry()

    def is_paused(self) -> bool:
        """True after ``pause()``, until ``resume()``."""
        return self._paused.is_set()

    def add_stream_thread(self) -> str | None:
        """Starts one more stream thread and returns its name; None unless the instance is RUNNING or REBALANCING (KIP-663).

        Raises:
            ConfigError: the Spark session has no task slot for it.
        """
        thread = self._set.add()
        self._thread_changed()
        return None if thread is None else thread.name

    def remove_stream_thread(self, timeout: float | timedelta | None = None) -> str | None:
        """Ends one stream thread, which gives its tasks up and leaves the group, and returns its name; None if there is none,
        or the instance is neither RUNNING nor REBALANCING. Called in a listener, handler or ``foreach_batch``, it doesn't wait.

        Raises:
            RetriableError: it has not ended within ``timeout``; it will.
        """
        thread = self._set.remove(None if timeout is None else seconds(timeout), teller=self._state.teller)
        return None if thread is None else thread.name

    def drain(self, timeout: float | timedelta = DRAIN_LIMIT_S) -> bool:
        """Drains the instance and closes it: other instances first restore copies of its tasks and then take them over, so that
        each task pauses only for the hand-over. True once it is closed; False after ``timeout``: the instance then continues.

        If the group's leader doesn't support drains (Kafka's own class, or an earlier version), the instance closes at once. In
        a place that must not wait (see ``close``) the drain begins, and the result is False.

        Raises:
            DrainRefusedError: no other instance is in the group, another one drains, or this one does not run.
            RetriableError: the group is rebalancing, or its broker doesn't answer: try again.
        """
        self._draining.begin(seconds(timeout))
        return not self._ending.is_waited_for(threading.current_thread()) and self._draining.wait()

    def close(self, timeout: float | timedelta = CLOSE_LIMIT_S, *, leave_group: bool | None = None) -> bool:
        """Finishes the current batches, commits, closes stores. True once all of it has ended. False if not within ``timeout``:
        the instance is PENDING_SHUTDOWN then until it has, as in Kafka Streams.

        ``leave_group``: True if the instance leaves the group at once, so that others take over its tasks immediately. False: it
        keeps its tasks until its session ends. None: as ``leave.group.on.close``, by default True except for static members.

        If another thread is starting or closing the instance, this call waits for it. Some places must not wait: a listener, a
        handler of a stream thread, ``foreach_batch``, a signal's handler that has interrupted ``start`` or ``close``. There the
        result is False, and the instance ends as soon as the caller has returned.
        """
        return self._ending.close(seconds(timeout), leave_group)

    def clean_up(self) -> None:
        """Removes all local state of this instance, which must not be running: before ``start`` or after ``close``. What it is
        then given is restored from the changelogs, or warmed up first; its process id stays.

        Raises:
            StopError: it is running. StateDirectoryInUseError: another instance has the directory.
        """
        if self.state not in (State.CREATED, State.NOT_RUNNING, State.ERROR):
            raise StopError(f"this instance is {self.state.value}: close it, or call clean_up() before start()")
        remove_local_state(self.config.slice(StateConfig))

    def wait(self, *states: State, timeout: float | timedelta) -> State:
        """Waits until the instance is in one of ``states`` (or in ERROR), at most ``timeout``; the state it is in then."""
        return self._state.wait(*states, timeout_s=seconds(timeout))

    def __enter__(self) -> KafkaStreams:
        return self.start() if self.state is State.CREATED else self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start_context(self) -> StartContext:
        return StartContext(
            config=self.config,
            topology=self.topology,
            session=self._given_session,
            launched=self._launched,
            environ=self._environ,
            fault=self._fault,
            state=self._state,
            threads=self._set,
            callbacks=InstanceCallbacks(
                on_change=self._thread_changed,
                on_failure=self._thread_failed,
                is_cut_short=self._is_cut_short,
                on_join=self._set.expect_rebalance,
                is_paused=self._paused.is_set,
                listeners=self._listeners,
            ),
            require_started=self._queries,
            error=lambda: self._error,
            draining=self._draining,
            phases=self._phases,
        )

    # --- states ----------------------------------------------------------------------------------------------------

    def _is_open(self) -> bool:
        return self.state in (State.RUNNING, State.REBALANCING)

    def _thread_changed(self) -> None:
        """Any thread: settles the instance's state by those of its threads."""
        if self._started is not None:
            self._started.reads.refresh()
        with self._state.changed:
            if not self._is_open():
                return
            self._phases.begin(earliest(thread.start_phase for thread in self.threads))
            for failed in [thread for thread in self.threads if thread.response is not None]:
                if failed.response is StreamThreadExceptionResponse.REPLACE_THREAD:
                    failed.response = None
                    self._set.replace(failed, self._end_in_error)
                else:
                    self._end_in_error(self._set.cause_of(failed))
            waiting = [thread for thread in self.threads if not thread.is_running]
            if not waiting:
                self._state.move(State.RUNNING, "every task that is assigned here runs")
            elif self.state is State.RUNNING:
                self._state.move(State.REBALANCING, f"tasks of {waiting[0].name} wait: {waiting[0].why_waiting}")

    def _thread_failed(self, error: TidemillError) -> StreamThreadExceptionResponse:  # on the thread that has failed
        handler = None if self._is_cut_short() else self._handler
        response = response_to(
            error, handler, engine_lives=self._require_started().engine_lives(), global_topics=global_topics(self.topology)
        )
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._set.shut_down_application(error)
        return response

    def _is_cut_short(self) -> bool:
        return not self._is_open() and self._started is not None and not self._started.engine_lives()

    def _end_in_error(self, error: TidemillError) -> None:
        """A thread has failed: the others are closed, then the instance is in ERROR."""
        with self._state.changed:
            if self.state not in (State.RUNNING, State.REBALANCING):
                return
            self._error = error
            self._ending.begin_in_error(error)

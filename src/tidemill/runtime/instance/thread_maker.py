"""Stream threads of an instance, put together: member, plan, workers and their settings.

Decides their names and which settings reach which part. Nothing but the workers' processes is started here, ahead of time;
threads make their engines themselves.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from tidemill.config.slices import ClientsConfig, ExceptionConfig, GroupConfig, ThreadConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.config.values import ProcessingGuarantee, RebalanceProtocol
from tidemill.control.channel import ControlServer
from tidemill.deadline import Deadline
from tidemill.ids import ProcessId
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.admin.groups import member_hosts
from tidemill.kafka.data.fencing import fence_quietly, transactional_id
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.security.clients import ClientRole, DataValue, data_client_settings, group_client_settings
from tidemill.log_format import LogEvent
from tidemill.membership.member_state import MemberConfig
from tidemill.runtime.group.first_join import FirstJoin
from tidemill.runtime.group.leading import Leader
from tidemill.runtime.instance.exception_policies import unreadable_of
from tidemill.runtime.instance.start_checks import CheckedTopics
from tidemill.runtime.observe.thread_metrics import ThreadMetrics, metrics_window
from tidemill.runtime.observe.thread_observers import ThreadObservers
from tidemill.runtime.reads.queries import InstanceReads
from tidemill.runtime.thread.foreach_batch import ForeachBatchCalls
from tidemill.runtime.thread.global_topics import GlobalTopics, global_topics
from tidemill.runtime.thread.local_state import LocalState
from tidemill.runtime.thread.stream_thread import InstanceCallbacks, StreamThread, ThreadTopics
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.runtime.thread.thread_parts import BatchControl, GroupPlace, thread_parts
from tidemill.runtime.worker.executor_state import ExecutorDisk
from tidemill.runtime.worker.worker import Fault, WorkerSpec, source_function, step_function, warm
from tidemill.spark.batch_failures import needing_the_jvm
from tidemill.spark.engine import BatchEngine, start_workers
from tidemill.spark.launch.session import SparkHandle
from tidemill.spark.placement import Placement, SlotShare
from tidemill.spark.plan.compiled_topology import CompiledTopology
from tidemill.spark.plan.stages import stages
from tidemill.start_trace import span
from tidemill.topology.nodes import Topology

log = logging.getLogger("tidemill.application")

_LOOK_S = 0.1
"""Time after which a thread that waits for its workers looks whether it was stopped meanwhile."""


def thread_name(config: StreamsConfig, process_id: ProcessId, number: int) -> str:
    """The name of a thread, as in Kafka Streams; the member's client id begins with it."""
    client = config.client_id or f"{config.application_id}-{process_id}"
    return f"{client}-StreamThread-{number}"


def producer_settings(config: StreamsConfig, *, is_transactional: bool) -> dict[str, DataValue]:
    """The settings of a stream thread's producer. Without transactions a producer that was frozen for longer than the session is
    not fenced. So it gives up what it has not sent by then, which would come behind the records of the tasks' next owner."""
    settings = data_client_settings(config.slice(ClientsConfig), ClientRole.PRODUCER)
    if is_transactional:
        return {**settings, "transaction.timeout.ms": config.transaction_timeout_ms}
    most_ms = config.session_timeout_ms
    return {**settings, "delivery.timeout.ms": min(int(settings.get("delivery.timeout.ms", most_ms)), most_ms)}


class WorkerStarters:
    """Starts the Python workers of each thread while its plan is still being made."""

    def __init__(
        self, plans: SparkSession, application_id: str, topology: Topology, placement: Placement, *, one_by_one: bool
    ) -> None:
        self._plans, self._application_id, self._placement = plans, application_id, placement
        last = stages(topology, one_by_one=one_by_one).last
        self._steps = ["source", *(f"step-{number}" for number in range(1, last + 1))]
        self._starters: dict[str, threading.Thread] = {}

    def start(self, name: str) -> None:
        self._starters[name] = start_workers(
            self._plans, self._application_id, name, self._steps, warm, self._placement
        )

    def wait(self, name: str, limit_s: float, is_given_up: Callable[[], bool]) -> None:
        """Returns in any case after this time: the first batch shows what keeps workers from starting. That starts those of a
        thread that was added, whose plan takes no time."""
        starter, deadline = self._starters.get(name), Deadline.after(limit_s)
        if starter is None:
            return
        while starter.is_alive() and not deadline.is_over and not is_given_up():
            starter.join(min(_LOOK_S, deadline.left_s))
        if starter.is_alive() and not is_given_up():
            log.warning(LogEvent("workers-not-started", thread=name, after_s=limit_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """A Spark session, the topology compiled for it, and the workers' processes on their way."""

    spark: SparkHandle
    plans: SparkSession
    """The session that plans are made in."""
    share: SlotShare
    placement: Placement
    starters: WorkerStarters
    compiled: CompiledTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMaker:
    """Common parts of an instance's threads."""

    config: StreamsConfig
    process_id: ProcessId
    topics: CheckedTopics
    admin: Admin
    local: LocalState
    server: ControlServer
    engine: EngineParts
    reads: InstanceReads
    instance: InstanceCallbacks
    batch_folder: str
    disk: ExecutorDisk | None
    fault: Fault | None = None

    @property
    def slots(self) -> int:
        with needing_the_jvm():
            return self.engine.placement.slots - self.engine.share.taken_by_others()

    @property
    def thread_topics(self) -> ThreadTopics:
        """For threads that an earlier maker has made."""
        return ThreadTopics(
            task_topology=self.topics.task_topology,
            metadata=self.topics.metadata,
            batch_functions=self.engine.compiled.batch_functions,
            make_engine=self._batch_engine,
        )

    def reading(self, topics: CheckedTopics) -> ThreadMaker:
        """A maker of threads that read more topics."""
        engine = replace(self.engine, compiled=self.engine.compiled.with_topics(topics.topology))
        return replace(self, topics=topics, engine=engine)

    def first_join(self, threads: int) -> FirstJoin:
        settings, group = group_client_settings(self.config.slice(ClientsConfig)), self.config.application_id
        return FirstJoin(group, threads, lambda limit_s: member_hosts(settings, group, limit_s=limit_s))

    def make(self, number: int, first_join: FirstJoin) -> StreamThread:
        """``first_join``: shared by threads that join together."""
        name, compiled = thread_name(self.config, self.process_id, number), self.engine.compiled
        thread_config, own_id = self.config.slice(ThreadConfig), self._transactional_id(number)
        producer = data_client_settings(self.config.slice(ClientsConfig), ClientRole.PRODUCER)
        metrics = ThreadMetrics(metrics_window(thread_config))
        parts = thread_parts(
            name,
            thread_config,
            self.topics.task_topology,
            admin=self.admin,
            local_state=self.local,
            global_topics=GlobalTopics(
                global_topics(compiled.topology), self.admin, several_copies=compiled.steps[-1].has_copies_above
            ),
            place=self._place(number, name),
            control=BatchControl(
                fence=(lambda: fence_quietly(producer, own_id)) if own_id else lambda: None,
                hurry=partial(self.server.hurry, name),
                is_paused=self.instance.is_paused,
            ),
            observers=ThreadObservers.of(name, metrics, self.instance.listeners, self.instance.on_change),
        )
        return StreamThread(
            name=name,
            number=number,
            config=thread_config,
            parts=parts,
            make_engine=self._make_engine,
            first_join=first_join,
            instance=self.instance,
        )

    def _transactional_id(self, number: int) -> str | None:
        """None: at least once."""
        config = self.config
        if config.processing_guarantee is not ProcessingGuarantee.EXACTLY_ONCE_V2:
            return None
        return transactional_id(config.application_id, str(self.process_id), number)

    def _make_engine(self, thread: StreamThread) -> BatchEngine:
        """Called on the thread. Its workers ask the engine's driver service for requests, so that is registered first."""
        parts, config = self.engine, self.config
        foreach_batch = ForeachBatchCalls(
            parts.spark.session, parts.plans, config.application_id, parts.compiled.batch_functions
        )
        self.server.register(thread.name, thread.driver_service(foreach_batch))
        engine = self._batch_engine(thread)
        # A batch that met a busy worker would get a second worker next to it.
        with span("workers waited for"):
            parts.starters.wait(thread.name, config.slice(ThreadConfig).batch_limit_s, thread.is_given_up)
        return engine

    def _place(self, number: int, name: str) -> GroupPlace:
        config, clients = self.config, self.config.slice(ClientsConfig)

        def make_member(group: ThreadMembership) -> GroupMember:
            self.reads.has_member(name, group)
            return self._member(number, name, group)

        return GroupPlace(
            identity=MemberConfig(
                process_id=self.process_id,
                endpoint=self.reads.application_server or None,
                client_tags=dict(config.client_tags),
                topology=self.topics.metadata.by_number,
            ),
            leader=Leader(
                config.slice(GroupConfig), self.admin, self.process_id, self.topics.metadata, group_client_settings(clients),
                data_client_settings(clients, ClientRole.PRODUCER), history=self.reads.history,
            ),
            make_member=make_member,
        )  # fmt: skip

    def _member(self, number: int, name: str, group: ThreadMembership) -> GroupMember:
        config = self.config
        return GroupMember(
            GroupMemberConfig(
                client_settings=group_client_settings(config.slice(ClientsConfig)),
                group_id=config.application_id,
                client_id=f"{name}-consumer",
                instance_id=f"{config.group_instance_id}-{number}" if config.group_instance_id else None,
                rack=config.client_rack or None,
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
                max_poll_interval_ms=config.max_poll_interval_ms,
                eager=config.rebalance_protocol is RebalanceProtocol.EAGER,
                leave_on_close=config.leave_group_on_close,
            ),
            group,
        )

    def _batch_engine(self, thread: StreamThread) -> BatchEngine:
        config, compiled, own_id = self.config, self.engine.compiled, self._transactional_id(thread.number)
        clients = config.slice(ClientsConfig)
        source = WorkerSpec(
            step="source",
            spec=None,
            thread=thread.name,
            address=self.server.address,
            key=self.server.key,
            group_id=config.application_id,
            consumer={**data_client_settings(clients, ClientRole.CONSUMER), "group.id": config.application_id},
            producer=producer_settings(config, is_transactional=own_id is not None),
            transactional_id=own_id,
            source=compiled.source,
            steps=len(compiled.steps),
            unreadable=unreadable_of(config.slice(ExceptionConfig), compiled),
            batch_folder=self.batch_folder,
            fault=self.fault,
            disk=self.disk,
        )
        return BatchEngine(
            self.engine.plans,
            compiled,
            thread.name,
            source_function(source),
            [step_function(replace(source, step=f"step-{each.number}", spec=each)) for each in compiled.steps],
            limit_s=config.slice(ThreadConfig).batch_limit_s,
            placement=self.engine.placement,
            is_given_up=thread.is_given_up,
        )

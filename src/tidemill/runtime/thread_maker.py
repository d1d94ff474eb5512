"""Stream threads of an instance, put together: member, plan, workers and what they are told of the settings.

Decides which settings reach which part; nothing is started here, threads make their engines themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.config import StreamsConfig
from tidemill.config_values import ProcessingGuarantee, RebalanceProtocol
from tidemill.ids import ProcessId
from tidemill.kafka import group_protocol
from tidemill.kafka.admin import Admin
from tidemill.kafka.clients import ClientRole, data_client_settings, group_client_settings
from tidemill.kafka.fencing import fence_quietly, transactional_id
from tidemill.kafka.group import GroupMember, GroupMemberConfig
from tidemill.membership.member_state import MemberConfig
from tidemill.runtime.batch_handover import BatchHandover
from tidemill.runtime.first_join import FirstJoin
from tidemill.runtime.global_topics import GlobalTopics, global_topics
from tidemill.runtime.leading import Leader
from tidemill.runtime.local_state import LocalState
from tidemill.runtime.offsets import TaskFacts
from tidemill.runtime.queries import InstanceReads
from tidemill.runtime.restore_listeners import RestoreListeners
from tidemill.runtime.stream_thread import StreamThread
from tidemill.runtime.worker import Fault, WorkerSpec, source_function, step_function
from tidemill.spark.control import ControlServer
from tidemill.spark.engine import BatchEngine
from tidemill.spark.plan import CompiledTopology
from tidemill.spark.session import SparkHandle
from tidemill.spark.unreadable import OnUnreadable, Unreadable
from tidemill.topology.nodes import SourceNode


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMaker:
    """What an instance's threads have in common. ``starters``: what starts the workers of each thread, to be waited for."""

    config: StreamsConfig
    process_id: ProcessId
    facts: TaskFacts
    admin: Admin
    local: LocalState
    server: ControlServer
    spark: SparkHandle
    compiled: CompiledTopology
    reads: InstanceReads
    starters: Mapping[str, threading.Thread]
    listeners: RestoreListeners
    on_change: Callable[[], None]
    first_join: FirstJoin
    batch_folder: str
    fault: Fault | None = None

    def make(self, number: int, name: str, leader: Leader) -> StreamThread:
        config = self.config
        producer = data_client_settings(config, ClientRole.PRODUCER)
        exactly_once = config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        own_id = transactional_id(config.application_id, str(self.process_id), number) if exactly_once else None

        def make_engine(thread: StreamThread) -> BatchEngine:
            thread.handover = BatchHandover(self.spark.session, self.compiled.batch_functions)
            self.server.register(thread.name, thread)
            engine = self._engine(thread, own_id)
            self.starters[thread.name].join()  # a batch that met a busy worker would get a second one beside it
            return engine

        def make_member(protocol: group_protocol.GroupProtocol) -> GroupMember:
            self.reads.has_member(name, protocol)
            return self._member(number, name, protocol)

        return StreamThread(
            name=name,
            number=number,
            config=config,
            facts=self.facts,
            admin=self.admin,
            leader=leader,
            identity=MemberConfig(
                process_id=self.process_id,
                endpoint=self.reads.application_server or None,
                client_tags=dict(config.client_tags),
            ),
            local=self.local,
            make_member=make_member,
            make_engine=make_engine,
            fence=(lambda: fence_quietly(producer, own_id)) if own_id else lambda: None,
            first_join=self.first_join,
            global_topics=GlobalTopics(global_topics(self.compiled.topology), self.admin),
            on_change=self.on_change,
            listeners=self.listeners,
        )

    def _member(self, number: int, name: str, protocol: group_protocol.GroupProtocol) -> GroupMember:
        config = self.config
        return GroupMember(
            GroupMemberConfig(
                client_settings=group_client_settings(config),
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
            protocol,
        )

    def _engine(self, thread: StreamThread, own_id: str | None) -> BatchEngine:
        config, compiled = self.config, self.compiled
        common: dict[str, Any] = {
            "thread": thread.name,
            "address": self.server.address,
            "key": self.server.key,
            "group_id": config.application_id,
            "consumer": {**data_client_settings(config, ClientRole.CONSUMER), "group.id": config.application_id},
            "producer": {
                **data_client_settings(config, ClientRole.PRODUCER),
                **({"transaction.timeout.ms": config.transaction_timeout_ms} if own_id else {}),
            },
            "transactional_id": own_id,
            "source": compiled.source,
            "unreadable": self._unreadable(),
            "batch_folder": self.batch_folder,
            "fault": self.fault,
        }
        return BatchEngine(
            self.spark.session,
            compiled,
            thread.name,
            source_function(WorkerSpec(step="source", spec=None, **common)),
            [step_function(WorkerSpec(step=f"step-{s.number}", spec=s, **common)) for s in compiled.steps],
            limit_s=config.batch_timeout_ms / 1e3,
        )

    def _unreadable(self) -> Unreadable:
        handler = OnUnreadable(self.config.deserialization_exception_handler.value)
        return Unreadable(handler=handler, topic=self.config.dead_letter_topic, expected=expected_bytes(self.compiled))


def expected_bytes(compiled: CompiledTopology) -> dict[int, str]:
    """What the serdes of each source node expect, for messages about what they can't read."""
    return {
        compiled.compiler.tags.index(name): f"a key of {edge.key.name} and a value of {edge.value.name}"
        for name, edge in compiled.compiler.edges.items()
        if isinstance(compiled.topology.nodes.get(name), SourceNode)
    }

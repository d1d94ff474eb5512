"""A member of a real group with the instance's own leader and state machine, and tasks that nobody works on.

Carries out what the machine says at once, as a stream thread between its batches would; what it was told is kept.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill import Serdes, StreamsBuilder
from tidemill.config.slices import ClientsConfig, GroupConfig
from tidemill.config.streams_config import StreamsConfig
from tidemill.ids import ProcessId, TopicPartition
from tidemill.kafka.admin.client import Admin
from tidemill.kafka.group import protocol as group_protocol
from tidemill.kafka.group.member import GroupMember
from tidemill.kafka.group.member_config import GroupMemberConfig
from tidemill.kafka.security.clients import ClientRole, data_client_settings, group_client_settings
from tidemill.membership import member_state as machine
from tidemill.membership.topology_metadata import topology_metadata
from tidemill.membership.wire import AssignmentInfo, decode_assignment
from tidemill.runtime.group.leading import Leader
from tidemill.runtime.thread.task_registry import TaskRegistry
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.task.tasks import CloseTasks, Instruction, TaskLayout, TasksClosed, no_tasks

MakeAdmin = Callable[[Mapping[str, Any]], Admin]


class ActingMember:
    """``said`` may change the user data of a join. ``told``: each assignment, in order."""

    def __init__(
        self,
        servers: str,
        application: str,
        topic: str,
        number: int,
        *,
        make_admin: MakeAdmin = Admin,
        said: Callable[[bytes], bytes] = bytes,
        **settings: object,
    ) -> None:
        config = StreamsConfig.of(
            {"application.id": application, "bootstrap.servers": servers, "session.timeout.ms": 60_000}
            | {"heartbeat.interval.ms": 250}
            | {name.replace("__", "."): value for name, value in settings.items()}
        )
        builder = StreamsBuilder()
        builder.stream(topic, key=Serdes.string(), value=Serdes.string()).to(f"{topic}-out")
        self.process_id = ProcessId(number, 0)
        facts = topology_metadata(builder.build(), application, topic_defaults={})
        clients = config.slice(ClientsConfig)
        producer, group = data_client_settings(clients, ClientRole.PRODUCER), group_client_settings(clients)
        admin = make_admin(data_client_settings(clients, ClientRole.ADMIN))
        leader = Leader(config.slice(GroupConfig), admin, self.process_id, facts, group, producer)
        identity = machine.MemberConfig(process_id=self.process_id)
        self.registry = TaskRegistry(no_tasks(identity, TaskLayout()))
        self.membership = ThreadMembership(f"{application}-{number}", [topic], self.registry, leader, _nothing)
        self.told: list[AssignmentInfo] = []
        self.generations: list[int] = []
        self._said = said
        self.member = GroupMember(
            GroupMemberConfig(
                client_settings=group,
                group_id=application,
                client_id=f"{application}-{number}",
                rack=config.client_rack or None,
                session_timeout_ms=config.session_timeout_ms,
                heartbeat_interval_ms=config.heartbeat_interval_ms,
            ),
            self,
        )
        self.membership.bind(self.member)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> ActingMember:
        self.member.start()
        self._thread.start()
        return self

    def close(self) -> None:
        self._ends.set()
        self._thread.join(5)
        self.member.close()

    @property
    def tasks(self) -> list[str]:
        return sorted(map(str, self.membership.state.held))

    # --- GroupProtocol ---------------------------------------------------------------------------------------------

    @property
    def topics(self) -> Sequence[str]:
        return self.membership.topics

    def wait_until_taken_up(self) -> None:
        self.membership.wait_until_taken_up()

    def owned_partitions(self) -> Sequence[TopicPartition]:
        return self.membership.owned_partitions()

    def user_data(self) -> bytes:
        return self._said(self.membership.user_data())

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, group_protocol.MemberSubscription]
    ) -> group_protocol.GroupAssignment:
        return self.membership.assign(partition_counts, members)

    # --- what a stream thread does ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ends.is_set():
            self.member.alive()
            try:
                self._take(self.member.events.get(timeout=0.02))
            except queue.Empty:
                self._act(self.registry.handle(machine.TimePassed()))

    def _take(self, event: group_protocol.GroupEvent) -> None:
        if isinstance(event, group_protocol.Failed):
            raise event.error
        if isinstance(event, machine.Assigned):
            self.told.append(decode_assignment(event.user_data))
            self.generations.append(event.generation)
        self._act(self.registry.handle(event))

    def _act(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, CloseTasks):
                self._act(self.registry.handle(TasksClosed(tasks=instruction.tasks, kept=instruction.kept)))
            elif isinstance(instruction, machine.RejoinNow):
                self.member.request_rejoin(instruction.reason)


def _nothing() -> tuple[dict[Any, int], frozenset[Any]]:
    """No task has state."""
    return {}, frozenset()

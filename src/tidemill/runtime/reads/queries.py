"""Reads of an instance's state: its stream threads as ``tidemill.query`` sees them, and the HTTP server.

Decides which held tasks count as copies: those of the group member's state that are not lost, an active that is assigned
and not taken up yet among them, so that a range over the store says that it is missing. Which of them may be read, and
everything else, is ``query``'s.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from tidemill.config.slices import ReadsConfig
from tidemill.dsl.serdes import Serdes
from tidemill.endpoint import EXPECTED, host_of
from tidemill.ids import TaskId
from tidemill.kafka.admin.client import Admin
from tidemill.log_format import LogEvent
from tidemill.membership.member_state import HeldTask, Hold, Role
from tidemill.membership.wire import PartitionsByHost
from tidemill.printable import printable
from tidemill.query.http_listening import address_of, listen
from tidemill.query.http_tls import HttpAccess
from tidemill.query.local_copies import LocalCopies, LocalCopy, OpenState, Wanted
from tidemill.query.metadata import HostMap
from tidemill.query.status_source import StatusSource
from tidemill.query.store_frame import StoreFrames
from tidemill.query.store_info import StoreInfo
from tidemill.query.store_queries import Broker, OwnInstance, StoreQueries
from tidemill.runtime.group.rebalance_history import RebalanceHistory
from tidemill.runtime.reads.executor_reads import ExecutorReads
from tidemill.runtime.thread.stream_thread import StreamThread
from tidemill.runtime.thread.thread_membership import ThreadMembership
from tidemill.runtime.worker.task_store import VOLATILE_FOLDER
from tidemill.spark.plan.compiled_topology import CompiledTopology
from tidemill.state.directory import StateDirectory
from tidemill.state.lmdb import TaskState
from tidemill.state.meta import StateIdentity
from tidemill.task.lifecycle import ActiveTask, Phase
from tidemill.topology.graph import Subtopology, keys_are_placed, subtopologies
from tidemill.topology.nodes import StoreKind

if TYPE_CHECKING:
    from tidemill.query.http_server import HttpServer

log = logging.getLogger("tidemill.reads")

_BROKER_LIMIT_S = 5.0


def store_info(compiled: CompiledTopology, application_id: str) -> dict[str, StoreInfo]:
    """Every store of the topology, with the serdes that the compiler found."""
    parts: dict[int, Subtopology] = {part.id: part for part in subtopologies(compiled.topology, application_id)}
    specs = {name: spec for step in compiled.steps for name, spec in step.stores.items()}
    return {
        name: StoreInfo(
            name=name,
            subtopology=spec.subtopology,
            key_serde=spec.key_serde or Serdes.bytes(),
            value_serde=spec.value_serde or Serdes.bytes(),
            timestamped=spec.timestamped or compiled.topology.stores[name].kind is StoreKind.VERSIONED,
            changelog=spec.changelog or spec.source_topic,
            source_topics=parts[spec.subtopology].source_topics,
            is_placed=keys_are_placed(compiled.topology, name),
            folder="" if spec.persistent else VOLATILE_FOLDER,
            store=spec.kept or compiled.topology.stores[name],
        )
        for name, spec in specs.items()
    }


def held_copies(
    held: Mapping[TaskId, HeldTask], tasks: Mapping[TaskId, ActiveTask], path_of: Callable[[TaskId], Path], *,
    is_confirmed: bool = False, applied: threading.Event | None = None,
) -> Iterator[LocalCopy]:
    """The copies among what the group's member holds. ``tasks``: the actives that its thread has. ``is_confirmed``: the group has
    known the member within the session timeout. ``applied``: set once its thread's stores have all that is committed by now."""
    for name, had in held.items():
        task = tasks.get(name)
        is_given_up = had.hold is Hold.RELEASING and had.role is Role.ACTIVE and task is None
        if had.hold is Hold.LOST or is_given_up:
            continue
        yield LocalCopy(
            task=name,
            role=had.role,
            directory=path_of(name),
            is_running=task is not None and task.phase is Phase.RUNNING,
            is_confirmed=is_confirmed,
            applied=applied,
            epoch="" if task is None else task.epoch,
            positions={} if task is None else dict(task.stores or {}),
        )


class InstanceReads:
    """Reads of one instance, from before its group is joined until its threads have ended. ``queries`` is there once started.

    ``require_started`` raises if the instance doesn't run. EnvironmentProblem if it can't listen where it shall.
    """

    def __init__(
        self,
        config: ReadsConfig,
        access: HttpAccess,
        directory: StateDirectory,
        require_started: Callable[[], object],
        *,
        on_executors: bool = False,
    ) -> None:
        self._config, self._directory, self._require_started = config, directory, require_started
        far = ExecutorReads(directory, lambda: list(self._threads))
        self._open_state: OpenState = far.open if on_executors else self._open_here
        self._access = access
        self._listening = listen(config.http_listen) if config.http_listen else None
        own = address_of(self._listening) if self._listening else ""
        self.application_server = config.application_server or own
        self.queries: StoreQueries | None = None
        self._server: HttpServer | None = None
        self._memberships: dict[str, ThreadMembership] = {}
        self._threads: list[StreamThread] = []
        self._mapped: tuple[PartitionsByHost, PartitionsByHost] | None = None
        self._map = HostMap()
        self.history = RebalanceHistory()
        """Rebalances that this instance led, for the status page."""

    def start(
        self,
        stores: Mapping[str, StoreInfo],
        admin: Admin,
        threads: list[StreamThread],
        session: SparkSession,
        status: StatusSource | None = None,
        *,
        shared: Collection[str] = (),
    ) -> None:
        """``threads`` may grow afterwards. ``status``: the instance's status without its state. ``shared``: the global stores."""
        self._threads = threads
        self.queries = StoreQueries(
            stores,
            LocalCopies(self._held, self._open_state),
            OwnInstance(
                own_host=host_of(self.application_server) if self.application_server else None,
                hosts=self._hosts,
                require_started=self._require_started,
                progress=lambda: [copy for thread in list(self._threads) for copy in thread.copies],
            ),
            Broker(
                partitions=lambda topics: admin.partitions(topics, timeout_s=_BROKER_LIMIT_S),
                end_offsets=lambda partitions: admin.end_offsets(partitions, timeout_s=_BROKER_LIMIT_S),
                stable_end_offsets=lambda partitions: admin.stable_end_offsets(partitions, timeout_s=_BROKER_LIMIT_S),
            ),
            frames=StoreFrames(session, self._config.application_id),
            shared=shared,
        )
        if self._listening is not None:
            from tidemill.query.http_server import HttpServer  # with all that it needs, a tenth of a second

            self._server = HttpServer(
                self._listening, self.queries, self._config, self._access, status=status, hosts=self._hosts
            )
            self._server.start()
            log.info(LogEvent("http-listens", address=address_of(self._listening), server=self.application_server))

    def reads(self, stores: Mapping[str, StoreInfo]) -> None:
        """The instance reads more topics, which ``stores`` name."""
        if self.queries is not None:
            self.queries.stores = dict(sorted(stores.items()))

    def has_member(self, thread: str, membership: ThreadMembership) -> None:
        """Registers the membership of the thread of this name."""
        self._memberships[thread] = membership

    def refresh(self) -> None:
        """The threads' tasks have changed."""
        if self.queries is not None:
            self.queries.copies.refresh()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._listening is not None:
            self._listening.close()
        if self.queries is not None:
            self.queries.copies.close()

    def leave_to_parent(self) -> None:
        """In a forked process: the address is free again when the parent has ended."""
        if self._listening is not None:
            self._listening.close()

    def _open_here(self, folder: Path) -> TaskState:
        """Before its worker opens a directory, another task's state may lie in it."""
        task = TaskId.parse(folder.relative_to(self._directory.path).parts[0])
        return TaskState.open_to_read(folder, whose=StateIdentity(application_id=self._config.application_id, task=task))

    def _held(self, wanted: Wanted) -> Sequence[LocalCopy]:
        """The copies of this moment."""
        found: list[LocalCopy] = []
        for thread in list(self._threads):
            membership = self._memberships[thread.name]
            applied = thread.applied  # before the tasks, of which one whose batch was lost does not run
            tasks = membership.tasks
            is_confirmed = time.monotonic() - membership.confirmed_s < self._config.session_timeout_ms / 1e3
            held = {name: had for name, had in tasks.member.held.items() if wanted(name)}
            found += held_copies(held, tasks.active, self._directory.task_path, is_confirmed=is_confirmed, applied=applied)
        return found

    def _hosts(self) -> HostMap:
        """The host map of the newest assignment; the same object until there is a newer one."""
        states = [membership.state for membership in list(self._memberships.values())]  # threads may be added meanwhile
        if not states:
            return self._map
        newest = max(states, key=lambda state: state.generation)
        hosts_by_role = (newest.partitions_by_host, newest.standby_partitions_by_host)
        if self._mapped is None or hosts_by_role[0] is not self._mapped[0] or hosts_by_role[1] is not self._mapped[1]:
            self._map, self._mapped = HostMap(active=_to_ask(hosts_by_role[0]), standby=_to_ask(hosts_by_role[1])), hosts_by_role
            strange = sorted({host for hosts in hosts_by_role for host in hosts if not host.can_be_asked})
            if strange:
                log.warning(LogEvent("hosts-left-out", hosts=[printable(host) for host in strange], expected=EXPECTED))
        return self._map


def _to_ask(hosts: PartitionsByHost) -> PartitionsByHost:
    """Without what is no address: other leaders list whatever a member gives as its application.server."""
    return {host: partitions for host, partitions in hosts.items() if host.can_be_asked}

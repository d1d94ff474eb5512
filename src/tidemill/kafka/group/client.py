"""Connections of one group member: sends a request, waits for the answer, finds the group's coordinator.

Decides which connection a request takes and what a failure of the connection means; error codes are
``coordinator``'s. Built on kafka-python's network layer alone (its event loop, connections and message classes), not on
its consumer coordinator: that one ties heartbeats, joins and commits to the application's polling.

Two connections lead to the coordinator, because a broker reads the next request of a connection only after it has
answered the last. HELD carries JoinGroup and SyncGroup: brokers may hold these for minutes, until every member has come
or the leader has assigned. PROMPT carries what must not wait behind them (heartbeats, commits, leaving).

Invariant: no exception of kafka-python leaves this file. ``UnreachableError`` means that no answer came and nothing is
known about the request: wait a little and ask again. ``ClientClosedError`` means that ``close`` was called.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.schemas.fields.codecs import TaggedFields, UnsignedVarInt32

from tidemill.config.values import GroupClientSettings
from tidemill.errors import ConfigError, EnvironmentProblem, TidemillError
from tidemill.kafka.security.rights import CLUSTER, Operation, Resource, Right, missing_right
from tidemill.kafka.security.unlogged_logins import keep_logins_unlogged
from tidemill.log_format import LogEvent

Answer = TypeVar("Answer")

log = logging.getLogger("tidemill.group")

_DEFAULTS = {
    "reconnect_backoff_max_ms": 1_000,  # the library's 30 s would sleep long past the return of a broker
    "receive_message_max_bytes": 100 << 20,  # a leader gets the subscriptions of all members in one message
    "request_timeout_ms": 30_000,
    "slow_task_threshold_secs": 1.0,  # of its event loop; below that it complains of a busy machine
}
_BOOTSTRAP_WAIT_MS = 1_000
_FIND_COORDINATOR_TIMEOUT_MS = 10_000
_PROBE_TIMEOUT_S = 2
_REFUSALS = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
    kafka_errors.IllegalSaslStateError,
)
_COORDINATOR_MISSING = (
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
    kafka_errors.NotCoordinatorError,
)


def _read_no_tags(_kind: type[TaggedFields], data: object) -> None:
    if UnsignedVarInt32.decode(data) != 0:
        raise ValueError("there are tagged fields, expected none")


TaggedFields.decode_empty = classmethod(_read_no_tags)  # the library reads them within an assert, which `python -O` leaves out


class UnreachableError(Exception):
    """No answer came; whether the request was carried out is not known."""


class ClientClosedError(Exception):
    """The client was closed, before or while the request was under way."""


class Connection(Enum):
    HELD = "held"
    PROMPT = "prompt"


class GroupOutage:
    """Outages of the group: calls ``report`` once for each that lasts too long."""

    def __init__(
        self, *, servers: Sequence[str], group_id: str, report_after_ms: int, report: Callable[[TidemillError], None]
    ) -> None:
        self._servers, self._group_id, self._report = servers, group_id, report
        self._report_after_s = report_after_ms / 1000
        self._lock = threading.Lock()
        self._began: float | None = None
        self._is_reported = False

    def ended(self) -> None:
        with self._lock:
            self._began = None
            self._is_reported = False

    def goes_on(self, error: Exception, *, tried_at: float, broker_answered: bool) -> None:
        """An attempt that began at ``tried_at`` (time.monotonic) has failed."""
        with self._lock:
            if self._began is None:
                self._began = tried_at
            lasted_s = time.monotonic() - self._began
            if lasted_s < self._report_after_s or self._is_reported:
                return
            self._is_reported = True
        self._report(EnvironmentProblem(self._sentence(error, lasted_s, broker_answered=broker_answered)))

    def _sentence(self, error: Exception, lasted_s: float, *, broker_answered: bool) -> str:
        if broker_answered:
            return (
                f"No broker has acted as coordinator of group {self._group_id} for {lasted_s:.0f} s ({error}). Brokers "
                f"do answer at {', '.join(self._servers)}: check that the topic __consumer_offsets is available and "
                f"that the brokers' advertised.listeners can be reached from here. Still trying."
            )
        found = "; ".join(f"{server}: {_found_at(server)}" for server in self._servers)
        return (
            f"No Kafka broker has answered for {lasted_s:.0f} s ({found}). Check bootstrap.servers, security.protocol "
            f"and that a broker is running there. Still trying."
        )


@dataclass(frozen=True, slots=True)
class _NetworkThread:
    """kafka-python's event loop, on a thread of its own, and the connections that it serves."""

    loop: NetworkSelector
    connections: KafkaConnectionManager


class GroupClient:
    """Thread-safe; every call blocks its own thread only."""

    def __init__(
        self,
        settings: GroupClientSettings,
        *,
        group_id: str,
        client_id: str,
        report_unreachable_after_ms: int,
        report: Callable[[TidemillError], None],
    ) -> None:
        self._settings = {**_DEFAULTS, **_checked(settings), "client_id": client_id}
        self._group_id = group_id
        self.outage = GroupOutage(
            servers=_servers(self._settings),
            group_id=group_id,
            report_after_ms=report_unreachable_after_ms,
            report=report,
        )
        self._network: _NetworkThread | None = None
        self._lookup_lock = threading.Lock()
        self._coordinator: int | None = None
        self._must_bootstrap = True
        self._bootstrap: Future | None = None
        self._closed = False

    def open(self) -> None:
        """Starts the network thread; connects to nothing yet.

        Raises ConfigError if a setting has a value that the network layer refuses (a port that is no number ...).
        """
        keep_logins_unlogged()
        try:
            loop = NetworkSelector(**self._settings)
            self._network = _NetworkThread(loop, KafkaConnectionManager(loop, **self._settings))
        except (ValueError, TypeError, kafka_errors.KafkaError) as error:
            shown = _without_secrets(self._settings)
            raise ConfigError(f"The group client can't be set up with {shown}: {error}") from error
        loop.start()

    def close(self) -> None:
        """Closes all connections and ends the network thread; requests under way end with ClientClosedError."""
        if self._closed:
            return
        self._closed = True
        if self._network is None:
            return
        try:
            self._network.loop.run(self._network.connections.close)
        except Exception as error:
            log.warning(LogEvent("close-failed", group=self._group_id, error=error))
        self._network.loop.close()

    @property
    def request_timeout_ms(self) -> int:
        return int(str(self._settings["request_timeout_ms"]))

    def request(self, message: ApiMessage, connection: Connection, *, timeout_ms: int | None = None) -> ApiMessage:
        """Sends to the group's coordinator (found first if need be) and returns the answer, whatever its error code."""
        return self._ask(self.coordinator(), message, connection, timeout_ms)

    def request_known(self, message: ApiMessage, connection: Connection, *, timeout_ms: int) -> ApiMessage:
        """The same, but doesn't look for a coordinator: UnreachableError if none is known."""
        coordinator = self._coordinator  # another thread may forget it
        if coordinator is None:
            raise UnreachableError("the group's coordinator is not known")
        return self._ask(coordinator, message, connection, timeout_ms)

    def _ask(self, coordinator: int, message: ApiMessage, connection: Connection, timeout_ms: int | None) -> ApiMessage:
        node = coordinator if connection is Connection.PROMPT else _dedicated(coordinator)
        return self._send(message, node, timeout_ms)

    def request_any_broker(self, message: ApiMessage) -> ApiMessage:
        self.coordinator()  # which also brings the list of brokers
        return self._send(message, None, None)

    def forget_coordinator(self, reason: str) -> None:
        """The next request looks for the coordinator again."""
        if self._coordinator is not None:
            log.info(LogEvent("coordinator-forgotten", group=self._group_id, reason=reason))
            self._coordinator = None

    def coordinator(self) -> int:
        """The node id of the broker that coordinates this group."""
        with self._lookup_lock:
            found = self._coordinator  # another thread may forget it
            if found is None:
                found = self._coordinator = self._exchange(self._find_coordinator)
                log.info(LogEvent("coordinator-found", group=self._group_id, node=found))
            return found

    def not_allowed(
        self, error: type[Exception], doing: str, topic: str = "", *, on_group: Operation = Operation.READ
    ) -> TidemillError:
        """The right that is missing on the group, or on a topic that its members read."""
        if issubclass(error, kafka_errors.GroupAuthorizationFailedError):
            right = Right.of(Resource.GROUP, self._group_id, on_group)
        elif issubclass(error, kafka_errors.TopicAuthorizationFailedError):
            right = Right.of(Resource.TOPIC, topic, Operation.READ)
        else:
            right = Right.of(Resource.CLUSTER, CLUSTER, Operation.DESCRIBE)
        return missing_right(doing, [right], self._settings)

    def _send(self, message: ApiMessage, node: int | str | None, timeout_ms: int | None) -> ApiMessage:
        async def send() -> ApiMessage:
            return await self._opened().connections.send(message, node_id=node, request_timeout_ms=timeout_ms)

        return self._exchange(send)

    def _opened(self) -> _NetworkThread:
        assert self._network is not None, "open() comes first"
        return self._network

    def _exchange(self, step: Callable[[], Awaitable[Answer]]) -> Answer:
        """Runs a step on the network thread and translates whatever goes wrong."""
        if self._closed:
            raise ClientClosedError
        tried_at = time.monotonic()
        try:
            answer: Answer = self._opened().loop.run(step)
            return answer
        except Exception as error:
            if self._closed:
                raise ClientClosedError from error
            if isinstance(error, kafka_errors.AuthorizationError):
                raise self.not_allowed(type(error), f"The brokers refuse the client of group {self._group_id}") from error
            if isinstance(error, _REFUSALS):
                raise EnvironmentProblem(
                    f"The brokers refuse the client of group {self._group_id}: {error}. Check kafka.security.protocol and "
                    f"kafka.sasl.*"
                ) from error
            if isinstance(error, kafka_errors.UnsupportedVersionError):
                raise EnvironmentProblem(
                    f"The brokers at {', '.join(_servers(self._settings))} don't serve consumer groups: {error}. "
                    f"Expected Kafka 2.5 or later, and a broker's port, not a controller's."
                ) from error
            if not isinstance(error, kafka_errors.KafkaError):
                raise
            answered = isinstance(error, _COORDINATOR_MISSING)
            self.outage.goes_on(error, tried_at=tried_at, broker_answered=answered or not self._must_bootstrap)
            self._must_bootstrap = not answered
            self.forget_coordinator(str(error))
            raise UnreachableError(str(error)) from error

    async def _find_coordinator(self) -> int:
        connections = self._opened().connections
        if self._must_bootstrap:
            if self._bootstrap is None or self._bootstrap.is_done:
                self._bootstrap = connections.bootstrap_async()
            await connections.wait_for(self._bootstrap, _BOOTSTRAP_WAIT_MS)  # it goes on after that
            self._must_bootstrap = False
        request = FindCoordinatorRequest(key=self._group_id, key_type=0, coordinator_keys=[self._group_id])
        response = await connections.send(request, request_timeout_ms=_FIND_COORDINATOR_TIMEOUT_MS)
        result = response.coordinators[0] if response.coordinators else response
        # Registers the address under a node id of its own too: that is the HELD connection.
        connections.cluster.add_coordinator(result, CoordinatorType.GROUP, self._group_id)
        node: int = result.node_id
        return node


def _checked(settings: GroupClientSettings) -> GroupClientSettings:
    known = {*KafkaConnectionManager.DEFAULT_CONFIG, *NetworkSelector.DEFAULT_CONFIG}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(f"The group client has no setting {', '.join(unknown)}; it has {', '.join(sorted(known))}.")
    return settings


def _servers(settings: GroupClientSettings) -> tuple[str, ...]:
    servers = settings.get("bootstrap_servers", KafkaConnectionManager.DEFAULT_CONFIG["bootstrap_servers"])
    listed = servers.split(",") if isinstance(servers, str) else servers
    return tuple(str(part).strip() for part in listed) if isinstance(listed, Sequence) else ()


def _found_at(server: str) -> str:
    """Result of a plain connection to the server: the network layer says only that it has failed."""
    host, _, port = server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_TIMEOUT_S):
            return "something listens, but gives no answer that this client understands"
    except (OSError, ValueError) as error:
        return str(error)


def _without_secrets(settings: GroupClientSettings) -> dict[str, object]:
    return {key: "..." if "password" in key else value for key, value in settings.items()}


def _dedicated(coordinator: int) -> str:
    return f"coordinator-{coordinator}"

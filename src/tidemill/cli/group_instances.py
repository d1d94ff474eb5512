"""The instances of a group for commands that speak to them: who they are by their members' subscriptions, and how to ask one.

Decides what names an instance: its address (``application.server``), its process id or the beginning of it, or its client id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.cli.settings import LOCAL_BROKERS
from tidemill.errors import ConfigError, EnvironmentProblem
from tidemill.ids import ProcessId

if TYPE_CHECKING:
    from tidemill.membership.wire import HostInfo
    from tidemill.query.http_tls import HttpAccess

_LEAST_DIGITS = 4
"""Fewest digits of the beginning of a process id that names an instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInstance:
    """``host`` None: it has no address. ``client_ids``: those of its members, as they joined."""

    process_id: ProcessId
    host: HostInfo | None
    client_ids: tuple[str, ...]
    drains: bool = False

    @property
    def name(self) -> str:
        """The address, else the process id."""
        return str(self.process_id) if self.host is None else str(self.host)

    def is_called(self, text: str) -> bool:
        """True if ``text`` is its address, its process id or the beginning of it, or its client id."""
        of_process = len(text) >= _LEAST_DIGITS and str(self.process_id).startswith(text.lower())
        of_client = any(one == text or one.startswith(f"{text}-StreamThread-") for one in self.client_ids)
        return text == self.name or of_process or of_client


def group_instances(group: str, settings: Mapping[str, object]) -> list[GroupInstance]:
    """By address. EnvironmentProblem if the group can't be seen, or has no members."""
    from tidemill.config.slices import ClientsConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.kafka.admin.groups import live_group
    from tidemill.kafka.security.clients import group_client_settings
    from tidemill.membership.wire import SubscriptionInfo, host_of, known_subscription
    from tidemill.membership.wire.assignment import AssignorError

    clients = StreamsConfig.read_slice(ClientsConfig, {**LOCAL_BROKERS, **settings})
    said: dict[ProcessId, list[tuple[str, SubscriptionInfo]]] = {}
    for _, member in sorted(live_group(group_client_settings(clients), group).members.items()):
        info = known_subscription(member.subscription.user_data)
        if info is not None:
            said.setdefault(info.process_id, []).append((member.client_id, info))
    found = [
        GroupInstance(
            process_id=process_id,
            host=next((host_of(info.user_endpoint) for _, info in members if info.user_endpoint), None),
            client_ids=tuple(sorted(client_id for client_id, _ in members)),
            drains=any(info.error_code == AssignorError.DRAINING for _, info in members),
        )
        for process_id, members in said.items()
    ]
    return sorted(found, key=lambda one: one.name)


def instance_called(text: str, instances: Sequence[GroupInstance]) -> GroupInstance:
    """The one that ``text`` names. EnvironmentProblem if none or several do."""
    called = [one for one in instances if one.is_called(text)]
    if len(called) == 1:
        return called[0]
    there = "; ".join(f"{one.name} (process {one.process_id})" for one in instances)
    found = "no instance" if not called else f"{len(called)} instances"
    raise EnvironmentProblem(f"{found} of the group is called {text!r}, expected one of: {there}")


def address_of(text: str) -> HostInfo:
    """ConfigError if this is no address."""
    from tidemill.membership.wire import host_of

    named = host_of(text)
    if named is None:
        raise ConfigError(f"{text!r} is no address of an instance, expected host:port such as localhost:8080")
    return named


def http_access_of(settings: Mapping[str, object]) -> HttpAccess:
    """By the settings of the instances that are asked, as far as they are about HTTP."""
    from tidemill.config.slices import HttpConfig
    from tidemill.config.streams_config import StreamsConfig
    from tidemill.query.http_tls import http_access

    about_http = {name: value for name, value in settings.items() if name.startswith("tidemill.http.")}
    about_http.pop("tidemill.http.listen", None)
    return http_access(StreamsConfig.read_slice(HttpConfig, about_http))

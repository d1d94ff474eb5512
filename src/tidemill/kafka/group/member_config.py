"""Settings of a group member, refused where they contradict each other. What they do is ``member``'s."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.config.values import GroupClientSettings
from tidemill.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberConfig:
    """``client_settings`` under kafka-python's names (``bootstrap_servers``, ``security_protocol`` ...).

    ``leave_on_close`` None: a dynamic member leaves, a static one (``instance_id``) stays until its session times out.
    """

    client_settings: GroupClientSettings = field(repr=False)
    group_id: str
    client_id: str
    instance_id: str | None = None
    rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    eager: bool = False
    leave_on_close: bool | None = None
    report_unreachable_after_ms: int = 30_000

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_interval_ms < self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must lie between 0 and "
                f"session.timeout.ms={self.session_timeout_ms}; a third of it or less is advised."
            )
        if self.max_poll_interval_ms <= 0:
            raise ConfigError(f"max.poll.interval.ms={self.max_poll_interval_ms} must be greater than 0.")
        if self.instance_id == "":
            raise ConfigError("group.instance.id is empty: expected a name that is unique in the group, or no setting.")

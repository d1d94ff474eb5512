"""Suppressed: what ``KTable.suppress`` holds back, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemill.errors import TopologyError
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.naming import legal_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """The changes that ``KTable.suppress`` holds back (org.apache.kafka.streams.kstream.Suppressed, KIP-328).

    Made by ``until_window_closes``, ``until_time_limit`` or ``until_wall_clock_limit``; ``wait_ms`` None: until the window
    closes. What is held lies in memory, with a changelog unless ``logged`` is False.

    Raises:
        TopologyError: for a limit that is no whole number from 0 on, or a duration below 0.
    """

    wait_ms: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    logged: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    on_wall_clock: bool = False

    @classmethod
    def until_window_closes(
        cls,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        logged: bool = True,
        changelog_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Suppressed:
        """Only the last result of each window, when the window and its grace are over.

        A full buffer (``max_records``, ``max_bytes``) stops the application, as nothing may be sent early; without limits it
        grows as it must. Only for windowed tables.
        """
        return cls(
            wait_ms=None, max_records=_limit(max_records, "max_records"), max_bytes=_limit(max_bytes, "max_bytes"),
            shut_down_when_full=True, logged=logged, changelog_config=dict(changelog_config or {}), name=_name(name),
        )

    @classmethod
    def until_time_limit(
        cls,
        wait: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        shut_down_when_full: bool = False,
        logged: bool = True,
        changelog_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Suppressed:
        """At most one result of each key in ``wait`` (ms or timedelta, by stream time), the last one.

        A full buffer (``max_records``, ``max_bytes``) sends its oldest early, or stops the application with
        ``shut_down_when_full``.
        """
        return cls(
            wait_ms=milliseconds(wait, "suppress: wait"), max_records=_limit(max_records, "max_records"),
            max_bytes=_limit(max_bytes, "max_bytes"), shut_down_when_full=shut_down_when_full, logged=logged,
            changelog_config=dict(changelog_config or {}), name=_name(name),
        )

    @classmethod
    def until_wall_clock_limit(
        cls,
        wait: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        shut_down_when_full: bool = False,
        logged: bool = True,
        changelog_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> Suppressed:
        """As ``until_time_limit``, with ``wait`` counted by the wall clock from when a key's first change comes here: a change is
        sent although no later record comes. Kafka Streams has no such form.
        """
        limited = cls.until_time_limit(
            wait, max_records=max_records, max_bytes=max_bytes, shut_down_when_full=shut_down_when_full, logged=logged,
            changelog_config=changelog_config, name=name,
        )
        return replace(limited, on_wall_clock=True)


def _limit(limit: int | None, what: str) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise TopologyError(f"suppress: {what} must be a whole number from 0 on, or None for no limit, got {limit!r}")
    return limit


def _name(name: str | None) -> str | None:
    return None if name is None else legal_name(name, "an operator")

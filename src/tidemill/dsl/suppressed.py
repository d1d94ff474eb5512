"""Suppressed: what ``KTable.suppress`` holds back, and until when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import TopologyError
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.naming import legal_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Made by ``until_window_closes`` or ``until_time_limit``. ``wait_ms`` None: until the window closes."""

    wait_ms: int | None
    max_records: int | None = None
    max_bytes: int | None = None
    shut_down_when_full: bool = False
    logged: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None

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

        A full buffer stops the application, as nothing may be sent early; without limits it grows as it must.
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
        """At most one result of each key in ``wait``, the last one. A full buffer sends its oldest, or stops the application."""
        return cls(
            wait_ms=milliseconds(wait, "suppress: wait"), max_records=_limit(max_records, "max_records"),
            max_bytes=_limit(max_bytes, "max_bytes"), shut_down_when_full=shut_down_when_full, logged=logged,
            changelog_config=dict(changelog_config or {}), name=_name(name),
        )


def _limit(limit: int | None, what: str) -> int | None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise TopologyError(f"suppress: {what} must be a whole number from 0 on, or None for no limit, got {limit!r}")
    return limit


def _name(name: str | None) -> str | None:
    return None if name is None else legal_name(name, "an operator")

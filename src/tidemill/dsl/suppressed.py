"""Suppressed: the options of ``KTable.suppress``, time and buffer limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.errors import TopologyError
from tidemill.spellings import Spelled
from tidemill.topology.durations import Duration, milliseconds
from tidemill.topology.naming import legal_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed(Spelled):
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

    def __post_init__(self) -> None:
        _check_limit(self.max_records, "max_records")
        _check_limit(self.max_bytes, "max_bytes")
        if self.name is not None:
            legal_name(self.name, "an operator")
        object.__setattr__(self, "changelog_config", dict(self.changelog_config))

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
            wait_ms=None, max_records=max_records, max_bytes=max_bytes, shut_down_when_full=True, logged=logged,
            changelog_config=changelog_config or {}, name=name,
        )  # fmt: skip

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
        """Emits at most one result for each key in ``wait`` (ms or timedelta, by stream time), the last one.

        A full buffer (``max_records``, ``max_bytes``) sends its oldest early, or stops the application with
        ``shut_down_when_full``.
        """
        return cls(
            wait_ms=milliseconds(wait, "suppress: wait"), max_records=max_records, max_bytes=max_bytes,
            shut_down_when_full=shut_down_when_full, logged=logged, changelog_config=changelog_config or {}, name=name,
        )  # fmt: skip

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
        """Like ``until_time_limit``, with ``wait`` by the wall clock from the arrival of a key's first change: a change is
        emitted even if no later record arrives. Kafka Streams does not have this.
        """
        return cls(
            wait_ms=milliseconds(wait, "suppress: wait"), max_records=max_records, max_bytes=max_bytes,
            shut_down_when_full=shut_down_when_full, logged=logged, changelog_config=changelog_config or {}, name=name,
            on_wall_clock=True,
        )  # fmt: skip


def _check_limit(limit: int | None, what: str) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise TopologyError(f"suppress: {what} must be a whole number from 0 on, or None for no limit, got {limit!r}")

"""Faults for a scenario, drawn from a seed: crash, pause, drain, lost heartbeat, slow restore, change of leader, no offsets.

Decides only what strikes whom and when; what follows is the cluster's. At least one client is left alone by crashes and
pauses at any time, and whoever crashes comes back, so that the group can become balanced again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemill.sim.group import Draws
from tidemill.sim.scenario import Disk, Event, Happening, Scenario, checked

SHORTEST_MS, LONGEST_MS = 2_000, 120_000
"""Pauses on both sides of the session timeout."""


def with_faults(scenario: Scenario, draws: Draws, *, count: int, from_ms: int, until_ms: int) -> Scenario:
    """The scenario with ``count`` more events, spread over the time given; its first client is never down."""
    times = sorted(from_ms + int(draws.random() * (until_ms - from_ms)) for _ in range(count))
    drawn = tuple(_fault(scenario, draws, at_ms) for at_ms in times)
    return checked(replace(scenario, events=tuple(sorted((*scenario.events, *drawn), key=lambda event: event.at_ms))))


def _fault(scenario: Scenario, draws: Draws, at_ms: int) -> Event:
    names = [client.name for client in scenario.clients]
    anyone = _one_of(names, draws)
    not_the_first = _one_of(names[1:] or names, draws)
    for_ms = SHORTEST_MS + int(draws.random() * (LONGEST_MS - SHORTEST_MS))
    speed = scenario.surroundings.restore_records_per_s / 10
    makes: list[Callable[[], Event]] = [
        lambda: Event(at_ms=at_ms, what=Happening.CRASH, client=not_the_first, for_ms=for_ms),
        lambda: Event(at_ms=at_ms, what=Happening.CRASH, client=not_the_first, for_ms=for_ms, disk=Disk.LOST),
        lambda: Event(at_ms=at_ms, what=Happening.PAUSE, client=not_the_first, for_ms=for_ms),
        lambda: Event(at_ms=at_ms, what=Happening.RESTART, client=not_the_first, for_ms=for_ms),
        lambda: Event(at_ms=at_ms, what=Happening.DRAIN, client=not_the_first, for_ms=for_ms),
        lambda: Event(at_ms=at_ms, what=Happening.LOST_HEARTBEAT, client=anyone),
        lambda: Event(at_ms=at_ms, what=Happening.SLOW_RESTORE, client=anyone, for_ms=for_ms, records_per_s=speed),
        lambda: Event(at_ms=at_ms, what=Happening.LEADER_CHANGE),
        lambda: Event(at_ms=at_ms, what=Happening.OFFSETS_UNAVAILABLE, for_ms=for_ms),
    ]
    return makes[int(draws.random() * len(makes))]()


def _one_of(names: list[str], draws: Draws) -> str:
    return names[int(draws.random() * len(names))]

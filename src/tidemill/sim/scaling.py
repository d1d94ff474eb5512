"""An autoscaler of a simulated group: it asks for the wanted number of instances now and then, and starts or drains clients.

Decides the load that a simulated group has: what comes in, up to what its instances can process together, the rest waiting; and
what holds a change up, as ``query.scale`` finds it in a running group's document. Which number is wanted is decided by the
function that answers GET /scale (``assignment.scale``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tidemill.assignment.scale import GroupLoad, ScaleAdvice, advice, restores, warms_up
from tidemill.ids import TaskId
from tidemill.sim.agenda import Agenda
from tidemill.sim.client import SimulatedClient
from tidemill.sim.history import Round, ScaleLook
from tidemill.sim.logs import SimulatedLog
from tidemill.sim.scenario import Scaling

_QUIET_MS = 600_000
"""Time after the last event at which the run checks whether the wanted number has settled."""


class ScaledGroup(Protocol):
    """The group as its autoscaler sees it."""

    @property
    def agenda(self) -> Agenda: ...
    @property
    def logs(self) -> Mapping[TaskId, SimulatedLog]: ...
    @property
    def clients(self) -> Mapping[str, SimulatedClient]: ...
    @property
    def rounds(self) -> Sequence[Round]: ...
    def start(self, name: str) -> None: ...


class Scaler:
    """``looks``: those in which something had changed. ``until_ms``: the last event of the scenario. Rates are those of the time
    since the look before."""

    def __init__(self, scaling: Scaling, group: ScaledGroup, *, until_ms: int) -> None:
        self._scaling, self._group, self._until_ms = scaling, group, until_ms + _QUIET_MS
        self._starting: set[str] = set()
        self._waiting = 0.0
        """Records that came in and could not be processed yet."""
        self._looked_ms, self._comes_per_s = 0, 0.0
        self.looks: list[ScaleLook] = []

    def begin(self) -> None:
        self._comes_per_s = self._load_per_s()
        self._look_later()

    def _look_later(self) -> None:
        self._group.agenda.after(self._scaling.every_ms, self._look)

    def _load_per_s(self) -> float:
        return sum(log.records_per_s for log in self._group.logs.values())

    def _look(self) -> None:
        now_ms = self._group.agenda.now_ms
        found = advice(self._load(now_ms), self._scaling.wish)
        if not self.looks or _distinct_fields(self.looks[-1].advice) != _distinct_fields(found):
            self.looks.append(ScaleLook(time_ms=now_ms, advice=found))
        if not found.waits:
            self._follow(found)
        if now_ms < self._until_ms or found.waits or self._waiting:
            self._look_later()

    def _load(self, now_ms: int) -> GroupLoad:
        group = self._group
        alive = [client for client in group.clients.values() if client.is_alive]
        comes_per_s, self._comes_per_s = self._comes_per_s, self._load_per_s()
        can_per_s = len(alive) * (self._scaling.wish.capacity_per_s or 0)
        passed_s, self._looked_ms = (now_ms - self._looked_ms) / 1000, now_ms
        had = self._waiting
        self._waiting = max(0.0, had + (comes_per_s - can_per_s) * passed_s)
        done_per_s = comes_per_s + (had - self._waiting) / passed_s
        stopped = sum(log.produced_at(now_ms) - log.processed for log in group.logs.values() if log.runner is None)
        return GroupLoad(
            present=len(alive),
            records_per_s=done_per_s,
            lag=round(self._waiting) + stopped,
            measured_per_s=None,
            tasks=len(group.logs),
            threads=max((len(client.threads) for client in alive), default=1),
            held_up=next(self._held_up(alive), ""),
        )

    def _held_up(self, alive: Sequence[SimulatedClient]) -> Iterator[str]:
        warm_ups = {} if not self._group.rounds else self._group.rounds[-1].assignment.clients
        for client in alive:
            name = client.spec.name
            if client.is_draining:
                yield f"{name} drains"
            restored = sum(len(thread.state.active.keys() - thread.running) for thread in client.threads)
            if restored:
                yield restores(name, restored)
            held = warm_ups.get(client.process_id)
            if held is not None and held.warmup:
                yield warms_up(name, len(held.warmup))
            if any(thread.state.is_joining for thread in client.threads):
                yield f"{name} is REBALANCING"

    def _follow(self, found: ScaleAdvice) -> None:
        """One instance less at a time; more as many as are wanted."""
        scaled = self._scaling.clients
        running = [name for name in scaled if name in self._group.clients and self._group.clients[name].is_alive]
        if found.wanted < found.present and running:
            self._group.clients[running[-1]].drain(then=lambda: None)
        missing = max(0, found.wanted - found.present - len(self._starting))
        for name in [name for name in scaled if name not in running and name not in self._starting][:missing]:
            self._starting.add(name)
            self._group.agenda.after(self._scaling.start_ms, lambda name=name: self._start(name))  # type: ignore[misc]

    def _start(self, name: str) -> None:
        self._starting.discard(name)
        self._group.start(name)


def _distinct_fields(found: ScaleAdvice) -> tuple[object, ...]:
    """The fields by which two pieces of advice differ; the reason counts only while the advice is to wait."""
    return found.wanted, found.present, found.waits, found.why if found.waits else ""

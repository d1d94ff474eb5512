"""The state directory of one simulated client: copies of tasks, open or closed, and how they catch up with changelogs.

Decides positions over time: copies that restore share the client's speed evenly, standbys only when no active waits to
be restored, as in Kafka Streams; a copy that has reached the end of its changelog follows it as long as it is open. Who
may open a copy is decided by the member's state machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.ids import TaskId
from tidemill.sim.logs import SimulatedLog

ROUNDING = 1e-6
"""Part of a record; a copy nearer to the end than this is complete."""


@dataclass(slots=True, kw_only=True)
class Copy:
    """``position`` is the next offset; of a copy that follows, as of the last look. ``closed_ms`` None = open.

    ``is_awaited``: it is to become active as soon as it is complete.
    """

    position: float = 0.0
    holder: str | None = None
    starts_ms: int = 0
    follows: bool = False
    is_awaited: bool = False
    closed_ms: int | None = None


class SimulatedStateDirectory:
    def __init__(self, logs: Mapping[TaskId, SimulatedLog], state: Mapping[TaskId, int], records_per_s: float) -> None:
        self._logs = logs
        self.copies = {task: Copy(position=float(offset), closed_ms=0) for task, offset in state.items()}
        self.records_per_s = records_per_s
        self.restored_records: dict[TaskId, float] = {}
        self._as_of_ms = 0
        self._restoring: dict[TaskId, Copy] = {}

    @property
    def is_restoring(self) -> bool:
        return bool(self._restoring)

    def open(self, task: TaskId, holder: str, now_ms: int, starts_ms: int, *, is_awaited: bool = False) -> None:
        """A copy that is open already keeps on; one that is at the end at once follows."""
        self.advance(now_ms)
        copy = self.copies.setdefault(task, Copy())
        was_open = copy.closed_ms is None and copy.holder is not None
        end = self._logs[task].end_at(now_ms)
        copy.holder, copy.closed_ms, copy.is_awaited = holder, None, is_awaited
        if copy.position > end and not was_open:
            copy.position = 0.0  # more than the changelog has: corrupted, so it is wiped
        if copy.follows or copy.position >= end:
            copy.follows = True
        elif not was_open:
            copy.follows, copy.starts_ms = False, starts_ms
        if copy.follows:
            self._restoring.pop(task, None)
        else:
            self._restoring[task] = copy

    def close(self, task: TaskId, now_ms: int) -> None:
        copy = self.copies.get(task)
        if copy is not None and copy.closed_ms is None:
            self.advance(now_ms)
            copy.position = self.position(task, now_ms)
            copy.holder, copy.closed_ms, copy.follows = None, now_ms, False
            self._restoring.pop(task, None)

    def position(self, task: TaskId, now_ms: int) -> float:
        copy = self.copies[task]
        return float(self._logs[task].end_at(now_ms)) if copy.follows else copy.position

    def freeze(self, task: TaskId, now_ms: int) -> None:
        """Nothing is applied to an open copy any more: its process is frozen, or its owner has been thrown out."""
        copy = self.copies.get(task)
        if copy is not None and copy.closed_ms is None:
            self.advance(now_ms)
            copy.position, copy.follows = self.position(task, now_ms), False
            self._restoring.pop(task, None)

    def freeze_all(self, now_ms: int) -> None:
        for task in self.copies:
            self.freeze(task, now_ms)

    def thaw(self, now_ms: int) -> None:
        """Open copies continue from their positions."""
        self.advance(now_ms)
        for task, copy in self.copies.items():
            if copy.closed_ms is None and not copy.follows and task not in self._restoring:
                copy.follows = copy.position >= self._logs[task].end_at(now_ms)
                if not copy.follows:
                    copy.starts_ms = now_ms
                    self._restoring[task] = copy

    def drop_unused(self, older_than_ms: int) -> None:
        """The background cleaner (state.cleanup.delay.ms)."""
        for task in [t for t, copy in self.copies.items() if copy.closed_ms is not None and copy.closed_ms < older_than_ms]:
            del self.copies[task]

    def crash(self, now_ms: int, checkpoint_records: int) -> None:
        """Everything is closed where its last checkpoint says."""
        for task, copy in self.copies.items():
            if copy.closed_ms is None:
                self.close(task, now_ms)
                if checkpoint_records:
                    copy.position = float(copy.position // checkpoint_records * checkpoint_records)

    def advance(self, now_ms: int) -> None:
        """Bring all positions to ``now_ms``; whatever reaches its end follows from there."""
        at: float = self._as_of_ms
        while self._restoring and at < now_ms:
            started = self._reading(at)
            coming = [copy.starts_ms for copy in self._restoring.values() if copy.starts_ms > at]
            until = min([float(now_ms), *coming])
            share = self.records_per_s / 1000 / len(started) if started else 0.0
            until = min([until, *(at + self._left_ms(task, copy, share, at) for task, copy in started.items())])
            for task, copy in started.items():
                self._restore(task, copy, share * (until - at), until)
            at = max(until, math.nextafter(at, math.inf))
        self._as_of_ms = now_ms

    def next_finish_ms(self, now_ms: int) -> int | None:
        """Time at which the next copy starts or reaches its end, if nothing changes; None if none ever does."""
        started = self._reading(now_ms)
        soonest = math.inf
        if started:
            share = self.records_per_s / 1000 / len(started)
            soonest = now_ms + min(self._left_ms(task, copy, share, now_ms) for task, copy in started.items())
        for copy in self._restoring.values():
            if now_ms < copy.starts_ms < soonest:
                soonest = copy.starts_ms
        return None if math.isinf(soonest) else max(math.ceil(soonest), now_ms + 1)

    def _reading(self, at: float) -> dict[TaskId, Copy]:
        """Copies that restore at this moment."""
        started: dict[TaskId, Copy] = {}
        awaited: dict[TaskId, Copy] = {}
        for task, copy in self._restoring.items():
            if copy.starts_ms <= at:
                (awaited if copy.is_awaited else started)[task] = copy
        return awaited or started

    def _left_ms(self, task: TaskId, copy: Copy, share: float, at: float) -> float:
        log = self._logs[task]
        gain = share - log.growth_per_ms()
        left = log.end_at(int(at)) - copy.position
        return 0.0 if left <= ROUNDING else left / gain if gain > 0 else math.inf

    def _restore(self, task: TaskId, copy: Copy, records: float, at: float) -> None:
        end = float(self._logs[task].end_at(int(at)))
        reached = min(copy.position + records, end)
        self.restored_records[task] = self.restored_records.get(task, 0.0) + max(reached - copy.position, 0.0)
        copy.position = max(reached, copy.position)
        if copy.position >= end - ROUNDING:
            copy.position, copy.follows = end, True
            del self._restoring[task]

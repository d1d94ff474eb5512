"""The inputs and changelogs of tasks over virtual time, and how long each task was without a running active.

Decides one simplification: a running active has always processed all of its input, so the changelog ends where the
input does; while no client runs the task its changelog does not grow, and the backlog is processed at once afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidemill.ids import TaskId


@dataclass(slots=True, kw_only=True)
class SimulatedLog:
    """``runner``: the member that runs the task. Outages count from its first running on."""

    task: TaskId
    records: int
    records_per_s: float
    bytes_per_record: int
    is_stateful: bool
    since_ms: int = 0
    processed: int = 0
    runner: str | None = None
    stopped_ms: int | None = None
    longest_down_ms: int = 0
    outages: list[tuple[int, int]] = field(default_factory=list)

    def produced_at(self, now_ms: int) -> int:
        return self.records + int((now_ms - self.since_ms) * self.records_per_s / 1000)

    def end_at(self, now_ms: int) -> int:
        """The changelog's end; of a source topic that serves as changelog, what the group has committed."""
        return self.processed if self.runner is None else self.produced_at(now_ms)

    def growth_per_ms(self) -> float:
        return 0.0 if self.runner is None else self.records_per_s / 1000

    def produce(self, count: int, now_ms: int) -> None:
        self.records, self.since_ms = self.produced_at(now_ms) + count, now_ms

    def load(self, records_per_s: float, now_ms: int) -> None:
        """Sets the input rate from now on."""
        self.produce(0, now_ms)
        self.records_per_s = records_per_s

    def run(self, member: str, now_ms: int) -> None:
        if self.stopped_ms is not None and now_ms > self.stopped_ms:
            self._count_outage(self.stopped_ms, now_ms)
        self.runner, self.stopped_ms = member, None

    def stop(self, member: str, now_ms: int) -> None:
        """Nothing if another member runs the task by now."""
        if self.runner == member:
            self.processed = self.produced_at(now_ms)
            self.runner, self.stopped_ms = None, now_ms

    def close_books(self, now_ms: int) -> None:
        """Ends the run's accounts: a task that is still down was down until now."""
        if self.stopped_ms is not None and now_ms > self.stopped_ms:
            self._count_outage(self.stopped_ms, now_ms)

    def _count_outage(self, from_ms: int, to_ms: int) -> None:
        self.outages.append((from_ms, to_ms))
        self.longest_down_ms = max(self.longest_down_ms, to_ms - from_ms)

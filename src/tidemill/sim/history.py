"""History of a simulated run: its rebalances, and their costs.

Decides what counts as a round, as a move and as time to balance. A round is one rebalance; hand-overs are rounds too,
marked by their cause. Balanced means: the last rebalance asked for no other one, and every task runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from tidemill.assignment.invariants import unbalanced
from tidemill.assignment.model import ApplicationState, Assignment
from tidemill.assignment.scale import ScaleAdvice
from tidemill.ids import ProcessId, TaskId
from tidemill.sim.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTasks:
    """Assignment of one member; ``withheld``: tasks that it will get once their owners have released them."""

    active: tuple[TaskId, ...]
    standby: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """``before`` None: no client ran the task."""

    task: TaskId
    before: ProcessId | None
    after: ProcessId


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One rebalance; ``moves`` compares the owners of active tasks before it with those it decided on."""

    number: int
    time_ms: int
    cause: str
    leader: str
    state: ApplicationState
    assignment: Assignment
    threads: Mapping[str, ThreadTasks]
    withheld: tuple[TaskId, ...]
    is_stable: bool
    moves: tuple[Move, ...]
    errors: tuple[str, ...] = ()
    """Errors that the leader logged."""

    @property
    def extra_copies(self) -> int:
        """Standbys beyond ``num.standby.replicas``, group-wide: warm-ups and what an owner keeps until it hands over."""
        wanted = self.state.config.num_standby_replicas
        copies = Counter(task for held in self.assignment.clients.values() for task in held.standby)
        return sum(max(count - wanted, 0) for count in copies.values())

    def unbalanced(self) -> list[str]:
        """Clients that have more or fewer stateful tasks than their threads are worth, in sentences."""
        stateful = self.state.stateful_tasks
        return unbalanced({p: len(held.active & stateful) for p, held in self.assignment.clients.items()}, self.state)

    def most_loaded(self) -> int:
        """The most stateful active tasks of one client."""
        stateful = self.state.stateful_tasks
        return max((len(held.active & stateful) for held in self.assignment.clients.values()), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Time in which a task had no running active, from its first running on."""

    task: TaskId
    from_ms: int
    to_ms: int

    @property
    def length_ms(self) -> int:
        return self.to_ms - self.from_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLook:
    """The wanted number of instances at a time."""

    time_ms: int
    advice: ScaleAdvice


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """``balanced_ms``: when the group was balanced for good and all tasks ran; None: never within the time given."""

    scenario: Scenario
    rounds: tuple[Round, ...]
    names: Mapping[ProcessId, str]
    outages: tuple[Outage, ...]
    restored_records: Mapping[TaskId, int]
    restored_bytes: int
    balanced_ms: int | None
    violations: tuple[str, ...]
    scale: tuple[ScaleLook, ...] = ()
    """Advice of the autoscaler that differs from the one before in the wanted number or in the reason for waiting."""

    @property
    def rounds_after_start(self) -> tuple[Round, ...]:
        """Rounds from the first event after the common start."""
        return tuple(round_ for round_ in self.rounds if round_.time_ms >= self.scenario.disturbed_ms)

    @property
    def time_to_balanced_ms(self) -> int | None:
        return None if self.balanced_ms is None else max(self.balanced_ms - self.scenario.disturbed_ms, 0)

    @property
    def longest_outage(self) -> Outage | None:
        return max(self.outages, key=lambda outage: (outage.length_ms, outage.task), default=None)

    @property
    def moved_tasks(self) -> int:
        """Number of moves of running tasks to another client, the start not counted; one that takes several rounds to be handed
        over counts once."""
        rounds: list[set[Move]] = [{move for move in each.moves if move.before is not None} for each in self.rounds_after_start]
        return sum(len(moves - before) for before, moves in pairwise([set(), *rounds]))

    @property
    def most_extra_copies(self) -> int:
        return max((round_.extra_copies for round_ in self.rounds_after_start), default=0)

    @property
    def most_loaded(self) -> int:
        return max((round_.most_loaded() for round_ in self.rounds_after_start), default=0)

    @property
    def busiest(self) -> float | None:
        """Records per second of the busiest client at the end, in multiples of its share by threads; None without any records."""
        if not self.rounds:
            return None
        last, tasks = self.rounds[-1], self.scenario.tasks
        total = sum(part.rate_of(task.partition) for task, part in tasks.items())
        threads = sum(client.capacity for client in last.state.clients)
        carried = [
            sum(tasks[task].rate_of(task.partition) for task in last.assignment.clients[one.process_id].active) / one.capacity
            for one in last.state.clients
        ]
        return max(carried) * threads / total if total else None

    def name(self, process_id: ProcessId) -> str:
        return self.names.get(process_id, str(process_id)[:8])

    def phases(self) -> list[tuple[Round, ...]]:
        """The rounds, those that only repeat what the one before decided together with it: its hand-overs."""
        found: list[list[Round]] = []
        for round_ in self.rounds_after_start:
            if found and found[-1][0].assignment == round_.assignment:
                found[-1].append(round_)
            else:
                found.append([round_])
        return [tuple(phase) for phase in found]

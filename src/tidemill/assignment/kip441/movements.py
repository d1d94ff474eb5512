"""Movements of tasks from the clients with their state to those of the balanced target: the core of KIP-441.

Decides which copies of the target are on clients that are not caught up while better ones exist, in which order
these movements are served, which client keeps the task meanwhile, and which target gets a warm-up from the budget of
``max.warmup.replicas``. Invariants: an active task ends on a most caught-up client; warm-ups never exceed the budget;
swapping with a standby costs none of it. The assignors make the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol, TypeVar

from tidemill.assignment.kip441.client_queue import ClientQueue
from tidemill.assignment.lag import Lags
from tidemill.assignment.model import LATEST_OFFSET
from tidemill.assignment.placement import TaskPlacement
from tidemill.java_collections.priority_queue import JavaPriorityQueue


class Kept(Enum):
    """Keeper of the task until its target is caught up."""

    RUNNING = "the client that runs it now"
    RUNNING_STANDBY = "the client that runs it now, whose standby swaps with the target"
    STANDBY_OF_CAUGHT_UP = "a caught-up client whose standby swaps with the target"
    CAUGHT_UP = "a caught-up client"
    MOST_CAUGHT_UP_STANDBY = "the most caught-up client, whose standby swaps with the target"
    MOST_CAUGHT_UP = "the most caught-up client"
    NOT_MOVABLE = "no better client is without a copy"


SWAPS = (Kept.RUNNING_STANDBY, Kept.STANDBY_OF_CAUGHT_UP, Kept.MOST_CAUGHT_UP_STANDBY)


class Movement(NamedTuple):
    """One planned movement as it was served, tasks and clients by position."""

    task: int
    target: int
    keeper: int
    """The client that has the copy meanwhile; the target itself if nothing could be done."""
    kept: Kept
    warms_up: bool
    """True if the target holds an extra copy that counts against the budget."""
    budget_before: int

    @property
    def is_swap(self) -> bool:
        return self.kept in SWAPS

    @property
    def target_has_copy(self) -> bool:
        """True if the target has a copy that can catch up; if not, it waits for a warm-up."""
        return self.warms_up or self.is_swap or self.kept is Kept.NOT_MOVABLE


T = TypeVar("T")


class Wanted(NamedTuple):
    task: int
    target: int


class QueueOrder(Protocol):
    """The entries of a queue in the order in which movements are made."""

    def __call__(self, queue: JavaPriorityQueue[T], /) -> Iterable[T]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MovementForm:
    """Differences between versions of Kafka."""

    is_wanted: Callable[[Lags, int, int], bool]
    """True if a copy of this task on this client must wait for a better client's."""
    in_order: QueueOrder
    is_requeued_in_order: bool
    """True if movements that are left over keep their order when they are queued again."""
    order: str
    """Description of that order, for explanations."""
    falls_back_on_most_caught_up: bool
    """True if the least lagging client takes the task when no client is caught up."""
    moves_only_for_gain: bool
    """True if the client that runs a task keeps it against other caught-up ones, and an equal lag moves no standby."""


def is_better_elsewhere(lags: Lags, task: int, client: int) -> bool:
    """Not caught up, and some client lags less (so also when no client is caught up)."""
    return not lags.is_caught_up(task, client) and lags.least(task) < lags.lag(task, client)


def is_caught_up_elsewhere(lags: Lags, task: int, client: int) -> bool:
    """Not caught up, and some client is."""
    return not lags.is_caught_up(task, client) and lags.caught_up_count(task) > 0


FEWEST_CAUGHT_UP_FIRST = MovementForm(
    is_wanted=is_better_elsewhere,
    in_order=JavaPriorityQueue.drain,
    is_requeued_in_order=True,
    order="tasks with the fewest caught-up clients first, then in task order",
    falls_back_on_most_caught_up=True,
    moves_only_for_gain=False,
)
"""Since 3.3: tasks of fewest caught-up clients first, then in task order."""

HEAP_ARRAY_ORDER = MovementForm(
    is_wanted=is_caught_up_elsewhere,
    in_order=list,
    is_requeued_in_order=False,
    order="2.7's order: the array of a heap filled client by client",
    falls_back_on_most_caught_up=False,
    moves_only_for_gain=False,
)
"""Until 3.2: the same queue, but walked in the order of its heap array."""

ONLY_FOR_GAIN = replace(FEWEST_CAUGHT_UP_FIRST, moves_only_for_gain=True)
"""The order of 3.3 and later; but a running task moves only to its target, and a standby only to a client with less lag."""


def move_actives(placement: TaskPlacement, lags: Lags, form: MovementForm, budget: int) -> list[Movement]:
    """Give each active task whose target must wait to a better client; the target warms up while budget is left."""
    queue: JavaPriorityQueue[Wanted] = JavaPriorityQueue()
    for target, tasks in enumerate(placement.active_tasks()):
        for task in tasks:
            if form.is_wanted(lags, task, target):
                queue.add((lags.caught_up_count(task), task), Wanted(task, target))
    clients = ClientQueue(placement)
    served = []
    for task, target in form.in_order(queue):
        keeper, kept = _active_keeper(placement, clients, lags, Wanted(task, target), form)
        warms_up = False
        if kept in SWAPS:
            placement.swap_active_and_standby(task, keeper)
        else:
            placement.set_active(task, keeper)
            warms_up = budget > 0
            if warms_up:
                placement.add_standby(task, target)
        is_move = kept not in SWAPS
        clients.put_back(keeper, target, gained=int(is_move), lost=int(is_move and not warms_up))
        served.append(Movement(task, target, keeper, kept, warms_up, budget))
        budget -= warms_up
    return served


def move_standbys(
    placement: TaskPlacement, lags: Lags, form: MovementForm, budget: int, active_movements: Sequence[Movement]
) -> list[Movement]:
    """Give each standby whose target must wait to a better client without a copy; the target's becomes a warm-up.

    Warm-ups of actives stay where they are. Without budget the target loses its copy; a standby for which no better
    client is free stays (``Kept.NOT_MOVABLE``).
    """
    warmups = {(movement.task, movement.target) for movement in active_movements if movement.warms_up}
    queue: JavaPriorityQueue[Wanted] = JavaPriorityQueue()
    for target, tasks in enumerate(placement.standby_tasks()):
        for task in tasks:
            if (task, target) not in warmups and form.is_wanted(lags, task, target):
                queue.add((lags.caught_up_count(task), task), Wanted(task, target))
    clients = ClientQueue(placement)
    served = []
    for task, target in form.in_order(queue):
        keeper, kept = _standby_keeper(placement, clients, lags, Wanted(task, target), form)
        warms_up = False
        if kept is not Kept.NOT_MOVABLE:
            placement.add_standby(task, keeper)
            warms_up = budget > 0
            if not warms_up:
                placement.drop_standby(task, target)
            clients.put_back(keeper, target, gained=1, lost=int(not warms_up))
        served.append(Movement(task, target, keeper, kept, warms_up, budget))
        budget -= warms_up
    return served


def _active_keeper(
    placement: TaskPlacement, clients: ClientQueue, lags: Lags, wanted: Wanted, form: MovementForm
) -> tuple[int, Kept]:
    task, target = wanted
    standbys = placement.standbys[task]
    if form.moves_only_for_gain:
        keeper = clients.poll([client for lag, client in lags.reported(task) if lag == LATEST_OFFSET])
        if keeper is not None:
            return keeper, Kept.RUNNING_STANDBY if keeper in standbys else Kept.RUNNING
    keeper = clients.poll([client for client in standbys if lags.is_caught_up(task, client)])
    if keeper is not None:
        return keeper, Kept.STANDBY_OF_CAUGHT_UP
    keeper = clients.poll(lags.caught_up_clients(task))
    if keeper is not None:
        return keeper, Kept.CAUGHT_UP
    if not form.falls_back_on_most_caught_up:
        raise AssertionError("a movement is planned only if some client is caught up")
    keeper = next(lags.most_caught_up_before(task, target))
    return keeper, Kept.MOST_CAUGHT_UP_STANDBY if keeper in standbys else Kept.MOST_CAUGHT_UP


def _standby_keeper(
    placement: TaskPlacement, clients: ClientQueue, lags: Lags, wanted: Wanted, form: MovementForm
) -> tuple[int, Kept]:
    task, target = wanted
    keeper = clients.poll([client for client in lags.caught_up_clients(task) if not placement.holds(task, client)])
    if keeper is not None:
        return keeper, Kept.CAUGHT_UP
    if form.falls_back_on_most_caught_up:
        for client in lags.most_caught_up_before(task, target):
            if form.moves_only_for_gain and lags.lag(task, client) == lags.lag(task, target):
                break
            if not placement.holds(task, client):
                return client, Kept.MOST_CAUGHT_UP
    return target, Kept.NOT_MOVABLE

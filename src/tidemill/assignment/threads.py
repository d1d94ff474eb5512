"""Distribution of a client's tasks over its stream threads (StreamsPartitionAssignor.assignTasksToThreads).

Decides the three stages of today's form (stateful actives, standbys, stateless actives, over one shared load count) and
the two passes of 2.7 (actives, standbys, each for itself). Invariant: a stage leaves its threads within one task of each
other. A stateful task stays on the thread that had it, by least lag, as far as that allows. The assignors decide
which tasks the client has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from itertools import cycle

from tidemill.assignment.iteration_order import TaskHash
from tidemill.assignment.model import ClientAssignment, ClientState
from tidemill.errors import AssignmentError
from tidemill.ids import TaskId
from tidemill.java_collections.hash_table import hash_order, string_order, task_hash, task_hash_2_7
from tidemill.java_collections.priority_queue import JavaPriorityQueue

TasksOfThreads = dict[str, list[TaskId]]


class Stage(Enum):
    STATEFUL_ACTIVE = "stateful_active"
    STANDBY = "standby"
    STATELESS_ACTIVE = "stateless_active"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """Tasks that one stage gave each thread (in order), and the number of tasks that each thread has since."""

    stage: Stage
    tasks: Mapping[str, tuple[TaskId, ...]]
    load_after: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadAssignment:
    """The tasks of each thread (= group member) in the order of assigning."""

    active: Mapping[str, tuple[TaskId, ...]]
    standby: Mapping[str, tuple[TaskId, ...]]


def assign_to_threads(
    client: ClientState,
    assigned: ClientAssignment,
    stateful_tasks: Set[TaskId],
    end_offset_sums: Mapping[TaskId, int],
) -> ThreadAssignment:
    """4.3's form: in three stages, each of which counts what the earlier ones gave."""
    if len(client.consumers) == 1:
        return _all_to_the_only_thread(client, assigned, stateful_tasks, end_offset_sums)
    first, standby, last = assign_stages(client, stage_inputs(assigned, stateful_tasks), stateful_tasks, end_offset_sums)
    active = {thread: tasks + last.tasks[thread] for thread, tasks in first.tasks.items()}
    return ThreadAssignment(active=active, standby=standby.tasks)


def _all_to_the_only_thread(
    client: ClientState, assigned: ClientAssignment, stateful_tasks: Set[TaskId], end_offset_sums: Mapping[TaskId, int]
) -> ThreadAssignment:
    """Result of the stages with one thread: in each its previous tasks come first, then the others, least first."""
    (thread, previous), *_ = _previous_tasks_by_lag(client, stateful_tasks, end_offset_sums).items()

    def in_order(tasks: Set[TaskId]) -> tuple[TaskId, ...]:
        return (*(task for task in previous if task in tasks), *sorted(tasks - set(previous)))

    stateless = tuple(sorted(assigned.active - stateful_tasks))
    return ThreadAssignment(
        active={thread: in_order(assigned.active & stateful_tasks) + stateless},
        standby={thread: in_order(assigned.standby)},
    )


def stage_inputs(assigned: ClientAssignment, stateful_tasks: Set[TaskId]) -> list[tuple[Stage, Sequence[TaskId]]]:
    """The three stages in order, each with its tasks in the order in which Kafka's sets of them iterate."""
    stateful, stateless = _actives_in_hash_order(assigned, stateful_tasks, task_hash)
    return [(Stage.STATEFUL_ACTIVE, stateful), (Stage.STANDBY, sorted(assigned.standby)), (Stage.STATELESS_ACTIVE, stateless)]


def assign_stages(
    client: ClientState,
    inputs: Iterable[tuple[Stage, Collection[TaskId]]],
    stateful_tasks: Set[TaskId],
    end_offset_sums: Mapping[TaskId, int],
) -> list[StageResult]:
    """The stages one by one, each with its tasks in the order in which they iterate."""
    previous = _previous_tasks_by_lag(client, stateful_tasks, end_offset_sums)
    load = dict.fromkeys(previous, 0)
    results = []
    for stage, tasks in inputs:
        wanted = previous if stage is not Stage.STATELESS_ACTIVE else dict.fromkeys(previous, ())
        given, _ = _spread(tasks, wanted, load)
        load = {thread: count + len(given[thread]) for thread, count in load.items()}
        results.append(StageResult(stage=stage, tasks=_frozen(given), load_after=load))
    return results


def assign_to_threads_2_7(
    client: ClientState,
    assigned: ClientAssignment,
    stateful_tasks: Set[TaskId],
    end_offset_sums: Mapping[TaskId, int],
) -> ThreadAssignment:
    """2.7's form: standbys are spread without regard to actives; a task that a thread reports must be known."""
    stateful, stateless = _actives_in_hash_order(assigned, stateful_tasks, task_hash_2_7)
    if stateful or assigned.standby:
        _refuse_unknown_tasks(client, stateful_tasks)
    previous = _previous_tasks_by_lag(client, stateful_tasks, end_offset_sums)
    idle = dict.fromkeys(previous, 0)
    active, at_minimum = _spread(stateful, previous, idle)
    waiting = deque(sorted(stateless))
    while waiting and at_minimum:
        active[at_minimum.popleft()].append(waiting.popleft())
    for thread, task in zip(cycle(previous), waiting, strict=False):
        active[thread].append(task)
    standby, _ = _spread(sorted(assigned.standby), previous, idle)
    return ThreadAssignment(active=_frozen(active), standby=_frozen(standby))


def _refuse_unknown_tasks(client: ClientState, stateful_tasks: Set[TaskId]) -> None:
    unknown = {t for consumer in client.consumers for t in consumer.task_offset_sums if t not in stateful_tasks}
    if unknown:
        raise AssignmentError(
            f"client {client.process_id} reports state of {', '.join(map(str, sorted(unknown)))}, which is no stateful task "
            "of this topology; Kafka 2.7 fails here, 4.3 skips such tasks"
        )


def _actives_in_hash_order(
    assigned: ClientAssignment, stateful_tasks: Set[TaskId], hash_of_task: TaskHash
) -> tuple[list[TaskId], list[TaskId]]:
    """Stateful and stateless actives, each as the HashSet that Kafka collects them in."""
    active = sorted(assigned.active)
    return (
        hash_order((task for task in active if task in stateful_tasks), hash_of_task),
        hash_order((task for task in active if task not in stateful_tasks), hash_of_task),
    )


def _previous_tasks_by_lag(
    client: ClientState, stateful_tasks: Set[TaskId], end_offset_sums: Mapping[TaskId, int]
) -> dict[str, Sequence[TaskId]]:
    """For each thread, in the order of member ids: the known tasks whose state it reported, by (the client's lag, id)."""

    def lag_and_id(task: TaskId) -> tuple[int, TaskId]:
        lag = client.lags.get(task)
        return end_offset_sums[task] if lag is None else lag, task

    if not client.consumers:
        raise AssignmentError(f"client {client.process_id} has no members to give its tasks to; expected at least one")
    return {
        consumer.member: sorted((t for t in consumer.task_offset_sums if t in stateful_tasks), key=lag_and_id)
        for consumer in sorted(client.consumers, key=lambda consumer: string_order(consumer.member))
    }


def _spread(
    tasks: Collection[TaskId], previous: Mapping[str, Sequence[TaskId]], load: Mapping[str, int]
) -> tuple[TasksOfThreads, deque[str]]:
    """Give the tasks to threads that have ``load`` tasks already; also which threads are still at the minimum, if any
    thread had to go above it.
    """
    given: TasksOfThreads = {thread: [] for thread in previous}
    left = JavaPriorityQueue.of(tasks)
    if not left:
        return given, deque()
    minimum = (sum(load.values()) + len(tasks)) // len(previous)
    skipped = _return_to_previous_threads(left, given, previous, load, minimum)
    _fill_up_to_minimum(left, given, load, minimum)
    if not left:
        return given, deque()
    at_minimum = deque(thread for thread in given if len(given[thread]) + load[thread] == minimum)
    for task, thread in sorted(skipped.items()):
        if thread in at_minimum and task in left:
            given[thread].append(task)
            left.remove(task)
            at_minimum.remove(thread)
    for task in left:
        given[at_minimum.popleft()].append(task)
    return given, at_minimum


def _return_to_previous_threads(
    left: JavaPriorityQueue[TaskId],
    given: TasksOfThreads,
    previous: Mapping[str, Sequence[TaskId]],
    load: Mapping[str, int],
    minimum: int,
) -> dict[TaskId, str]:
    """Gives threads back their previous tasks, up to the minimum each; returns the others, with the last thread that had them."""
    skipped: dict[TaskId, str] = {}
    for thread, tasks in previous.items():
        for task in tasks:
            if task in left:
                if len(given[thread]) < minimum - load[thread]:
                    given[thread].append(task)
                    left.remove(task)
                else:
                    skipped[task] = thread
    return skipped


def _fill_up_to_minimum(left: JavaPriorityQueue[TaskId], given: TasksOfThreads, load: Mapping[str, int], minimum: int) -> None:
    """Least tasks first, in turn to the threads below the minimum."""
    below = deque(thread for thread in given if len(given[thread]) < minimum - load[thread])
    while below:
        thread = below.popleft()
        given[thread].append(left.poll())
        if len(given[thread]) + load[thread] < minimum:
            below.append(thread)


def _frozen(given: TasksOfThreads) -> dict[str, tuple[TaskId, ...]]:
    return {thread: tuple(tasks) for thread, tasks in given.items()}

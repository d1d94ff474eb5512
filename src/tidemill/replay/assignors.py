"""Recompute recorded answers of Kafka's assignors: a record in, a result in the shape of its ``expected`` out.

Decides which assignor, in which form, answers a record, and what its inputs are: an answer in the record is never read.
Records of whole rebalances and of wire formats are recomputed in ``membership``; ``recorded_answers`` compares
answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tidemill.assignment.iteration_order import IterationOrder, TaskHash, hash_iteration, sorted_iteration
from tidemill.assignment.kip441.high_availability import Compatibility, HighAvailabilityTaskAssignor
from tidemill.assignment.model import ApplicationState, Assignment, ClientAssignment, ClientState, RackStrategy, TaskAssignor
from tidemill.assignment.sticky.assignor import FallbackPriorTaskAssignor, PublicStickyTaskAssignor, StickyTaskAssignor
from tidemill.assignment.threads import assign_stages, assign_to_threads, assign_to_threads_2_7, stage_inputs
from tidemill.documents import Document
from tidemill.errors import AssignmentError, ConfigError
from tidemill.ids import ProcessId, TaskId
from tidemill.java_collections.hash_table import task_hash, task_hash_2_7
from tidemill.replay.record_kinds import Kind
from tidemill.replay.records import application_state, client, expected, texts
from tidemill.replay.validation import first_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """``sorted_containers``: the sticky assignors' inputs iterate sorted instead of by hash."""

    compatibility: Compatibility = Compatibility.KAFKA_4_3
    sorted_containers: bool = False


def replayed(record: Document, kind: Kind, options: ReplayOptions) -> dict[str, object]:
    """The result, in the shape of the kind's ``expected``; what Kafka answers with an exception is ``{"error": ...}``."""
    try:
        return _REPLAY[kind](record, options)
    except AssignmentError as error:
        return {"error": str(error)}


def _replay_high_availability(record: Document, options: ReplayOptions) -> dict[str, object]:
    return _answer_of(HighAvailabilityTaskAssignor(compatibility=options.compatibility), application_state(record))


def _replay_convergence(record: Document, options: ReplayOptions) -> dict[str, object]:
    assignor = HighAvailabilityTaskAssignor(compatibility=options.compatibility)
    return {"rounds": [_answer_of(assignor, application_state(record, round_)) for round_ in record["rounds"]]}


def _replay_sticky(record: Document, options: ReplayOptions) -> dict[str, object]:
    state = application_state(record)
    hash_of_task, order = _iteration(record, state, options)
    if options.compatibility is Compatibility.KAFKA_2_7:
        state = replace(state, config=replace(state.config, rack_aware_assignment_strategy=RackStrategy.NONE))
    return _answer_of(StickyTaskAssignor(task_hash=hash_of_task, iteration=lambda _: order), state)


def _replay_fallback(record: Document, options: ReplayOptions) -> dict[str, object]:
    state = application_state(record)
    hash_of_task, order = _iteration(record, state, options)
    return _answer_of(FallbackPriorTaskAssignor(task_hash=hash_of_task, iteration=lambda _: order), state)


def _replay_public_sticky(record: Document, _options: ReplayOptions) -> dict[str, object]:
    state = application_state(record)
    preserves_active = bool(record.get("must_preserve_active_task_assignment", False))
    assignment = PublicStickyTaskAssignor(preserves_active=preserves_active).assign(state)
    fault = first_fault(state, assignment)
    return {
        "clients": {
            str(process_id): {
                "active": texts(tasks.active),
                "standby": texts(tasks.standby),
                "followup_deadline_ms": tasks.followup_deadline_ms,
            }
            for process_id, tasks in sorted(assignment.clients.items())
        },
        "validation": "NONE" if fault is None else fault.kind.value,
    }


def _replay_rack(record: Document, options: ReplayOptions) -> dict[str, object]:
    match record.get("assignor", "ha"):
        case "ha":
            return _replay_high_availability(record, options)
        case "sticky":
            return _replay_sticky(record, options)
        case other:
            raise ConfigError(f"record {record.get('id')}: assignor {other!r}; expected ha or sticky")


def _replay_thread(record: Document, _options: ReplayOptions) -> dict[str, object]:
    """The result in today's form: 2.7 has no stages."""
    ends = {TaskId.parse(task): total for task, total in record["end_offset_sums"].items()}
    on_client = client(_without_partitions(record["client"]), frozenset(ends), ends, {})
    assigned = ClientAssignment(
        active=frozenset(map(TaskId.parse, record["assigned_active"])),
        standby=frozenset(map(TaskId.parse, record["assigned_standby"])),
    )
    said = {stage["stage"]: stage.get("input_iteration_order") for stage in record.get("stages", ())}
    inputs = []
    for stage, tasks in stage_inputs(assigned, ends.keys()):
        given = said.get(stage.value)
        inputs.append((stage, tasks if given is None else list(map(TaskId.parse, given))))
    return {
        "stages": [
            {"stage": result.stage.value, "assignment": _texts_by_thread(result.tasks)}
            for result in assign_stages(on_client, inputs, ends.keys(), ends)
        ]
    }


def _without_partitions(entry: Document) -> Document:
    """Threads are chosen by reported offsets; such a record does not show whose partitions a member owned."""
    consumers = {member: {**said, "owned_partitions": ()} for member, said in entry["consumers"].items()}
    return {**entry, "consumers": consumers}


def _replay_experiment(record: Document, _options: ReplayOptions) -> dict[str, object]:
    """The clients' tasks and, from them, the threads', in the form of the version that the record names."""
    older = record["kafka"].startswith("2.7")
    state = application_state(record)
    compatibility = Compatibility.KAFKA_2_7 if older else Compatibility.KAFKA_4_3
    assignment = HighAvailabilityTaskAssignor(compatibility=compatibility).assign(state)
    return {
        "expected": expected(assignment, state.stateful_tasks),
        "threads": {
            str(on_client.process_id): _threads_of(on_client, assignment, state, older=older)
            for on_client in state.clients
        },
    }


def _threads_of(on_client: ClientState, assignment: Assignment, state: ApplicationState, *, older: bool) -> dict[str, object]:
    form = assign_to_threads_2_7 if older else assign_to_threads
    assigned = assignment.clients[on_client.process_id]
    threads = form(on_client, assigned, state.stateful_tasks, state.end_offset_sums)
    active, standby = _texts_by_thread(threads.active), _texts_by_thread(threads.standby)
    return {thread: {"active": active[thread], "standby": standby[thread]} for thread in active}


_REPLAY: dict[Kind, Callable[[Document, ReplayOptions], dict[str, object]]] = {
    Kind.HIGH_AVAILABILITY: _replay_high_availability,
    Kind.CONVERGENCE: _replay_convergence,
    Kind.STICKY: _replay_sticky,
    Kind.PUBLIC_STICKY: _replay_public_sticky,
    Kind.FALLBACK: _replay_fallback,
    Kind.RACK: _replay_rack,
    Kind.THREAD: _replay_thread,
    Kind.EXPERIMENT: _replay_experiment,
}


def _answer_of(assignor: TaskAssignor, state: ApplicationState) -> dict[str, object]:
    return expected(assignor.assign(state), state.stateful_tasks)


def _iteration(record: Document, state: ApplicationState, options: ReplayOptions) -> tuple[TaskHash, IterationOrder]:
    """The recorded order is that of today's hash codes; 2.7's must be computed."""
    if options.compatibility is Compatibility.KAFKA_2_7:
        order = sorted_iteration(state) if options.sorted_containers else hash_iteration(state, task_hash_2_7)
        return task_hash_2_7, order
    if options.sorted_containers:
        return task_hash, sorted_iteration(state)
    said = record.get("iteration_order")
    if said is None:
        return task_hash, hash_iteration(state)
    return task_hash, IterationOrder(
        clients=tuple(map(ProcessId.parse, said["clients"])),
        tasks=tuple(map(TaskId.parse, said["all_tasks"])),
        stateful_tasks=tuple(map(TaskId.parse, said["stateful_tasks"])),
    )


def _texts_by_thread(tasks: Mapping[str, tuple[TaskId, ...]]) -> dict[str, list[str]]:
    return {thread: [str(task) for task in given] for thread, given in tasks.items()}

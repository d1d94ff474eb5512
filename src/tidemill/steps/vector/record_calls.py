"""Functions that a vectorised step calls with one record at a time: peek, foreach and print.

Decides what becomes of a record that the function of any vectorised node fails on (rule 26): the processing exception handler
is asked, and the record is skipped or ends the thread.
"""

from __future__ import annotations

from tidemill.errors import RecordError, RetriableError, SerdeError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ErrorContext, HandlerFailedError
from tidemill.operators.function_failures import function_failure
from tidemill.operators.record import Record
from tidemill.printable import said_by
from tidemill.steps.rows.order import topic_of
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.topology.operations import Foreach, Peek, Print


def peek(node: NodeSpec, operation: Peek | Foreach, records: Records, state: StepState) -> Records:
    """Calls the function with each record; a record that it fails on is skipped if the handler says so."""
    refused: list[int] = []
    for at in range(len(records)):
        key, value = _sides(node, records, at)
        try:
            operation.function(key, value)
        except BaseException as problem:
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, problem, state)
            refused.append(at)
    return records.without(refused) if refused else records


def print_all(node: NodeSpec, operation: Print, records: Records, _state: StepState) -> Records:
    """Prints each record."""
    for at in range(len(records)):
        key, value = _sides(node, records, at)
        print(f"[{operation.label}]: {key}, {value}", flush=True)
    return records


def _sides(node: NodeSpec, records: Records, at: int) -> tuple[object, object]:
    return node.key_serde.deserialize(records.keys[at]), node.value_serde.deserialize(records.values[at])


def refuse(node: NodeSpec, task: TaskId, records: Records, at: int, problem: BaseException, state: StepState) -> None:
    """Passes over a record that the node's function fails on, if the handler says so; else raises."""
    offset = records.offsets[at]
    topic = topic_of(node.topics, records.sequences[at], offset)
    context = ErrorContext(
        task=task, node=node.name, topic=topic, partition=task.partition, offset=-1 if offset is None else offset,
        timestamp=records.timestamps[at], headers=tuple(records.header(at) or ()),
    )  # fmt: skip
    key, value = records.keys[at], records.values[at]
    try:
        refused = state.handlers.judge(context, _decoded(node, key, value, context), problem, in_sink=False)
    except Exception as failure:
        problem, refused = failure, None
    if refused is None:
        raise function_failed(node, task, topic, offset, problem) from problem
    state.dropped += 1
    state.passed_over.add(refused, key, value)


def function_failed(
    node: NodeSpec, task: TaskId, topic: str, offset: int | None, problem: BaseException, *, where: str = ""
) -> RecordError:
    """A function of the user's, or a serde, has raised ``problem`` on a record of ``topic`` (rule 26).

    Raises:
        RetriableError: ``problem`` is one.
    """
    if isinstance(problem, RetriableError):
        raise problem
    if isinstance(problem, HandlerFailedError):
        what = f"{node.name}: {said_by(problem)}"
    elif isinstance(problem, SerdeError):
        what = f"the function of {node.name} failed{where}: {said_by(problem)}"
    else:
        what = function_failure(node.name, problem, where)
    return RecordError(
        what, task=str(task), topic=topic, partition=task.partition, offset=-1 if offset is None else offset
    )


def _decoded(node: NodeSpec, key: bytes | None, value: bytes | None, context: ErrorContext) -> Record:
    """For a handler; what can't be read, which may be what is wrong, stays bytes."""
    sides: list[object] = []
    for data, serde in ((key, node.key_serde), (value, node.value_serde)):
        try:
            sides.append(serde.deserialize(data))
        except SerdeError:
            sides.append(data)
    return Record(sides[0], sides[1], context.timestamp, context.headers)

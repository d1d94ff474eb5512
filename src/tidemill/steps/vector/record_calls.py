"""Functions that a vectorised step calls with one record at a time: peek, foreach and print.

Decides what becomes of a record that the function of any vectorised node fails on (rule 26): the processing exception handler
is asked, and the record is skipped or ends the thread.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.errors import RecordError, RetriableError, SerdeError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ErrorContext, HandlerFailedError
from tidemill.operators.function_failures import function_failure
from tidemill.operators.record import Record
from tidemill.printable import said_by
from tidemill.steps.rows.codecs_wire import as_it_came
from tidemill.steps.rows.intake import as_handlers_get_it
from tidemill.steps.rows.order import topic_of
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import NodeSpec
from tidemill.steps.step_state import StepState
from tidemill.topology.operations import Foreach, Peek, Print
from tidemill.topology.values import Key, Value


def peek(node: NodeSpec, operation: Peek | Foreach, records: Records, state: StepState) -> Records:
    """Calls the function with each record; a record that it fails on is skipped if the handler says so."""
    return _each(node, operation.function, records, state)


def print_all(node: NodeSpec, operation: Print, records: Records, state: StepState) -> Records:
    """Prints each record."""
    return _each(node, lambda key, value: print(f"[{operation.label}]: {key}, {value}", flush=True), records, state)


def _each(node: NodeSpec, function: Callable[[Key, Value], object], records: Records, state: StepState) -> Records:
    refused: list[int] = []
    for at in range(len(records)):
        try:
            function(node.key_serde.deserialize(records.keys[at]), node.value_serde.deserialize(records.values[at]))
        except BaseException as problem:
            refuse(node, TaskId(node.subtopology, records.parts[at]), records, at, problem, state)
            refused.append(at)
    return records.without(refused) if refused else records


def refuse(node: NodeSpec, task: TaskId, records: Records, at: int, problem: BaseException, state: StepState) -> None:
    """Passes over a record that the node's function fails on, if the handler says so; else raises."""
    offset = records.offsets[at]
    topic = topic_of(node.topics, records.sequences[at], offset)
    key, value = records.keys[at], records.values[at]
    by_key, by_value = node.letter_serdes
    context = ErrorContext(
        task=task, node=node.name, topic=topic, partition=task.partition, offset=-1 if offset is None else offset,
        timestamp=records.timestamps[at], headers=tuple(records.header(at) or ()),
        source_raw_key=as_it_came(by_key, node.key_serde, key), source_raw_value=as_it_came(by_value, node.value_serde, value),
    )  # fmt: skip
    sides = as_handlers_get_it(node.key_serde, key), as_handlers_get_it(node.value_serde, value)
    try:
        record = Record(*sides, context.timestamp, context.headers)
        refused = state.handlers.judge(context, record, problem, in_sink=False)
    except Exception as failure:
        problem, refused = failure, None
    if refused is None:
        raise failed_on(node, task, records, at, problem) from problem
    state.dropped += 1
    state.passed_over.add(refused)


def failed_on(node: NodeSpec, task: TaskId, records: Records, at: int, problem: BaseException) -> RecordError:
    """``function_failed`` on the record that is at ``at``. Raises as that does."""
    offset = records.offsets[at]
    return function_failed(node, task, topic_of(node.topics, records.sequences[at], offset), offset, problem)


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
    return RecordError(what, task=str(task), topic=topic, partition=task.partition, offset=offset)

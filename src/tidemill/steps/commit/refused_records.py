"""Records on which functions of Columns raise: stop, skip, or skip with a dead letter, as ``processing.exception.handler`` says.

Decides what the handler is given and what the error says. Which record it is was found by running the batch again with fewer
records (``task.batch_size``); the source step has tagged it, so that no function got it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidemill.errors import RecordError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import ColumnsFunctionError, ErrorContext, HandlerFailedError
from tidemill.operators.record import Record
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import as_handlers_get_it
from tidemill.steps.rows.order import topic_index
from tidemill.steps.rows.schema import SourceRow
from tidemill.steps.step_spec import Origin
from tidemill.steps.step_state import StepState
from tidemill.task.batch import BatchRequest, RefusedRecord


def pass_over_refused(rows: pa.Table, sources: Mapping[int, Origin], request: BatchRequest, state: StepState) -> None:
    """Passes over the records if the handler says so.

    Raises:
        RecordError: it does not, or it has failed.
    """
    known = {(record.topic, record.partition, record.offset): record for record in request.refused}
    for row in sorted(rows.to_pylist(), key=lambda row: int(row["seq"])):
        origin = sources[row["n"]]
        _judge(row, origin, known[origin.topics[topic_index(row["seq"])], row["part"], row["off"]], state)


def _judge(row: SourceRow, origin: Origin, refused: RefusedRecord, state: StepState) -> None:
    by_serde = bool(refused.node) and not origin.columns  # else a function of Columns has made what the serde can't write
    if by_serde:
        names, message, faulty = refused.node, refused.message.removeprefix(f"{refused.node}: "), "serde"
        failed = f"the serde of {names} failed: {message}"
    else:
        names, message, faulty = " or ".join(origin.columns) or "the topology", refused.message, "function"
        failed = f"a function of Columns, of {names}, failed: {refused.error.rpartition('.')[2]}: {message}"
    headers = tuple(unpacked(row["headers"]) or ())
    context = ErrorContext(
        task=TaskId(origin.subtopology, row["part"]), node=names, topic=refused.topic, partition=refused.partition,
        offset=refused.offset, timestamp=row["ts"], headers=headers, source_raw_key=row["key"], source_raw_value=row["value"],
    )  # fmt: skip
    sides = ((origin.key_serde, row["key"]), (origin.value_serde, row["value"]))
    key, value = (data if serde is None else as_handlers_get_it(serde, data) for serde, data in sides)
    problem = ColumnsFunctionError(refused.error, message)
    what = f"{failed}. Correct the {faulty}, or set processing.exception.handler to continue or dead-letter"
    try:
        passed = state.handlers.judge(context, Record(key, value, row["ts"], headers), problem, in_sink=False)
    except HandlerFailedError as failure:
        passed, what = None, f"{'' if by_serde else 'functions of Columns, of '}{names}: {failure}"
    if passed is None:
        raise RecordError(
            what, task=str(context.task), topic=refused.topic, partition=refused.partition, offset=refused.offset
        )
    state.dropped += 1
    state.passed_over.add(passed)


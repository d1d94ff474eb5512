"""Records whose bytes a serde can't read: stop, skip, or skip with a dead letter.

Decides what happens by ``deserialization.exception.handler``, which may be a function of the user's: it is asked about one record
after the other, in the order of their offsets. Finding such records is the source step's and the first layer's;
``dead_letters`` has the headers of a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tidemill.errors import RecordError, RetriableError, SerdeError
from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import (
    ErrorContext,
    ExceptionHandler,
    ExceptionHandlers,
    ExceptionResponse,
    HandlerFailedError,
    response_of,
)
from tidemill.operators.record import Record
from tidemill.printable import said_by
from tidemill.steps.commit.dead_letters import error_headers
from tidemill.steps.outputs import ToDeadLetters
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import Intake
from tidemill.steps.rows.order import topic_index
from tidemill.steps.rows.records import Records
from tidemill.steps.rows.schema import SUMMED_HEADER, UNREADABLE, UNREADABLE_HEADERS, SourceRow
from tidemill.steps.step_spec import Origin
from tidemill.task.raw_records import Headers
from tidemill.topology.values import Serde

_SETTING = "deserialization.exception.handler"
_UNREADABLE_HEADERS = [(UNREADABLE_HEADERS, None)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """The policy for records that can't be read; ``expected`` says per source node what its serdes expect, ``serdes``
    are these, of key and value; ``topic`` is the dead-letter topic. ``handlers``: of records that can be read, but not processed
    or written."""

    handler: ExceptionResponse | ExceptionHandler
    topic: str | None
    expected: Mapping[int, str]
    handlers: ExceptionHandlers = field(default_factory=ExceptionHandlers)
    serdes: Mapping[int, tuple[Serde, Serde]] = field(default_factory=dict)


def unreadable_records(
    table: pa.Table, sources: Mapping[int, Origin], policy: Unreadable
) -> tuple[RecordError, tuple[ToDeadLetters, Records] | None]:
    """The error of the first record, and (destination, dead letters) unless they are only skipped. Records for global stores
    are: each thread would send a letter, at each start.

    Raises:
        RecordError: the handler's answer to one of them is FAIL, or the handler fails.
        RetriableError: the handler's, or a serde's.
    """
    rows: list[SourceRow] = table.select(["part", "off", "seq", "ts", "headers", "key", "value", "n"]).to_pylist()
    rows.sort(key=lambda row: (row["off"], row["part"]))
    answers = [_answer(row, sources, policy) for row in rows]
    letters = [row for row, answer in zip(rows, answers, strict=True) if answer is ExceptionResponse.DEAD_LETTER]
    first = _error(rows[0], sources, _reason(rows[0], policy))
    if not letters:
        return first, None
    assert policy.topic is not None
    own = [row for row in letters if not sources[row["n"]].is_global]
    return first, ((ToDeadLetters(policy.topic), _set_aside(own, sources, policy)) if own else None)


def _answer(row: SourceRow, sources: Mapping[int, Origin], policy: Unreadable) -> ExceptionResponse:
    if policy.handler in (ExceptionResponse.CONTINUE, ExceptionResponse.DEAD_LETTER):
        return policy.handler
    origin, reason = sources[row["n"]], _reason(row, policy)
    if policy.handler is ExceptionResponse.FAIL:
        raise _error(row, sources, f"{reason}. Correct the serde, or set {_SETTING} to continue or dead-letter")
    headers = tuple(_own(row))
    context = ErrorContext(
        task=TaskId(origin.subtopology, row["part"]), node=origin.node, topic=origin.topics[topic_index(row["seq"])],
        partition=row["part"], offset=row["off"], timestamp=row["ts"], headers=headers,
    )  # fmt: skip
    record = Record(row["key"], row["value"], row["ts"], headers)
    try:
        response = response_of(policy.handler, _SETTING, policy.topic, context, record, SerdeError(reason))
    except HandlerFailedError as failure:
        raise _error(row, sources, str(failure)) from failure
    if response is ExceptionResponse.FAIL:
        raise _error(row, sources, f"{reason}. Correct the serde: {_SETTING} has answered FAIL")
    return response


def _error(row: SourceRow, sources: Mapping[int, Origin], said: str) -> RecordError:
    origin = sources[row["n"]]
    return RecordError(
        said,
        task=str(TaskId(origin.subtopology, row["part"])),
        topic=origin.topics[topic_index(row["seq"])],
        partition=row["part"],
        offset=row["off"],
    )


def _set_aside(rows: list[SourceRow], sources: Mapping[int, Origin], policy: Unreadable) -> Records:
    return Records(
        parts=[row["part"] for row in rows],
        keys=[row["key"] for row in rows],
        values=[row["value"] for row in rows],
        timestamps=[max(0, row["ts"]) for row in rows],
        offsets=[row["off"] for row in rows],
        sequences=[row["seq"] for row in rows],
        headers=[_headers(row, sources[row["n"]].topics[topic_index(row["seq"])], policy) for row in rows],
    )


def _headers(row: SourceRow, topic: str, policy: Unreadable) -> Headers:
    return error_headers(
        _own(row), error="tidemill.errors.SerdeError", message=_reason(row, policy), stacktrace="",
        topic=topic, partition=row["part"], offset=row["off"],
    )  # fmt: skip


def _own(row: SourceRow) -> Headers:
    """The record's own headers, none where they can't be read."""
    found = unpacked(row["headers"]) or []
    return [] if found == _UNREADABLE_HEADERS else found


def _reason(row: SourceRow, policy: Unreadable) -> str:
    if unpacked(row["headers"]) == _UNREADABLE_HEADERS:
        return "found a header whose name is no UTF-8"
    key, value = (None if data is None else len(data) for data in (row["key"], row["value"]))
    found, expected = f"found a key of {_bytes(key)} and a value of {_bytes(value)}", policy.expected[row["n"]]
    if any(name == SUMMED_HEADER for name, _ in unpacked(row["headers"]) or ()):
        return f"{found} with the header {SUMMED_HEADER}, expected {expected}, or with that header 8 bytes, a positive number"
    return f"{found}, expected {expected}{_refusal(row, policy)}"


def _refusal(row: SourceRow, policy: Unreadable) -> str:
    """The serde's error for the record, which is read once more for it: as functions of Python get it, then as Spark does."""
    sides = list(zip(("key", "value"), (row["key"], row["value"]), policy.serdes.get(row["n"], ()), strict=False))
    reads = [(side, serde.deserialize, data) for side, data, serde in sides]
    for side, read, data in [*reads, *((side, Intake(serde).take_one, data) for side, data, serde in sides)]:
        try:
            read(data)
        except RetriableError:
            raise
        except SerdeError as refused:
            return f"; the {side} can't be read: {said_by(refused)}"
        except Exception as problem:
            return f"; the {side} can't be read: {type(problem).__name__}: {said_by(problem)}"
    return ""


def _bytes(length: int | None) -> str:
    return "null" if length is None else f"{length} bytes"


def as_unreadable(table: pa.Table) -> pa.Table:
    """Rows that an earlier step could not read, tagged for the last one, which says what becomes of them."""
    place = table.schema.get_field_index("node")
    return table.set_column(place, table.schema.field(place), pa.array([UNREADABLE] * table.num_rows, pa.int32()))

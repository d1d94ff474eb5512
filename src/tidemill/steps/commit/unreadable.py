"""Records whose bytes a serde can't read: stop, skip, or skip with a dead letter.

Decides what happens by ``deserialization.exception.handler``, which may be a function of the user's: it is asked about one record
after the other, in the order of their offsets. Finding such records is the source step's and the first layer's.
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
    letters_of,
)
from tidemill.operators.record import Record
from tidemill.printable import said_by
from tidemill.steps.commit.passed_over import Letters
from tidemill.steps.rows.headers import unpacked
from tidemill.steps.rows.intake import Intake
from tidemill.steps.rows.order import topic_index
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


def unreadable_records(table: pa.Table, sources: Mapping[int, Origin], policy: Unreadable) -> tuple[RecordError, Letters]:
    """The error of the first record, and the dead letters of all. Records for global stores have none: each thread would send
    one, at each start.

    Raises:
        RecordError: the handler's answer to one of them is FAIL, or the handler fails.
        RetriableError: the handler's, or a serde's.
    """
    rows: list[SourceRow] = table.select(["part", "off", "seq", "ts", "headers", "key", "value", "n"]).to_pylist()
    rows.sort(key=lambda row: (row["off"], row["part"]))
    letters = Letters()
    if policy.handler is not ExceptionResponse.CONTINUE:
        for row in rows:
            _ask(row, sources[row["n"]], policy, letters)
    return _error(rows[0], sources[rows[0]["n"]], _reason(rows[0], policy)), letters


def _ask(row: SourceRow, origin: Origin, policy: Unreadable, letters: Letters) -> None:
    reason = _reason(row, policy)
    if policy.handler is ExceptionResponse.FAIL:
        raise _error(row, origin, f"{reason}. Correct the serde, or set {_SETTING} to continue or dead-letter")
    headers = tuple(_own(row))
    context = ErrorContext(
        task=TaskId(origin.subtopology, row["part"]), node=origin.node, topic=origin.topics[topic_index(row["seq"])],
        partition=row["part"], offset=row["off"], timestamp=row["ts"], headers=headers, source_raw_key=row["key"],
        source_raw_value=row["value"],
    )  # fmt: skip
    record = Record(row["key"], row["value"], row["ts"], headers)
    try:
        given = letters_of(policy.handler, _SETTING, policy.topic, context, record, SerdeError(reason))
    except HandlerFailedError as failure:
        raise _error(row, origin, str(failure)) from failure
    if given is None:
        raise _error(row, origin, f"{reason}. Correct the serde: {_SETTING} has answered FAIL")
    for letter in () if origin.is_global else given:
        letters.add(letter, context)


def _error(row: SourceRow, origin: Origin, said: str) -> RecordError:
    return RecordError(
        said,
        task=str(TaskId(origin.subtopology, row["part"])),
        topic=origin.topics[topic_index(row["seq"])],
        partition=row["part"],
        offset=row["off"],
    )


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

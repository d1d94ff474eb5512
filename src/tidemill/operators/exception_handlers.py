"""Records that a function or a serde fails on: Kafka Streams' exception handlers.

Decides whether a task continues without such a record (``processing.exception.handler``, KIP-1033;
``production.exception.handler`` for what a sink can't write) and whether the record goes to the dead letter queue (KIP-1034),
and how a handler of the user's is asked. Leaves finding errors and writing the queue to others, and what
``deserialization.exception.handler`` is asked about. What the node did before it failed on the record stays, as in Kafka Streams.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.errors import ConfigError, RetriableError
from tidemill.ids import TaskId
from tidemill.operators.record import Headers, Record
from tidemill.printable import repr_of, said_by, shortened
from tidemill.spellings import Spelled, SpelledEnum


class ExceptionResponse(SpelledEnum):
    """FAIL: the stream thread ends. CONTINUE: on without the record, which counts as dropped. DEAD_LETTER: the same, and the
    source's record goes to ``errors.dead.letter.queue.topic.name``, in the batch's transaction."""

    FAIL = "fail"
    CONTINUE = "continue"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext(Spelled):
    """The place of an error: ``topic``, ``partition`` and ``offset`` are the source record's; ``offset`` None in a punctuator,
    ``task`` None where the records of all of a thread's tasks are sent together."""

    task: TaskId | None
    node: str
    topic: str
    partition: int
    offset: int | None
    timestamp: int
    headers: Headers


class ColumnsFunctionError(Exception):
    """An exception of a function of Columns, raised in Spark's JVM or in a UDF. ``error``: its class there."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class HandlerFailedError(Exception):
    """An exception handler raised, or answered what is no response; the message has the error that it was asked about, too."""


ExceptionHandler = Callable[[ErrorContext, Record | None, Exception], ExceptionResponse]
"""``handler(context, record, error)``: ``record`` is what the node was given, None in a punctuator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record that was skipped. ``data``: key and value of one that had waited, as its operator's store has them; None: those of
    the source's record."""

    context: ErrorContext
    error: str
    message: str
    stacktrace: str
    is_letter: bool
    data: tuple[bytes | None, bytes | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionHandlers:
    """``processing``: of functions and processors. ``production``: of what a sink can't write. A response instead of a handler is
    the answer to every error.

    ``cover_global_stores``: ``processing`` is also asked about the processors of global stores (KIP-1270).
    """

    processing: ExceptionResponse | ExceptionHandler = ExceptionResponse.FAIL
    production: ExceptionResponse | ExceptionHandler = ExceptionResponse.FAIL
    dead_letter_topic: str | None = None
    cover_global_stores: bool = False

    @property
    def of_global_stores(self) -> ExceptionHandlers:
        """The handlers for records of global stores."""
        return self if self.cover_global_stores else FAILING

    @property
    def are_failing(self) -> bool:
        """True if no record is ever skipped."""
        return self.processing is ExceptionResponse.FAIL and self.production is ExceptionResponse.FAIL

    def judge(self, context: ErrorContext, record: Record | None, problem: BaseException, *, in_sink: bool) -> Refused | None:
        """None if the task must fail. No handler is asked about what is no Exception (``sys.exit()``), as none of Kafka Streams'
        is about an Error of Java's.

        Raises:
            RetriableError, ConfigError: ``problem`` is one, for which no record is to blame; or a RetriableError of the handler.
            HandlerFailedError: the handler failed, or asks for a dead letter where no topic for them is set.
        """
        if isinstance(problem, (RetriableError, ConfigError)):
            raise problem
        if not isinstance(problem, Exception):
            return None
        which = "production.exception.handler" if in_sink else "processing.exception.handler"
        handler = self.production if in_sink else self.processing
        response = response_of(handler, which, self.dead_letter_topic, context, record, problem)
        if response is ExceptionResponse.FAIL:
            return None
        is_letter = response is ExceptionResponse.DEAD_LETTER
        return Refused(
            context=context,
            error=_class_of(problem),
            message=said_by(problem),
            stacktrace=shortened("".join(traceback.format_exception(problem))) if is_letter else "",
            is_letter=is_letter,
        )


def response_of(
    handler: ExceptionResponse | ExceptionHandler,
    which: str,
    dead_letter_topic: str | None,
    context: ErrorContext,
    record: Record | None,
    problem: Exception,
) -> ExceptionResponse:
    """The handler's answer about ``problem``; ``which``: the handler's setting.

    Raises:
        RetriableError: the handler's.
        HandlerFailedError: the handler failed, or asks for a dead letter where no topic for them is set.
    """
    asked = f"(asked about {_shown(problem)})"
    answer: object = handler
    if not isinstance(handler, ExceptionResponse):
        try:
            answer = handler(context, record, problem)
        except RetriableError:
            raise
        except BaseException as failure:
            raise HandlerFailedError(f"{which} failed: {_shown(failure)} {asked}") from failure
    try:
        response = ExceptionResponse(answer)
    except Exception:  # also what comparing an answer of any class raises
        expected = ", ".join(f"ExceptionResponse.{response.name}" for response in ExceptionResponse)
        raise HandlerFailedError(f"{which} returned {repr_of(answer)}, expected one of {expected} {asked}") from None
    if response is ExceptionResponse.DEAD_LETTER and dead_letter_topic is None:
        raise HandlerFailedError(f"{which} asks for a dead letter: set errors.dead.letter.queue.topic.name {asked}")
    return response


def _shown(problem: BaseException) -> str:
    return f"{_class_of(problem).rpartition('.')[2]}: {said_by(problem)}"


def _class_of(problem: BaseException) -> str:
    if isinstance(problem, ColumnsFunctionError):
        return problem.error
    return f"{type(problem).__module__}.{type(problem).__qualname__}"


FAILING = ExceptionHandlers()

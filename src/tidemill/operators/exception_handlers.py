"""Records that a function or a serde fails on: Kafka Streams' exception handlers.

Decides whether a task continues without such a record (``processing.exception.handler``, KIP-1033;
``production.exception.handler`` for what a sink can't write), which dead letters there are of it and what they say (KIP-1034),
and how a handler of the user's is asked. Leaves finding errors and sending letters to others, and what
``deserialization.exception.handler`` is asked about. What the node did before it failed on the record stays, as in Kafka Streams.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemill.errors import ConfigError, RetriableError
from tidemill.ids import TaskId, why_no_topic
from tidemill.operators.record import Headers, Record, why_no_headers, why_no_timestamp
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
    ``task`` None where the records of all of a thread's tasks are sent together.

    ``source_raw_key`` and ``source_raw_value``: the source record's bytes, or the nearest to them that are known: those that
    functions of Columns have made of them, or those of an operator's store in which the record had waited. None in a punctuator,
    and where they are not known.
    """

    task: TaskId | None
    node: str
    topic: str
    partition: int
    offset: int | None
    timestamp: int
    headers: Headers
    source_raw_key: bytes | None = None
    source_raw_value: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Spelled):
    """A record that an exception handler sends for one that is skipped (KIP-1034: a ``ProducerRecord<byte[], byte[]>``).

    ``key`` and ``value`` are sent as they are. ``timestamp`` is in ms since the epoch; None: that of the record that is skipped.
    ``partition`` None: the key decides.
    """

    topic: str
    key: bytes | None = None
    value: bytes | None = None
    timestamp: int | None = None
    headers: Headers = ()
    partition: int | None = None

    @staticmethod
    def of(context: ErrorContext, error: Exception, topic: str) -> DeadLetter:
        """The letter that ``ExceptionResponse.DEAD_LETTER`` sends, to a topic of your choice: the source record's key and value,
        with the headers of the record and ``__streams.errors.exception``, ``message``, ``stacktrace``, ``topic``, ``partition``
        and ``offset``: Kafka Streams' names, in its order, numbers as text."""
        said = {
            "exception": class_of(error),
            "message": said_by(error),
            "stacktrace": "" if error.__traceback__ is None else shortened("".join(traceback.format_exception(error))),
            "topic": context.topic or None,  # null, as in Kafka Streams: of a punctuator, and of what has waited without origin
            "partition": str(context.partition),
            "offset": str(-1 if context.offset is None else context.offset),
        }
        texts = {name: None if text is None else text.encode(errors="backslashreplace") for name, text in said.items()}
        return DeadLetter(
            topic=topic, key=context.source_raw_key, value=context.source_raw_value, timestamp=max(0, context.timestamp),
            headers=(*context.headers, *((f"__streams.errors.{name}", text) for name, text in texts.items())),
        )  # fmt: skip


class ColumnsFunctionError(Exception):
    """An exception of a function of Columns, raised in Spark's JVM or in a UDF. ``error``: its class there."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class HandlerFailedError(Exception):
    """An exception handler raised, or answered what is no response; the message has the error that it was asked about, too."""


ExceptionHandler = Callable[[ErrorContext, Record | None, Exception], ExceptionResponse | DeadLetter | Sequence[DeadLetter]]
"""``handler(context, record, error)``: ``record`` is what the node was given, None in a punctuator. An answer of dead letters
of its own continues without the record, as Kafka Streams' ``Response.resume(records)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A record that was skipped, with its dead letters. ``has_waited``: in an operator's store, so it is not the one that has
    just come."""

    context: ErrorContext
    error: str
    message: str
    letters: tuple[DeadLetter, ...]
    has_waited: bool = False


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
        letters = letters_of(handler, which, self.dead_letter_topic, context, record, problem)
        if letters is None:
            return None
        return Refused(context=context, error=class_of(problem), message=said_by(problem), letters=letters)


def letters_of(
    handler: ExceptionResponse | ExceptionHandler,
    which: str,
    dead_letter_topic: str | None,
    context: ErrorContext,
    record: Record | None,
    problem: Exception,
) -> tuple[DeadLetter, ...] | None:
    """The handler's answer about ``problem``: the dead letters of the record, which is skipped; None: it is FAIL. ``which``: the
    handler's setting.

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
    given = (answer,) if isinstance(answer, DeadLetter) else answer
    if isinstance(given, (list, tuple)) and all(isinstance(letter, DeadLetter) for letter in given):
        if fault := next(filter(None, (_why_no_letter(letter, context) for letter in given)), None):
            raise HandlerFailedError(f"{which} returned a dead letter that can't be sent: {fault} {asked}")
        return tuple(given)
    try:
        response = ExceptionResponse(answer)
    except Exception:  # also what comparing an answer of any class raises
        expected = ", ".join(f"ExceptionResponse.{response.name}" for response in ExceptionResponse)
        what = f"{which} returned {repr_of(answer)}, expected one of {expected}, or dead letters (DeadLetter, or a list of them)"
        raise HandlerFailedError(f"{what} {asked}") from None
    if response is ExceptionResponse.DEAD_LETTER:
        if dead_letter_topic is None:
            raise HandlerFailedError(f"{which} asks for a dead letter: set errors.dead.letter.queue.topic.name {asked}")
        return (DeadLetter.of(context, problem, dead_letter_topic),)
    return None if response is ExceptionResponse.FAIL else ()


def _why_no_letter(letter: DeadLetter, context: ErrorContext) -> str:
    """The fault of a handler's dead letter; empty if there is none. Headers with which the record came are sent as they are."""
    if problem := why_no_topic(letter.topic):
        return f"the topic is {repr_of(letter.topic)}, expected the name of a topic: {problem}"
    for side, data in (("key", letter.key), ("value", letter.value)):
        if data is not None and not isinstance(data, bytes):
            return f"the {side} is {repr_of(data)}, of type {type(data).__name__}, expected bytes or None: serialize it"
    partition, headers = letter.partition, letter.headers
    if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool) or partition < 0):
        return f"the partition is {repr_of(partition)}, expected a number from 0, or None for the key's"
    if isinstance(headers, (list, tuple)):
        headers = tuple(header for header in headers if header not in context.headers)
    return why_no_headers(headers) or ("" if letter.timestamp is None else why_no_timestamp(letter.timestamp))


def _shown(problem: BaseException) -> str:
    return f"{class_of(problem).rpartition('.')[2]}: {said_by(problem)}"


def class_of(problem: BaseException) -> str:
    """The full name of an error's class; of a function of Columns that of its class in Spark."""
    if isinstance(problem, ColumnsFunctionError):
        return problem.error
    return f"{type(problem).__module__}.{type(problem).__qualname__}"


FAILING = ExceptionHandlers()

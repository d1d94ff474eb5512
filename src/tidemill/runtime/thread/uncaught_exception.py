"""Uncaught exceptions of stream threads: Kafka Streams' StreamsUncaughtExceptionHandler (KIP-671).

Decides the response to an error: the user's handler is asked, except where there is nothing left to choose. Carrying it out is
the instance's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from tidemill.errors import (
    ConfigError,
    EnvironmentProblem,
    InstanceIdInUseError,
    RecordError,
    ShutdownRequestedError,
    TidemillError,
)
from tidemill.log_format import LogEvent
from tidemill.printable import repr_of
from tidemill.spellings import SpelledEnum

log = logging.getLogger("tidemill.application")


class StreamThreadExceptionResponse(SpelledEnum):
    """REPLACE_THREAD: another thread takes the failed one's place. SHUTDOWN_CLIENT: this instance ends, in ERROR.
    SHUTDOWN_APPLICATION: all instances of the application end, in ERROR, as soon as they have heard it from the group."""

    REPLACE_THREAD = "REPLACE_THREAD"
    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"
    SHUTDOWN_APPLICATION = "SHUTDOWN_APPLICATION"


UncaughtExceptionHandler = Callable[[TidemillError], StreamThreadExceptionResponse]
"""Called with what ended a stream thread, on that thread; it must not block for long."""


def response_to(
    error: TidemillError, handler: UncaughtExceptionHandler | None, *, engine_lives: bool, global_topics: Collection[str] = ()
) -> StreamThreadExceptionResponse:
    """The response to an error; SHUTDOWN_CLIENT without a handler, or where another instance has requested the shutdown.

    A thread is not replaced where the next one would end as well: if the Spark session is gone (``engine_lives``), settings or
    the state directory are wrong, another member has its ``group.instance.id``, or the error is about a record of
    ``global_topics``, which each thread reads from the beginning.
    """
    respond = StreamThreadExceptionResponse
    if handler is None or isinstance(error, ShutdownRequestedError):
        return respond.SHUTDOWN_CLIENT
    try:
        wanted = handler(error)
    except BaseException:  # also sys.exit(): raised, it would end only this thread
        log.exception(LogEvent("handler-failed", handler="uncaught exception handler", response="SHUTDOWN_CLIENT"))
        return respond.SHUTDOWN_CLIENT
    if not isinstance(wanted, StreamThreadExceptionResponse):
        log.error(
            LogEvent(
                "handler-failed",
                handler="uncaught exception handler",
                response="SHUTDOWN_CLIENT",
                problem=f"it gave {repr_of(wanted)}, expected a StreamThreadExceptionResponse",
            )
        )
        return respond.SHUTDOWN_CLIENT
    of_all = isinstance(error, (ConfigError, EnvironmentProblem, InstanceIdInUseError)) or (
        isinstance(error, RecordError) and error.topic in global_topics
    )
    if wanted is respond.REPLACE_THREAD and (of_all or not engine_lives):
        log.error(LogEvent("thread-not-replaced", reason="a new thread would end in the same way", error=error))
        return respond.SHUTDOWN_CLIENT
    return wanted

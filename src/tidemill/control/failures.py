"""What a driver must do about the error that ends a step, by the error's place in the tree of ``errors``.

The step sends it to the driver over the control channel: PySpark's report of the error is a text only, and there is none of a
text that UTF-8 can't hold.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
from confluent_kafka import KafkaException

from tidemill.control.messages import FailureKind
from tidemill.errors import (
    BatchLostError,
    ColumnsResultError,
    ConfigError,
    CorruptStateError,
    MisfitError,
    SerdeError,
    StateDiskError,
    StopError,
    TidemillError,
    TopologyError,
)
from tidemill.printable import said_by
from tidemill.task.message_pack import as_utf8


def kind_of(error: BaseException) -> FailureKind | None:
    """None: the process is asked to end."""
    match error:
        case StopError() | ConfigError() | TopologyError() | SerdeError() | StateDiskError():
            return FailureKind.STOP
        case ColumnsResultError():
            return FailureKind.FUNCTION
        case CorruptStateError():
            return FailureKind.CORRUPT
        case MisfitError():
            return FailureKind.MISFIT
        case Exception():
            return FailureKind.LOST
    return None


def as_pyspark_sends(error: BaseException) -> BaseException:
    """The error, unless it or what has caused it has characters that UTF-8 can't hold: then one that says the same with escapes.
    PySpark's worker would begin to send that one, fail, and wait for the JVM, which waits for the rest."""
    if isinstance(error, Exception):
        try:
            "".join(traceback.format_exception(error)).encode()
        except UnicodeEncodeError:
            return BatchLostError(as_utf8(f"{type(error).__name__}: {said_by(error)}"))
    return error


@contextmanager
def blaming_no_record(step: str) -> Iterator[None]:
    """MisfitError for what neither the system, a client nor a function has raised (functions' errors are RecordErrors by then),
    but the step itself. The driver would take it for a function's, and blame a record, which a processing handler that continues
    leaves out."""
    try:
        yield
    except (TidemillError, OSError, EOFError, MemoryError, KafkaException, lmdb.Error):
        raise
    except Exception as problem:
        at = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        raise MisfitError(f"{step} failed: {type(problem).__name__}: {said_by(problem)} ({where})") from problem

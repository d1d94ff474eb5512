"""Causes of failed Spark jobs, from their exceptions: a function, a worker, or an error that a retry may resolve.

Decides by what a step has said of its own failure (``control.failures``), else by the classes of the Java exceptions and, where a
UDF has raised, by the last line of its traceback. What follows from it is ``task.batch_size``' matter.

Also says when the session was stopped, or Spark's JVM has died: errors of Py4J where the connection is refused, reset, or answers
nothing. An exception of Java's is none.
"""

from __future__ import annotations

import contextlib
import logging
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from tidemill.control.messages import FailureKind, StepFailed
from tidemill.errors import (
    BatchLostError,
    CorruptReadError,
    FunctionFailedError,
    MisfitError,
    StopError,
    TidemillError,
    WorkerDiedError,
    stop_error,
)
from tidemill.spark.java import JavaObject, is_stopped

JVM_GONE = "the Spark JVM is gone: the instance can't go on; start it again"
_NO_MEMORY = (
    "the Spark JVM had no memory left, and has ended: set spark.driver.memory higher (a batch needs several times the size of "
    "its largest values), and start the instance again"
)
_OUT_OF_MEMORY = 52
"""The exit code of Spark's JVMs whose heap was not enough for a task (SparkExitCode.OOM)."""
_EXIT_LIMIT_S = 2.0
SESSION_STOPPED = (
    "the Spark session was stopped (spark.stop()) while the instance ran, so it can't go on: start it again, and close it before "
    "its session"
)
_NO_ANSWER = re.compile(
    r"Answer from Java side is empty|Error while (sending|receiving)|An error occurred while calling \S+\s*\Z"
)


def _exit_code() -> int | None:
    """That of the JVM, if it ends now or has ended; None also of one that neither Tidemill nor PySpark has started."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return None if process is None else process.wait(_EXIT_LIMIT_S)
    return None


def jvm_gone() -> StopError:
    """The error where Spark's JVM has died."""
    return StopError(_NO_MEMORY if _exit_code() == _OUT_OF_MEMORY else JVM_GONE)


def session_gone(session: SparkSession, problem: BaseException) -> StopError:
    """The error where a session does not answer, or was stopped: by its owner, or by its JVM, which stops it before it ends."""
    is_owners = session.sparkContext._jsc is None
    return jvm_gone() if is_jvm_gone(problem) or not (is_owners or _exit_code() is None) else StopError(SESSION_STOPPED)


def is_jvm_gone(problem: BaseException) -> bool:
    if isinstance(problem, (Py4JNetworkError, ConnectionError)):
        return True
    is_of_py4j = isinstance(problem, Py4JError) and not isinstance(problem, Py4JJavaError)
    return is_of_py4j and _NO_ANSWER.match(str(problem)) is not None


@contextlib.contextmanager
def needing_the_jvm() -> Iterator[None]:
    """StopError if it dies meanwhile, or has died."""
    try:
        yield
    except Exception as problem:
        if is_jvm_gone(problem):
            raise jvm_gone() from problem
        raise


@contextlib.contextmanager
def needing_the_session(session: SparkSession) -> Iterator[None]:
    """``needing_the_jvm``, and StopError for any failure once the session's owner has stopped it: no retry could mend that."""
    with needing_the_jvm():
        try:
            yield
        except StopError:
            raise
        except Exception as problem:
            if is_stopped(session):
                raise session_gone(session, problem) from problem
            raise


_OF_STEPS = {FailureKind.MISFIT: MisfitError, FailureKind.CORRUPT: CorruptReadError}
_PYTHON = "org.apache.spark.api.python.PythonException"
_DIED = ("Python worker exited unexpectedly", "Python worker failed to connect back")


def _of_the_system(kind: type[OSError]) -> Iterator[str]:
    """The names of Python's own errors of this kind, as a traceback has them."""
    if kind.__module__ == "builtins":
        yield kind.__name__
        for finer in kind.__subclasses__():
            yield from _of_the_system(finer)


_OUTSIDE = re.compile(
    rf"(cimpl\.|confluent_kafka|lmdb\.|socket\.|ssl\.|(builtins\.)?(EOFError|{'|'.join(sorted(_of_the_system(OSError)))})\b)"
)
"""Python exceptions about disks, networks or brokers, not about records."""
_PYTHON_ERROR = re.compile(r"([A-Za-z_](?:[\w.]|<\w+>)*)(?:: (.*))?$")
"""Class and text; the name of a class made in a function has ``<locals>`` in it."""
_OF_DATA = re.compile(
    r"org\.apache\.spark\.(Spark(Arithmetic|NumberFormat|DateTime|ArrayIndexOutOfBounds|Runtime|IllegalArgument|NoSuchElement|"
    r"UnsupportedOperation|ClassCast|Upgrade)Exception|sql\.catalyst\.util\.\w+Exception)"
    r"|java\.lang\.(Arithmetic|NumberFormat|IllegalArgument|ClassCast|NullPointer|NegativeArraySize|UnsupportedOperation|"
    r"\w*IndexOutOfBounds)Exception|java\.util\.(NoSuchElement|\w*Format\w*)Exception|java\.(time|math|text|util\.regex)\..*|"
    r"com\.fasterxml\.jackson\..*"
)
_CONDITION = re.compile(r"\[(?!INTERNAL_ERROR|FAILED_READ|CANNOT_|TASK_|SPARK_JOB_|OPERATION_CANCELED)[A-Z][A-Z0-9_.]+\]")
"""Error condition at the start of Spark's messages, except those about files, jobs, tasks or Spark itself."""
_BY_RAISE_ERROR = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*) SQLSTATE: P0001", re.DOTALL)
"""What Spark writes around the text of ``F.raise_error``, with which Columns say what is wrong with a record."""
_OF_THE_CLUSTER = re.compile(r"ExecutorLost|FetchFailed|TaskKilled|cancel|shut ?down|Could not find")
_MOST_CAUSES = 8
_MOST_TEXT = 1000


def failure_of(problem: Py4JJavaError | CapturedException, by_step: StepFailed | None = None) -> TidemillError:
    """StopError if the batch would fail in the same way every time (over a record: RecordError), else a BatchLostError.
    ``by_step``: what a step has said of its own failure."""
    return judged(causes_of(problem) or [("", str(problem))], by_step)


def judged(causes: Sequence[tuple[str, str]], by_step: StepFailed | None = None) -> TidemillError:
    """The error for a chain of exceptions; ``causes``: class and message of each, outermost first."""
    if by_step is not None and by_step.kind is FailureKind.STOP:
        return stop_error(by_step.message, by_step.record)
    text = causes[0][1]
    reason = first_line(text)
    if reason.startswith("tidemill.errors."):  # else what the step has said only follows from it: its input was cut short
        if by_step is not None and by_step.kind is FailureKind.FUNCTION:
            return FunctionFailedError("ValueError", by_step.message[:_MOST_TEXT], by_step.node)
        if by_step is not None and (of_step := _OF_STEPS.get(by_step.kind)):
            return of_step(f"the Spark task failed: {by_step.message}")
        return BatchLostError(f"the Spark task failed: {reason}")
    for kind, said in causes:
        if kind == _PYTHON:
            return _python_failure(said, reason)
        if kind.endswith("OutOfMemoryError"):
            return WorkerDiedError(f"Spark had no memory left: {reason}")
        if _is_of_data(kind, said):  # also as the cause of a worker's end: it gets no more rows where an expression fails
            return FunctionFailedError(kind, one_sentence(said))
    if any(died in said for _, said in causes for died in _DIED):
        return WorkerDiedError(f"a Python worker died: {reason}")
    lost = BatchLostError if _OF_THE_CLUSTER.search(text) else MisfitError
    return lost(f"the Spark task failed: {reason}")


def one_line(problem: BaseException) -> str:
    """What has failed outside of a batch: Spark's own sentence, or a Python function's error, without stack and query."""
    if isinstance(problem, SystemExit):  # of which the number alone would say nothing
        return f"SystemExit: {problem}"
    if not isinstance(problem, (Py4JJavaError, CapturedException)):
        return " ".join(str(problem).split())[:_MOST_TEXT] or type(problem).__name__
    causes = causes_of(problem)
    for kind, said in causes:
        if kind == _PYTHON:
            return str(_python_failure(said, first_line(said)))
    kind, said = next(((kind, said) for kind, said in causes if said), ("", str(problem)))
    is_sparks_own = kind.startswith("org.apache.spark.") or not kind
    return one_sentence(said) if is_sparks_own else f"{kind}: {one_sentence(said)}"


def causes_of(problem: Py4JJavaError | CapturedException) -> list[tuple[str, str]]:
    """Class and message of an exception and of what has caused it, outermost first."""
    java: JavaObject = problem._origin if isinstance(problem, CapturedException) else problem.java_exception
    found: list[tuple[str, str]] = []
    while java is not None and len(found) < _MOST_CAUSES:
        found.append((str(java.getClass().getName()), str(java.getMessage() or "")))
        java = java.getCause()
    return found


def _is_of_data(kind: str, said: str) -> bool:
    """True if an expression raises it: Spark's exceptions that have a condition of their own, or Java's."""
    if kind == "org.apache.spark.SparkException":
        return _CONDITION.match(said) is not None
    return _OF_DATA.fullmatch(kind) is not None


def _python_failure(said: str, reason: str) -> BatchLostError:
    raised = _raised(said)
    found = _PYTHON_ERROR.match(raised)
    if found is None or _OUTSIDE.match(found[1]):
        return BatchLostError(f"the Spark task failed: {reason if found is None else found[0][:_MOST_TEXT]}")
    if found[1].rpartition(".")[2] in ("MemoryError", "ArrowMemoryError"):
        return WorkerDiedError(f"a Python worker had no memory left: {reason}")
    return FunctionFailedError(found[1], (found[2] or "")[:_MOST_TEXT])


def _raised(said: str) -> str:
    """The exception at the end of a traceback, in one line: its text may have several, as pydantic's have."""
    lines = [line for line in said.splitlines() if line.strip() and "SQLSTATE:" not in line]
    frames = [at for at, line in enumerate(lines) if line.startswith("  File ")]
    behind = range(frames[-1] + 1, len(lines)) if frames else ()
    begins = next((at for at in behind if not lines[at].startswith(" ")), len(lines) - 1)
    return " ".join(line.strip() for line in lines[begins:]) if lines else ""


def one_sentence(said: str) -> str:
    """Spark's own sentence: without the query's text, in which an expression of Columns has no place, and without a stack."""
    lines = []
    for line in said.splitlines():
        if line.startswith(("== ", "\tat ", "\n")):
            break
        lines.append(line.strip())
    sentence = " ".join(line for line in lines if line)
    if raised := _BY_RAISE_ERROR.fullmatch(sentence):
        sentence = raised[1]
    return sentence[:_MOST_TEXT]


def first_line(text: str) -> str:
    """The Python worker's error, or Java's, out of Spark's long text; PySpark wraps that of a retried task once more."""
    stripped = [line.strip() for line in text.splitlines() if line.strip() and line.strip() != "Driver stacktrace:"]
    lines = [line for line in stripped if not line.startswith("at ")]  # frames, such as UnixException.rethrowAsIOException
    errors = [line for line in lines if line.startswith("tidemill.errors.")]
    return (errors or [line for line in lines if "Error" in line or "Exception" in line] or lines or [text])[-1][:_MOST_TEXT]


_reporting_threads: set[str] = set()
"""Threads that log themselves what Spark raises in them."""
_QUERY_LOGS = tuple(PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"))


_CONNECTION_LOGS = (logging.getLogger("py4j.clientserver"), logging.getLogger())
"""Where Py4J notes that the JVM does not answer, with the exception that was being handled."""


def _is_of_another_thread(record: logging.LogRecord) -> bool:
    return record.threadName not in _reporting_threads


def _without_exception(record: logging.LogRecord) -> bool:
    """Py4J asks the JVM for the text of an exception of Java's. Where it does not answer, that is noted as well, with the
    exception, whose text is asked for: thousands of lines."""
    if not _is_of_another_thread(record):
        record.exc_info = None
    return True


@contextlib.contextmanager
def errors_unlogged() -> Iterator[None]:
    """Within it PySpark writes no exception of an expression to standard error: they are raised with their place."""
    thread = threading.current_thread().name
    is_new = thread not in _reporting_threads
    reports_itself(thread)
    try:
        yield
    finally:
        if is_new:
            _reporting_threads.discard(thread)


def reports_itself(thread: str) -> None:
    """PySpark writes each exception of an expression to standard error, with its whole stack: not where ``thread`` meets it."""
    _reporting_threads.add(thread)
    for connection_log in _CONNECTION_LOGS:
        connection_log.addFilter(_without_exception)
    for query_log in _QUERY_LOGS:
        query_log.addFilter(_is_of_another_thread)

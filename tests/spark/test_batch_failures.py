"""What a failed Spark task is taken for: a function, a worker, what only another attempt tells, or the end."""

from __future__ import annotations

import logging
import sys

import pytest

from tidemill.control.messages import FailureKind, StepFailed
from tidemill.errors import (
    BatchLostError,
    CorruptReadError,
    FunctionFailedError,
    MisfitError,
    RecordError,
    StopError,
    TidemillError,
    WorkerDiedError,
    record_of,
)
from tidemill.spark.batch_failures import judged, reports_itself

DIED = "Python worker exited unexpectedly (crashed)."
PATTERN = "java.util.regex.PatternSyntaxException"
SPARK, PYTHON = "org.apache.spark.SparkException", "org.apache.spark.api.python.PythonException"
ABORTED = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0"


def raised_in_python(line: str) -> list[tuple[str, str]]:
    text = f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n  {line}\n"
    return [(PYTHON, text + " SQLSTATE: 38000")]


OF_A_STEP = raised_in_python("tidemill.errors.StateError: the first line")
BY_ZERO = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
MALFORMED = "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected"
RUNTIME = "org.apache.spark.SparkRuntimeException"
ARITHMETIC, DATES = "org.apache.spark.SparkArithmeticException", "java.time.DateTimeException"

OF_SEVERAL_LINES = [(PYTHON, """[PYTHON_EXCEPTION] An exception was thrown from the worker: Traceback (most recent call last):
  File "/app.py", line 7, in checked
    Order.model_validate(order)
    ~~~~~~~~~~~~~~~~~~~~^^^^^^^
pydantic_core.ValidationError: 1 validation error for Order
amount
  Input should be a number [type=float_type]
    For further information visit https://errors.pydantic.dev
 SQLSTATE: 38000""")]
IN_ONE_LINE = (
    "1 validation error for Order amount Input should be a number [type=float_type] "
    "For further information visit https://errors.pydantic.dev"
)


@pytest.mark.parametrize(
    ("causes", "error", "message"),
    [
        ([(ARITHMETIC, BY_ZERO + "\n== SQL (line 1) ==\n1/(id-1)\n")], ARITHMETIC, BY_ZERO),
        ([(RUNTIME, "too long")], RUNTIME, "too long"),
        ([(RUNTIME, "[USER_RAISED_EXCEPTION] no x, please. SQLSTATE: P0001")], RUNTIME, "no x, please."),
        ([(SPARK, f"{ABORTED}: {DATES}: Text '1'\n\tat java"), (DATES, "Text '1'")], DATES, "Text '1'"),
        ([(SPARK, MALFORMED)], SPARK, MALFORMED),
        ([(SPARK, f"{ABORTED}: {SPARK}: {DIED}"), (SPARK, DIED), (PATTERN, "Unclosed group near index 1")], PATTERN,
         "Unclosed group near index 1"),
        (raised_in_python("ZeroDivisionError: division by zero"), "ZeroDivisionError", "division by zero"),
        (raised_in_python("app.checked.<locals>.Own: too much"), "app.checked.<locals>.Own", "too much"),
        (OF_SEVERAL_LINES, "pydantic_core.ValidationError", IN_ONE_LINE),
    ],
    ids=["expression", "no condition", "raise_error", "cause", "parsing", "what ended a worker", "udf",
         "class made in a function", "several lines"],
)
def test_a_function_that_raises_is_known_with_its_class_and_its_own_sentence(
    causes: list[tuple[str, str]], error: str, message: str
) -> None:
    found = judged(causes)
    assert isinstance(found, FunctionFailedError)
    assert (found.error, found.message) == (error, message)


@pytest.mark.parametrize(
    "causes",
    [
        [(SPARK, f"{ABORTED}: {SPARK}: {DIED}\n\tat org.apache"), (SPARK, DIED), ("java.io.EOFException", "")],
        raised_in_python("MemoryError: Unable to allocate"),
        raised_in_python("pyarrow.lib.ArrowMemoryError: malloc of size 1000 failed"),
        [(SPARK, ABORTED), ("org.apache.spark.memory.SparkOutOfMemoryError", "[UNABLE_TO_ACQUIRE_MEMORY] 64 bytes")],
    ],
    ids=["killed", "memory", "arrow", "spark"],
)
def test_a_worker_that_died_or_has_no_memory_left_says_that_the_batch_was_too_large(causes: list[tuple[str, str]]) -> None:
    assert isinstance(judged(causes), WorkerDiedError)


@pytest.mark.parametrize(
    ("causes", "kind"),
    [
        (raised_in_python("tidemill.errors.BatchLostError: the consumer failed"), BatchLostError),
        (raised_in_python('cimpl.KafkaException: KafkaError{code=_TRANSPORT,str="down"}'), BatchLostError),
        (raised_in_python("OSError: [Errno 28] No space left on device"), BatchLostError),
        ([(SPARK, f"{ABORTED} ExecutorLostFailure (executor 1 exited)")], BatchLostError),
        ([(SPARK, "[SPARK_JOB_CANCELLED] Job 5 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA")], BatchLostError),
        ([("java.lang.IllegalStateException", "no plan")], MisfitError),
        ([(SPARK, "[INTERNAL_ERROR] The plan is wrong")], MisfitError),
    ],
    ids=["lost", "broker", "disk", "executor", "cancelled", "state", "internal"],
)
def test_no_record_is_blamed_for_what_brokers_disks_or_spark_itself_did(
    causes: list[tuple[str, str]], kind: type[TidemillError]
) -> None:
    assert type(judged(causes)) is kind


@pytest.mark.parametrize(
    ("offset", "known", "where"),
    [(7, 7, "in-0-a.b-2 at offset 7: "), (-1, None, "in-0-a.b-2 at an unknown offset: "), (None, None, "at an unknown offset: ")],
    ids=["one record", "a sum in a row", "a sum"],
)
def test_a_record_that_fails_is_known_with_its_topic_partition_and_offset(
    offset: int | None, known: int | None, where: str
) -> None:
    """For handlers of uncaught exceptions."""
    made = RecordError("f failed: Own: at offset 3: no", task="1_0", topic="in-0-a.b", partition=2, offset=offset)
    assert where in str(made)
    found = judged(OF_A_STEP, StepFailed(1, FailureKind.STOP, str(made), record_of(made)))
    assert isinstance(found, RecordError)
    assert (found.task, found.topic, found.partition, found.offset) == ("1_0", "in-0-a.b", 2, known)
    assert str(found) == str(made)
    of_none = judged(OF_A_STEP, StepFailed(1, FailureKind.STOP, "the topic is gone"))
    assert (type(of_none), str(of_none)) == (StopError, "the topic is gone")


@pytest.mark.parametrize(
    ("said", "causes", "found"),
    [
        (FailureKind.MISFIT, OF_A_STEP, MisfitError),
        (FailureKind.CORRUPT, OF_A_STEP, CorruptReadError),
        (FailureKind.FUNCTION, OF_A_STEP, FunctionFailedError),
        (FailureKind.LOST, OF_A_STEP, BatchLostError),
        (FailureKind.MISFIT, [(ARITHMETIC, BY_ZERO)], FunctionFailedError),
        (FailureKind.MISFIT, [(SPARK, DIED)], WorkerDiedError),
        (FailureKind.MISFIT, [(SPARK, "[SPARK_JOB_CANCELLED] Job 5 cancelled SQLSTATE: XXKDA")], BatchLostError),
        (FailureKind.STOP, OF_A_STEP, StopError),
        (FailureKind.STOP, [(SPARK, DIED)], StopError),
    ],
    ids=["misfit", "corrupt", "function", "lost", "input cut short by a function", "by a worker", "by a cancelled job", "stop",
         "no text that PySpark can send"],
)  # fmt: skip
def test_what_a_step_says_of_its_failure_counts_unless_something_else_has_cut_its_input_short(
    said: FailureKind, causes: list[tuple[str, str]], found: type[TidemillError]
) -> None:
    error = judged(causes, StepFailed(1, said, "no such row"))
    assert type(error) is found
    is_said = found is StopError or (causes is OF_A_STEP and said is not FailureKind.LOST)
    assert is_said is str(error).endswith("no such row")


@pytest.mark.parametrize(
    "error",
    [
        "IsADirectoryError: [Errno 21] Is a directory: 'state/1_0/.checkpoint'", "NotADirectoryError: [Errno 20] Not a directory",
        "FileExistsError: [Errno 17] File exists: 'state/1_0'", "PermissionError: [Errno 13] Permission denied",
        "ConnectionAbortedError: [Errno 103] Software caused the abort", "ChildProcessError: [Errno 10] No child processes",
        "socket.gaierror: [Errno -2] Name or service not known", "EOFError",
    ],
)  # fmt: skip
def test_no_record_is_blamed_for_any_error_of_the_system(error: str) -> None:
    """With a processing handler that continues, it would be left out."""
    found = judged(raised_in_python(error))
    assert type(found) is BatchLostError
    assert error.partition(":")[0] in str(found)


def test_the_reason_is_the_exception_and_no_frame_of_its_stack() -> None:
    frames = "\n\tat java.base/sun.nio.fs.UnixException.rethrowAsIOException(Unknown Source)\n\tat org.apache.spark.Task"
    gone = "java.nio.file.NoSuchFileException: /tmp/tidemill-spark-1/a.sock"
    found = judged([(SPARK, f"{ABORTED}: {gone}{frames}\n\nDriver stacktrace:"), ("java.nio.file.NoSuchFileException", "/tmp/x")])
    assert isinstance(found, MisfitError)
    assert str(found) == f"the Spark task failed: {ABORTED}: {gone}"


@pytest.mark.parametrize("name", ["py4j.clientserver", None])
def test_py4j_notes_a_jvm_that_is_gone_without_asking_it_for_texts(name: str | None, caplog: pytest.LogCaptureFixture) -> None:
    def noted(thread: str) -> logging.LogRecord:
        try:
            raise OSError("no answer")
        except OSError:
            exc_info = sys.exc_info()
        record = logging.getLogger(name).makeRecord("py4j", logging.INFO, "", 1, "Error while receiving.", (), exc_info)
        record.threadName = thread
        logging.getLogger(name).handle(record)
        return caplog.records[-1]

    reports_itself("a thread of ours")
    assert noted("a thread of ours").exc_info is None
    assert noted("another thread").exc_info is not None

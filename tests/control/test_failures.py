"""What a step's error is to PySpark, which has to send it."""

from __future__ import annotations

import io
import struct

import pytest
from pyspark.util import handle_worker_exception

from tidemill.control.failures import as_pyspark_sends
from tidemill.errors import RecordError

HALF = "half a pair: \ud83d"


def record_error(message: str, cause: Exception | None = None) -> Exception:
    try:
        try:
            if cause is not None:
                raise cause
        finally:
            raise RecordError(message, task="0_0", topic="in", partition=0, offset=5)
    except RecordError as error:
        return error


def sent(error: BaseException) -> str:
    """What PySpark's worker writes for the JVM: after a sign, the length of the text and the text."""
    output = io.BytesIO()
    try:
        raise error
    except BaseException as raised:
        handle_worker_exception(raised, output)
    written = output.getvalue()
    assert len(written) > 8, "the JVM would wait for the rest"
    text = written[8:]
    assert struct.unpack(">ii", written[:8]) == (-2, len(text))
    return text.decode()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(HALF), r"ValueError: half a pair: \ud83d"),
        (record_error(HALF), r"in-0 at offset 5: half a pair: \ud83d"),
        (record_error("a function failed", ValueError(HALF)), "in-0 at offset 5: a function failed"),
        (record_error("a function failed", ValueError("whole")), "in-0 at offset 5: a function failed"),
        (SystemExit("whole"), "SystemExit: whole"),
    ],
)
def test_pyspark_sends_the_error_of_a_step_whatever_its_text_is(error: BaseException, said: str) -> None:
    assert said in sent(as_pyspark_sends(error))


def test_an_error_that_can_be_sent_stays_as_it_is() -> None:
    error = record_error("a function failed", ValueError("whole"))
    assert as_pyspark_sends(error) is error

"""Errors of Py4J that mean that Spark's JVM has died, and those that don't."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tidemill.errors import StopError
from tidemill.spark.batch_failures import needing_the_jvm

GONE = [
    Py4JNetworkError("Answer from Java side is empty"),
    Py4JNetworkError("Error while sending or receiving"),
    Py4JError("Answer from Java side is empty"),
    Py4JError("An error occurred while calling o61.sc"),
    ConnectionRefusedError(111, "Connection refused"),
    ConnectionResetError(104, "Connection reset by peer"),
]
OTHERS = [
    Py4JError("An error occurred while calling o61.sc. Trace:\npy4j.Py4JException: Method sc([]) does not exist"),
    FileNotFoundError(2, "No such file"),
    ValueError("no such column"),
]


@pytest.mark.parametrize("problem", GONE, ids=repr)
def test_a_jvm_that_does_not_answer_ends_in_its_sentence(problem: Exception) -> None:
    with pytest.raises(StopError, match="the Spark JVM is gone: the instance can't go on; start it again"), needing_the_jvm():
        raise problem


@pytest.mark.parametrize("problem", OTHERS, ids=repr)
def test_other_errors_stay_what_they_are(problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, needing_the_jvm():
        raise problem
    assert raised.value is problem

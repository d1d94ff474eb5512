"""Errors that mean that Spark's JVM has died or its session was stopped, and those that don't."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from tidemill.errors import BatchLostError, StopError
from tidemill.spark.batch_failures import needing_the_jvm, needing_the_session

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


class Ended:
    """A JVM's process, with its exit code."""

    def __init__(self, code: int) -> None:
        self._code = code

    def wait(self, limit_s: float) -> int:
        del limit_s
        return self._code


def ended(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=Ended(code)))


@pytest.mark.parametrize(("code", "said"), [(52, "had no memory left.*spark.driver.memory"), (137, "is gone")])
def test_a_jvm_that_had_no_memory_left_says_so(monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    ended(monkeypatch, code)
    with pytest.raises(StopError, match=said), needing_the_jvm():
        raise GONE[0]


def test_a_jvm_that_stops_its_session_before_it_ends_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 52)
    with pytest.raises(StopError, match="had no memory left"), needing_the_session(session(jsc=context(is_stopped=True))):
        raise LOST[0]


def test_a_session_that_its_owner_has_stopped_waits_for_no_end_of_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, 0)
    with pytest.raises(StopError, match="was stopped"), needing_the_session(session(jsc=None)):
        raise LOST[0]


@pytest.mark.parametrize("problem", OTHERS, ids=repr)
def test_other_errors_stay_what_they_are(problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, needing_the_jvm():
        raise problem
    assert raised.value is problem


def session(*, jsc: object) -> Any:
    return cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(_jsc=jsc)))


def context(*, is_stopped: bool) -> object:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: is_stopped))


class Gone:
    def sc(self) -> object:
        raise Py4JNetworkError("Answer from Java side is empty")


LOST = [BatchLostError("SparkContext has been shutdown"), AttributeError("'NoneType' has no 'sc'")]


@pytest.mark.parametrize("problem", LOST, ids=repr)
@pytest.mark.parametrize("jsc", [None, context(is_stopped=True), Gone()], ids=["in Python", "in the JVM", "with the JVM"])
def test_no_failure_is_retried_once_the_session_was_stopped(problem: Exception, jsc: object) -> None:
    with pytest.raises(StopError, match="the Spark session was stopped"), needing_the_session(session(jsc=jsc)):
        raise problem


@pytest.mark.parametrize("problem", LOST, ids=repr)
def test_failures_in_a_session_that_lives_stay_what_they_are(problem: Exception) -> None:
    with pytest.raises(type(problem)) as raised, needing_the_session(session(jsc=context(is_stopped=False))):
        raise problem
    assert raised.value is problem


def test_what_ends_the_thread_in_any_case_keeps_its_words() -> None:
    with pytest.raises(StopError, match="a fatal error"), needing_the_session(session(jsc=None)):
        raise StopError("a fatal error")

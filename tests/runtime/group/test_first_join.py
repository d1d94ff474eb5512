"""The threads of an instance join together: one answer for all, and nobody is waited for in vain."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tidemill.errors import RetriableError
from tidemill.runtime.group.first_join import _OTHERS_LIMIT_S, FirstJoin

MEMBER = {"m": "/10.0.0.1"}


class Brokers:
    """The brokers' one answer, which changes as soon as it was given: the threads' own members are in the group then."""

    def __init__(self, *answers: dict[str, str] | RetriableError) -> None:
        self.answers = list(answers)

    def hosts(self, _limit_s: float) -> dict[str, str]:
        answer = self.answers.pop(0)
        if isinstance(answer, RetriableError):
            raise answer
        return answer


def first_join(*answers: Any, threads: int = 2) -> FirstJoin:
    return FirstJoin("app", threads, Brokers(*answers).hosts)


@pytest.mark.parametrize(
    ("found", "at_once"),
    [({}, True), (MEMBER, False), (RetriableError("away"), True)],
    ids=["no members", "at work", "not known"],
)
def test_all_threads_get_the_same_answer_from_one_look_at_the_group(found: Any, at_once: bool) -> None:
    joins = first_join(found)
    assert [joins.is_at_once() for _ in range(3)] == [at_once] * 3


def test_threads_wait_for_the_last_also_where_one_has_ended() -> None:
    joins = first_join(MEMBER)
    for _ in range(2):  # when it can run tasks, and when it has ended before the other could
        joins.ready("t-1")
    waiting = threading.Thread(target=joins.wait_for_others, args=(lambda: False,))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    joins.ready("t-2")
    waiting.join(20)
    assert not waiting.is_alive()


def test_a_thread_that_is_stopped_waits_no_longer() -> None:
    joins = first_join(MEMBER)
    began = time.monotonic()
    joins.wait_for_others(lambda: True)
    assert time.monotonic() - began < _OTHERS_LIMIT_S / 2

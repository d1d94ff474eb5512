"""Signals that come while a block is run: their handler is called after it, and whatever was made in it is known by then."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from tidemill.held_interrupts import interrupts_held


class StopWanted(BaseException):
    pass


def stop(_number: int, _frame: object) -> None:
    raise StopWanted


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def come(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)  # the handler is called between two steps of this thread, not later than here


def held(*numbers: signal.Signals, made: list[str], problem: Exception | None = None) -> None:
    with interrupts_held():
        for number in numbers:
            come(number)
        if problem is not None:
            raise problem
        made.append("known")


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, StopWanted)])
def test_a_signal_in_the_block_is_raised_after_it(number: signal.Signals, raised: type[BaseException]) -> None:
    made: list[str] = []
    with pytest.raises(raised):
        held(number, made=made)
    assert made == ["known"]
    with pytest.raises(raised):
        come(number)


def test_of_several_the_first_is_raised() -> None:
    with pytest.raises(StopWanted):
        held(signal.SIGTERM, signal.SIGINT, made=[])


def test_without_a_signal_nothing_is_raised_and_the_handlers_are_back() -> None:
    with interrupts_held():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == (signal.default_int_handler, stop)


def test_what_fails_in_the_block_is_raised_instead_and_the_handlers_are_back() -> None:
    with pytest.raises(ValueError, match="no"):
        held(signal.SIGINT, made=[], problem=ValueError("no"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_without_a_handler_stays_so() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with interrupts_held():
        come(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_another_thread_may_use_it_too() -> None:
    done: list[bool] = []

    def work() -> None:
        with interrupts_held():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]

"""Calls of a coroutine function, a bounded number at the same time, on an event loop that lives as long as the process.

Decides that results keep the order of the calls, that a call ends within its time, and that nothing of a batch is under way when
the batch continues. The loop has a thread of its own, since the process may have another one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass
from functools import cache
from typing import Any

from tidemill.errors import StopError
from tidemill.task.batch import FunctionCalls

_GRACE_S = 10.0
"""Wait for a cancelled call, and for the event loop after the limit of all calls together."""


@dataclass(slots=True)
class _Gauge:
    """Times and number of concurrent calls. Used on the loop's thread."""

    in_flight: int = 0
    most_in_flight: int = 0
    timeouts: int = 0
    calls_ms: float = 0.0
    longest_ms: float = 0.0

    def begins(self) -> float:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        return time.perf_counter()

    def ends(self, began_s: float) -> None:
        self.in_flight -= 1
        took_ms = (time.perf_counter() - began_s) * 1e3
        self.calls_ms += took_ms
        self.longest_ms = max(self.longest_ms, took_ms)


def call_all(
    function: Callable[..., Awaitable[Any]], arguments: Sequence[tuple[Any, ...]], *, max_in_flight: int, timeout_s: float
) -> tuple[list[Any], FunctionCalls]:
    """Calls the function for all ``arguments``: results in their order, an exception for a call that raised, ``TimeoutError`` for
    one that took too long; and the statistics of the calls.

    Raises:
        StopError: the calls do not end, since the function blocks the event loop.
    """
    gauge, began_s = _Gauge(), time.perf_counter()
    calls = _all(function, arguments, max_in_flight, timeout_s, gauge)
    coming = asyncio.run_coroutine_threadsafe(calls, _loop(os.getpid()))
    limit_s = timeout_s * -(-len(arguments) // max_in_flight) + _GRACE_S
    try:
        results = coming.result(limit_s)
    except NotDoneError:
        coming.cancel()
        raise StopError(
            f"{len(arguments)} calls were not done within {limit_s:.0f} s, though each is cancelled after {timeout_s:g} s: the"
            " function blocks the event loop; await what it waits for, or use per_record"
        ) from None
    return results, FunctionCalls(
        calls=len(arguments), records=len(arguments), failures=sum(isinstance(result, BaseException) for result in results),
        calls_ms=gauge.calls_ms, longest_ms=gauge.longest_ms, took_ms=(time.perf_counter() - began_s) * 1e3,
        most_in_flight=gauge.most_in_flight, timeouts=gauge.timeouts,
    )  # fmt: skip


async def _all(
    function: Callable[..., Awaitable[Any]],
    arguments: Sequence[tuple[Any, ...]],
    max_in_flight: int,
    timeout_s: float,
    gauge: _Gauge,
) -> list[Any]:
    results: list[Any] = [None] * len(arguments)
    left = iter(enumerate(arguments))

    async def work() -> None:
        for at, given in left:
            began_s = gauge.begins()
            results[at] = await _result(asyncio.ensure_future(_call(function, given)), timeout_s, gauge)
            gauge.ends(began_s)

    await asyncio.gather(*(work() for _ in range(min(max_in_flight, len(arguments)))))
    return results


async def _call(function: Callable[..., Awaitable[Any]], given: tuple[Any, ...]) -> Any:
    try:
        return await function(*given)
    except (SystemExit, KeyboardInterrupt) as problem:  # raised, they would end the loop's thread: no later call would return
        return problem


async def _result(call: asyncio.Future[Any], timeout_s: float, gauge: _Gauge) -> Any:
    """The result of a call, or its exception. One that takes too long is cancelled, with time to clean up."""
    try:
        done, _ = await asyncio.wait({call}, timeout=timeout_s)
    finally:
        call.cancel()
    if not done:
        gauge.timeouts += 1
        await asyncio.wait({call}, timeout=_GRACE_S)
        return TimeoutError(f"no answer within {timeout_s:g} s")
    if call.cancelled():
        return RuntimeError("the call was cancelled from within")
    problem = call.exception()
    return call.result() if problem is None else problem


@cache
def _loop(_pid: int) -> asyncio.AbstractEventLoop:
    """This process's: threads do not survive a fork."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tidemill-async", daemon=True).start()
    return loop

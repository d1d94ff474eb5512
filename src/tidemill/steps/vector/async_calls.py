"""Calls of a coroutine function, a bounded number at the same time, on an event loop that lives as long as the process.

Decides that results keep the order of the calls, that a call ends within its time, and that nothing of a batch is under way when
the batch goes on. The loop has a thread of its own, since the process may have another one.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import TimeoutError as NotDoneError
from functools import cache
from typing import Any

from tidemill.errors import StopError

_GRACE_S = 10.0
"""How long a call that is cancelled is waited for, and the loop beyond the time that all calls together may take."""


def call_all(
    function: Callable[..., Awaitable[Any]], arguments: Sequence[tuple[Any, ...]], *, max_in_flight: int, timeout_s: float
) -> list[Any]:
    """What the function gives for each, in their order; the exception where it raises, ``TimeoutError`` where it takes too long.

    Raises:
        StopError: the calls do not end, since the function blocks the event loop.
    """
    coming = asyncio.run_coroutine_threadsafe(_all(function, arguments, max_in_flight, timeout_s), _loop(os.getpid()))
    limit_s = timeout_s * -(-len(arguments) // max_in_flight) + _GRACE_S
    try:
        return coming.result(limit_s)
    except NotDoneError:
        coming.cancel()
        raise StopError(
            f"{len(arguments)} calls were not done within {limit_s:.0f} s, though each is cancelled after {timeout_s:g} s: the"
            " function blocks the event loop; await what it waits for, or use per_record"
        ) from None


async def _all(
    function: Callable[..., Awaitable[Any]], arguments: Sequence[tuple[Any, ...]], max_in_flight: int, timeout_s: float
) -> list[Any]:
    results: list[Any] = [None] * len(arguments)
    left = iter(enumerate(arguments))

    async def work() -> None:
        for at, given in left:
            results[at] = await _result(asyncio.ensure_future(function(*given)), timeout_s)

    await asyncio.gather(*(work() for _ in range(min(max_in_flight, len(arguments)))))
    return results


async def _result(call: asyncio.Future[Any], timeout_s: float) -> Any:
    """What the call gives or raises. One that takes too long is cancelled, and may end what it has begun."""
    try:
        done, _ = await asyncio.wait({call}, timeout=timeout_s)
    finally:
        call.cancel()
    if not done:
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

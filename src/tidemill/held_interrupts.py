"""Holding back Ctrl-C, SIGTERM and SIGHUP while a process is started and not known yet.

Python raises what a signal's handler raises between any two steps of the main thread: also inside ``Popen``, between the start of
a process and its pid. No one could end that process then. ``interrupts_held`` moves the handler's call to the end of its block.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Calls the handler of the first signal that came in the block after the block, where it may raise. Keep the block short.

    What fails in the block is raised instead. Nothing is done in another thread than the main one, which no signal interrupts,
    and for a signal without a handler in Python.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    handlers = {number: handler for number in _NUMBERS if callable(handler := signal.getsignal(number))}
    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came:
        handlers[signal.Signals(came[0])](came[0], None)

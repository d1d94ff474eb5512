"""One line on standard error that says what is being waited for.

Decides how: on a terminal that can move its cursor the line is written over and goes at the end; elsewhere each new kind of step
is printed once.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CLEAR = "\r\x1b[2K"


@contextmanager
def status_line() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows a text as the present step."""
    stream = sys.stderr
    if not stream.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        last = ""

        def tell(text: str) -> None:
            nonlocal last
            kind = re.sub(r"\d+", "", text)  # "3 of 47" and "4 of 47" are one step
            if kind != last:
                stream.write(f"{text}\n")
                stream.flush()
            last = kind

        yield tell
        return

    def show(text: str) -> None:
        stream.write(f"{_CLEAR}{text} ")
        stream.flush()

    try:
        yield show
    finally:
        stream.write(_CLEAR)
        stream.flush()

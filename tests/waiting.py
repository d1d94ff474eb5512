"""Waiting for a state, with a limit: the only way in which tests wait."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 240.0
"""Generous: what is waited for comes within seconds, on a busy machine within a minute."""


def until(is_so: Callable[[], object], limit_s: float = LIMIT_S, pause_s: float = 0.05) -> bool:
    """True as soon as ``is_so`` gives what is true; False if it does not within ``limit_s``."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True

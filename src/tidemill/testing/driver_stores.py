"""A driver's store as a test holds it: reads only, each of the store as it is then.

Decides which reads of a store a test has, and the error of any other name; the driver opens the store.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from tidemill.operators.function_failures import instead_of
from tidemill.operators.record import Headers
from tidemill.operators.store_access import ReadOnly, access_to
from tidemill.printable import said_by


def reads_of(name: str, opened: Callable[[], object]) -> ReadOnly:
    """``opened`` gives the store, again for each read: what a test holds is never older than the records that it has piped."""
    return ReadOnly(_AtEachRead(opened), f"the store {name} can't be written by a test: pipe the records that its rows come from")


class _AtEachRead:
    def __init__(self, opened: Callable[[], object]) -> None:
        self._opened = opened

    def __getattr__(self, read: str) -> object:
        found = getattr(access_to(self._opened(), _NoRecord()), read)
        return _answered(found) if callable(found) else found


class _NoRecord:
    """No record is being processed where a test reads."""

    timestamp = 0
    headers: Headers = ()

    def drop(self, count: int = 1) -> None:
        """Nothing is written, so nothing can be too old."""


def _answered(read: Callable[..., Any]) -> Callable[..., Any]:
    """The same read; the error of a wrong call says what to write, as in a processor."""

    @wraps(read)
    def call(*args: object, **named: object) -> Any:
        try:
            return read(*args, **named)
        except TypeError as problem:
            advice = instead_of(problem)
            if not advice:
                raise
            raise TypeError(f"{said_by(problem)}{advice}") from None

    return call

"""The wall clock of a static plan: now-like functions as a column of the source rows.

Spark computes ``current_timestamp()`` once per plan, and a plan here lives for weeks. So while a user's function builds its
expressions, PySpark's now-like functions give the batch's wall clock instead; what still gets through (an expression in SQL
text, a name imported earlier) is refused by ``plan_check``.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemill.spark.plan.row_columns import row

_LOCK = threading.RLock()


def wall_clock() -> Column:
    """The wall clock of the micro-batch as a timestamp."""
    return F.timestamp_millis(row("wall"))


def _wall_date() -> Column:
    return F.to_date(wall_clock())


def _wall_local() -> Column:
    return wall_clock().cast("timestamp_ntz")


def _wall_time(precision: int = 6) -> Column:
    return wall_clock().cast(f"time({precision})")


_REPLACED: dict[str, Callable[..., Column]] = {
    "current_timestamp": wall_clock,
    "now": wall_clock,
    "current_date": _wall_date,
    "curdate": _wall_date,
    "localtimestamp": _wall_local,
    "current_time": _wall_time,
}


@contextlib.contextmanager
def wall_clock_functions() -> Iterator[None]:
    """Within it ``pyspark.sql.functions.current_timestamp`` and its kin are the batch's wall clock, for this thread."""
    with _LOCK:
        originals = {name: getattr(F, name) for name in _REPLACED}
        try:
            for name, replacement in _REPLACED.items():
                setattr(F, name, _in_thread(threading.get_ident(), replacement, originals[name]))
            yield
        finally:
            for name, original in originals.items():
                setattr(F, name, original)


def _in_thread(thread: int, replacement: Callable[..., Column], original: Callable[..., Column]) -> Callable[..., Column]:
    """Other threads have plans of the application's own, of ``foreach_batch`` for one."""

    @functools.wraps(original)
    def chosen(*arguments: Any, **named: Any) -> Column:
        return (replacement if threading.get_ident() == thread else original)(*arguments, **named)

    return chosen

"""The means by which a micro-batch's rows pass through a Spark job that does not end with it.

Spark moves rows between the JVM and Python in Arrow batches, through buffers, and closes an Arrow batch when it is full or the
input ends. In a standing run neither happens, so the last rows of a micro-batch would stay where they are. What frees them:

- Arrow batches of few rows, and buffers of few bytes (``task_settings``).
- Filler rows behind each micro-batch, as many as fill an Arrow batch (``rows_behind``).
- A flush of what PySpark's worker writes to, before a step waits (``WorkerOutput``).
- A pause of each step that has steps on both sides. One JVM thread moves the rows of a whole job. As long as a step takes rows,
  the thread fetches more from the step before, waits there, and does not read what the step has made. So the step stops reading
  at the end of a micro-batch until the last step has reported, and the fillers behind it are more than the socket to it holds.

All of it depends on Spark 4's internals. It is in this module only, and ``tests/spark/test_standing_run.py`` checks it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import BinaryIO

import pyarrow as pa

from tidemill.errors import StopError
from tidemill.steps.rows.schema import FILLER, SCHEMA

RUN, IS_STANDING = "tidemill.run", "tidemill.run.is_standing"
"""Local properties of a run's job, which its steps read: its number, and whether it is a standing one."""
ARROW_ROWS = 512
"""Rows of an Arrow batch in a standing run: each micro-batch costs about as many filler rows, which are cheaper than more Arrow
batches: with 512, not 128, the last step took a fifth less processor time at 400 records a micro-batch."""
_BUFFER_BYTES = "1024"
_MORE_THAN_A_SOCKET_HOLDS = 512 << 10
"""A Unix socket (``can_stand_on``) holds 208 KiB unless the system is set otherwise, and Python's buffer behind it 64 KiB."""
_ROWS_PER_BATCH = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SMALL_BUFFERS = ("spark.sql.execution.pandas.udf.buffer.size", "spark.sql.execution.python.udf.buffer.size")
_NO_BYTE_LIMIT = {"spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1)}
"""With a limit Spark adds up the sizes of all columns for each row, which takes longer than writing it."""


UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""The setting for Unix sockets between the JVM and its workers. Without it they are TCP's, whose buffers hold megabytes."""


def can_stand_on(sockets: str, steps: int) -> bool:
    """True if runs of a plan with ``steps`` later steps can stand. ``sockets``: as the session has ``UNIX_SOCKETS``."""
    return steps == 1 or sockets.lower() == "true"


def task_settings(session: Mapping[str, str], *, is_standing: bool) -> dict[str, str | None]:
    """The settings of a run's tasks, as local properties of its job: Spark hands a job outside of a SQL query none of its
    session's. ``session``: those that the session has. None: as Spark has it."""
    own: dict[str, str | None] = {name: value for name, value in session.items() if name.startswith("spark.sql.")}
    own |= {name: value for name, value in _NO_BYTE_LIMIT.items() if name not in own}
    # The same for both: the size is in a worker's environment, and each other environment has workers of its own.
    buffers = dict.fromkeys(_SMALL_BUFFERS, _BUFFER_BYTES)
    if is_standing:
        return {**own, _ROWS_PER_BATCH: str(ARROW_ROWS), **buffers}
    return {_ROWS_PER_BATCH: None, **own, **buffers}


def rows_behind(*, next_is_last: bool) -> Iterator[pa.RecordBatch]:
    """Filler rows behind a micro-batch, so that all of it gets to the next step."""
    yield _fillers(0)
    if not next_is_last:
        yield _fillers(_MORE_THAN_A_SOCKET_HOLDS)


@cache
def _fillers(size: int) -> pa.RecordBatch:
    """Enough fillers to close the Arrow batch of the row before them, wherever in it that row is: Spark reads one more row before
    it closes a full batch. The first has a value of this size."""
    count = ARROW_ROWS + 1
    columns = {name: pa.nulls(count, SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["node"] = pa.array([FILLER] * count, pa.int32())
    columns["value"] = pa.array([bytes(size), *[None] * (count - 1)], pa.binary())
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


class WorkerOutput:
    """The stream that PySpark's worker writes to, for a generator that it runs."""

    def __init__(self) -> None:
        self._stream: BinaryIO | None = None

    def flush(self) -> None:
        """Nothing stays in the worker's buffer."""
        if self._stream is None:
            self._stream = _stream_of_worker()
        self._stream.flush()


def _stream_of_worker() -> BinaryIO:
    """A local variable of PySpark's worker, found on the stack: there is no call that gives it."""
    frame = sys._getframe()
    while frame is not None:
        stream: BinaryIO | None = frame.f_locals.get("outfile")
        if stream is not None:
            return stream
        frame = frame.f_back  # type: ignore[assignment]
    raise StopError(
        "a Python step does not find the stream that PySpark's worker writes to (a variable outfile): this PySpark is built in "
        "another way than those that Tidemill knows; use the version of the lock file"
    )

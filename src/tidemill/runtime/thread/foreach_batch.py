"""Calls of ``foreach_batch`` functions: in the driver, before the batch is committed, while its worker waits.

Decides that a thread's calls never overlap: one whose batch was given up meanwhile (it took longer than a batch may) ends
before the records come again. Of those that waited for it, only the one whose batch counts still is made. An exception ends the
stream thread, as one of ``foreach`` does. What the function gets is ``batch_sinks``'.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from tidemill.errors import BatchLostError
from tidemill.log_format import LogEvent
from tidemill.printable import said_by
from tidemill.spark.job_thread import background_pool
from tidemill.spark.plan.batch_sinks import BatchFunction, batch_frame, decoded_path
from tidemill.task.batch_id import BatchId

log = logging.getLogger("tidemill.foreach-batch")


def new_batch_folder(state: Path) -> str:
    """Folder of batches whose functions are called, below an application's directory; what a crash has left there is gone."""
    folder = state / "foreach-batch"
    shutil.rmtree(folder, ignore_errors=True)
    return str(folder)


class ForeachBatchCalls:
    """One stream thread's; called on the control channel's threads, while the thread waits for its batch."""

    def __init__(
        self, session: SparkSession, plans: SparkSession, application_id: str, functions: Mapping[str, BatchFunction]
    ) -> None:
        self._session, self._plans, self._application_id, self._functions = session, plans, application_id, functions
        self._one_at_a_time = threading.Lock()
        self.caller: threading.Thread | None = None
        """The thread that calls a function now, for which the stream thread waits."""

    def reads(self, functions: Mapping[str, BatchFunction]) -> None:
        """The thread reads more topics, from which records may come."""
        self._functions = functions

    def call(self, node: str, path: str, batch_id: BatchId, why_not: Callable[[], str] = lambda: "") -> str:
        """Calls the node's function with the records in the file, and removes that; what went wrong, or nothing.

        BatchLostError with the reason that ``why_not`` gives against the call when it is its turn, if any.
        """
        with self._one_at_a_time:
            try:
                if reason := why_not():
                    raise BatchLostError(reason)
                return self._called(node, path, batch_id)
            finally:
                Path(path).unlink(missing_ok=True)
                shutil.rmtree(decoded_path(path), ignore_errors=True)

    def _called(self, node: str, path: str, batch_id: BatchId) -> str:
        if not Path(path).is_file():
            return (
                f"{node}: the records of a batch are in {path} on a worker's machine, which the driver can't read: "
                "run with spark.master local[*], or with a state.dir that all machines share"
            )
        made = self._functions[node]
        started, self.caller = time.monotonic(), threading.current_thread()
        try:
            with background_pool(self._session, self._application_id, f"foreach_batch of {node}"):
                made.function(batch_frame(self._session, path, made, self._plans), batch_id)
        except (Exception, SystemExit) as problem:  # sys.exit() would end only this thread
            log.exception(LogEvent("foreach-batch-failed", node=node, batch=batch_id))
            return f"the function of {node} failed on the batch {batch_id}: {type(problem).__name__}: {said_by(problem)}"
        finally:
            self.caller = None
        log.debug(LogEvent("foreach-batch", node=node, batch=batch_id, took_ms=round((time.monotonic() - started) * 1e3)))
        return ""

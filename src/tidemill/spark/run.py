"""The exchange between a stream thread and a run, the one Spark job that serves its micro-batches: requests in, reports out.

Decides the answer to a source step that asks for the next request, and to a thread that waits for the report. Invariants: a run
serves one request at a time; a report counts only for that request; no wait outlasts a run that is over. Independent of Spark.
"""

from __future__ import annotations

import itertools
import threading
import time

from tidemill.task.batch import BatchReport, BatchRequest

_numbers = itertools.count(1)


class Run:
    """``is_standing``: it serves requests until it is ended, else one request only. The stream thread calls ``ask``, ``wait`` and
    ``end``; the other methods may be called by any thread."""

    def __init__(self, *, is_standing: bool) -> None:
        self.number = next(_numbers)
        self.is_standing = is_standing
        self._began = self._asked = time.monotonic()
        self._changed = threading.Condition()
        self._request: BatchRequest | None = None
        """The request that the source step has not taken yet."""
        self._under_way: int | None = None
        """Id of the batch whose report is awaited."""
        self._report: BatchReport | None = None
        self._is_ending = self._is_over = self._is_looked_at = False
        self.has_begun = False
        """A source step has asked for a request: Spark has started the job's task."""

    # --- the owner -------------------------------------------------------------------------------------------------

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def idle_s(self) -> float:
        """Time since the last request, in s."""
        return time.monotonic() - self._asked

    def ask(self, request: BatchRequest) -> None:
        with self._changed:
            assert self._under_way is None, "a run serves one request at a time"
            self._request, self._under_way, self._report = request, request.batch_id, None
            self._asked = time.monotonic()
            self._changed.notify_all()

    def wait(self, limit_s: float) -> BatchReport | None:
        """The report of the request; None where the run is over without one. TimeoutError: neither within
        ``limit_s``, or before ``look``."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._is_looked_at, limit_s)
            self._is_looked_at = False
            if not self._has_ended:
                raise TimeoutError
            self._under_way = None
            return self._report

    @property
    def _has_ended(self) -> bool:
        return self._report is not None or self._is_over

    def look(self) -> None:
        """Ends the current or the next ``wait`` early: its caller may not want the report any more. Any thread."""
        with self._changed:
            self._is_looked_at = True
            self._changed.notify_all()

    def withdraw(self) -> bool:
        """Takes the request back; False if the source step has it already."""
        with self._changed:
            if self._request is None:
                return False
            self._request = self._under_way = None
            return True

    @property
    def is_ending(self) -> bool:
        """True if it serves no further request."""
        return self._is_ending or self._is_over

    def end(self) -> None:
        """Ends the run in order: its steps return when the current request is served. Any thread."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()

    def wait_over(self, limit_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, limit_s)

    # --- the workers and the job -----------------------------------------------------------------------------------

    def next(self) -> BatchRequest | None:
        """The next request for the source step; waits until there is one. None: the run ends."""
        with self._changed:
            self.has_begun = True
            self._changed.wait_for(lambda: self._request is not None or self._is_ending or self._is_over)
            request, self._request = self._request, None
            return request

    def reported(self, report: BatchReport) -> bool:
        """Takes a report; False if it is not one of the current request."""
        with self._changed:
            # A worker that was taken for dead may report late, a batch that has been run again meanwhile.
            if self._under_way != report.batch_id or self._report is not None:
                return False
            self._report = report
            self._changed.notify_all()
            return True

    def wait_served(self, batch_id: int) -> None:
        """Returns when the report of a batch has come, or the run ends."""
        with self._changed:
            # The end of the run ends this wait, too: the job can't end before: its one thread waits for this step.
            self._changed.wait_for(lambda: self._under_way != batch_id or self._report is not None or self.is_ending)

    def over(self) -> None:
        """Its job has ended, in whatever way."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

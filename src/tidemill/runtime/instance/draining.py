"""The drain of an instance: its tasks warm up elsewhere, are handed over, and then it closes.

Decides how long that may take and what follows: closed once nothing is held; closed at once where the group's leader knows of no
drains; called off when the time is over, after which the instance continues. The order of tasks is the leader's
(``assignment.drain``), how far the drain is ``membership.drain_progress``'s.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from tidemill.config.slices import ClientsConfig
from tidemill.deadline import Deadline
from tidemill.errors import DrainRefusedError, EnvironmentProblem, RetriableError
from tidemill.ids import ProcessId
from tidemill.kafka.admin.groups import live_group
from tidemill.kafka.security.clients import group_client_settings
from tidemill.log_format import LogEvent
from tidemill.membership.drain_progress import DrainPhase, DrainProgress, drain_progress, why_no_drain
from tidemill.membership.wire import known_subscription
from tidemill.query.group_documents import CALLED_OFF, CLOSING, DRAINING
from tidemill.runtime.thread.stream_thread import StreamThread

log = logging.getLogger("tidemill.application")

DRAIN_LIMIT_S = 1_800.0
"""The default limit of a drain."""
_LOOK_S = 0.1
_UNREAD_LIMIT_S = 10.0
"""Longest wait before closing until the end of the drain is read over HTTP, if its progress was: a client that polls could not
distinguish a closed instance from a failed one otherwise."""
_SHOWN_S = 1.0
"""Shortest time for which the end can be read, also after it was read once: another client may poll, too."""
_GROUP_LIMIT_S = 5.0

_UNKNOWN = (
    "the group's leader knows of no drains (Kafka's own class, or an earlier version of Tidemill): the instance closes at once, "
    "and its tasks wait for their state where no standby has it"
)


class Draining:
    """The drain of one instance; thread-safe. ``threads`` may grow and shrink. ``close`` closes the instance; ``is_open``: it
    runs or rebalances."""

    def __init__(
        self,
        application_id: str,
        clients: ClientsConfig,
        threads: Sequence[StreamThread],
        *,
        process_id: Callable[[], ProcessId],
        is_open: Callable[[], bool],
        close: Callable[[], object],
    ) -> None:
        self._application_id, self._clients = application_id, clients
        self._threads, self._process_id = threads, process_id
        self._is_open, self._close = is_open, close
        self._lock = threading.Lock()
        self._waiter: threading.Thread | None = None
        self._is_watched, self._end_was_read = False, threading.Event()
        self._reported: dict[str, object] | None = None

    def begin(self, timeout_s: float) -> None:
        """Asks the threads to drain and returns; a drain that is under way continues, with its own limit.

        Raises:
            DrainRefusedError: no other instance is in the group, another one drains, or this one does not run.
            RetriableError: the group is rebalancing, or no broker answers for it.
        """
        with self._lock:
            if self._waiter is not None and self._waiter.is_alive():
                return
            if not self._is_open():
                raise DrainRefusedError("the instance does not run (it is starting or ending): there is nothing to drain")
            self._require_others()
            self._is_watched = False
            self._end_was_read.clear()
            now_ms, limit_s = int(time.time() * 1e3), min(timeout_s, threading.TIMEOUT_MAX)  # infinity is no time in JSON
            # At once, with its phase: others read it at any time.
            times = {"since_ms": now_ms, "until_ms": now_ms + int(limit_s * 1e3)}
            self._reported = {**times, "phase": DRAINING, "message": ""}
            log.info(LogEvent("draining", application=self._application_id, limit_s=timeout_s))
            self._waiter = threading.Thread(target=self._run, args=(timeout_s,), name="tidemill-drain", daemon=True)
            self._waiter.start()

    def wait(self) -> bool:
        """Waits for the end of the drain; True if the instance was closed."""
        waiter = self._waiter
        if waiter is not None:
            waiter.join()
        return self._reported is not None and self._reported["phase"] == CLOSING

    def to_json(self) -> dict[str, object] | None:
        """The drain under way, or the last one; None if there was none."""
        self._is_watched = True  # before it is read: a drain that ends in between waits for the next look
        reported = self._reported
        if reported is None:
            return None
        if reported["phase"] == CLOSING:
            self._end_was_read.set()
        progress = self._progress()
        return {**reported, "active": progress.active, "standby": progress.standby}

    def _require_others(self) -> None:
        try:
            group = live_group(group_client_settings(self._clients), self._application_id, limit_s=_GROUP_LIMIT_S)
        except EnvironmentProblem as problem:
            raise RetriableError(f"the group can't be looked at before the drain: {problem}") from problem
        said = {name: known_subscription(member.subscription.user_data) for name, member in group.members.items()}
        why = why_no_drain(self._process_id(), said)
        if why:
            raise DrainRefusedError(why)

    def _progress(self) -> DrainProgress:
        return drain_progress([thread.member for thread in list(self._threads) if thread.is_alive()])

    def _tell(self, phase: str, message: str) -> None:
        self._reported = {**(self._reported or {}), "phase": phase, "message": message}

    def _run(self, timeout_s: float) -> None:
        deadline = Deadline.after(timeout_s)
        while self._is_open():
            for thread in list(self._threads):
                thread.drain()
            progress = self._progress()
            if progress.phase is not DrainPhase.DRAINING:
                self._end(progress.phase)
                return
            if deadline.is_over:
                self._call_off(timeout_s, progress)
                return
            time.sleep(_LOOK_S)
        self._tell(CALLED_OFF, "the instance has ended before it had drained")

    def _end(self, phase: DrainPhase) -> None:
        is_drained = phase is DrainPhase.DRAINED
        message = "every task has been handed over" if is_drained else _UNKNOWN
        log.log(
            logging.INFO if is_drained else logging.WARNING,
            LogEvent("drained" if is_drained else "drain-unknown", application=self._application_id, message=message),
        )
        self._tell(CLOSING, message)
        if self._is_watched:
            self._end_was_read.wait(_UNREAD_LIMIT_S)
        time.sleep(_SHOWN_S)
        self._close()

    def _call_off(self, timeout_s: float, progress: DrainProgress) -> None:
        message = (
            f"not done within {timeout_s:g} s: {progress.active} active tasks and {progress.standby} standbys are still here. "
            "The instance continues; drain it again with a longer limit, or raise max.warmup.replicas"
        )
        for thread in list(self._threads):
            thread.drain(wanted=False)
        log.warning(LogEvent("drain-called-off", application=self._application_id, message=message))
        self._tell(CALLED_OFF, message)

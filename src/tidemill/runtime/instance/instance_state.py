"""The states of an instance: Kafka Streams' own, with the same names and the same transitions.

Decides which transitions are legal, and says each in the log with its cause and how long the state before it lasted. When one is
due is decided by the instance.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from tidemill.deadline import Deadline
from tidemill.log_format import LogEvent
from tidemill.spellings import SpelledEnum

log = logging.getLogger("tidemill.application")


class State(SpelledEnum):
    """``KafkaStreams.State``, by the same names and with the same meaning."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


_NEXT: Mapping[State, frozenset[State]] = {
    State.CREATED: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN}),
    State.REBALANCING: frozenset({State.RUNNING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.RUNNING: frozenset({State.REBALANCING, State.PENDING_SHUTDOWN, State.PENDING_ERROR}),
    State.PENDING_SHUTDOWN: frozenset({State.NOT_RUNNING}),
    State.PENDING_ERROR: frozenset({State.ERROR}),
    State.NOT_RUNNING: frozenset(),
    State.ERROR: frozenset({State.PENDING_SHUTDOWN}),
}
"""The legal transitions of ``KafkaStreams.State``."""

StateListener = Callable[[State, State], None]
"""Called with the new and the old state (``KafkaStreams.StateListener``), on the thread that changes it: it must not block."""


class InstanceState:
    """The state now; ``changed`` is notified, and can be held, when it must not change."""

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self.changed = threading.Condition(threading.RLock())
        self.now = State.CREATED
        self._since_s = time.monotonic()
        self.listeners: list[StateListener] = []
        self.teller: threading.Thread | None = None
        """The thread that calls the listeners now, and may have ``changed`` locked."""

    def move(self, to: State, cause: str) -> None:
        """Changes the state, if that is a legal transition. Listeners are called on this thread after it; their exceptions are
        only logged, since the instance must end in any case."""
        with self.changed:
            before, lasted_s = self.now, time.monotonic() - self._since_s
            if to is before or to not in _NEXT[before]:
                return
            self.now, self._since_s = to, time.monotonic()
            self.changed.notify_all()
        log.info(
            LogEvent(
                "state",
                says=f"stream-client [{self._application_id}] State transition from {before.value} to {to.value}",
                application=self._application_id,
                from_=before.value,
                to=to.value,
                after_ms=round(lasted_s * 1e3),
                cause=cause,
            )
        )
        outer, self.teller = self.teller, threading.current_thread()
        try:
            for listener in self.listeners:
                self._tell(listener, to, before)
        finally:
            self.teller = outer

    def tells(self, thread: threading.Thread) -> bool:
        """True for the teller while threads may be ending, which wait for what it may have locked."""
        return thread is self.teller and self.now is not State.ERROR

    def _tell(self, listener: StateListener, to: State, before: State) -> None:
        try:
            listener(to, before)
        except BaseException as problem:  # raised, it would end only this thread
            if not isinstance(problem, (Exception, SystemExit)) and threading.current_thread() is threading.main_thread():
                raise  # a signal's
            log.exception(LogEvent("listener-failed", listener="state listener", from_=before.value, to=to.value))

    def never_ran(self) -> None:
        """NOT_RUNNING at once; no listener is called."""
        with self.changed:
            self.now = State.NOT_RUNNING
            self.changed.notify_all()

    def leave_to_parent(self) -> None:
        """In a forked process: NOT_RUNNING. Another thread of the parent may have held the lock."""
        self.changed = threading.Condition(threading.RLock())
        self.never_ran()

    def wait(self, *states: State, timeout_s: float) -> State:
        """Waits until the state is one of these or the instance has ended, at most ``timeout_s``; returns the state then.

        Raises:
            TypeError: for what is no ``State``.
        """
        wrong = next((each for each in states if not isinstance(each, State)), None)
        if wrong is not None:
            raise TypeError(f"wait: {wrong!r} is no state; expected one of State, such as State.RUNNING")
        deadline = Deadline.after(timeout_s)
        with self.changed:
            while self.now not in (*states, State.ERROR, State.NOT_RUNNING):
                left_s = deadline.left_s
                if left_s <= 0:
                    break
                self.changed.wait(left_s)
            return self.now

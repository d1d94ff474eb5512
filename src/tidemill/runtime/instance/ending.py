"""How an instance ends: who closes it, who waits for whom, and for how long.

Decides which thread closes the threads and the parts, each once, and who must not wait for it: the threads that are waited for.
A close never ends the parts under a stream thread that is still at work. The end of the program does, and an instance that has
failed does after a limit.
"""

from __future__ import annotations

import logging
import threading

from tidemill.deadline import Deadline
from tidemill.errors import TidemillError
from tidemill.log_format import LogEvent
from tidemill.runtime.instance.instance_state import InstanceState, State
from tidemill.runtime.instance.starting import OpenParts
from tidemill.runtime.instance.thread_set import ThreadSet

log = logging.getLogger("tidemill.application")

CLOSE_LIMIT_S = 60.0
"""The default limit of a close, and after it the interval of the log's lines about threads that have not ended."""


class Ending:
    """Thread-safe. ``state``, ``threads`` and ``parts`` are the instance's."""

    def __init__(self, state: InstanceState, threads: ThreadSet, parts: OpenParts) -> None:
        self._state, self._threads, self._parts = state, threads, parts
        self.changing: threading.Thread | None = None
        """Is starting or closing the instance: a close on another thread waits for it."""
        self._late: threading.Thread | None = None  # waits for the stream threads where no close does any longer
        self._failing: threading.Thread | None = None  # closes the instance after a stream thread has failed

    def close(self, timeout_s: float, leave_group: bool | None) -> bool:
        """``KafkaStreams.close``."""
        own = threading.current_thread()
        with self._state.changed:
            if self._state.now is State.NOT_RUNNING:
                return True
            changing, failed = self.changing, self._state.now in (State.ERROR, State.PENDING_ERROR)
            if self._state.now is State.CREATED and changing is None:
                self._state.never_ran()
                return True
            if not failed:
                self.changing = changing or own
                try:
                    self._state.move(State.PENDING_SHUTDOWN, "close() was called")
                except BaseException:  # Ctrl-C in a listener: it can be asked for again
                    self.changing = changing
                    raise
        if self.is_waited_for(own):
            if changing is None and not failed:
                self.changing = threading.Thread(None, self._end, "tidemill-close", (timeout_s, leave_group), daemon=True)
                self.changing.start()
            return False
        if failed or changing is None:
            return (self._end_failed if failed else self._end)(timeout_s, leave_group)
        return changing is not own and self._state.wait(State.NOT_RUNNING, timeout_s=timeout_s) is State.NOT_RUNNING

    def is_waited_for(self, caller: threading.Thread) -> bool:
        """True if the caller must not wait for the end of the stream threads, because they wait for it."""
        return self._state.tells(caller) or self._threads.waits_for(caller)

    def with_program(self) -> None:
        """Where a close has waited its time already, all is closed under the threads that are still at work."""
        self.close(0.0 if self._late is not None else CLOSE_LIMIT_S, None)
        self._parts.close()

    def start_has_failed(self) -> None:
        self._threads.end(CLOSE_LIMIT_S)
        self._parts.close()
        self._state.never_ran()
        self.changing = None

    def begin_in_error(self, error: TidemillError) -> None:
        """A stream thread has failed: the others are closed, then the instance is in ERROR. The caller holds the state."""
        self._state.move(State.PENDING_ERROR, f"a stream thread has ended: {error}")
        self._failing = threading.Thread(target=self._fail, args=(error,), name="tidemill-error", daemon=True)
        self._failing.start()

    def leave_to_parent(self) -> None:
        """In a forked process."""
        self.changing = self._late = self._failing = None

    def _end(self, timeout_s: float, leave_group: bool | None) -> bool:
        try:
            if self._threads.end(timeout_s, leave_group):
                self._close_parts()
                self.changing = None  # not before the state: another close would end it all again
                return True
        except BaseException:  # Ctrl-C: it can be asked for again
            self.changing = None
            raise
        self.changing = self._late = threading.Thread(None, self._end_late, "tidemill-close", (leave_group,), daemon=True)
        self._late.start()
        return False

    def _end_late(self, leave_group: bool | None) -> None:
        while not self._threads.end(CLOSE_LIMIT_S, leave_group):
            log.warning(LogEvent("close-waits", threads=", ".join(self._threads.at_work())))
        self._close_parts()
        self.changing = None

    def _close_parts(self) -> None:
        self._parts.close()
        self._state.move(State.NOT_RUNNING, "all has ended")

    def _end_failed(self, timeout_s: float, leave_group: bool | None) -> bool:
        deadline = Deadline.after(timeout_s)
        ended = self._threads.end(timeout_s, leave_group)
        self._parts.close()
        if self._failing is not None and self._failing is not threading.current_thread():
            self._failing.join(deadline.left_s)  # it may be closing the same parts
        return ended

    def _fail(self, error: TidemillError) -> None:
        self._threads.end(CLOSE_LIMIT_S)
        self._parts.close()
        self._state.move(State.ERROR, str(error))

"""The stream threads of an instance: the first ones, those added and removed while it runs, those that replace a failed one.

Decides their numbers (the smallest that is free, so 1 is there as long as any is) and that only one change is made at a time,
none before the first ones are started or once the instance is to end. A number is used again: its transactional id and its
workers' place in Spark's pool with it. When threads are added, removed or replaced is decided by the instance.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from tidemill.deadline import Deadline
from tidemill.errors import ConfigError, RetriableError, ShutdownRequestedError, StopError, TidemillError
from tidemill.log_format import LogEvent
from tidemill.runtime.group.first_join import FirstJoin
from tidemill.runtime.thread.stream_thread import StreamThread, ThreadTopics

log = logging.getLogger("tidemill.application")

_STILL_ENDING_S = 60.0
"""Seconds after which the log says that a failed thread has not ended yet."""


class ThreadSource(Protocol):
    """Maker of threads, with room for a limited number (``slots``)."""

    @property
    def slots(self) -> int:
        """Spark's task slots without those of other instances: one for each thread, and one to spare."""

    def first_join(self, threads: int) -> FirstJoin: ...

    def make(self, number: int, first_join: FirstJoin) -> StreamThread: ...

    @property
    def thread_topics(self) -> ThreadTopics: ...


class ThreadSet:
    """``threads`` in the order of their numbers: one list, changed in place; who goes through it takes a copy. ``is_open``:
    whether threads may still be added or removed; ``on_removed`` is called when one has been."""

    def __init__(self, is_open: Callable[[], bool], on_removed: Callable[[], None] = lambda: None) -> None:
        self.threads: list[StreamThread] = []
        self._is_open, self._on_removed = is_open, on_removed
        self._changing = threading.RLock()
        self._leaving: set[StreamThread] = set()
        self._source: ThreadSource | None = None
        self._has_started = False
        self._shutdown_cause: TidemillError | None = None

    def begin(self, source: ThreadSource, count: int) -> None:
        """Makes the first ones, which join together; their workers were started before."""
        self._source, together = source, source.first_join(count)
        for number in range(1, count + 1):
            self.threads.append(source.make(number, together))

    def start(self) -> None:
        with self._changing:
            self._has_started = True
            for thread in list(self.threads):
                thread.start()

    def add(self) -> StreamThread | None:
        """One more; None if the instance doesn't run. ConfigError if the Spark session has no slot for it."""
        with self._changing:
            if not self._may_change() or self._source is None:
                return None
            wanted = len(self.threads) + 1
            if self._source.slots < wanted + 1:
                raise ConfigError(
                    f"the Spark session has {self._source.slots} task slots for this instance, but {wanted} stream threads need "
                    f"one each and one to spare: start it with spark.master=local[{wanted + 1}] or more (with other instances in "
                    "the same session, one more for each of their threads)"
                )
            thread = self._put(free_number(thread.number for thread in self.threads))
        log.info(LogEvent("thread-added", thread=thread.name))
        return thread

    def _put(self, number: int, failed: StreamThread | None = None) -> StreamThread:
        """The others are at work, so it joins when it has run its plan once; that starts its workers. ``failed``: whose place it
        takes."""
        assert self._source is not None
        thread = self._source.make(number, self._source.first_join(1))
        if failed is not None:
            thread.continue_from(failed)
        others = [other for other in self.threads if other.number != number]
        self.threads[:] = sorted([*others, thread], key=lambda each: each.number)
        thread.start()
        return thread

    def _may_change(self) -> bool:
        """False while a listener hears of the start, before the first threads are started."""
        return self._has_started and self._is_open()

    def remove(self, timeout_s: float | None, teller: threading.Thread | None = None) -> StreamThread | None:
        """Removes the thread with the highest number, which leaves the group; None if there is none, or the instance doesn't run.
        A caller for whom a stream thread waits, or who is the ``teller`` of the instance's state, does not wait for its end.

        Raises RetriableError if it has not ended in time; it will, and is removed then.
        """
        with self._changing:
            if not self._may_change():
                return None
            own = threading.current_thread()
            waits = own is not teller and not self.waits_for(own)
            staying = (t for t in reversed(self.threads) if not t.waits_for(own) and t not in self._leaving)
            thread = next(staying, None)
            if thread is None:
                return None
            self._leaving.add(thread)
            thread.stop(leave_group=True, within_s=timeout_s)
            self.expect_rebalance()
        if waits:
            thread.join(None if timeout_s is None else Deadline.after(timeout_s).left_s)
        if not thread.is_alive():
            self._drop(thread)
            return thread
        threading.Thread(target=self._drop, args=(thread,), name=f"{thread.name}-remove", daemon=True).start()
        if waits:
            raise RetriableError(f"{thread.name} has not ended within {timeout_s:g} s: it will, when its batch is finished")
        return thread

    def _drop(self, thread: StreamThread) -> None:
        """Removes a thread once it has ended; it is not replaced."""
        thread.join()
        thread.removed()
        with self._changing:
            self._leaving.discard(thread)
            if thread in self.threads:
                self.threads.remove(thread)
        log.info(LogEvent("thread-removed", thread=thread.name))
        self._on_removed()

    def read(self, source: ThreadSource) -> None:
        """All threads, and those that are added later, read the topics of ``source``."""
        with self._changing:
            self._source = source
            for thread in self.threads:
                thread.read(source.thread_topics)

    def leave_to_parent(self) -> None:
        """In a forked process, which has none of the threads."""
        self.threads.clear()
        self._changing, self._leaving = threading.RLock(), set()

    def expect_rebalance(self) -> None:
        """A thread is about to join or leave: the others, whose tasks change, send their next heartbeats quickly."""
        for thread in list(self.threads):
            thread.expect_rebalance()

    def hurry(self) -> None:
        """Has each look at once whether there is something to do."""
        for thread in list(self.threads):
            thread.hurry()

    def waits_for(self, caller: threading.Thread) -> bool:
        """True if the end of a thread can't be waited for by ``caller``, for which it waits itself."""
        return any(thread.waits_for(caller) for thread in list(self.threads))

    def shut_down_application(self, cause: TidemillError) -> None:
        """Has each ask the group that all instances end, since one of them has failed with ``cause``."""
        self._shutdown_cause = self._shutdown_cause or cause
        for thread in list(self.threads):
            thread.shut_down_application()

    def cause_of(self, failed: StreamThread) -> TidemillError:
        """Why the instance ends with ``failed``. Of a shutdown that a thread of its own has requested, others of its threads may
        learn and end before that one has."""
        error = failed.error or StopError(f"{failed.name} has ended")
        is_asked = isinstance(error, ShutdownRequestedError)
        return self._shutdown_cause if is_asked and self._shutdown_cause is not None else error

    def replace(self, failed: StreamThread, on_problem: Callable[[TidemillError], None]) -> None:
        """Starts another thread under the number of one that has failed, when that one has ended: two of one name would take each
        other's tasks and workers."""

        def run() -> None:
            failed.join(_STILL_ENDING_S)
            while failed.is_alive() and self._is_open():
                log.warning(LogEvent("thread-still-ending", thread=failed.name, next="it is replaced when it has ended"))
                failed.join(_STILL_ENDING_S)
            with self._changing:
                if failed not in self.threads or not self._is_open():
                    return
                problem: TidemillError | None = None
                try:
                    self._put(failed.number, failed)
                except TidemillError as error:
                    problem = error
                except Exception as error:
                    problem = StopError(f"no thread could be started: {error!r}")
            if problem is not None:
                on_problem(problem)  # who holds the instance's state may wait to change the threads
                return
            log.info(LogEvent("thread-replaced", thread=failed.name, error=str(failed.error)))

        threading.Thread(target=run, name=f"{failed.name}-replace", daemon=True).start()

    def end(self, timeout_s: float, leave_group: bool | None = None) -> bool:
        """Ends all of them, in order; whether they did in time. No others are started once ``is_open`` says so."""
        deadline = Deadline.after(timeout_s)
        with self._changing:
            threads = list(self.threads) if self._has_started else []
        for thread in threads:
            thread.stop(leave_group, within_s=timeout_s)
        for thread in threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(deadline.left_s)
        return not any(thread.is_alive() for thread in threads)

    def at_work(self) -> list[str]:
        """Names of those that have not ended."""
        return [thread.name for thread in self.threads if thread.is_alive()]


def free_number(taken: Iterable[int]) -> int:
    """The smallest from 1 on that is not taken."""
    numbers = set(taken)
    return next(number for number in range(1, len(numbers) + 2) if number not in numbers)

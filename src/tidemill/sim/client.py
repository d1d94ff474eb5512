"""A simulated process: its threads, its state directory, and whether it lives, is frozen or is closing.

Decides what a start, a clean close, a crash and a pause do to threads and state. A process id lives with the state
directory, as Kafka Streams keeps it there.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.ids import ProcessId, TaskId
from tidemill.membership.member_state import CloseRequested, DrainRequested
from tidemill.sim.agenda import Agenda
from tidemill.sim.copies import SimulatedStateDirectory
from tidemill.sim.scenario import ClientSpec
from tidemill.sim.thread import Thread


class SimulatedClient:
    def __init__(self, spec: ClientSpec, process_id: ProcessId, directory: SimulatedStateDirectory, agenda: Agenda) -> None:
        self.spec, self.process_id, self.directory = spec, process_id, directory
        self.threads: list[Thread] = []
        self.is_alive = False
        self.is_paused = False
        self.starts = 0
        """Rises with each start and crash, so that what was meant for an earlier life is not done in a later one."""
        self._agenda = agenda
        self._deferred: list[Callable[[], None]] = []
        self._when_closed: Callable[[], None] | None = None
        self._when_drained: Callable[[], None] | None = None

    def when_awake(self, action: Callable[[], None]) -> None:
        """Now, after the pause, or, if the process is dead, never."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._deferred.append(action)
        else:
            action()

    def started(self, threads: list[Thread]) -> None:
        self.threads, self.is_alive, self.is_paused, self._deferred = threads, True, False, []
        self.starts += 1
        self._when_closed = self._when_drained = None

    def close(self, then: Callable[[], None]) -> None:
        """Leaves in good order; ``then`` is called once all threads have left the group."""
        self._when_closed = then
        for thread in list(self.threads):
            thread.tell(CloseRequested())

    def drain(self, then: Callable[[], None]) -> None:
        """Gives its tasks up as others catch up with them, then closes; ``then`` as at ``close``."""
        self._when_drained = then
        for thread in list(self.threads):
            thread.tell(DrainRequested())

    @property
    def is_draining(self) -> bool:
        return self._when_drained is not None

    def thread_changed(self) -> None:
        then = self._when_drained
        if then is not None and all(thread.state.is_drained for thread in self.threads):
            self._when_drained = None
            self.close(then)

    def thread_ended(self) -> None:
        if self.is_alive and all(thread.has_ended for thread in self.threads):
            self.is_alive = False
            self.starts += 1
            then, self._when_closed = self._when_closed, None
            if then is not None:
                then()

    def crash(self, checkpoint_records: int) -> None:
        now_ms = self._agenda.now_ms
        for thread in self.threads:
            thread.stop_running()
            thread.has_ended = True
        self.directory.crash(now_ms, checkpoint_records)
        self.is_alive = self.is_paused = False
        self.starts += 1
        self._deferred = []
        self._when_drained = None

    def pause(self) -> None:
        now_ms = self._agenda.now_ms
        for thread in self.threads:
            thread.stop_running()
        self.directory.freeze_all(now_ms)
        self.is_paused = True

    def resume(self) -> None:
        """First what came meanwhile, so that a member that was removed learns of it before it runs anything."""
        self.is_paused = False
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            self.when_awake(action)
        self.directory.thaw(self._agenda.now_ms)
        for thread in self.threads:
            thread.run_restored(self._agenda.now_ms)

    def running(self) -> list[tuple[TaskId, Thread]]:
        """Tasks that this process processes now and may commit."""
        if not self.is_alive or self.is_paused:
            return []
        found = []
        for thread in self.threads:
            if not thread.has_ended:
                tasks = sorted(thread.running)
                owned = tasks if thread.may_commit(tasks) else [task for task in tasks if thread.may_commit([task])]
                found += [(task, thread) for task in owned]
        return found

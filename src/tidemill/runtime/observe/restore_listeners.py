"""Listeners for state restoration: Kafka Streams' StateRestoreListener and StandbyUpdateListener (KIP-988).

Decides how the events of ``task.progress`` become calls with Kafka Streams' arguments. Listeners are called on the stream
threads, between batches: they must be quick and safe for several threads. One that raises ends its thread, as in Kafka Streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidemill.errors import StopError, TopologyError
from tidemill.ids import TaskId, TopicPartition
from tidemill.printable import said_by
from tidemill.task.progress import (
    BatchLoaded,
    RestoredBatch,
    RestoreEnded,
    RestoreStarted,
    RestoreSuspended,
    StoreEvent,
    SuspendReason,
    UpdateStarted,
    UpdateSuspended,
)


class StateRestoreListener(Protocol):
    """Restoring of active tasks' stores. Counts are of changelog records; transaction markers take offsets too."""

    def on_restore_start(
        self, topic_partition: TopicPartition, store_name: str, starting_offset: int, ending_offset: int
    ) -> None:
        """Begins at ``starting_offset`` and is done at ``ending_offset`` (which is not read any more)."""

    def on_batch_restored(
        self, topic_partition: TopicPartition, store_name: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """The store has everything up to ``batch_end_offset``, this one included."""

    def on_restore_end(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        """The store is at its changelog's end."""

    def on_restore_suspended(self, topic_partition: TopicPartition, store_name: str, total_restored: int) -> None:
        """The task is given up, or starts over, before its store is there. A listener may do without this one, as in Java."""


class StandbyUpdateListener(Protocol):
    """Listener for standby and warm-up tasks."""

    def on_update_start(self, topic_partition: TopicPartition, store_name: str, starting_offset: int) -> None:
        """The copy begins to follow its changelog, at ``starting_offset``: that of the next record."""

    def on_batch_loaded(
        self,
        topic_partition: TopicPartition,
        store_name: str,
        task_id: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """A batch is loaded, up to and with ``batch_end_offset``; ``current_end_offset`` is the changelog's end offset."""

    def on_update_suspended(
        self,
        topic_partition: TopicPartition,
        store_name: str,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """The copy is followed no more; ``store_offset`` is the last one that it has."""


@dataclass(slots=True)
class RestoreListeners:
    """The listeners of an instance."""

    restore: StateRestoreListener | None = None
    standby: StandbyUpdateListener | None = None

    def set_restore(self, listener: StateRestoreListener) -> None:
        """TopologyError for an object that lacks a method."""
        _require(listener, StateRestoreListener, "set_state_restore_listener", ("on_restore_suspended",))
        self.restore = listener

    def set_standby(self, listener: StandbyUpdateListener) -> None:
        """TopologyError for an object that lacks a method."""
        _require(listener, StandbyUpdateListener, "set_standby_update_listener")
        self.standby = listener

    def notify(self, event: StoreEvent) -> None:
        """Calls the listeners for ``event``. StopError if one raises."""
        try:
            if self.restore is not None:
                _tell_restore(self.restore, event)
            if self.standby is not None:
                _tell_standby(self.standby, event)
        except (Exception, SystemExit) as problem:  # sys.exit() would end only this thread
            raise StopError(
                f"a listener failed on {type(event).__name__} of {event.store} ({event.partition}): "
                f"{type(problem).__name__}: {said_by(problem)}; correct it, or catch what it raises"
            ) from problem


def _require(listener: object, kind: type, operator: str, optional: tuple[str, ...] = ()) -> None:
    """A method that is missing would end a thread when it is first called, which may be at a failure."""
    if isinstance(listener, type):
        raise TopologyError(f"{operator}: got the class {listener.__name__}, expected an object: give {listener.__name__}()")
    methods = [name for name in vars(kind) if name.startswith("on_") and name not in optional]
    missing = [name for name in methods if not callable(getattr(listener, name, None))]
    if missing:
        raise TopologyError(
            f"{operator}: {listener!r} has no {', '.join(missing)}: give an object with the methods of {kind.__name__}, "
            f"{', '.join(methods)}"
        )


def _tell_restore(listener: StateRestoreListener, event: StoreEvent) -> None:
    partition, store = event.partition, event.store
    if isinstance(event, RestoreStarted):
        listener.on_restore_start(partition, store, event.start, event.end)
    elif isinstance(event, RestoredBatch):
        listener.on_batch_restored(partition, store, event.batch_end - 1, event.records)
    elif isinstance(event, RestoreEnded):
        listener.on_restore_end(partition, store, event.total)
    elif isinstance(event, RestoreSuspended) and hasattr(listener, "on_restore_suspended"):
        listener.on_restore_suspended(partition, store, event.total)


def _tell_standby(listener: StandbyUpdateListener, event: StoreEvent) -> None:
    partition, store = event.partition, event.store
    if isinstance(event, UpdateStarted):
        listener.on_update_start(partition, store, event.start)
    elif isinstance(event, BatchLoaded):
        listener.on_batch_loaded(partition, store, event.task, event.batch_end - 1, event.records, event.end)
    elif isinstance(event, UpdateSuspended):
        listener.on_update_suspended(partition, store, event.at - 1, event.end, event.reason)

"""Every error that Tidemill raises, as a tree by what the caller must do about it.

A message says what was found, what was expected and what to do; ids are fields too, so that no one parses messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn


class TidemillError(Exception):
    """Root of all errors of this library."""


class ConfigError(TidemillError):
    """A setting is unknown, malformed or contradicts another: correct it and start again."""


class TopologyMismatchError(ConfigError):
    """The topology no longer fits what an earlier version of it has left, on brokers or on this machine: migrate, or reset."""

    def __init__(self, application: str, misfits: Iterable[str], *, others: Iterable[str]) -> None:
        self.misfits, self.others = tuple(misfits), tuple(others)
        too = " --earlier-topics" if self.others else ""
        super().__init__(
            f"the topology of {application} no longer fits what it has left: {'; '.join(self.misfits)}. If the program has "
            "changed, go back to the earlier one; or run this one in parallel under another application.id until it has caught "
            "up; to give the state up and begin again, stop all instances and run: "
            f"tidemill reset APP.py --execute --local-state{too}"
        )


class TopologyError(TidemillError):
    """The topology can't be built as written: change the program."""


class ColumnMistakeError(TopologyError):
    """A function of PySpark Columns treats one as a record's value: write it with Columns, or wrap it in ``per_record``.

    ``node`` and ``operator``: whose function it is; ``file`` and ``line``: where, if that is known.
    """

    def __init__(self, message: str, *, node: str, operator: str, file: str | None, line: int | None) -> None:
        super().__init__(message)
        self.node, self.operator, self.file, self.line = node, operator, file, line


class SerdeError(TidemillError):
    """Bytes can't be read, or a value can't be written, by the serde that was given: correct the serde or the data."""


class StoredBytesError(SerdeError):
    """Stored bytes can't be read by the store's serde; reading it again ends in the same way."""

    def __init__(self, store: str, found: str) -> None:
        super().__init__(
            f"store {store} holds bytes that its serde can't read ({found}). If the serde or its schema was changed, go back "
            "to the one that wrote them, or stop all instances and give the state up: tidemill reset APP.py --execute "
            "--local-state. If only the copy on this machine is broken, remove the task's directory in state.dir: it is restored "
            "from the changelog"
        )
        self.store = store


class AssignmentError(TidemillError):
    """No assignment can be made (missing source topic, copartitioning violated ...): the operator must act."""


class WireFormatError(AssignmentError):
    """The payload of another member can't be read, or one can't be written: see which member runs another format."""


class EnvironmentProblem(TidemillError):  # noqa: N818  # no error of the program: something outside it
    """Something outside the program is missing or in the way (Java, jars, a port, a folder): exit code 2 in the CLI."""


class RetriableError(TidemillError):
    """The same call may work later; nothing was changed."""


class RejoinError(RetriableError):
    """The group is in the middle of a rebalance: call again when the next assignment has arrived."""


class NoExecutorError(RetriableError):
    """No executor has a slot for a stream thread's batch now: the cluster is starting one, or has none left."""


class NoSlotError(NoExecutorError):
    """Spark has started no task of a stream thread's job: other jobs have all task slots."""


class BatchLostError(TidemillError):
    """A micro-batch did not happen as far as is known: go back to the committed offsets and run it again."""


class FunctionFailedError(BatchLostError):
    """A function of Columns raised, in Spark's JVM or in a UDF: one of the batch's records is to blame; run it with fewer.
    ``node``: the one whose serde could not write or read what a record is among Columns; empty if a function raised."""

    def __init__(self, error: str, message: str, node: str = "") -> None:
        super().__init__(f"a function of Columns failed: {error}: {message}")
        self.error, self.message, self.node = error, message, node


class WorkerDiedError(BatchLostError):
    """A Python worker died in the middle of a batch, or had no memory left: run it again with fewer records."""


class ColumnsResultError(TidemillError, ValueError):
    """A node's serde can't write what came to it among Columns, or read what the node gives to functions of Columns: as a
    function of Columns that fails, so the record is found by batches of fewer."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


class CorruptReadError(BatchLostError):
    """A step that only reads a task's state has found it corrupt: have its owner look through it, and run the batch again."""


class BatchTimeoutError(BatchLostError):
    """A batch took longer than it may, and its workers were ended: run it again with fewer records."""


class MisfitError(BatchLostError):
    """The rows of a batch do not fit together, which no broker or process mends by coming back."""


class CommitRefusedError(BatchLostError):
    """The group refuses a commit: the member's generation is stale, or its membership is lost. Counted, never fatal."""


class FencedError(TidemillError):
    """Another owner has taken over: drop what is owned, rejoin the group, make a new producer."""


class StopError(TidemillError):
    """The thread or instance must stop; the message has the reason."""


class DrainRefusedError(StopError):
    """The instance can't drain: no other could take its tasks, another one drains, or it does not run. Nothing was changed."""


class UnexpectedEventError(StopError):
    """A state machine got an event that it has no rule for: a fault of this library. The message has the state and what
    came before."""


def assert_never(found: NoReturn) -> NoReturn:
    """The last case of an exhaustive match: mypy refuses it where a case is missing (``typing``'s own is Python 3.11's)."""
    raise UnexpectedEventError(f"there is no rule for {found!r}")


class ShutdownRequestedError(StopError):
    """An instance of the application has asked all of them to shut down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRecord:
    """Which record a RecordError is about. ``offset`` None: the sum of several records."""

    task: str
    topic: str
    partition: int
    offset: int | None

    def __str__(self) -> str:
        at = "an unknown offset" if self.offset is None else f"offset {self.offset}"
        return f"task {self.task}, {self.topic}-{self.partition} at {at}"


class InstanceIdInUseError(StopError):
    """Another member has joined the group under this one's ``group.instance.id``: joining again would fence that one."""


class RecordError(StopError):
    """A record can't be read or processed; carries its topic, partition and offset.

    ``offset`` is None for the sum of several records, whether it is given as None or as -1, as rows have it.
    """

    def __init__(self, message: str, *, task: str, topic: str, partition: int, offset: int | None) -> None:
        self.task, self.topic, self.partition = task, topic, partition
        self.offset = None if offset is None or offset < 0 else offset
        super().__init__(f"{record_of(self)}: {message}")


def record_of(error: BaseException) -> FailedRecord | None:
    """The record that the error is about; None if it is about none, or not about one alone."""
    if not isinstance(error, RecordError):
        return None
    return FailedRecord(task=error.task, topic=error.topic, partition=error.partition, offset=error.offset)


def stop_error(text: str, record: FailedRecord | None) -> StopError:
    """The driver's error for one that has stopped a worker: with the same text, and of the same record."""
    if record is None:
        return StopError(text)
    return RecordError(
        text.removeprefix(f"{record}: "), task=record.task, topic=record.topic, partition=record.partition, offset=record.offset
    )


class RecordRefusedError(StopError):
    """A record that the broker won't take; ``at`` is its place in the columns that were to be written. Those before it are
    written, and the batch is still open."""

    def __init__(self, message: str, *, at: int) -> None:
        super().__init__(message)
        self.at = at


class RecordTooLargeError(RecordRefusedError):
    """A record that is larger than the producer may send."""


class PartitionCountError(StopError):
    """A topic is there with another number of partitions than was asked for."""

    def __init__(self, topic: str, *, found: int | None, expected: int, advice: str = "ask for as many") -> None:
        super().__init__(f"topic {topic} has {found} partitions, expected {expected}: {advice}")
        self.topic, self.found, self.expected = topic, found, expected


class MissingRightError(StopError):
    """The brokers' authorizer refuses something; carries what: (resource, name, operation), and to whom if that is known."""

    def __init__(self, message: str, *, rights: tuple[tuple[str, str, str], ...] = (), principal: str | None = None) -> None:
        super().__init__(message)
        self.rights, self.principal = rights, principal


class StateError(TidemillError):
    """A store can't be opened or is not at the position that was expected."""


class StateDiskError(StateError):
    """A task's state can't be written: its disk has no room, no inodes, a fault, or this user no right there. The thread ends."""


class NoStateYetError(StateError):
    """A task's state was asked for before the task has run here for the first time."""


class StateBehindError(StateError):
    """The store is not where the batch was computed from: nothing was applied; catch up from the changelog first."""

    def __init__(
        self,
        where: str,
        *,
        expected_epoch: str,
        found_epoch: str,
        expected_offsets: Mapping[str, int],
        found_offsets: Mapping[str, int],
    ) -> None:
        super().__init__(
            f"{where}: the store is at epoch {found_epoch!r}, changelog offsets {dict(found_offsets)}; the batch was computed "
            f"from epoch {expected_epoch!r}, offsets {dict(expected_offsets)}: nothing was applied. "
            + (
                "Another owner has claimed the task: drop it."
                if found_epoch != expected_epoch
                else "Read the changelog up to the committed offsets before the next batch."
            )
        )
        self.expected_epoch, self.found_epoch = expected_epoch, found_epoch
        self.expected_offsets, self.found_offsets = dict(expected_offsets), dict(found_offsets)


class CorruptStateError(StateError):
    """Files of a task's state can't be what was written: wipe them and restore from the changelog."""

    def __init__(self, path: str, *, found: str, expected: str) -> None:
        super().__init__(
            f"{path} is corrupt: found {found}, expected {expected}. "
            "Wipe the task's state; it is restored from the changelog."
        )
        self.path, self.found, self.expected = path, found, expected


class ForeignStateError(StateError):
    """A directory holds the state of another task or application: wipe it and restore, or put its own state back."""

    def __init__(self, path: str, *, found: str, expected: str) -> None:
        super().__init__(
            f"{path} holds the state of {found}, expected that of {expected}: it was copied or put back in the wrong place"
        )
        self.path, self.found, self.expected = path, found, expected


class StateDirectoryInUseError(EnvironmentProblem):
    """Another instance, or a worker that it left behind, holds the state directory."""

    def __init__(self, path: str, *, holder_pid: int | None, detail: str) -> None:
        who = "a process that left no name" if holder_pid is None else f"process {holder_pid}"
        super().__init__(
            f"the state directory {path} is in use by {who} ({detail}). "
            "Stop it first, or give this instance a state.dir of its own."
        )
        self.path, self.holder_pid = path, holder_pid


class QueryError(TidemillError):
    """State can't be asked in this way (unknown store, a key of another type, a malformed parameter): correct the question."""


class UnknownStoreError(QueryError):
    """The topology has no store of this name."""

    def __init__(self, store: str, known: Iterable[str]) -> None:
        self.store, self.known = store, tuple(sorted(known))
        super().__init__(f"there is no store {store!r}; the topology's stores are {', '.join(self.known) or 'none'}")


class StreamsNotStartedError(TidemillError):
    """State can be read once the instance has been started."""


class InvalidStateStoreError(RetriableError):
    """A store can't be read here now: it is being restored, or it has moved. Ask again, or ask one of ``hosts``."""

    def __init__(self, message: str, *, store: str, hosts: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.store, self.hosts = store, tuple(hosts)

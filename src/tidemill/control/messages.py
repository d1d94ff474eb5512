"""Messages of the control channel: requests of workers to their driver, and of the driver to workers on executors.

Decides the form of each message; who sends and answers them is ``channel``'s. Each is a value that decodes as a whole or is
refused (``message_pack``).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from tidemill.errors import FailedRecord
from tidemill.ids import TaskId, TopicPartition
from tidemill.task.batch import BatchReport, SourceProgress
from tidemill.task.batch_id import BatchId


class Purpose(Enum):
    """The purpose of a worker's connection. The connection for questions is opened first."""

    QUESTIONS = "questions"
    LEASH = "leash"
    READS = "reads"


class ControlMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the channel."""


class Hello(ControlMessage, frozen=True):
    """The first message on a connection. ``run``: the one whose task has made the worker. ``worker``: the name that the driver
    gave it, empty if none."""

    purpose: Purpose
    thread: str
    step: str
    pid: int
    host: str
    run: int
    worker: str = ""


class Welcome(ControlMessage, frozen=True):
    """The answer to Hello on the connection for questions. ``lock``: the state directory's lock follows. ``worker``: a name for
    the worker, if it is not on the driver's machine."""

    lock: bool
    worker: str = ""


class NextRequest(ControlMessage, frozen=True, tag=True):
    """Sent by the source step: asks for the next batch of a run. The answer is a BatchRequest, or empty if the run ends."""

    run: int


class Report(ControlMessage, frozen=True, tag=True):
    """Sent by the last step: the outcome of a batch."""

    run: int
    report: BatchReport


class WaitServed(ControlMessage, frozen=True, tag=True):
    """Sent by a middle step: asks for the end of the batch. Answered when the last step has reported it."""

    run: int
    batch_id: int


class AskMembership(ControlMessage, frozen=True, tag=True):
    """Sent by the last step before a commit. The answer is a CommittingMember."""


class AskCommitted(ControlMessage, frozen=True, tag=True):
    """Sent by the last step of a new worker. The answer has the committed positions."""

    partitions: tuple[TopicPartition, ...]


class CallForeachBatch(ControlMessage, frozen=True, tag=True):
    """Sent by the last step: asks for a call of the function of a ``foreach_batch`` node. The answer is the function's error,
    empty if it succeeded."""

    batch_id: int
    node: str
    path: str
    offsets: BatchId


class SourceAdvanced(ControlMessage, frozen=True, tag=True):
    """Sent by the source step before each chunk: the records that it is about to pass to functions. Not answered."""

    batch_id: int
    progress: SourceProgress


class HasRun(ControlMessage, frozen=True, tag=True):
    """Sent by the last step: all functions have been called for the batch."""

    batch_id: int


class FailureKind(Enum):
    """What the driver must do about a failed step."""

    STOP = "stop"
    """End the thread: running the batch again would fail again."""
    CORRUPT = "corrupt"
    """Have the owner of a task's state look through it."""
    FUNCTION = "function"
    """Find the record on which a function of Columns fails."""
    MISFIT = "misfit"
    """Count it: no broker or process mends it by coming back."""
    LOST = "lost"
    """Run the batch again."""


class StepFailed(ControlMessage, frozen=True, tag=True):
    """Sent by a step of a run before it raises an error."""

    run: int
    kind: FailureKind
    message: str
    record: FailedRecord | None = None
    """That the error is about."""
    node: str = ""
    """Of a FUNCTION: the one whose serde has failed."""


Question = (
    NextRequest | Report | WaitServed | StepFailed | AskMembership | AskCommitted | CallForeachBatch | SourceAdvanced | HasRun
)


class Asked(ControlMessage, frozen=True):
    """A question of a worker."""

    question: Question


class DriverAnswer(ControlMessage, frozen=True):
    """``value``: the packed answer, empty for questions without one. ``failed``: the error, if there is no answer."""

    value: bytes = b""
    failed: str = ""


class ReadPositions(ControlMessage, frozen=True, tag=True):
    """Answered by changelog offsets by store."""


class ReadRows(ControlMessage, frozen=True, tag=True):
    """Answered by the value of each key, None where there is none."""

    store: str
    keys: tuple[bytes, ...]


class ScanRows(ControlMessage, frozen=True, tag=True):
    """Answered by pairs of key and value, ``low <= key < high`` (None: no bound), at most ``limit`` of them: the first, or with
    ``reverse`` the last, from there on."""

    store: str
    low: bytes | None
    high: bytes | None
    limit: int
    reverse: bool


class CountEntries(ControlMessage, frozen=True, tag=True):
    """Answered by the number of keys in the store."""

    store: str


StoreRead = ReadPositions | ReadRows | ScanRows | CountEntries


class AskedRead(ControlMessage, frozen=True):
    """A question of the driver to a worker on an executor. ``folder``: below the task's own, empty for that itself."""

    number: int
    task: TaskId
    folder: str
    read: StoreRead


class ReadAnswer(ControlMessage, frozen=True):
    """``number``: of the question; the rest as in ``DriverAnswer``."""

    number: int
    value: bytes = b""
    failed: str = ""

"""The state of a batch: what the stores of its tasks held before it, and what its nodes have written so far.

Decides that a node reads the batch's own writes, and that nothing is written to a store here: the last step applies the writes
once the Kafka transaction is committed. What is read and written is the nodes'.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from tidemill.ids import TaskId
from tidemill.operators.exception_handlers import FAILING, ExceptionHandlers
from tidemill.steps.commit.passed_over import PassedOver
from tidemill.steps.rows.records import Records
from tidemill.steps.step_spec import StoreSpec
from tidemill.steps.vector.retained_rows import ShownRows
from tidemill.task.batch import FunctionCalls
from tidemill.task.raw_records import Headers


class StoreView(Protocol):
    """One task's stores as they were when the view was opened, for many small reads."""

    def get(self, store: str, key: bytes) -> bytes | None: ...

    def scan(
        self, store: str, low: bytes | None = None, high: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with ``low <= key < high`` in the order of their keys' bytes."""

    def entries(self, store: str) -> int:
        """The number of rows."""


class StoreReader(Protocol):
    """One task's stores as they were when the batch began."""

    def get_many(self, store: str, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def snapshot(self) -> AbstractContextManager[StoreView]: ...


@dataclass(slots=True)
class Written:
    """Writes of a batch to one store of one task: the last value of each key (None deletes), as stored.

    The changelog gets each row with its timestamp, and deletions with ``headers`` where the store logs them; of a store that
    operators keep, ``log`` instead: key, value, timestamp (None: when it is sent) and headers of each record, or of a key's last.
    """

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    timestamps: dict[bytes, int] = field(default_factory=dict)
    headers: dict[bytes, Headers | None] = field(default_factory=dict)
    log: list[tuple[bytes, bytes | None, int | None, Headers]] = field(default_factory=list)


@dataclass(slots=True)
class StepState:
    """The stores of a batch: what they hold and what the batch has written so far (its overlay)."""

    readers: Mapping[TaskId, StoreReader]
    stores: Mapping[str, StoreSpec]
    written: dict[tuple[TaskId, str], Written] = field(default_factory=dict)
    dropped: int = 0
    memory: dict[tuple[TaskId, str], ShownRows] = field(default_factory=dict)
    """Rows of a task's store that nodes remember, as long as each batch follows the one before."""
    handlers: ExceptionHandlers = FAILING
    passed_over: PassedOver = field(default_factory=PassedOver)
    forwarded: dict[str, Records] = field(default_factory=dict)
    """Records of this batch that tables have forwarded, by node, where other nodes of the step look their rows up."""
    functions: dict[str, FunctionCalls] = field(default_factory=dict)
    """Calls of functions of batches and async functions, by node."""

    def written_to(self, task: TaskId, store: str) -> Written:
        """The batch's writes to a store of a task so far, to be added to."""
        return self.written.setdefault((task, store), Written())

    def get_many(self, task: TaskId, store: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values as stored, this batch's own writes included."""
        overlay = self.written.get((task, store))
        if overlay is None:
            return self.readers[task].get_many(store, keys)
        rows = overlay.rows
        missing = [key for key in keys if key not in rows]
        found = dict(zip(missing, self.readers[task].get_many(store, missing), strict=True)) if missing else {}
        return [rows[key] if key in rows else found[key] for key in keys]

    def put_many(
        self, task: TaskId, store: str, keys: Sequence[bytes], rows: Sequence[bytes | None], timestamps: Sequence[int],
        headers: Sequence[Headers | None] = (),
    ) -> None:  # fmt: skip
        """Writes rows; ``headers`` of the records that caused them: they are kept with deletions, if the store logs them."""
        written = self.written_to(task, store)
        written.rows.update(zip(keys, rows, strict=True))
        written.timestamps.update(zip(keys, timestamps, strict=True))
        if headers and self.stores[store].logs_headers:
            written.headers.update((key, own if row is None else None) for key, row, own in zip(keys, rows, headers, strict=True))

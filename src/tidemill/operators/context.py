"""What an operator may ask and do while it handles a record: the contract between operators and whoever runs them.

``task_graph`` runs them; stores are ``stores``' matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from tidemill.ids import TaskId
from tidemill.operators.record import Record


@dataclass(frozen=True, slots=True)
class Origin:
    """The source record that is being handled (ProcessorContext's recordMetadata). ``offset`` None: none, as in a punctuator."""

    topic: str
    partition: int
    offset: int | None


class Context(Protocol):
    """One node's view of its task. Everything is of the record (or punctuation) that is handled right now."""

    @property
    def task(self) -> TaskId: ...

    @property
    def node(self) -> str: ...

    @property
    def origin(self) -> Origin: ...

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has read, -1 before the first (currentStreamTimeMs)."""

    @property
    def wall_clock(self) -> int:
        """The wall clock in ms, as the run says it."""

    @property
    def emit_interval_ms(self) -> int:
        """How much the wall clock must move between two looks for closed windows and unmatched join records: 1000; 0 = always."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hands ``record`` to all children, or to the one named, and returns when they are through with it (depth first)."""

    def drop(self, count: int = 1) -> None:
        """Counts dropped records (dropped-records-total)."""

    def store(self, name: str) -> Any:
        """The store of that name, of the type that belongs to its kind (``stores``)."""

    def table(self, node: str) -> Callable[[Any], tuple[Any, int] | None]:
        """Looks rows of the table that ``node`` makes up by key: (value, timestamp) as of now (KTableValueGetter)."""


class Operator(Protocol):
    """One node of one task. Made anew after a batch that did not count; keeps what it likes in between."""

    def process(self, record: Record) -> None:
        """Handles a record and forwards what it makes of it."""

    # An operator or a store that collects what it writes (clocks, changelog records of buffers) has ``flush()`` as well:
    # called at the end of a batch, the operators' first.

"""The context of an operator: the contract between operators and the graph that runs them, for the current record.

``task_graph`` runs the operators; ``stores`` has their stores.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, Protocol

from tidemill.ids import TaskId
from tidemill.operators.record import Headers, Record
from tidemill.topology.key_value_serdes import KeyValueSerdes
from tidemill.topology.nodes import Topology
from tidemill.topology.values import Key, TableRow


class RecordMetadata(NamedTuple):
    """The source record that is being handled (ProcessorContext's recordMetadata). ``offset`` None: none, as in a punctuator."""

    topic: str
    partition: int
    offset: int | None


NO_ORIGIN = RecordMetadata("", -1, None)
BETWEEN_BATCHES = RecordMetadata("", -1, None)
"""The origin while no record is handled: nothing may be forwarded then. It equals NO_ORIGIN, so compare by ``is``."""


class WaitedRecord(NamedTuple):
    """A record that had waited in an operator's store. ``data``: its key and value as they are there; None: it has waited no
    longer than a batch, in which its source record is at hand."""

    record: Record
    origin: RecordMetadata
    data: tuple[bytes | None, bytes | None] | None


Getter = Callable[[Key], "TableRow | None"]
"""Returns a table's current row of a key; None if there is none (KTableValueGetter)."""


AsOfGetter = Callable[[Key, int], "TableRow | None"]
"""Looks a versioned table's row up by key and timestamp."""


Changed = Callable[[Hashable, Record, bool], None]
"""``changed(row, record, is_new)`` takes a change of a table: ``row`` identifies its row in the store, the record's value is the
``Change``, and ``is_new`` says that the row was not there before."""


class Subscriber(Protocol):
    """Subscribes the left rows of a foreign-key join, for the node that gets the answers."""

    def ask_again(self, key: Key, row: TableRow, headers: Headers) -> bool:
        """Subscribes a row once more, to be answered in any case; False: it has no foreign key."""

    def awaits_answer(self, key: Key) -> bool:
        """True if an answer to the left row as it is now is sure to come."""

    def has_answer(self, key: Key, asked: bytes | None) -> bool:
        """Notes an answer for a left row; ``asked``: the hash of the row's value when it was subscribed. True if it answers
        ``ask_again``, and the row has not changed since."""


class Context(Protocol):
    """One node's view of its task. Everything is of the record (or punctuation) that is handled right now."""

    @property
    def task(self) -> TaskId: ...

    @property
    def node(self) -> str: ...

    @property
    def topology(self) -> Topology: ...

    @property
    def parents(self) -> tuple[str, ...]:
        """The nodes that forward to this one."""

    @property
    def origin(self) -> RecordMetadata: ...

    @property
    def waited(self) -> tuple[bytes | None, bytes | None] | None:
        """Key and value of the record that is handled, as an operator's store has them, if it had waited there."""

    @property
    def stream_time(self) -> int:
        """The highest timestamp that the task has read, -1 before the first (currentStreamTimeMs)."""

    @property
    def wall_clock(self) -> int:
        """The wall clock in ms since the epoch; it stands still within a batch."""

    @property
    def emit_interval_ms(self) -> int:
        """Milliseconds of wall-clock time between searches for closed windows and unmatched join records. 0 = always, as in
        instances; Kafka Streams' is 1000."""

    @property
    def defers(self) -> bool:
        """In this batch, which is not committed, nothing that waits is forwarded."""

    def emitted(self, store: str) -> int:
        """The close time up to which the task's commits say that windows of the store were emitted; -1: none were, or unknown."""

    @property
    def default_serdes(self) -> KeyValueSerdes:
        """The application's (``default.key.serde``, ``default.value.serde``), for bytes that an operation needs itself."""

    @property
    def sends_old(self) -> bool:
        """Something below needs the old values of this table: changes carry them only then (enableSendingOldValues)."""

    def is_cached(self, store: str) -> bool:
        """True if the store has a record cache. Then the old value of a change is the stored one, so a new row has none. Without
        a cache the old value of an aggregate's new row is the initializer's, as in Kafka Streams."""

    @property
    def is_versioned(self) -> bool:
        """The table that this node gets its changes from is kept in a versioned store (isVersionedUpstream)."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hands ``record`` to all children, or to the one named, and returns when they are through with it (depth first)."""

    def forward_as(self, waited: WaitedRecord, record: Record) -> None:
        """``forward`` for a result of a record that had waited: if a node below fails on it, the error has the topic, partition
        and offset of that record, and a dead letter its key and value."""

    def refuse(self, waited: WaitedRecord, problem: BaseException) -> None:
        """The function of this node has failed on a record that had waited, not on the one that is handled: asks the exception
        handlers about that one. Returns if they skip it, else raises."""

    def drop(self, count: int = 1) -> None:
        """Counts dropped records (dropped-records-total)."""

    def changed(self, store: str) -> Changed:
        """The function that forwards changes of this node's table, which is in ``store``: each at once, or with a record cache
        the last of each row when the batch ends. A store with a cache forwards no deletion of a row that was not there
        (CachingKeyValueStore and its like). To be called once, when the operator is made."""

    def store(self, name: str) -> Any:
        """The store of that name, of the type that belongs to its kind (``stores``)."""

    def table(self, node: str) -> Getter:
        """Looks up rows of the table that ``node`` makes."""

    def table_as_of(self, node: str) -> AsOfGetter | None:
        """Looks up rows of the table that ``node`` makes as of a timestamp; None if no versioned store is behind it."""

    def subscriber(self, node: str) -> Subscriber:
        """The operator of ``node``, which subscribes the left rows of a foreign-key join."""

    def schedule(
        self, interval_ms: int, on_wall_clock: bool, call: Callable[[int], None], start_ms: int | None = None
    ) -> Callable[[], None]:
        """Calls ``call(time)`` by stream time or wall clock (``punctuation``), on a grid that begins at ``start_ms`` where it is
        given; the result of this call ends that."""


class Operator(Protocol):
    """One node of one task. Made again after a batch that did not count; keeps what it likes in between.

    An operator of a table has ``get(key)`` too, a ``Getter`` of its rows, and ``get_as_of``, an ``AsOfGetter``, or None where no
    versioned store is behind it: every one says which, so that no join falls back to the newest row. One that collects what it
    writes has ``flush()``, as have stores (clocks, changelog records of buffers): called at the end of a batch, the operators'
    first.
    """

    def process(self, record: Record) -> None:
        """Handles a record and forwards what it makes of it."""

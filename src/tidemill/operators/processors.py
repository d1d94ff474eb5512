"""The Processor API: processors of the user, record by record, with stores, punctuators, headers and metadata.

A processor is what its supplier makes, once for each task: an object with ``process(record)`` and, optionally, ``init(context)``
and ``close()``. A table's transformer has ``transform(key, value)`` instead of ``process``. Decides what they may do, which is
``ProcessorContext``; ``punctuation`` has the schedules of punctuators.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from tidemill.errors import StopError
from tidemill.ids import TaskId
from tidemill.operators.context import BETWEEN_BATCHES, Context, Operator, RecordMetadata
from tidemill.operators.function_failures import answer_calls_of, instead_of, says_where
from tidemill.operators.materialized_table import MaterializedTable
from tidemill.operators.record import LATEST_TIME, Change, Headers, Record, is_same_value, why_no_headers, why_no_timestamp
from tidemill.operators.store_access import ReadOnly, access_to
from tidemill.printable import repr_of, said_by
from tidemill.spellings import Spelled, SpelledEnum
from tidemill.topology import operations as op
from tidemill.topology.durations import Duration, Instant, epoch_milliseconds, milliseconds
from tidemill.topology.nodes import ProcessorNode, SourceNode
from tidemill.topology.values import Key, TableRow, Value

_ANY_KEY = object()
_IN_INIT = "init can't forward, as the nodes below are not made yet: forward in process, or in a punctuator"
_CLOSED = "a closed processor can't forward, in close or later, as its last batch is over: forward in process, or in a punctuator"
_BETWEEN = "can't forward while no batch is processed, as by a thread of your own: forward in process, or in a punctuator"


class Processor(Protocol):
    """Handles records, forwarding what it likes; ``init(context)`` and ``close()`` are called where it has them
    (org.apache.kafka.streams.processor.api.Processor).
    """

    @abstractmethod
    def process(self, record: Record, /) -> object:
        """Handles a record. An exception stops the stream thread, unless an exception handler passes it over; so does a record
        that is returned, since only what ``context.forward`` gets goes on.
        """


class ValueTransformerWithKey(Protocol):
    """Makes new values of a table's rows; ``init(context)`` and ``close()`` are called where it has them
    (org.apache.kafka.streams.kstream.ValueTransformerWithKey).
    """

    @abstractmethod
    def transform(self, key: Key, value: Value, /) -> Value:
        """The new value of a row; None deletes it."""


ProcessorSupplier = Callable[[], Processor]
"""``supplier()``, or a class: a processor of its own for each task."""

_Made = TypeVar("_Made")


class PunctuationType(SpelledEnum):
    """The clock of a punctuator (org.apache.kafka.streams.processor.PunctuationType)."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class ProcessorContext(Spelled):
    """A processor's view of its task: records on their way, stores, punctuators, times
    (org.apache.kafka.streams.processor.api.ProcessorContext).
    """

    _is_hot = True

    def __init__(self, context: Context, stores: tuple[str, ...], *, forwards: bool = True) -> None:
        self._context, self._stores, self._forwards = context, stores, forwards
        self.timestamp = -1
        """The timestamp of the record (or the time of the punctuation) that is handled right now; in ``init`` the wall clock's,
        since a store's changelog takes none below 0.
        """
        self.headers: Headers = ()
        """The headers of the record that is handled right now."""
        self.fixed_key: object = _ANY_KEY
        """The key that what is forwarded must have, where it may not change."""
        self.why_not_forward = ""
        """Why nothing can be forwarded now: in ``init``, and from ``close`` on."""
        self.operator: Operator | None = None
        """The operator of the DSL that a wrapped processor is of (``wrapped``)."""

    @property
    def task_id(self) -> TaskId:
        """The task that this processor belongs to, such as ``1_0``."""
        return self._context.task

    @property
    def node(self) -> str:
        """The name of the processor's node."""
        return self._context.node

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the source record that is being handled; None in a punctuator, and in a transformer of
        values whose row is looked up.
        """
        origin = self._context.origin
        return None if origin.offset is None else origin

    @property
    def current_stream_time_ms(self) -> int:
        """The highest timestamp that the task has read, in ms since the epoch; -1 before the first."""
        return self._context.stream_time

    @property
    def current_system_time_ms(self) -> int:
        """The wall clock in ms since the epoch; it does not move within a micro-batch."""
        return self._context.wall_clock

    def forward(self, record: Record, child: str | None = None) -> None:
        """Hands a record to the nodes below, or to the one named, and returns when they are through with it.

        Raises:
            ValueError: another key, from a processor of values; no timestamp from 0 on, which Kafka Streams' Record refuses as
                well; headers that can't be sent.
            TypeError: from a transformer of values, which can't forward; from init and close; while no batch is processed, as
                from a thread of one's own; what is no Record.
        """
        if not self._forwards:
            raise TypeError("a transformer of values can't forward: return the new value")
        if self.why_not_forward or self._context.origin is BETWEEN_BATCHES:
            raise TypeError(self.why_not_forward or _BETWEEN)
        if type(record) is not Record and not isinstance(record, Record):
            raise TypeError(
                f"can't forward {repr_of(record)} of type {type(record).__name__}, expected a Record:"
                " change the one that came (record.with_value(...)), or make one (Record(key, value, timestamp))"
            )
        _, _, timestamp, headers = record
        if type(timestamp) is not int or not 0 <= timestamp <= LATEST_TIME:
            _refuse_if(why_no_timestamp(timestamp))
        if headers is not self.headers:
            given = () if headers is None else headers
            _refuse_if(why_no_headers(given))
            if type(headers) is not tuple:  # a list that the processor goes on to change: the record is sent later
                record = record.with_headers(tuple(given))
        fixed = self.fixed_key
        if fixed is not _ANY_KEY and record[0] is not fixed and not is_same_value(record[0], fixed):
            raise ValueError(
                f"the key {repr_of(fixed)} became {repr_of(record[0])}: a processor of values can't change keys,"
                " use process() for that"
            )
        self._context.forward(record, child)

    def commit(self) -> None:
        """Does nothing: a micro-batch is committed as a whole as soon as it ends."""

    def drop(self, count: int = 1) -> None:
        """Counts dropped records."""
        self._context.drop(count)

    def store(self, name: str) -> Any:
        """The store of that name, which must be connected to this processor, or a global one, to read (``store_access``).

        Raises:
            TypeError: it is not connected; the message lists those that are.
        """
        if name in self._stores:
            return access_to(self._context.store(name), self)
        if self._is_global(name):
            why = f"the global store {name} can't be written here: only its own processor may"
            return ReadOnly(access_to(self._context.store(name), self), why)
        raise TypeError(
            f"the store {name!r} is not connected to {self.node} (connected: {', '.join(self._stores) or 'none'}):"
            " name it where the processor is added"
        )

    def schedule(
        self, interval: Duration, punctuation_type: PunctuationType, punctuator: Callable[[int], object], *,
        start_time: Instant | None = None,
    ) -> Callable[[], None]:
        """Calls ``punctuator(time)``, time in ms, whenever ``interval`` (ms or timedelta) has passed by one of the clocks;
        calling the result ends that (KIP-138).

        Stream time moves with records only: the punctuator is called after the record that made it due, once however far time has
        jumped, the first time after the first record. The wall clock is looked at once in each micro-batch, at its end.

        ``start_time`` (a datetime with time zone, or ms since the epoch) anchors the calls (KIP-1146): they are due then and
        every ``interval`` after it, whenever the task begins here; calls that were due before are not made up for.

        Raises:
            ValueError: an interval below 1 ms.
            TypeError: what is no PunctuationType, or no function.
            TopologyError: what is no interval, or no time from 1970 on.
        """
        where = f"schedule in {self.node}"
        every = milliseconds(interval, where)
        if every < 1:
            raise ValueError(f"{where}: the interval is {every} ms, expected 1 ms or more")
        if not isinstance(punctuation_type, PunctuationType):
            raise TypeError(
                f"{where}: {repr_of(punctuation_type)} is no type of punctuation, expected PunctuationType.STREAM_TIME or"
                " PunctuationType.WALL_CLOCK_TIME"
            )
        if not callable(punctuator):
            raise TypeError(f"{where}: the punctuator is {repr_of(punctuator)}, expected a function of the time in ms")
        start_ms = None if start_time is None else epoch_milliseconds(start_time, f"{where}: start_time")

        def punctuate(now: int) -> None:
            self.timestamp, self.headers, self.fixed_key = now, (), _ANY_KEY
            refuse_what_would_be_lost(punctuator(now), "the punctuator")

        return self._context.schedule(every, punctuation_type is PunctuationType.WALL_CLOCK_TIME, punctuate, start_ms)

    def _is_global(self, name: str) -> bool:
        topology = self._context.topology
        keepers = [n for n in topology.nodes.values() if isinstance(n, ProcessorNode) and name in n.stores]
        if not keepers:  # of a part of a topology: only a global store is there without who keeps it
            return name in topology.stores
        above = (topology.nodes[parent] for keeper in keepers for parent in topology.parents[keeper.name])
        return any(isinstance(node, SourceNode) and node.is_global for node in above)


answer_calls_of(ProcessorContext, Record)


def _refuse_if(problem: str) -> None:
    if problem:
        raise ValueError(f"can't forward the record: {problem}")


def refuse_what_would_be_lost(returned: object, who: str) -> None:
    """What a processor returns goes nowhere: a record is lost, and a function with ``yield`` or ``async`` has not run at all.

    Raises:
        TypeError: it is a record, or such a function's result.
    """
    if returned is None:
        return
    if isinstance(returned, (Generator, Coroutine, AsyncGenerator)):
        if isinstance(returned, Coroutine):
            returned.close()  # or Python warns that it was never awaited
        raise TypeError(f"{who} has yield or async in it: calling it runs nothing. Hand records to context.forward(record)")
    if isinstance(returned, Record):
        raise TypeError(f"{who} returned a record, which goes nowhere: hand it to context.forward(record)")
    if isinstance(returned, (list, tuple)) and any(isinstance(each, Record) for each in returned):
        raise TypeError(f"{who} returned records, which go nowhere: hand each to context.forward(record)")


_alive: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Objects that suppliers have returned in this process, by identity, as long as they are referenced."""


def made_processor(context: Context, supplier: Callable[[], _Made], seen: ProcessorContext, does: str = "process") -> _Made:
    """A processor or transformer, with ``init`` called; ``does``: the method that it must have."""
    try:
        made = supplier()
        _check_new(made)
        init = getattr(made, "init", None)
        if init is not None:
            seen.why_not_forward, seen.timestamp = _IN_INIT, context.wall_clock
            refuse_what_would_be_lost(init(seen), "init")
        if not callable(getattr(made, does, None)):
            raise TypeError(f"its supplier gave {repr_of(made)}, which has no method {does}()")
    except BaseException as problem:
        if says_where(problem):
            raise
        raise StopError(
            f"task {context.task}: the processor of {context.node} could not be made: {type(problem).__name__}:"
            f" {said_by(problem)}{instead_of(problem)}"
        ) from problem
    finally:
        seen.why_not_forward = ""
    return made


def _check_new(made: object) -> None:
    """An object that two tasks share would forward what one of them gets as the other's."""
    if _alive.get(id(made)) is made:
        raise TypeError(f"its supplier gave the same object again: return a new {type(made).__name__} at each call")
    with suppress(TypeError):  # one with __slots__ may not be weakly referable
        _alive[id(made)] = made


def close_processors(seen: ProcessorContext, *made: object) -> None:
    """Calls ``close()`` of each that has one, whichever fails; the last failure is raised. What they forwarded would be lost, as
    the last batch has been committed."""
    seen.why_not_forward = _CLOSED
    with ExitStack() as closing:
        for each in reversed(made):
            close = getattr(each, "close", None)
            if close is not None:
                closing.callback(close)


class ProcessorOperator:
    """PROCESSOR, KSTREAM-PROCESSOR and KSTREAM-PROCESSVALUES: runs a processor of the user."""

    def __init__(self, operation: op.ProcessRecords, context: Context) -> None:
        self._seen = ProcessorContext(context, _connected(operation.stores, context))
        self._fixed_key = operation.fixed_key
        self._processor: Processor = made_processor(context, operation.supplier, self._seen)
        self._call = self._processor.process

    def process(self, record: Record) -> None:
        seen = self._seen
        seen.timestamp, seen.headers = record[2], record[3]
        if self._fixed_key:
            seen.fixed_key = record[0]
        returned = self._call(record)
        if returned is not None:  # here too, since a call for each record costs more than this
            refuse_what_would_be_lost(returned, "process")

    def close(self) -> None:
        close_processors(self._seen, self._processor)


class GlobalUpdate:
    """The processor of a global store: the user's, or one that keeps the latest value of each key and drops null keys."""

    def __init__(self, operation: op.GlobalUpdate, context: Context) -> None:
        self._context = context
        self._processor: Processor | None = None
        if operation.supplier is None:
            self._table = context.store(operation.store)
        else:
            self._seen = ProcessorContext(context, (operation.store,))
            self._processor = made_processor(context, operation.supplier, self._seen)

    def process(self, record: Record) -> None:
        key, value, timestamp, headers = record
        if self._processor is not None:
            self._seen.timestamp, self._seen.headers = timestamp, headers
            refuse_what_would_be_lost(self._processor.process(record), "process")
        elif key is None or self._table.put(key, value, timestamp) is None:
            self._context.drop()

    def close(self) -> None:
        if self._processor is not None:
            close_processors(self._seen, self._processor)


class _LookUpContext(ProcessorContext):
    """While a row is looked up: the record that is being handled is not the row's, whose origin is not kept."""

    @property
    def record_metadata(self) -> None:
        return None


class TransformedTable:
    """KTABLE-TRANSFORMVALUES: the user's transformer makes each new value, of deletions too.

    A transformer of its own answers for rows that are looked up, as it may keep things in mind. Without a store the old value
    is transformed as well where it is asked for.
    """

    def __init__(self, operation: op.TableTransformValues, context: Context) -> None:
        self._context, self._forward, self._sends_old = context, context.forward, context.sends_old
        connected = _connected(operation.stores, context)
        self._seen = ProcessorContext(context, connected, forwards=False)
        self._transformer: ValueTransformerWithKey = made_processor(context, operation.supplier, self._seen, "transform")
        self._transform = self._transformer.transform
        self._table = None if operation.store is None else MaterializedTable(operation.store, context)
        self._looking: ValueTransformerWithKey | None = None
        if self._table is not None:
            self.get, self.get_as_of = self._table.get, self._table.get_as_of
        else:
            above = context.table_as_of(context.parents[0])
            self.get = self._looked_up
            self.get_as_of = None if above is None else self._looked_up_as_of
            self._looking_at = _LookUpContext(context, connected, forwards=False)
            self._supplier = operation.supplier

    def process(self, record: Record) -> None:
        key, (value, before, is_latest), timestamp, headers = record
        self._seen.timestamp, self._seen.headers = timestamp, headers
        table, new = self._table, self._transform(key, value)
        if table is not None:
            table.change(key, new, table.before(key), timestamp, headers)
            return
        old = self._transform(key, before) if self._sends_old else None
        self._forward(Record(key, Change(new, old, is_latest), timestamp, headers))

    def close(self) -> None:
        close_processors(self._seen, self._transformer, self._looking)

    def _looked_up(self, key: object) -> TableRow | None:
        return self._transformed(key, self._context.table(self._context.parents[0])(key))

    def _looked_up_as_of(self, key: object, timestamp: int) -> TableRow | None:
        above = self._context.table_as_of(self._context.parents[0])
        assert above is not None
        return self._transformed(key, above(key, timestamp))

    def _transformed(self, key: object, row: TableRow | None) -> TableRow | None:
        if self._looking is None:
            self._looking = made_processor(self._context, self._supplier, self._looking_at, "transform")
        value, timestamp = (None, -1) if row is None else row
        self._looking_at.timestamp = timestamp
        transformed = self._looking.transform(key, value)
        return None if transformed is None else (transformed, timestamp)


def _connected(named: tuple[str, ...], context: Context) -> tuple[str, ...]:
    """The stores that a node may use: those the operation names and those connected to the node."""
    node = context.topology.nodes[context.node]
    connected = node.stores if isinstance(node, ProcessorNode) else ()
    return tuple(dict.fromkeys((*named, *connected)))

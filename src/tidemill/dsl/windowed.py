"""TimeWindowedKStream and SessionWindowedKStream: a grouped stream cut into windows, aggregated into a table of windowed keys.

Decides names, stores and serdes of the three aggregations; when results are sent (EmitStrategy). Windows themselves are in
``tidemill.topology.windows``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.dsl.arguments import python_function
from tidemill.dsl.function_types import AggregatorFunction, Initializer, Merger, Reducer
from tidemill.dsl.functions import value_serde_of
from tidemill.dsl.materialized import Materialized, materialized, queryable_name, window_store_of
from tidemill.dsl.serdes import Serdes
from tidemill.dsl.serdes_windowed import windowed_serde
from tidemill.dsl.table import KTable
from tidemill.errors import TopologyError
from tidemill.spellings import Spelled, SpelledEnum
from tidemill.topology import operations as op
from tidemill.topology.logical import Process
from tidemill.topology.nodes import Store
from tidemill.topology.values import Serde
from tidemill.topology.windows import AnyWindows, SessionWindows, SlidingWindows, TimeWindows, Windows

if TYPE_CHECKING:
    from tidemill.dsl.grouped import KGroupedStream

_COUNT, _REDUCE = "KSTREAM-AGGREGATE-", "KSTREAM-REDUCE-"


class EmitStrategy(SpelledEnum):
    """The time at which a window's result is sent on (org.apache.kafka.streams.kstream.EmitStrategy, KIP-825)."""

    ON_WINDOW_UPDATE = "on_window_update"
    """Each time it changes."""
    ON_WINDOW_CLOSE = "on_window_close"
    """Once, when the window and its grace are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindowedKStream(Spelled):
    """A grouped stream in time or sliding windows (org.apache.kafka.streams.kstream.TimeWindowedKStream).

    Keys of its tables are ``Windowed`` (in a topic: the key's bytes and the window's start, eight bytes). A record is in each
    window whose time its timestamp falls in. It is late, dropped and counted, once stream time has reached the window's end plus
    grace; in sliding windows, whose end is included, once it is beyond that.

    Raises:
        TopologyError: from every method, for a function with other arguments than it is called with, an illegal name, or a store
            whose retention is shorter than windows and grace.
    """

    grouped: KGroupedStream
    windows: Windows | SlidingWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    def emit_strategy(self, emit: EmitStrategy) -> TimeWindowedKStream:
        """The same windows, whose results are sent as ``emit`` says: at each change, or once when window and grace are over.

        Raises:
            TopologyError: ``ON_WINDOW_CLOSE`` of unlimited windows, which never close, and of windows of your own.
        """
        emit = _checked_strategy(emit)
        if emit is EmitStrategy.ON_WINDOW_CLOSE and isinstance(self.windows, Windows):
            if self.windows.size is None:
                raise TopologyError("emit_strategy: unlimited windows never close; use ON_WINDOW_UPDATE")
            if not isinstance(self.windows, TimeWindows):
                raise TopologyError(
                    f"emit_strategy: ON_WINDOW_CLOSE is for TimeWindows, SlidingWindows and SessionWindows, got"
                    f" {type(self.windows).__name__}; use suppress(Suppressed.until_window_closes()) on the table instead"
                )
        return replace(self, emit=emit)

    def count(self, *, store: str | Materialized | None = None, name: str | None = None) -> KTable:
        """The number of records of each key in each window; values are longs (bigint). Null values count, null keys are
        dropped.
        """
        asked = materialized(store, "count")
        sliding = isinstance(self.windows, SlidingWindows)
        kept = _counting_store(self.grouped, self.windows, asked, takes_two=not sliding)
        return _aggregated(self, _COUNT, op.Counting(), kept, asked, name)

    def reduce(
        self, reducer: Reducer, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """``reducer(aggregate, value)`` over the values of each key in each window, called with Python values; null keys are
        dropped.
        """
        return _reduced(self, reducer, store, name)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: AggregatorFunction,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """``aggregator(key, value, aggregate)`` from ``initializer()``, in each window, called with Python values.

        ``value`` is the serde of the aggregate, ``key`` that of the keys where it is not the group's. A null result deletes the
        window. Sliding windows drop null values, the others hand them on.
        """
        given = value_serde_of(aggregator)
        initializer = python_function(initializer, (), "aggregate: initializer")
        aggregator = python_function(aggregator, ("key", "value", "aggregate"), "aggregate: aggregator")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = window_store_of(
            self.grouped.recorder, asked, _COUNT, self.windows, key=self.grouped.key_serde, value=given
        )
        return _aggregated(self, _COUNT, op.Aggregating(initializer, aggregator), kept, asked, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindowedKStream(Spelled):
    """A grouped stream in sessions (org.apache.kafka.streams.kstream.SessionWindowedKStream).

    Keys of its tables are ``Windowed`` from the first to the last record (in a topic: the key's bytes, end and start, eight bytes
    each). A session that grows is deleted, a tombstone under its old key, and a new one is made. A record is late, dropped and
    counted, once stream time is beyond the end of its session plus gap and grace.

    Raises:
        TopologyError: as of ``TimeWindowedKStream``.
    """

    grouped: KGroupedStream
    windows: SessionWindows
    emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE

    def emit_strategy(self, emit: EmitStrategy) -> SessionWindowedKStream:
        """The same sessions, whose results are sent as ``emit`` says: at each change, or once when gap and grace are over."""
        return replace(self, emit=_checked_strategy(emit))

    def count(self, *, store: str | Materialized | None = None, name: str | None = None) -> KTable:
        """The number of records of each session; values are longs (bigint). Null values count, null keys are dropped."""
        asked = materialized(store, "count")
        kept = _counting_store(self.grouped, self.windows, asked, takes_two=True)
        return _aggregated(self, _COUNT, op.Counting(), kept, asked, name)

    def reduce(
        self, reducer: Reducer, *, store: str | Materialized | None = None, name: str | None = None
    ) -> KTable:
        """``reducer(aggregate, value)`` over the values of each session, also of two sessions that become one. Python values."""
        return _reduced(self, reducer, store, name)

    def aggregate(
        self,
        initializer: Initializer,
        aggregator: AggregatorFunction,
        merger: Merger,
        *,
        store: str | Materialized | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        name: str | None = None,
    ) -> KTable:
        """``aggregator(key, value, aggregate)`` from ``initializer()``, in each session, called with Python values.

        ``merger(key, first, second)`` makes one aggregate of two sessions that a record joins. ``value`` is the serde of the
        aggregate, ``key`` that of the keys where it is not the group's.
        """
        given = value_serde_of(aggregator)
        initializer = python_function(initializer, (), "aggregate: initializer")
        aggregator = python_function(aggregator, ("key", "value", "aggregate"), "aggregate: aggregator")
        merger = python_function(merger, ("key", "first", "second"), "aggregate: merger")
        asked = materialized(store, "aggregate", key=key, value=value)
        kept = window_store_of(
            self.grouped.recorder, asked, _COUNT, self.windows, key=self.grouped.key_serde, value=given
        )
        return _aggregated(self, _COUNT, op.Aggregating(initializer, aggregator, merger), kept, asked, name)


def windowed_process(kept: Store, windows: AnyWindows, aggregation: op.Aggregation, *, emit_final: bool = False) -> Process:
    """The processor of a windowed aggregation, with the serde of its windowed keys where that of the keys is known."""
    operation: op.WindowAggregate | op.SessionAggregate
    if isinstance(windows, SessionWindows):
        operation = op.SessionAggregate(kept.name, windows, aggregation, emit_final)
    else:
        operation = op.WindowAggregate(kept.name, windows, aggregation, emit_final)
    if emit_final:
        # Kafka Streams has no cache for those of sliding windows and sessions, so it finds nothing beyond the retention.
        kept = replace(kept, reach_ms=0, time_ordered=True, indexed_by_key=isinstance(windows, SlidingWindows))
    return Process(
        operation=operation, store=kept, key_serde=windowed_serde(kept.key_serde, windows), value_serde=kept.value_serde,
        window_close_ms=windows.grace + (windows.gap if isinstance(windows, SessionWindows) else 0),
    )


def _reduced(
    stream: TimeWindowedKStream | SessionWindowedKStream, reducer: Reducer, store: str | Materialized | None, name: str | None
) -> KTable:
    reducer = python_function(reducer, ("aggregate", "value"), "reduce")
    asked, grouped = materialized(store, "reduce"), stream.grouped
    kept = window_store_of(
        grouped.recorder, asked, _REDUCE, stream.windows, key=grouped.key_serde, value=grouped.value_serde
    )
    return _aggregated(stream, _REDUCE, op.Reducing(reducer), kept, asked, name)


def _aggregated(
    stream: TimeWindowedKStream | SessionWindowedKStream, prefix: str, aggregation: op.Aggregation, kept: Store,
    asked: Materialized | None, name: str | None,
) -> KTable:
    final = stream.emit is EmitStrategy.ON_WINDOW_CLOSE
    made = stream.grouped.recorder.node_name(prefix, name)
    effect = windowed_process(kept, stream.windows, aggregation, emit_final=final)
    return stream.grouped.into_table(made, effect, kept, queryable=queryable_name(asked))


def _counting_store(grouped: KGroupedStream, windows: AnyWindows, asked: Materialized | None, *, takes_two: bool) -> Store:
    if takes_two and asked is not None and asked.name is None:
        grouped.recorder.take_index()  # as in KGroupedStream.count; but not for sliding windows
    return window_store_of(grouped.recorder, asked, _COUNT, windows, key=grouped.key_serde, value=Serdes.long())


def _checked_strategy(emit: EmitStrategy) -> EmitStrategy:
    if not isinstance(emit, EmitStrategy):
        raise TopologyError(f"emit_strategy: expected one of EmitStrategy, got {emit!r}")
    return emit

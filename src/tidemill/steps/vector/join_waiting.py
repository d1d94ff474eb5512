"""Results of a join in a batch, and records that wait for a match: left and outer joins in ``window_join``.

Decides nothing of its own: when a record waits, is matched or is forwarded alone is decided by the operators' own store and
operator (``operators.outer_join_store``, ``operators.stream_join``), which run here with results that are collected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemill.operators.outer_join_store import OuterJoinStore
from tidemill.operators.record import Record
from tidemill.operators.segments import Segments
from tidemill.operators.stream_join import Joiner, StreamStreamJoin, with_key
from tidemill.steps.rows.task_rows import TaskRows
from tidemill.steps.step_spec import WindowJoin


@dataclass(slots=True)
class JoinResults:
    """Results: which record of the arrivals caused each, its value as it is sent, its timestamp. ``keys``, decoded, of
    joins whose results may be those of an earlier record: else they are the causes'."""

    causes: list[int] = field(default_factory=list)
    keys: list[object] | None = None
    values: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    dropped: int = 0


class JoinerError(Exception):
    """The joiner failed, or its result or a value that it has changed can't be written; the cause says how, ``node`` where."""

    def __init__(self, node: str, at: int) -> None:
        super().__init__(node, at)
        self.node, self.at = node, at


class Waiting:
    """Records without a match in a left or outer join: the operators' own store and rules, for a batch of one task."""

    def __init__(self, join: WindowJoin, rows: TaskRows, segments: tuple[Segments, Segments], emit_interval_ms: int) -> None:
        assert join.waiting is not None
        self.store = OuterJoinStore(join.waiting, rows)
        self._write, self._target = join.value_serde.serialize, join.targets[0]
        self._context = _JoinContext(self._forward, emit_interval_ms)
        self._context.stores = {
            join.waiting.name: self.store,
            **{side.store.name: kept for side, kept in zip(join.sides, segments, strict=True)},
        }
        self._operators = []
        for side in join.sides:
            self._context.node = side.node
            context: Any = self._context  # has all that this operator asks for
            self._operators.append(StreamStreamJoin(side.operation, context))
        self._outer = tuple(side.operation.outer for side in join.sides)
        left = join.sides[0].operation
        self._joiner: Joiner = with_key(left.joiner, left.takes_key)

    def begin(self, made: JoinResults, now_ms: int) -> Waiting:
        """Results of this batch go to ``made``."""
        self._made, self._at, self._context.wall_clock = made, 0, now_ms
        made.keys = []
        return self

    def flush(self) -> None:
        self.store.flush()

    def takes(self, record: Record, at: int, is_right: bool, *, has_key: bool) -> bool:
        """Handles a record's time: forwards waiting records whose windows it closes. False: the record itself can't be joined,
        and is dropped or forwarded alone."""
        self._at = at
        clock = self.store.clock
        _, value, timestamp, _ = record
        if timestamp > clock.stream_time:
            clock.stream_time = timestamp
        if has_key and value is not None:
            if timestamp == clock.stream_time:
                self._operators[is_right].emit_closed(self.store, record)
            return True
        if self._outer[is_right] and value is not None:
            self._join(record, is_right, value, None, timestamp)
        else:
            self._made.dropped += 1
        return False

    def matched(self, record: Record, is_right: bool, key: bytes, other_time: int, theirs: object) -> None:
        timestamp = record[2]
        self.store.discard(other_time, is_right, key, timestamp)
        self._join(record, is_right, record[1], theirs, max(timestamp, other_time))

    def found_nothing(self, record: Record, is_right: bool, last: int) -> None:
        if self._outer[is_right]:
            self._operators[is_right].wait_or_go_on(record, last)

    def _join(self, record: Record, is_right: bool, mine: object, theirs: object, timestamp: int) -> None:
        key, joiner = record[0], self._joiner
        joined = joiner(key, theirs, mine) if is_right else joiner(key, mine, theirs)
        self._forward(Record(key, joined, timestamp))

    def _forward(self, record: Record) -> None:
        made = self._made
        try:
            made.values.append(self._write(record[1]))
        except BaseException as problem:
            raise JoinerError(self._target, self._at) from problem
        assert made.keys is not None
        made.keys.append(record[0])
        made.causes.append(self._at)
        made.timestamps.append(record[2])


class _JoinContext:
    """The part of an operator's context that a join uses."""

    node = ""
    wall_clock = 0
    defers = False
    """No record is left out of a join of whole batches, so that none is tried alone."""

    def __init__(self, forward: Callable[[Record], None], emit_interval_ms: int) -> None:
        self.forward, self.emit_interval_ms = forward, emit_interval_ms
        self.stores: dict[str, OuterJoinStore | Segments] = {}

    def store(self, name: str) -> OuterJoinStore | Segments:
        """The outer join's store; for a side's store its segments, which have the clock."""
        return self.stores[name]

"""The operations of joins: of streams, tables, global tables, and by foreign key. Their functions get Python values.

As in ``operations``, which has the union of all operations, nothing here calls a function.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.topology.functions import JoinFunction, UserFunction
from tidemill.topology.values import Serde
from tidemill.topology.windows import JoinWindows


@dataclass(frozen=True, slots=True)
class JoinWindowed:
    """KSTREAM-WINDOWED: keeps the record in its side's window store, then passes it on."""

    store: str


@dataclass(frozen=True, slots=True)
class StreamStreamJoin:
    """KStreamKStreamJoin of one side. ``joiner(left, right)`` or, where ``takes_key``, ``joiner(key, left, right)``.

    ``other_store`` is the other side's window store; ``outer_store``, set on both sides of left and outer joins, holds what has
    found no match yet. ``outer``: records of this side are forwarded without a match. ``windows`` are the left side's on both
    sides.
    """

    is_left: bool
    own_store: str
    other_store: str
    windows: JoinWindows
    joiner: JoinFunction
    takes_key: bool = False
    outer: bool = False
    outer_store: str | None = None


@dataclass(frozen=True, slots=True)
class StreamSelfJoin:
    """KStreamKStreamSelfJoin (``topology.optimization``): both sides are the same stream, with one store."""

    store: str
    windows: JoinWindows
    joiner: JoinFunction
    takes_key: bool = False


@dataclass(frozen=True, slots=True)
class StreamTableJoin:
    """KSTREAM-JOIN with a table: ``table`` is the node whose rows are looked up.

    ``grace_ms`` None: the table as it is now; else the record waits in ``buffer`` and sees the versioned table as of then.
    """

    table: str
    joiner: JoinFunction
    takes_key: bool = False
    left: bool = False
    grace_ms: int | None = None
    buffer: str | None = None


@dataclass(frozen=True, slots=True)
class GlobalTableJoin:
    """A stream with a global table in ``store``: ``selector(key, value)`` gives the table's key.

    ``joiner(value, other)`` or, where ``takes_key``, ``joiner(stream key, value, other)``; where ``takes_mapped_key``,
    ``joiner(stream key, selected key, value, other)`` (KIP-1340).
    """

    store: str
    selector: UserFunction
    joiner: JoinFunction
    takes_key: bool = False
    left: bool = False
    takes_mapped_key: bool = False


@dataclass(frozen=True, slots=True)
class TableTableJoin:
    """KTABLE-JOINTHIS / KTABLE-JOINOTHER: a change of one table against the row of ``other``, a node.

    ``keeps_this`` / ``keeps_other``: a result is made though the other / this side is missing; ``is_left``: this side's
    value is the joiner's first. Left outer = keeps_this on the left, keeps_other on the right.
    """

    other: str
    joiner: UserFunction
    is_left: bool
    takes_key: bool = False
    keeps_this: bool = False
    keeps_other: bool = False


@dataclass(frozen=True, slots=True)
class TableJoinMerge:
    """KTABLE-MERGE: both sides' results as one table, kept in ``store`` if it has one."""

    store: str | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeySubscribe:
    """KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION: a change of the left table becomes subscriptions under its foreign keys.

    ``extractor(value)`` or, where ``takes_key``, ``extractor(key, value)``. ``value_serde`` writes the left value that is hashed,
    ``key_serde`` the left table's keys.
    """

    extractor: UserFunction
    takes_key: bool = False
    left: bool = False
    foreign_key_serde: Serde | None = None
    value_serde: Serde | None = None
    key_serde: Serde | None = None


@dataclass(frozen=True, slots=True)
class ForeignKeyReceive:
    """KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR: keeps subscriptions in ``store``; forwards the change."""

    store: str


@dataclass(frozen=True, slots=True)
class ForeignKeyLookup:
    """The right table's row (of node ``table``) for a subscription that has changed."""

    table: str


@dataclass(frozen=True, slots=True)
class ForeignKeyChange:
    """KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR of the right table: a change goes to all subscribers in ``store``."""

    store: str


@dataclass(frozen=True, slots=True)
class ForeignKeyResolve:
    """KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER: joins an answer with the left row (of node ``table``) it was asked for.

    ``joiner(left, right)`` or, where ``takes_key``, ``joiner(key, left, right)``. ``value_serde`` as in ForeignKeySubscribe.
    ``subscribe``: the node that asks.
    """

    table: str
    subscribe: str
    joiner: UserFunction
    takes_key: bool = False
    left: bool = False
    value_serde: Serde | None = None

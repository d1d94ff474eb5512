"""The foreign-key join of two tables: five processors, with two internal topics between them.

    left change   -> Subscribe -> subscription topic -> Receive -> Lookup -> answer topic -> Resolve -> result
    right change  -> Change    -----------------------------------------------^

Decides, with Kafka Streams' rules, what a change of the left table asks for (a changed foreign key ends the old subscription
first), which answers are given, and when a result is a tombstone. An answer to a left row that has changed since is dropped:
that change brings an answer of its own. So answers wait until the left table's record cache has forwarded: of changes that it
holds back nothing may be left. The hash that tells is Murmur3's, of the left value's bytes. Leaves the bytes of subscriptions
and answers to their serdes.

An inner join gets no answer where, by Kafka Streams' rules, an earlier answer must have taken the last result back already. The
rules take for granted that this answer came before the left row changed again. If it comes later, it is dropped, and the last
result would remain for good. So if an answer without a right row comes too late, Resolve asks once more about the left row, or
sends a tombstone at once if that row is gone or has no foreign key. It does neither if an answer to that row is sure to come.
This is remembered in memory only: a new worker asks once too often.

A result's timestamp is the later one of left change and right row; after a change of the right table it is that change's.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import mmh3

from tidemill.errors import TopologyError
from tidemill.operators.context import Context
from tidemill.operators.record import Change, Headers, Record
from tidemill.operators.stateless import plain
from tidemill.operators.stream_join import with_key
from tidemill.operators.subscription_store import SubscriptionStore
from tidemill.topology import join_operations as op
from tidemill.topology.foreign_keys import Instruction, SubscriptionResponse, SubscriptionWrapper
from tidemill.topology.values import Key, Serde, TableRow, Value

_SEED = 104729
_HASH = Struct(">QQ")


def hash_of(value: bytes | None) -> bytes | None:
    """The hash of a left value's bytes: Murmur3, 128 bits, the two longs big-endian (Murmur3.hash128)."""
    return None if value is None else _HASH.pack(*mmh3.hash64(value, _SEED, True, signed=False))


def _serde(given: Serde | None, default: Serde | None, whose: str, context: Context) -> Serde:
    serde = given or default
    if serde is None:
        raise TopologyError(
            f"{context.node}: a foreign-key join writes the {whose}, and no serde is known for them: give that table key= and"
            " value=, a function of it per_record(function, serde), or set default.key.serde and default.value.serde"
        )
    return serde


class ForeignKeySubscribe:
    """A change of the left table: subscriptions to its new foreign key, and the end of those to its old one."""

    def __init__(self, operation: op.ForeignKeySubscribe, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._is_versioned, self._partition = context.is_versioned, context.task.partition
        function = plain(operation.extractor)
        self._extract: Callable[[Key, Value], Key] = function if operation.takes_key else lambda _key, value: function(value)
        foreign = _serde(operation.foreign_key_serde, context.default_serdes.key, "right table's keys", context)
        value = _serde(operation.value_serde, context.default_serdes.value, "left table's values", context)
        primary = operation.key_serde or context.default_serdes.key or foreign  # in subscriptions, too
        self._write_key, self._write_foreign, self._write_value = primary.serialize, foreign.serialize, value.serialize
        self._left = operation.left
        self._instructions = self._of_left_join if operation.left else self._of_inner_join
        # By the keys' bytes: a key that comes back with its answer may be neither equal to what was sent nor look like it.
        self._awaited: dict[bytes | None, bytes | None] = {}
        """The hash of the left row's last change where that is answered in any case and the answer is still to come."""
        self._asked_again: dict[bytes | None, bytes | None] = {}
        """The hash that was asked for once more while the left row has not changed since."""

    def process(self, record: Record) -> None:
        key, change, timestamp, headers = record
        if self._is_versioned and not change.is_latest:
            self._context.drop()
            return
        if self._asked_again:
            self._asked_again.pop(self._write_key(key), None)
        instructions = self._instructions(key, change)
        if not instructions:
            return
        asked = hash_of(self._write_value(change.new))
        if instructions[-1][1] is Instruction.PROPAGATE_ONLY_IF_MATCH:
            self._awaited.pop(self._write_key(key), None)
        elif not self._left:
            self._awaited[self._write_key(key)] = asked
        for foreign_key, instruction in instructions:
            self._forward(Record(foreign_key, SubscriptionWrapper(asked, instruction, key, self._partition), timestamp, headers))

    def ask_again(self, key: object, row: TableRow, headers: Headers) -> bool:
        """Subscribes a row of the left table once more, to be answered in any case; False: it has no foreign key."""
        value, timestamp = row
        foreign_key = self._extract(key, value)
        if foreign_key is None:
            return False
        asked = hash_of(self._write_value(value))
        name = self._write_key(key)
        self._awaited[name] = self._asked_again[name] = asked
        subscription = SubscriptionWrapper(asked, Instruction.PROPAGATE_NULL_IF_NO_MATCH, key, self._partition)
        self._forward(Record(foreign_key, subscription, timestamp, headers))
        return True

    def awaits_answer(self, key: object) -> bool:
        """True if an answer to the left row as it is now is sure to come, as far as this worker knows."""
        return self._write_key(key) in self._awaited

    def has_answer(self, key: object, asked: bytes | None) -> bool:
        """See ``Subscriber``."""
        name = self._write_key(key)
        if self._awaited.get(name, b"") == asked:
            del self._awaited[name]
        if self._asked_again.get(name, b"") != asked:
            return False
        del self._asked_again[name]
        return True

    def _foreign_keys(self, key: object, change: Change) -> tuple[object, object]:
        new, old = change.new, change.old
        return None if old is None else self._extract(key, old), None if new is None else self._extract(key, new)

    def _has_changed(self, old_key: object, new_key: object) -> bool:
        return self._write_foreign(old_key) != self._write_foreign(new_key)

    def _of_left_join(self, key: object, change: Change) -> list[tuple[object, Instruction]]:
        """Every change needs an answer, since a row without a foreign key has a result too; not the deletion of no row."""
        if change.new is None and change.old is None:
            return []
        old_key, new_key = self._foreign_keys(key, change)
        asked = []
        if old_key is not None and self._has_changed(old_key, new_key):
            asked.append((old_key, Instruction.DELETE_NO_PROPAGATE))
        return [*asked, (new_key, Instruction.PROPAGATE_NULL_IF_NO_MATCH)]

    def _of_inner_join(self, key: object, change: Change) -> list[tuple[object, Instruction]]:
        old_key, new_key = self._foreign_keys(key, change)
        if new_key is None:
            if change.new is not None:
                self._context.drop()
            return [] if old_key is None else [(old_key, Instruction.DELETE_AND_PROPAGATE)]
        if old_key is None or not self._has_changed(old_key, new_key):
            return [(new_key, Instruction.PROPAGATE_ONLY_IF_MATCH)]
        return [(old_key, Instruction.DELETE_NO_PROPAGATE), (new_key, Instruction.PROPAGATE_NULL_IF_NO_MATCH)]


class ForeignKeyReceive:
    """A subscription is kept or forgotten, and passed on."""

    def __init__(self, operation: op.ForeignKeyReceive, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._store: SubscriptionStore = context.store(operation.store)

    def process(self, record: Record) -> None:
        foreign_key, subscription, timestamp, headers = record
        instruction = subscription.instruction
        if foreign_key is None:
            if instruction != Instruction.PROPAGATE_NULL_IF_NO_MATCH:
                self._context.drop()
                return
        elif instruction in (Instruction.DELETE_NO_PROPAGATE, Instruction.DELETE_AND_PROPAGATE):
            self._store.delete(foreign_key, subscription.primary_key, timestamp, headers)
        else:
            self._store.put(foreign_key, subscription, timestamp, headers)
        self._forward(record)


class ForeignKeyLookup:
    """Answers a subscription with the current right row, if the subscription asks for an answer."""

    def __init__(self, operation: op.ForeignKeyLookup, context: Context) -> None:
        self._forward = context.forward
        self._look_up = context.table(operation.table)

    def process(self, record: Record) -> None:
        foreign_key, subscription, timestamp, headers = record
        instruction = subscription.instruction
        if instruction == Instruction.DELETE_NO_PROPAGATE:
            return
        found = None if foreign_key is None else self._look_up(foreign_key)
        value = None
        if found is not None:
            timestamp = max(timestamp, found[1])
            value = found[0]
        elif instruction == Instruction.PROPAGATE_ONLY_IF_MATCH:
            return
        if instruction == Instruction.DELETE_AND_PROPAGATE:
            value = None
        answer = SubscriptionResponse(subscription.hash, value, subscription.partition)
        self._forward(Record(subscription.primary_key, answer, timestamp, headers))


class ForeignKeyChange:
    """A change of the right table answers all subscribers, in the order of their keys."""

    def __init__(self, operation: op.ForeignKeyChange, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._is_versioned = context.is_versioned
        self._store: SubscriptionStore = context.store(operation.store)

    def process(self, record: Record) -> None:
        foreign_key, change, timestamp, headers = record
        if foreign_key is None or (self._is_versioned and not change.is_latest):
            self._context.drop()
            return
        for subscription in self._store.subscribers(foreign_key):
            answer = SubscriptionResponse(subscription.hash, change.new, subscription.partition)
            self._forward(Record(subscription.primary_key, answer, timestamp, headers))


class ForeignKeyResolve:
    """An answer and the left row that asked make a result, or a tombstone."""

    def __init__(self, operation: op.ForeignKeyResolve, context: Context) -> None:
        self._context, self._forward = context, context.forward
        self._left = operation.left
        self._look_up = context.table(operation.table)
        self._subscriber = context.subscriber(operation.subscribe)
        self._write_value = _serde(operation.value_serde, context.default_serdes.value, "left table's values", context).serialize
        self._join = with_key(operation.joiner, operation.takes_key)

    def process(self, record: Record) -> None:
        key, answer, timestamp, headers = record
        right = answer.value
        found = self._look_up(key)
        left = None if found is None else found[0]
        was_asked_again = not self._left and self._subscriber.has_answer(key, answer.hash)
        if hash_of(self._write_value(left)) != answer.hash:
            self._context.drop()
            # Once only: a row without a store whose function uses the time of day is another at each look, and fits no answer.
            if right is None and not self._left and not was_asked_again:
                self._take_back(record, found)
            return
        is_gone = right is None and (left is None or not self._left)
        self._forward(Record(key, None if is_gone else self._join(key, left, right), timestamp, headers))

    def _take_back(self, record: Record, row: TableRow | None) -> None:
        """An answer without a right row was for a left row that has changed since: the last result may have to go."""
        key, _answer, timestamp, headers = record
        if self._subscriber.awaits_answer(key):
            return
        if row is not None and row[1] < 0:  # suppress does not know the timestamp of the row that it shows
            row = row[0], timestamp
        if row is None or not self._subscriber.ask_again(key, row, headers):
            self._forward(Record(key, None, timestamp, headers))
